"""The marker and the journal: what a destination says about itself, and when that is believed.

After a reboot only what was synced is believed: data that the page cache alone held may be gone, whatever the file
sizes say.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from modelfolder import names
from modelfolder.manifest import canonical
from modelfolder.source import Source
from podkit import documents
from preload import VERSION
from preload.request import VERIFY_LEVELS, Verify

PAGE = 4096
"""O_DIRECT wants offsets, lengths and addresses on this grid: the largest logical block size of disks in use."""

MARKER = b"complete.json"
MARKER_SCHEMA = "faststart.dev/complete/v1"

MARKER_BYTES = 64 << 10
"""The most bytes of a marker, and of a note of how far a copy is; each has less than 1,000."""

JOURNAL_BYTES = 128 << 20
"""The most bytes of a journal. One line of 300 bytes for each of 15,000 files is 5 MB, one of 35 for each 4 MiB of
800 GB another 7; at the start of a run all pieces that lie together become one line."""

_LINE = re.compile(rb"[^\n]+")
_MARK = re.compile(rb"^\[-([12]),(\d{1,18})\]$", re.MULTILINE)


class Record(NamedTuple):
    """A whole file in the destination; the ctime changes with any later write, even one that resets the mtime."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> Record:
        """Return the record of a file as it is now."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


@dataclass
class PartRecord:
    """A file that is half made: its inode, and the bytes of it that were written, as start and end."""

    inode: int
    pieces: list[tuple[int, int]] = field(default_factory=list)

    def fits(self, status: os.stat_result, size: int) -> bool:
        """Say whether a part can be that of a file of so many bytes, whose last page may have been filled up."""
        written = max((end for _, end in self.pieces), default=0)
        return (
            0 < written <= size and status.st_ino == self.inode and written <= status.st_size <= -(-size // PAGE) * PAGE
        )

    def missing(self, size: int) -> list[tuple[int, int]]:
        """Return what is not written yet of a file of so many bytes, in order."""
        starts = [0, *(end for _, end in self.merged())]
        ends = [*(start for start, _ in self.merged()), size]
        return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]

    def merged(self) -> list[tuple[int, int]]:
        """Return what is written in as few pieces as can be, in order."""
        found: list[tuple[int, int]] = []
        for start, end in sorted(self.pieces):
            if found and start <= found[-1][1]:
                found[-1] = (found[-1][0], max(end, found[-1][1]))
            else:
                found.append((start, end))
        return found


@dataclass
class Past:
    """What a journal says: the whole files by path, and the parts by the file's number."""

    records: dict[bytes, Record] = field(default_factory=dict)
    synced: set[bytes] = field(default_factory=set)
    parts: dict[int, PartRecord] = field(default_factory=dict)


@dataclass(frozen=True)
class Identity:
    """What a journal and a marker are about: which files, how far verified, in which boot of the kernel."""

    manifest_digest: str
    selection_digest: str
    verify: Verify
    boot: str | None

    @classmethod
    def of(cls, source: Source, verify: Verify, boot: str | None) -> Identity:
        """Return the identity of a copy of a source."""
        return cls(source.manifest.digest, source.selection_digest, verify, boot)

    def covered_by(self, found: Mapping[str, Any]) -> bool:
        """Say whether something was written for the same files, verified at least as far."""
        level = found.get("verify")
        return (
            found.get("selection_digest") == self.selection_digest
            and level in VERIFY_LEVELS
            and VERIFY_LEVELS.index(level) >= VERIFY_LEVELS.index(self.verify)
        )

    def same_boot(self, found: Mapping[str, Any]) -> bool:
        """Say whether something was written in this boot of the kernel."""
        return self.boot is not None and found.get("boot_id") == self.boot


