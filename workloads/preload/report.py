"""What a run tells others: sizes for people, progress, the termination message and report.json."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from modelfolder import names
from modelfolder.source import Source
from podkit.errors import Exit, FaststartError

TERMINATION_MAX_BYTES = 4096
"""What the kubelet keeps of a termination message."""

PROGRESS_SECONDS = 5.0
BAR_SECONDS = 0.2
BAR_WIDTH = 30

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
        self.source: Source | None = None
        self.copied_bytes = 0
        self.resumed_bytes = 0
        self.copy_seconds = 0.0
        self.verify_seconds = 0.0
        self.retries = 0
        self.streams = 0
        self.write: str | None = None
        self.reason: str | None = None
        self.phases: dict[str, float] = {}
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
        source = self.source
        return {
            "code": int(self.code),
            "message": self.message,
            "file": None if self.file is None else names.show(self.file),
            "model": source and source.manifest.model,
            "revision": source and source.manifest.revision,
            "bytes": source and source.total_bytes,
            "copied_bytes": self.copied_bytes,
            "resumed_bytes": self.resumed_bytes,
            "seconds": round(self._clock() - self._started, 3),
            "verify_seconds": round(self.verify_seconds, 3),
            "retries": self.retries,
            "gb_per_s": round(self.rate / 1e9, 3),
            "streams": self.streams,
            "write": self.write,
        }

    def termination_message(self) -> bytes:
        """Return the fields as JSON of at most 4 KiB; long texts lose their ends."""
        fields = self.fields()
        while len(data := _json(fields)) > TERMINATION_MAX_BYTES:
            longest = max(("message", "file", "model", "revision"), key=lambda key: len(fields[key] or ""))
            fields[longest] = fields[longest][: len(fields[longest]) // 2] + "..."
        return data

    def document(self) -> dict[str, Any]:
        """Return the content of report.json: the termination message's fields and more."""
        source = self.source
        return self.fields() | {
            "copy_seconds": round(self.copy_seconds, 3),
            "write_reason": self.reason,
            "phases": {phase: round(seconds, 3) for phase, seconds in self.phases.items()},
            "files": source and len(source.files),
            "left_out_files": source and len(source.left_out),
            "left_out_bytes": source and sum(file.size for file in source.left_out),
            "manifest_digest": source and source.manifest.digest,
            "manifest_origin": source and source.manifest.origin,
        }

    @contextlib.contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Take the time of a part of the run, however it ends."""
        began = self._clock()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + self._clock() - began


def _json(fields: dict[str, Any]) -> bytes:
    """Return JSON in UTF-8; text from a command line that is none becomes escapes, which JSON knows too."""
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "backslashreplace")


class Progress:
    """Says how far a copy is: as a bar on a terminal, else as a line every few seconds.

    Args:
        total: bytes to copy.
        say: takes a line for people.
        draw: takes a text that replaces the last one on a terminal; None if there is no terminal.
        done: what has become of the bytes, in one word.
    """

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        draw: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        done: str = "copied",
    ):
        self._total = total
        self._done = done
        self._say = say
        self._draw = draw
        self._clock = clock
        self._started = self._said = clock()

    def update(self, done: int, streams: int) -> None:
        """Take the bytes copied so far and the streams at work; say it if the last word is old enough."""
        now = self._clock()
        if now - self._said < (BAR_SECONDS if self._draw else PROGRESS_SECONDS):
            return
        self._said = now
        text = describe(done, self._total, now - self._started, streams, self._done)
        if self._draw:
            filled = BAR_WIDTH * done // max(1, self._total)
            self._draw(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {text}")
        else:
            self._say(text)


def describe(done: int, total: int, seconds: float, streams: int, verb: str = "copied") -> str:
    """Return how far a copy is, after so many seconds."""
    rate = done / seconds if seconds > 0 else 0.0
    left = f"{(total - done) / rate:.0f} s left" if rate else "no end in sight"
    return f"{size(done)} of {size(total)} {verb}, {size(rate)}/s, {left}, {streams} streams"
