"""A source that hangs: this module finds out, writes what is known, and lets the program end at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from podkit.errors import Exit, FaststartError
from podkit.patience import Patience, Waiting
from podkit.threads import beside

_TICK = 1.0  # seconds between two looks, at the most
_LOOKS = 20  # within the limit, at the least


@contextlib.contextmanager
def watching(patience: Patience, leave: Callable[[FaststartError], None]) -> Iterator[None]:
    """Look, while the block runs, whether the source gives something when it is asked.

    Seconds count only as far as this process runs: one that was stopped for a while has lost no patience.

    Args:
        patience: knows what the source is asked for, and how long it may give nothing.
        leave: called once, from a thread of its own, with exit code 9, when it gave nothing for longer; it ends the
            program, for the main thread may hang, too.
    """

    def watch(over: threading.Event) -> None:
        silent, answers = 0.0, -1
        while True:
            tick = min(_TICK, patience.stall_seconds / _LOOKS)
            if over.wait(tick):
                return
            waiting = patience.waiting()
            silent = silent + tick if waiting and waiting.answers == answers else 0.0
            answers = waiting.answers if waiting else -1
            if waiting and silent >= patience.stall_seconds:
                leave(_stalled(waiting, patience.stall_seconds))
                return

    with beside(watch):
        yield


def _stalled(waiting: Waiting, seconds: float) -> FaststartError:
    where = "for a look at it" if waiting.offset is None else f"for its bytes from {waiting.offset} on"
    calls = f"{waiting.calls} calls wait, the longest {where}" if waiting.calls > 1 else f"one call waits, {where}"
    message = (
        f"the source gave nothing for {seconds:g} s (--stall): {calls}; is its server there, and the network to it?"
    )
    return FaststartError(Exit.IO_ERROR, message, waiting.about or None, offset=waiting.offset)