def boot_id(proc: str = "/proc") -> str | None:
    """Return what names this boot of the kernel, or None if it cannot be read; then nothing unsynced is believed."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def marker(source: Source, identity: Identity, *, synced: bool) -> bytes:
    """Return the content of complete.json (contracts.md, "Destination")."""
    return canonical(
        {
            "schema": MARKER_SCHEMA,
            "manifest_digest": identity.manifest_digest,
            "manifest_origin": source.manifest.origin,
            "selection_digest": identity.selection_digest,
            "files": len(source.files),
            "bytes": source.total_bytes,
            "verify": identity.verify,
            "boot_id": identity.boot,
            "synced": synced,
            "preload_version": VERSION,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    )


def marker_covers(data: bytes, identity: Identity) -> bool:
    """Say whether a marker is for these files, verified at least as asked, and to be believed in this boot."""
    found = _parse(data)
    return (
        found.get("schema") == MARKER_SCHEMA
        and identity.covered_by(found)
        and (found.get("synced") is True or identity.same_boot(found))
    )


def journal_start(identity: Identity, past: Past) -> bytes:
    """Return the start of a journal: what it is about, and what is known already."""
    head = canonical(
        {"selection_digest": identity.selection_digest, "verify": identity.verify, "boot_id": identity.boot}
    )
    lines = [whole_line(path, record, synced=path in past.synced) for path, record in past.records.items()]
    for number, part in past.parts.items():
        lines.append(part_line(number, part.inode))
        lines += [piece_line(number, start, end) for start, end in part.merged()]
    return head + b"".join(lines)


def whole_line(path: bytes, record: Record, *, synced: bool) -> bytes:
    """Return the journal's line for a whole file."""
    return canonical({"path": names.to_json(path), **record._asdict(), "synced": synced})


def part_line(number: int, inode: int) -> bytes:
    """Return the journal's line for a part that was made."""
    return b"[%d,%d]\n" % (number, inode)


def piece_line(number: int, start: int, end: int) -> bytes:
    """Return the journal's line for bytes of a part that were written."""
    return b"[%d,%d,%d]\n" % (number, start, end)


def mark_line(number: int) -> bytes:
    """Return the journal's line that gives a number to all before it."""
    return b"[-1,%d]\n" % number


def synced_line(number: int) -> bytes:
    """Return the journal's line that says that all before a mark is on disk."""
    return b"[-2,%d]\n" % number


def read_journal(data: bytes, identity: Identity) -> Past:
    """Return what a journal knows, if it is about these files; after a reboot only what was synced.

    Lines that were torn, by a crash or by a full disk, count for nothing.
    """
    head, _, rest = data.partition(b"\n")
    about = _parse(head)
    past = Past()
    if not identity.covered_by(about):
        return past
    same_boot = identity.same_boot(about)
    believed = len(rest) if same_boot else _on_disk(rest)
    for line in _LINE.finditer(rest):
        match _parse(line[0], list):
            case {"path": path, "size": int(), "mtime_ns": int(), "ctime_ns": int(), "inode": int()} as item:
                _note_whole(past, path, item, same_boot)
            case [int(number), int(inode)] if number >= 0 and line.start() < believed:
                past.parts[number] = PartRecord(inode)
            case [int(number), int(start), int(end)] if (
                number in past.parts and 0 <= start < end and line.start() < believed
            ):
                past.parts[number].pieces.append((start, end))
            case _:
                pass
    return past


def _on_disk(lines: bytes) -> int:
    """Return where the last mark begins before which all is on disk; 0 if there is none."""
    marks: dict[int, int] = {}
    believed = 0
    for line in _MARK.finditer(lines):
        kind, number = int(line[1]), int(line[2])
        if kind == 1:
            marks[number] = line.start()
        else:
            believed = max(believed, marks.get(number, 0))
    return believed


def _note_whole(past: Past, path: object, found: Mapping[str, Any], same_boot: bool) -> None:
    synced = found.get("synced") is True
    if not (synced or same_boot):
        return
    try:
        name = names.from_json(path)
    except ValueError:
        return
    past.records[name] = Record(found["size"], found["mtime_ns"], found["ctime_ns"], found["inode"])
    (past.synced.add if synced else past.synced.discard)(name)


def _parse(data: bytes, *also: type) -> Any:
    """Return an object in JSON, or one of the other types; an empty object for all else."""
    try:
        found = documents.parse(data)
    except ValueError:
        return {}
    return found if isinstance(found, (dict, *also)) else {}
