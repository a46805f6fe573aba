"""What a run of publish tells of itself."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from podkit.progress import Progress
from podkit.threads import beside
from preload.report import CopyReport

_TICK = 0.2  # seconds between two looks at how far it is


class PublishReport(CopyReport):
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


@contextlib.contextmanager
def telling(progress: Progress, done: Callable[[], int], streams: int) -> Iterator[None]:
    """Say how far something is while the block runs, if there can be a thread for that."""

    def tell(over: threading.Event) -> None:
        while not over.wait(_TICK):
            progress.update(done(), streams)

    with beside(tell):
        yield
