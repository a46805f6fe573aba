"""Files in a destination that no record vouches for: each is held against the hashes that were published.

Such a file may be whole all the same: the node was reset before a copy through the page cache was on disk, the copy was
verified less than is asked for now, the journal is torn. To read it here costs the source nothing.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from modelfolder import structure
from modelfolder.source import NOT_DIRECT, Source, SourceFile
from podkit import pool
from podkit.patience import Patience
from podkit.processor import processors
from preload import state
from preload.buffers import page_buffer
from preload.copier import SMALL, TINY, Settings
from preload.destination import Destination, Inventory, Journal
from preload.state import PAGE, Past, Record

STRETCH_BYTES = 64 << 20
"""What a thread reads in a row: so that one large file keeps all threads busy."""


class Doubt(NamedTuple):
    """A file of the right size in the destination, and its record as it lies there."""

    file: SourceFile
    record: Record


def doubts(source: Source, found: Inventory, past: Past) -> list[Doubt]:
    """Return the files that may be whole, that nothing vouches for, and that hashes were published of.

    A file with a second name is none: its mode and mtime are somebody else's, too.
    """
    possible = []
    for file in source.files:
        status = found.files.get(file.path)
        if status is None or file.path in past.records or not file.listed.blocks:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size == file.size and status.st_nlink == 1:
            possible.append(Doubt(file, Record.of(status)))
    return possible


def threads(most: int) -> int:
    """Return how many threads read and hash, of so many that are allowed: two for each processor, four at the least."""
    return min(most, max(4, 2 * processors()))


class _Stretch(NamedTuple):
    """Some blocks of a file, one after the other."""

    doubt: Doubt
    first: int
    end: int

    @property
    def step(self) -> int:
        return self.doubt.file.listed.block_bytes

    @property
    def bytes(self) -> int:
        return min(self.end * self.step, self.doubt.file.size) - self.first * self.step


class Recheck:
    """Holds files against their hashes. `run` may be called once.

    Attributes:
        past: the records of those that are whole.
        verify_seconds: time that threads spent on reading and hashing, all together.
    """

    def __init__(
        self,
        possible: Sequence[Doubt],
        destination: Destination,
        journal: Journal,
        settings: Settings,
        patience: Patience,
        tick: Callable[[int], None],
    ):
        """Take what is to be checked.

        Args:
            possible: the files.
            destination: where they lie; those that are whole get their mode and mtime.
            journal: gets a line for each that is whole, as soon as that is known.
            settings: how the copy is made: files are read, and put on disk, as it does.
            patience: tells when to stop.
            tick: told from the threads how many more bytes were read, or need not be.
        """
        self.past = Past()
        self.verify_seconds = 0.0
        self._possible = possible
        self._destination = destination
        self._journal = journal
        self._settings = settings
        self._patience = patience
        self._tick = tick
        self._stretches = {doubt.file.path: _stretches(doubt) for doubt in possible}
        self._left = Counter({path: len(stretches) for path, stretches in self._stretches.items()})
        self._wrong: set[bytes] = set()
        self._lock = threading.Lock()
        self._halt = False
        self._changing: set[int] = set()  # threads that change the destination
        self._sync_small = settings.mode.syncs_small(sum(doubt.file.size <= SMALL for doubt in possible))

    def run(self) -> None:
        """Check all files; the first wrong block ends one.

        What cannot be read counts as wrong: it is copied again, which says why if that fails, too.

        Raises:
            FaststartError: 143, SIGTERM.
        """
        tiny = [doubt for doubt in self._possible if doubt.file.size <= TINY]
        others = [doubt for doubt in self._possible if doubt.file.size > TINY]
        try:
            pool.each(self._all_stretches(tiny), self._check, self._patience)
            pool.each(self._all_stretches(others), self._check, self._patience, threads(self._settings.streams))
        finally:
            with self._lock:
                self._halt = True
                self._destination.in_use = bool(self._changing)

    def _all_stretches(self, chosen: Sequence[Doubt]) -> list[_Stretch]:
        return [stretch for doubt in chosen for stretch in self._stretches[doubt.file.path]]

    def _check(self, stretch: _Stretch) -> None:
        path = stretch.doubt.file.path
        began = time.monotonic()
        try:
            fits = path not in self._wrong and self._fits(stretch)
        except OSError:
            fits = False
        with self._lock:
            self.verify_seconds += time.monotonic() - began
            self._left[path] -= 1
            if not fits:
                self._wrong.add(path)
            whole = not self._left[path] and path not in self._wrong
        if whole:
            self._keep(stretch.doubt)
        self._tick(stretch.bytes)

    def _keep(self, doubt: Doubt) -> None:
        path, mode = doubt.file.path, self._settings.mode
        sync = self._sync_small if doubt.file.size <= SMALL else mode.synced
        with self._lock:
            if self._halt:
                return
            self._changing.add(threading.get_ident())
        try:
            record = self._destination.keep(doubt.file, doubt.record, sync=sync, drop=mode.drop)
        except OSError:
            return
        finally:
            self._changing.discard(threading.get_ident())
        self._journal.add(state.whole_line(path, record, synced=sync))
        self._journal.flush()
        with self._lock:
            self.past.records[path] = record
            if sync:
                self.past.synced.add(path)

    def _fits(self, stretch: _Stretch) -> bool:
        """Say whether each block has its hash.

        Raises:
            OSError: it cannot be read.
        """
        file, record = stretch.doubt
        buffer = page_buffer(min(self._settings.mode.read_bytes, -(-file.size // PAGE) * PAGE))
        with self._destination.opened(file.path, record, direct=self._settings.mode.direct) as (fd, _):
            for number in range(stretch.first, stretch.end):
                digest = hashlib.sha256()
                at, end = number * stretch.step, min((number + 1) * stretch.step, file.size)
                while at < end:
                    self._patience.check()
                    # Around the page cache whole pages are asked for; the last ones of a file come short.
                    count = min(_read(fd, buffer[: -(-(end - at) // PAGE) * PAGE], at), end - at)
                    if not count or (not at and self._settings.pointers and structure.is_pointer(file, buffer)):
                        return False
                    digest.update(buffer[:count])
                    at += count
                if digest.digest() != file.listed.blocks[number]:
                    return False
        return True


def _read(fd: int, buffer: memoryview, at: int) -> int:
    try:
        return os.preadv(fd, [buffer], at)
    except OSError as error:
        if error.errno not in NOT_DIRECT:
            raise
        # A file system that takes O_DIRECT and not these offsets or lengths.
        fcntl.fcntl(fd, fcntl.F_SETFL, 0)
        return os.preadv(fd, [buffer], at)


def _stretches(doubt: Doubt) -> list[_Stretch]:
    blocks = len(doubt.file.listed.blocks)
    together = max(1, STRETCH_BYTES // doubt.file.listed.block_bytes)
    return [_Stretch(doubt, first, min(first + together, blocks)) for first in range(0, blocks, together)]
