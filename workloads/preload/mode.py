"""How a copy is written: around the page cache or into it, decided once from disk, memory and model."""

from __future__ import annotations

import re
from dataclasses import dataclass

from podkit import cgroups
from podkit.display import size
from podkit.files import content
from preload.request import Cache, Write
from preload.state import PAGE

READ_BYTES = 4 << 20
"""Bytes of one read at the start. A choice of ours: twice as many gained nothing where it was tried, on local disks and
on the throttled source of `bench/`; on Lustre it was not."""

READ_BYTES_MAX = 8 << 20
"""32 streams then hold 256 MiB, half of the 512 MiB that the program may take."""

SPARE = 4 << 30
ROOM = 1.3
"""The copy is left in the page cache if ROOM times the model and SPARE bytes fit into memory: the server's own memory,
and pages that the kernel keeps free, come beside it. A choice of ours; what a warm cache is worth stands in
`docs/benchmarks.md`."""

SYNCED_SMALL_FILES = 1000
"""So many small files at the most are synced one by one, which costs each a journal commit of the file system; where
their pages are dropped all are, for only what is on disk can be dropped."""

_TMPFS = "tmpfs"


@dataclass(frozen=True)
class Mode:
    """How a copy is written.

    Attributes:
        direct: around the page cache, with O_DIRECT.
        drop: whether the copy's pages are dropped from the page cache once they are on disk.
        read_bytes: bytes of a read at the start.
        read_bytes_max: bytes of a read at the most, and of all buffers of a stream together.
        reason: why it is so, for people.
    """

    direct: bool
    drop: bool
    read_bytes: int
    read_bytes_max: int
    reason: str

    @property
    def synced(self) -> bool:
        """Say whether a file is put on disk when it is whole."""
        return self.direct or self.drop

    def syncs_small(self, files: int) -> bool:
        """Say whether small files are put on disk one by one, if there are so many."""
        return self.drop or (self.direct and files <= SYNCED_SMALL_FILES)

    @property
    def name(self) -> str:
        """Return the mode's name on the command line."""
        return "direct" if self.direct else "buffered"


def decide(write: Write, cache: Cache, total: int, streams: int, memory: int | None, file_system: str) -> Mode:
    """Decide how to write.

    Args:
        write: what is asked for.
        cache: what is asked for; it does not contradict `write`.
        total: bytes of the model.
        streams: how many buffers there will be.
        memory: bytes that this process and its cache may fill; None if that cannot be told.
        file_system: the type of the destination's file system.
    """
    limit = READ_BYTES_MAX if memory is None else min(READ_BYTES_MAX, memory // 3 // streams)
    most = max(PAGE, 1 << (limit.bit_length() - 1)) if limit > 0 else PAGE
    needed = int(ROOM * total) + SPARE
    fits = memory is not None and needed <= memory
    known = "unknown memory" if memory is None else f"{size(memory)} of memory"
    if write != "auto":
        direct, reason = write == "direct", f"--write {write}"
    elif file_system == _TMPFS:
        direct, reason = False, "the destination lies in memory"
    elif cache != "auto":
        direct, reason = cache == "drop", f"--cache {cache}"
    elif fits:
        direct, reason = False, f"the copy stays in the page cache for the server: {size(needed)} fit into {known}"
    else:
        direct, reason = True, f"the copy would not stay in the page cache: {size(needed)} do not fit into {known}"
    return Mode(direct, cache == "drop", min(READ_BYTES, most), most, reason)


def free_memory(proc: str = "/proc", sysfs: str = "/sys") -> int | None:
    """Return how many bytes this process and its page cache may fill: what is free, within its cgroups' limits."""
    limits = []
    found = re.search(rb"^MemAvailable:\s+(\d+) kB", content(f"{proc}/meminfo"), re.MULTILINE)
    if found:
        limits.append(int(found[1]) * 1024)
    for version, folder in cgroups.folders("memory", proc, sysfs):
        limit = cgroups.number(f"{folder}/{'memory.limit_in_bytes' if version == 1 else 'memory.max'}")
        if limit is not None:
            limits.append(limit)
    return min(limits, default=None)
