"""Lines for people on standard error, SIGTERM, and the termination message."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator

from podkit.patience import Patience


class Console:
    """Lines on standard error, each with the program's name, and on a terminal a bar below them that lines push on."""

    def __init__(self, program: str) -> None:
        self._program = program
        self._drawn = ""

    @property
    def bar(self) -> Callable[[str], None] | None:
        """Return what draws the bar; None where there is no terminal."""
        return self._draw if sys.stderr.isatty() else None

    def say(self, line: str) -> None:
        """Write a line."""
        print(f"{self._wipe()}{self._program}: {line}", file=sys.stderr, flush=True)

    def _draw(self, text: str) -> None:
        wiped = self._wipe()
        self._drawn = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        print(f"{wiped}{self._drawn}", end="", file=sys.stderr, flush=True)

    def _wipe(self) -> str:
        drawn, self._drawn = self._drawn, ""
        return f"\r{' ' * len(drawn)}\r" if drawn else ""


@contextlib.contextmanager
def stopping_on_sigterm(patience: Patience) -> Iterator[None]:
    """Let SIGTERM ask for a stop while the block runs; main thread only."""

    def stop(*_: object) -> None:
        patience.stopped = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_termination(path: str, message: bytes, say: Callable[[str], None]) -> None:
    """Write the termination message of a container; say why, if that fails."""
    try:
        with open(path, "wb") as file:
            file.write(message)
    except OSError as error:
        say(f"the termination message cannot be written: {error}")
