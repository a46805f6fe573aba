"""How a run of a program ended: a line for people, the termination message for the kubelet, report.json."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

from podkit import lines
from podkit.display import show
from podkit.errors import Exit, FaststartError

TERMINATION_MAX_BYTES = 4096
"""What the kubelet keeps of a termination message."""


class Report:
    """What any program tells of one run; each adds its own figures.

    Attributes:
        code: how the run ended.
        message: the same in words.
        file: the file or folder that an error is about.
        offset: the byte of the file that it is about.
        tell: makes of a text what may be printed; the program's own one knows what no line may hold.
        record: writes report.json where that has a place by now.
        retries: how often something was done again because it had failed.
        phases: seconds that each part of the run took.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        self.code = Exit.DONE
        self.message = ""
        self.file: bytes | None = None
        self.offset: int | None = None
        self.tell: Callable[[str], str] = lines.line
        self.record: Callable[[], None] = lambda: None
        self.retries = 0
        self.phases: dict[str, float] = {}
        self._clock = clock
        self._started = clock()

    def fail(self, error: FaststartError) -> None:
        """Take over how the run ended."""
        self.code, self.message, self.file, self.offset = error.code, error.message, error.file, error.offset

    def line(self) -> str:
        """Return the result as one line for people."""
        about = f"{show(self.file)}: " if self.file is not None else ""
        return about + self.message if self.code == Exit.DONE else f"exit {self.code}: {about}{self.message}"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the termination message (contracts.md, "Exit codes")."""
        return {
            "code": int(self.code),
            "message": self.message,
            "file": None if self.file is None else show(self.file),
            "seconds": round(self._clock() - self._started, 3),
            "retries": self.retries,
        }

    def termination_message(self) -> bytes:
        """Return the fields as JSON of at most 4 KiB; the longest texts lose their middles."""
        fields = lines.told(self.fields(), self.tell)
        while len(data := _json(fields)) > TERMINATION_MAX_BYTES:
            longest = max(fields, key=lambda key: len(fields[key]) if isinstance(fields[key], str) else 0)
            fields[longest] = lines.name(fields[longest], len(fields[longest].encode()) * 3 // 4)
        return data

    def recorded(self) -> dict[str, Any]:
        """Return the content of report.json as it may be printed."""
        return lines.told(self.document(), self.tell)

    def document(self) -> dict[str, Any]:
        """Return the content of report.json: the termination message's fields and more."""
        phases = {phase: round(seconds, 3) for phase, seconds in self.phases.items()}
        return self.fields() | {"offset": self.offset, "phases": phases}

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
