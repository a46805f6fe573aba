"""Stopping when told to, and trying again when it may help. Each phase of a program asks here."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from podkit.errors import Exit, FaststartError, source_error

T = TypeVar("T")

TRANSIENT = (errno.EIO, errno.ESTALE, errno.ETIMEDOUT, errno.ENOTCONN, errno.ESHUTDOWN)
"""What a network file system says while a server or its own client comes back."""

DELAYS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds before each new try: half a minute in all, a choice of ours. Lustre waits out a failover by itself."""

STALL_SECONDS = 600.0
"""How long the source may give nothing at all. Lustre waits no longer for one request: at_max, the upper limit of its
adaptive time-outs, is 600 s (at_max(4)), and its fixed time-out, where these are off, 100 s (obd_support.h:
OBD_TIMEOUT_DEFAULT). Then its client asks again, for ever."""

_SLICE = 0.1  # the longest sleep in seconds; bounds how late a stop is noticed
_IDLE = 0.5  # the same for a program that only waits for its end


class Waiting(NamedTuple):
    """What the source was asked for and has not answered.

    Attributes:
        about: the file or folder.
        offset: the byte of the file from which on it is read; None where it is only looked at.
        calls: how many calls wait, this one among them.
        answers: how many calls were answered so far.
    """

    about: bytes
    offset: int | None
    calls: int
    answers: int


class Patience:
    """Knows whether the program was told to stop, and repeats reads of the source that failed for the moment.

    Attributes:
        stopped: whether it was told to stop.
        retries: how often something was done again.
        stall_seconds: how long the source may give nothing while it is asked for something.

    `stopped` may be set at any time by a signal handler. It is a plain attribute on purpose: the lock in a
    threading.Event may be held by the very code that the handler interrupted.
    """

    def __init__(self, sleep: Callable[[float], object] = time.sleep):
        self.stopped = False
        self.retries = 0
        self._sleep = sleep
        self.stall_seconds = STALL_SECONDS
        self._lock = threading.Lock()
        self._asked: dict[int, tuple[bytes, int | None]] = {}  # by thread, the longest first
        self._answers = 0

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

    def ask(self, call: Callable[[], T], about: bytes, offset: int | None = None) -> T:
        """Call, and know meanwhile that this thread waits for the source.

        Args:
            call: asks the source for something.
            about: the file or folder that it is asked for.
            offset: the byte of the file from which on it is read; None where it is only looked at.
        """
        asked, thread = self._asked, threading.get_ident()
        before = asked.get(thread)
        asked[thread] = about, offset
        try:
            return call()
        finally:
            if before is None:
                del asked[thread]
            else:
                asked[thread] = before
            self._answers += 1

    def answered(self) -> None:
        """Note that the source gave something within a call."""
        self._answers += 1  # threads may lose counts of each other: it only has to change

    def waiting(self) -> Waiting | None:
        """Return what the source has been asked for longest; None while it is asked for nothing."""
        asked = list(self._asked.values())
        return Waiting(*asked[0], len(asked), self._answers) if asked else None

    def transient(self, call: Callable[[], T], about: bytes = b"", offset: int | None = None) -> T:
        """Call until it works, with growing pauses while it fails with an error of TRANSIENT.

        Args:
            call: asks the source for something.
            about: see `ask`.
            offset: see `ask`.

        Raises:
            OSError: any other error at once, a transient one after the last try.
            FaststartError: 143, SIGTERM came.
        """
        for delay in DELAYS:
            self.check()
            try:
                return self.ask(call, about, offset)
            except OSError as error:
                if error.errno not in TRANSIENT:
                    raise
            self.count_retry()
            self.pause(delay)
        return self.ask(call, about, offset)

    def read(self, file: bytes, call: Callable[[], T], offset: int | None = None) -> T:
        """Call as `transient` does, for a file of the source that is known to exist.

        Raises:
            FaststartError: 7, 8 or 9 naming the file, as `source_error` decides; 143, SIGTERM came.
        """
        try:
            return self.transient(call, file, offset)
        except OSError as error:
            raise source_error(error, file) from error
