"""What a run that brings a model somewhere tells of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from modelfolder.source import Source
from podkit.report import Report


class CopyReport(Report):
    """The figures of one copy.

    Attributes:
        source: what was to be copied; None before it was looked at.
        copied_bytes: bytes that came in this run.
        resumed_bytes: bytes that were there before it.
        copy_seconds: how long the copy took, without what came before and after it.
        verify_seconds: time that threads spent on checks and hashes, all together.
        streams: how many there were at the most.
        write: the mode of writing; None where none was chosen.
        reason: why it was chosen.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic):
        super().__init__(clock)
        self.source: Source | None = None
        self.copied_bytes = 0
        self.resumed_bytes = 0
        self.copy_seconds = 0.0
        self.verify_seconds = 0.0
        self.streams = 0
        self.write: str | None = None
        self.reason: str | None = None

    @property
    def rate(self) -> float:
        """Return the copied bytes per second of copying."""
        return self.copied_bytes / self.copy_seconds if self.copy_seconds else 0.0

    def fields(self) -> dict[str, Any]:
        """Return the fields of the termination message."""
        source = self.source
        return super().fields() | {
            "model": source and source.manifest.model,
            "revision": source and source.manifest.revision,
            "bytes": source and source.total_bytes,
            "copied_bytes": self.copied_bytes,
            "resumed_bytes": self.resumed_bytes,
            "verify_seconds": round(self.verify_seconds, 3),
            "gb_per_s": round(self.rate / 1e9, 3),
            "streams": self.streams,
            "write": self.write,
        }

    def document(self) -> dict[str, Any]:
        """Return the content of report.json: the termination message's fields and more."""
        source = self.source
        return super().document() | {
            "copy_seconds": round(self.copy_seconds, 3),
            "write_reason": self.reason,
            "files": source and len(source.files),
            "left_out_files": source and len(source.left_out),
            "left_out_bytes": source and sum(file.size for file in source.left_out),
            "manifest_digest": source and source.manifest.digest,
            "manifest_origin": source and source.manifest.origin,
        }
