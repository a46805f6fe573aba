"""The copy engine: threads, each of which copies whole files through one bounded buffer."""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import BinaryIO

from modelfolder.errors import Exit, FaststartError
from modelfolder.patience import Patience
from modelfolder.source import SourceFile, open_regular
from preload.destination import Destination, write_all, writing

BUFFER = 4 << 20
"""Bytes of one read and of each worker's buffer: 128 MiB in all for 32 workers."""

_TICK = 0.1  # seconds between two looks at the workers
_GRACE = 0.5  # seconds for workers to end by themselves after an error or a stop


def require_unchanged(file: SourceFile, patience: Patience) -> None:
    """Hold that a file of the source is as it was at the first look.

    Raises:
        FaststartError: 8, it is not; 7 or 9, it cannot be looked at; 143, SIGTERM.
    """
    if not file.same(patience.read(file.path, lambda: os.lstat(file.real))):
        raise _changed(file)


class Copy:
    """One copy of files into a destination. `run` may be called once."""

    def __init__(self, files: Sequence[SourceFile], destination: Destination, streams: int, patience: Patience):
        # The largest first, so that no large one is left alone at the end.
        self._waiting = deque(enumerate(sorted(files, key=lambda file: -file.size)))
        self._destination = destination
        self._patience = patience
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._halt = False
        self._copied = 0
        self.streams = min(streams, len(files))

    @property
    def copied(self) -> int:
        """Return the number of bytes written so far."""
        return self._copied

    def run(self, tick: Callable[[int], None]) -> None:
        """Copy all files, or stop all workers at the first error.

        Workers are daemon threads: one that hangs in a read must not keep the program from ending.

        Args:
            tick: called from this thread every moment, with the number of bytes written.

        Raises:
            FaststartError: 3, 7, 8 or 9 naming the file; 143, SIGTERM.
        """
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self.streams)]
        try:
            for thread in threads:
                thread.start()
            while not self._halt and not self._patience.stopped:
                alive = next(filter(threading.Thread.is_alive, threads), None)
                if alive is None:
                    break
                alive.join(_TICK)
                tick(self._copied)
        finally:
            self._halt = True
            end = time.monotonic() + _GRACE
            for thread in filter(threading.Thread.is_alive, threads):
                thread.join(max(0.0, end - time.monotonic()))
        if self._error is not None:
            raise self._error
        self._patience.check()

    def _work(self) -> None:
        buffer = memoryview(mmap.mmap(-1, BUFFER))
        try:
            while not self._halt and (job := self._next()):
                self._copy(*job, buffer)
        except _Halted:
            return
        except BaseException as error:  # noqa: BLE001 - run() raises it again, in the main thread
            with self._lock:
                self._error = self._error or error
                self._halt = True

    def _next(self) -> tuple[int, SourceFile] | None:
        with contextlib.suppress(IndexError):
            return self._waiting.popleft()
        return None

    def _copy(self, number: int, file: SourceFile, buffer: memoryview) -> None:
        reader = _Reader(file, self._patience)
        with contextlib.closing(reader), writing(file.path), self._destination.part(number, file) as part:
            _allocate(part, file.size)
            at = 0
            while at < file.size:
                if self._halt:
                    raise _Halted
                piece = buffer[: file.size - at]
                piece = piece[: reader.read(piece, at)]
                write_all(part, piece, at)
                at += len(piece)
                with self._lock:
                    self._copied += len(piece)
            require_unchanged(file, self._patience)


class _Halted(Exception):  # noqa: N818 - not an error
    """Ends a worker because another one failed, or because the program was told to stop."""


class _Reader:
    """Reads a file of the source, and opens it anew after an error that may pass."""

    def __init__(self, file: SourceFile, patience: Patience):
        self._file = file
        self._patience = patience
        self._stream: BinaryIO | None = None

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def read(self, into: memoryview, at: int) -> int:
        """Fill a buffer, or a part of it, from an offset that lies in the file.

        Raises:
            FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
        """
        count = self._patience.read(self._file.path, lambda: self._read(into, at))
        if not count:
            raise _changed(self._file)
        return count

    def _read(self, into: memoryview, at: int) -> int:
        try:
            if self._stream is None:
                self._stream = open_regular(self._file.real)
                if not self._file.same(os.fstat(self._stream.fileno())):
                    raise _changed(self._file)
            return os.preadv(self._stream.fileno(), [into], at)
        except OSError:
            self.close()
            raise


def _changed(file: SourceFile) -> FaststartError:
    return FaststartError(Exit.CHANGED, "has changed in the source since the copy began: start again", file.path)


def _allocate(fd: int, size: int) -> None:
    """Reserve the space of a whole file, where the file system can."""
    try:
        if size:
            os.posix_fallocate(fd, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise
