"""Stopping when told to, and trying again when it may help. Each phase of a program asks here."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from podkit.errors import Exit, FaststartError, source_error

T = TypeVar("T")

TRANSIENT = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN)
"""What a network file system says while a server or its own client comes back."""

DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new try: half a minute in all, a choice of ours. Lustre waits out a failover by itself."""

_SLICE = 0.1  # the longest sleep in seconds; bounds how late a stop is noticed
_IDLE = 0.5  # the same for a program that only waits for its end


class Patience:
    """Knows whether the program was told to stop, and repeats reads of the source that failed for the moment.

    `stopped` may be set at any time by a signal handler. It is a plain attribute on purpose: the lock in a
    threading.Event may be held by the very code that the handler interrupted.
    """

    def __init__(self, sleep: Callable[[float], object] = time.sleep):
        self.stopped = False
        self.retries = 0
        self._sleep = sleep
        self._lock = threading.Lock()

    def check(self) -> None:
        """Go on only if nobody asked to stop.

        Raises:
            FaststartError: 143, SIGTERM came.
        """
        if self.stopped:
            raise FaststartError(Exit.TERMINATED, "stopped by SIGTERM; what was copied is kept")

    def count_retry(self) -> None:
        """Note that something is done again because it failed."""
        with self._lock:
            self.retries += 1

    def pause(self, seconds: float) -> None:
        """Sleep in slices, so that a stop ends it early.

        Raises:
            FaststartError: 143, SIGTERM came.
        """
        while seconds > 0:
            self.check()
            self._sleep(min(seconds, _SLICE))
            seconds -= _SLICE
        self.check()

    def wait_for_stop(self) -> None:
        """Sleep until SIGTERM asks for a stop."""
        while not self.stopped:
            self._sleep(_IDLE)

    def transient(self, call: Callable[[], T]) -> T:
        """Call until it works, with growing pauses while it fails with an error of TRANSIENT.

        Raises:
            OSError: any other error at once, a transient one after the last try.
            FaststartError: 143, SIGTERM came.
        """
        for delay in DELAYS:
            self.check()
            try:
                return call()
            except OSError as error:
                if error.errno not in TRANSIENT:
                    raise
            self.count_retry()
            self.pause(delay)
        return call()

    def read(self, file: bytes, call: Callable[[], T]) -> T:
        """Call as `transient` does, for a file of the source that is known to exist.

        Raises:
            FaststartError: 7, 8 or 9 naming the file, as `source_error` decides; 143, SIGTERM came.
        """
        try:
            return self.transient(call)
        except OSError as error:
            raise source_error(error, file) from error
