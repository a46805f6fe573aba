"""Hashes that are made beside the copy: a stream reads on while what it has read before is hashed."""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections import deque


class Hashers:
    """What hashes for digests of any number: threads that run `work` until `close`.

    Args:
        threads: how many there may be.
    """

    def __init__(self, threads: int):
        self.threads = threads
        self._todo: queue.SimpleQueue[Digest | None] = queue.SimpleQueue()

    def digest(self) -> Digest:
        """Begin a digest of nothing."""
        return Digest(self._todo)

    def close(self) -> None:
        """Let the threads end once they have done what was added so far."""
        for _ in range(self.threads):
            self._todo.put(None)

    def work(self) -> None:
        """Hash what is added to the digests, until `close`."""
        while digest := self._todo.get():
            digest.work()


class Digest:
    """The SHA-256 of bytes that are added in order. One thread adds and waits.

    Attributes:
        seconds: how long all of it took so far.
    """

    def __init__(self, todo: queue.SimpleQueue[Digest | None]):
        self.seconds = 0.0
        self._hash = hashlib.sha256()
        self._todo = todo
        self._waiting: deque[memoryview] = deque()
        self._in_work = False
        self._changed = threading.Condition()

    def add(self, data: memoryview) -> None:
        """Have bytes hashed; they must stay as they are until they were waited for."""
        with self._changed:
            self._waiting.append(data)
            idle = not self._in_work
            self._in_work = True
        if idle:
            self._todo.put(self)

    def wait(self, left: int = 0) -> None:
        """Wait until all that was added is hashed, but for the last so many additions."""
        with self._changed:
            while len(self._waiting) > left:
                self._changed.wait()

    def value(self) -> bytes:
        """Return the digest of all that was added."""
        self.wait()
        return self._hash.digest()

    def work(self) -> None:
        """Hash what was added; only one thread does so at a time, or the order would be lost."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._in_work = False
                    return
                data = self._waiting[0]
            began = time.monotonic()
            self._hash.update(data)
            with self._changed:
                self.seconds += time.monotonic() - began
                self._waiting.popleft()
                self._changed.notify_all()
