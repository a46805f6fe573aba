"""How far a long task is: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable

from podkit.display import size

PROGRESS_SECONDS = 5.0
"""Between two lines about one task."""

BAR_SECONDS = 0.2
"""Between two pictures of the bar."""

BAR_WIDTH = 30
"""Characters of the bar between its brackets."""


class Progress:
    """Says how far a task is that handles a known number of bytes.

    Args:
        total: bytes in all.
        say: takes a line for people.
        draw: takes a text that replaces the last one on a terminal; None if there is no terminal.
        clock: returns seconds.
        done: what has become of the bytes, in one word.
    """

    def __init__(
        self,
        total: int,
        say: Callable[[str], None],
        draw: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
        done: str = "copied",
    ):
        self._total = total
        self._done = done
        self._say = say
        self._draw = draw
        self._clock = clock
        self._started = self._said = clock()

    def update(self, done: int, streams: int) -> None:
        """Take the bytes done so far and the streams at work; say it if the last word is old enough."""
        now = self._clock()
        if now - self._said < (BAR_SECONDS if self._draw else PROGRESS_SECONDS):
            return
        self._said = now
        text = describe(done, self._total, now - self._started, streams, self._done)
        if self._draw:
            filled = BAR_WIDTH * done // max(1, self._total)
            self._draw(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {text}")
        else:
            self._say(text)


def describe(done: int, total: int, seconds: float, streams: int, verb: str = "copied") -> str:
    """Return how far a task is, after so many seconds."""
    rate = done / seconds if seconds > 0 else 0.0
    left = f"{(total - done) / rate:.0f} s left" if rate else "no end in sight"
    return f"{size(done)} of {size(total)} {verb}, {size(rate)}/s, {left}, {streams} streams"
