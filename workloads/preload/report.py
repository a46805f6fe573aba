"""What a run tells others: sizes for people, progress lines, the termination message and report.json."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

from modelfolder import names
from modelfolder.errors import Exit, FaststartError
from modelfolder.manifest import Manifest

TERMINATION_MAX_BYTES = 4096
"""What the kubelet keeps of a termination message."""

PROGRESS_SECONDS = 5.0

_UNITS = ("kB", "MB", "GB", "TB")


def size(number: float) -> str:
    """Return a number of bytes in the unit that suits it, in powers of 1000."""
    if number < 1000:
        return f"{number:.0f} bytes"
    power = 1
    while number >= 1000 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{number / 1000**power:.2f} {_UNITS[power - 1]}"


class Report:
    """The figures of one run. The fields of the termination message are fixed in contracts.md ("Exit codes")."""

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.code = Exit.DONE
        self.message = ""
        self.file: bytes | None = None
        self.manifest: Manifest | None = None
        self.copied_bytes = 0
        self.resumed_bytes = 0
        self.copy_seconds = 0.0
        self.verify_seconds = 0.0
        self.retries = 0
        self.streams = 0
        self._clock = clock
        self._started = clock()

    def fail(self, error: FaststartError) -> None:
        """Take over how the run ended."""
        self.code, self.message, self.file = error.code, error.message, error.file

    @property
    def rate(self) -> float:
        """Return the copied bytes per second of copying."""
        return self.copied_bytes / self.copy_seconds if self.copy_seconds else 0.0

    def line(self) -> str:
        """Return the result as one line for people."""
        about = f"{names.show(self.file)}: " if self.file is not None else ""
        return about + self.message if self.code == Exit.DONE else f"exit {self.code}: {about}{self.message}"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the termination message."""
        manifest = self.manifest
        return {
            "code": int(self.code),
            "message": self.message,
            "file": None if self.file is None else names.show(self.file),
            "model": manifest and manifest.model,
            "revision": manifest and manifest.revision,
            "bytes": manifest and manifest.total_bytes,
            "copied_bytes": self.copied_bytes,
            "resumed_bytes": self.resumed_bytes,
            "seconds": round(self._clock() - self._started, 3),
            "verify_seconds": round(self.verify_seconds, 3),
            "retries": self.retries,
            "gb_per_s": round(self.rate / 1e9, 3),
            "streams": self.streams,
            "write": "buffered",
        }

    def termination_message(self) -> bytes:
        """Return the fields as JSON of at most 4 KiB; long texts lose their ends."""
        fields = self.fields()
        while len(data := json.dumps(fields, ensure_ascii=False).encode()) > TERMINATION_MAX_BYTES:
            longest = max(("message", "file", "model", "revision"), key=lambda key: len(fields[key] or ""))
            fields[longest] = fields[longest][: len(fields[longest]) // 2] + "..."
        return data

    def document(self) -> dict[str, Any]:
        """Return the content of report.json: the termination message's fields and more."""
        manifest = self.manifest
        return self.fields() | {
            "copy_seconds": round(self.copy_seconds, 3),
            "files": manifest and len(manifest.files),
            "manifest_digest": manifest and manifest.digest,
            "manifest_origin": manifest and manifest.origin,
        }


class Progress:
    """Says every few seconds how far a copy is."""

    def __init__(self, total: int, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic):
        self._total = total
        self._say = say
        self._clock = clock
        self._started = self._said = clock()

    def update(self, done: int) -> None:
        """Take the number of bytes copied so far; say it if the last line is old enough."""
        now = self._clock()
        if now - self._said < PROGRESS_SECONDS:
            return
        self._said = now
        rate = done / (now - self._started)
        left = f"{(self._total - done) / rate:.0f} s left" if rate else "no end in sight"
        self._say(f"{size(done)} of {size(self._total)} copied, {size(rate)}/s, {left}")
