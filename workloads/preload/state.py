"""The marker and the journal: what a destination says about itself, and when that is believed.

Neither is believed after a reboot, unless the marker says that all was synced: data that only the page cache held
may be gone, whatever the file sizes say.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from modelfolder import names
from modelfolder.manifest import Manifest, canonical
from preload import VERSION

MARKER = b"complete.json"
MARKER_SCHEMA = "faststart.dev/complete/v1"

VERIFY_LEVELS = ("none", "size", "sha256")
"""From the weakest to the strongest."""


class Record(NamedTuple):
    """A whole file in the destination; the ctime changes with any later write, even one that resets the mtime."""

    size: int
    mtime_ns: int
    ctime_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> Record:
        """Return the record of a file as it is now."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def boot_id(proc: str = "/proc") -> str | None:
    """Return what names this boot of the kernel, or None if it cannot be read; then nothing old is believed."""
    try:
        with open(f"{proc}/sys/kernel/random/boot_id", encoding="utf-8") as file:
            return file.read().strip() or None
    except (OSError, ValueError):
        return None


def marker(manifest: Manifest, verify: str, boot: str | None) -> bytes:
    """Return the content of complete.json (contracts.md, "Destination")."""
    return canonical(
        {
            "schema": MARKER_SCHEMA,
            "manifest_digest": manifest.digest,
            "manifest_origin": manifest.origin,
            "files": len(manifest.files),
            "bytes": manifest.total_bytes,
            "verify": verify,
            "boot_id": boot,
            "synced": False,
            "preload_version": VERSION,
            "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        }
    )


def marker_covers(data: bytes, manifest: Manifest, verify: str, boot: str | None) -> bool:
    """Say whether a marker is for this manifest, verified at least as asked, and to be believed in this boot."""
    found = _parse(data)
    level = found.get("verify")
    return (
        found.get("schema") == MARKER_SCHEMA
        and found.get("manifest_digest") == manifest.digest
        and level in VERIFY_LEVELS
        and VERIFY_LEVELS.index(level) >= VERIFY_LEVELS.index(verify)
        and (found.get("synced") is True or (boot is not None and found.get("boot_id") == boot))
    )


def journal_start(manifest: Manifest, boot: str | None, records: Mapping[bytes, Record]) -> bytes:
    """Return the start of a journal: what it is about, and the files that are known to be whole."""
    head = canonical({"manifest_digest": manifest.digest, "boot_id": boot})
    return head + b"".join(journal_line(path, record) for path, record in records.items())


def journal_line(path: bytes, record: Record) -> bytes:
    """Return the line that says that a file is whole."""
    return canonical({"path": names.to_json(path), **record._asdict()})


def journal_records(data: bytes, manifest: Manifest, boot: str | None) -> dict[bytes, Record]:
    """Return the whole files that a journal knows, if it is about this manifest and this boot.

    Lines that were torn, by a crash or by a full disk, count for nothing.
    """
    head, *lines = data.split(b"\n")
    about = _parse(head)
    if boot is None or (about.get("manifest_digest"), about.get("boot_id")) != (manifest.digest, boot):
        return {}
    records = {}
    for line in lines:
        match _parse(line):
            case {"path": path, "size": int(size), "mtime_ns": int(mtime_ns), "ctime_ns": int(ctime_ns)}:
                records[names.from_json(path)] = Record(size, mtime_ns, ctime_ns)
            case _:
                pass
    return records


def _parse(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
