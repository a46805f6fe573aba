"""What a run of publish tells others, in the form that preload uses."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from preload.report import Report


class PublishReport(Report):
    """The figures of one run.

    Attributes:
        model: the name of the model.
        revision: its revision.
        total_bytes: the size of what is published.
    """

    def __init__(self) -> None:
        super().__init__()
        self.model: str | None = None
        self.revision: str | None = None
        self.total_bytes: int | None = None

    @contextlib.contextmanager
    def copying(self) -> Iterator[None]:
        """Count the time of the block as that of copying."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.copy_seconds += time.monotonic() - began

    @contextlib.contextmanager
    def verifying(self) -> Iterator[None]:
        """Count the time of the block as that of hashing."""
        began = time.monotonic()
        try:
            yield
        finally:
            self.verify_seconds += time.monotonic() - began

    def fields(self) -> dict[str, Any]:
        """Return the fields of the termination message."""
        own = {"model": self.model, "revision": self.revision, "bytes": self.total_bytes}
        return super().fields() | own
