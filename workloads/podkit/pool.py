"""Many calls at once: small ones on a file system that answers late, or long ones in a given number of threads."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from podkit.patience import Patience
from podkit.processor import SharedProcessor
from podkit.threads import NoThreadError, start

T = TypeVar("T")

MAX_THREADS = 32

_TICK = 0.02  # seconds between two looks at the threads
_FIRST = 2  # threads at the start: a local disk needs no more, and more only fight for the interpreter
_BUSY = 0.7  # above this fraction of one core in use, another thread would have nothing to wait for
_GRACE = 0.5  # seconds for threads to end by themselves after an error or a stop


def crawl(items: Iterable[T], work: Callable[[T], Sequence[T]], patience: Patience, threads: int | None = None) -> None:
    """Call `work` once with each item and with each item that it returns, in any order, from several threads.

    The calling thread only waits, so that SIGTERM is noticed while a call hangs. Threads are daemons: one that hangs
    must not keep the program from ending. Where there can be none, a calling thread that is not the main one does all.

    Args:
        items: where to begin.
        work: called from the threads.
        patience: asked whether to stop.
        threads: how many at the most, on any processor; None for small calls: as many as their waiting calls for, on
            one processor.

    Raises:
        FaststartError: 143, SIGTERM; 9, the main thread calls and can start none (NoThreadError).
        BaseException: what the first failing call raised; then nothing new is begun.
    """
    _Crawl(items, work, patience, threads).run()


def each(items: Iterable[T], work: Callable[[T], object], patience: Patience, threads: int | None = None) -> None:
    """Call `work` once with each item, as `crawl` does."""

    def leaf(item: T) -> tuple[T, ...]:
        work(item)
        return ()

    crawl(items, leaf, patience, threads)


class _Crawl(Generic[T]):
    def __init__(self, items: Iterable[T], work: Callable[[T], Sequence[T]], patience: Patience, number: int | None):
        self._waiting = deque(items)
        self._work = work
        self._patience = patience
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._ended = threading.Event()
        self._running = 0
        self._halt = False
        self._error: BaseException | None = None
        self._number = number
        self._processor = None if number else SharedProcessor()

    def run(self) -> None:
        threads: list[threading.Thread] = []
        try:
            self._add(threads, min(self._number or _FIRST, len(self._waiting)))
        except NoThreadError:
            if threading.current_thread() is threading.main_thread():
                raise
            self._work_off()  # somebody waits for this thread, and notices SIGTERM
        began, cpu = time.monotonic(), time.process_time()
        try:
            while threads and not self._ended.wait(_TICK) and not self._patience.stopped:
                now, used = time.monotonic(), time.process_time()
                if not self._number and now - began >= _TICK and self._waiting:
                    if used - cpu < _BUSY * (now - began):
                        self._add(threads, min(len(threads), MAX_THREADS - len(threads), len(self._waiting)))
                    began, cpu = now, used
        finally:
            with self._lock:
                self._halt = True
                self._changed.notify_all()
            end = time.monotonic() + _GRACE
            for thread in threads:
                thread.join(max(0.0, end - time.monotonic()))
        if self._error is not None:
            raise self._error
        self._patience.check()

    def _add(self, threads: list[threading.Thread], number: int) -> None:
        start([self._serve] * number, threads, needed=0 if threads else 1)

    def _serve(self) -> None:
        if self._processor:
            self._processor.join()
        self._work_off()

    def _work_off(self) -> None:
        while True:
            with self._lock:
                while not self._waiting and self._running and not self._halt:
                    self._changed.wait()
                if self._halt or self._patience.stopped or not self._waiting:
                    return
                item = self._waiting.popleft()
                self._running += 1
            more: Sequence[T] = ()
            try:
                more = self._work(item)
            except BaseException as error:  # noqa: BLE001 - run() raises it again, in the calling thread
                with self._lock:
                    self._error = self._error or error
                    self._halt = True
            with self._lock:
                self._running -= 1
                self._waiting.extend(more)
                if self._halt or not (self._waiting or self._running):
                    self._ended.set()
                if self._ended.is_set() or more:
                    self._changed.notify_all()
