"""How many streams a copy uses: all that are allowed, fewer where fewer are as fast."""

from __future__ import annotations

import time
from collections.abc import Callable

STREAMS_MIN = 4
"""A trial never goes below this."""

WINDOW = 0.5
"""Seconds over which a rate is measured."""

WORTH = 20.0
"""A trial needs a copy that goes on for this many seconds at the present rate: a failed one then costs at most
_STEP of two windows, about one percent."""

SAME = 0.98
"""A rate of this fraction of another counts as equal to it."""

BUSY = 0.7
"""Above this fraction of one core in use, another stream of small files would only wait for the interpreter's lock."""

_SMALL_FIRST = 4  # streams that may take small files at the start
_STEP = 0.75  # of the streams, at a trial with fewer; its inverse at one with more
_REST = 2.0  # windows between two trials that pay
_REST_GROWS = 4.0  # after one that does not
_REST_MAX = 32.0  # a source that changes is noticed within a part of a long copy


class Tuner:
    """Tries, on a long copy, whether fewer streams are as fast, and goes back if they are not.

    Where each stream is limited by its own connection the first trial shows that all are needed; where a disk or the
    processor is the limit, more streams only queue. Trials that change nothing become rare.

    Attributes:
        streams: how many to use now.
    """

    def __init__(self, streams: int, clock: Callable[[], float] = time.monotonic):
        self.streams = self._most = streams
        self._clock = clock
        self._since = clock()
        self._bytes = 0
        self._settling = True
        self._before: tuple[int, float] | None = None  # streams and rate before the trial that is on
        self._rest = self._wait = _REST
        self._down = True

    def update(self, copied: int, left: int) -> bool:
        """Take how far the copy is; say whether `streams` has changed."""
        now = self._clock()
        seconds = now - self._since
        if seconds < WINDOW:
            return False
        rate = (copied - self._bytes) / seconds
        self._since, self._bytes = now, copied
        if self._settling:  # the first window after a change measures both
            self._settling = False
            return False
        if self._before:
            return self._judge(rate)
        self._wait -= 1
        if self._wait > 0 or rate <= 0 or left < WORTH * rate:  # of a source that stalls a trial learns nothing
            return False
        return self._try(rate)

    def _try(self, rate: float) -> bool:
        fewer = min(self.streams, max(STREAMS_MIN, int(self.streams * _STEP)))
        more = min(self._most, max(self.streams + 1, int(self.streams / _STEP)))
        goal = fewer if fewer < self.streams and (self._down or more == self.streams) else more
        self._wait = self._rest
        if goal == self.streams:
            return False
        self._before = (self.streams, rate)
        return self._use(goal)

    def _judge(self, rate: float) -> bool:
        if self._before is None:
            raise AssertionError("no trial is on")
        (streams, before), self._before = self._before, None
        fewer = self.streams < streams
        better = rate >= SAME * before if fewer else rate * SAME > before
        if better:
            self._rest = self._wait = _REST
            return False
        self._rest = self._wait = min(_REST_MAX, _REST_GROWS * self._rest)
        self._down = not fewer
        return self._use(streams)

    def _use(self, streams: int) -> bool:
        self.streams = streams
        self._settling = True
        return True


class SmallFileStreams:
    """How many streams may take small files: twice as many each time, as long as the processor has time left.

    A small file is a dozen system calls and little data. From a source that answers late many must be under way; from
    a fast one a few streams keep the interpreter busy, and more of them fight for its lock.

    Attributes:
        streams: how many may take small files now.
    """

    def __init__(
        self,
        streams: int,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ):
        self.streams = min(streams, _SMALL_FIRST)
        self._most = streams
        self._clock, self._cpu = clock, cpu
        self._since, self._used = clock(), cpu()

    def update(self) -> bool:
        """Look at the processor time since the last call; say whether `streams` has changed."""
        now, used = self._clock(), self._cpu()
        busy = (used - self._used) / max(now - self._since, 1e-9)
        self._since, self._used = now, used
        if busy >= BUSY or self.streams == self._most:
            return False
        self.streams = min(self._most, 2 * self.streams)
        return True
