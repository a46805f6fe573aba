"""Lines for people on standard output and error, SIGTERM, and the termination message."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from typing import TextIO

from podkit import display, early
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience


class Console:
    """Lines on standard output, and lines with the program's name on standard error; each goes through `display.line`.

    On a terminal a bar can stay below those on standard error.
    """

    def __init__(self, program: str) -> None:
        self._program = program
        self._drawn = ""
        self._failed: OSError | None = None

    @property
    def bar(self) -> Callable[[str], None] | None:
        """Return what draws the bar; None where there is no terminal."""
        return self._draw if sys.stderr and sys.stderr.isatty() else None

    def say(self, line: str) -> None:
        """Write a line to standard error; what becomes of it changes no exit code."""
        write(sys.stderr, f"{self._wipe()}{self._program}: {display.line(line)}\n")

    def print(self, line: str) -> None:
        """Write a line of the result to standard output."""
        self._failed = self._failed or write(sys.stdout, f"{display.line(line)}\n")

    def require_printed(self) -> None:
        """Hold that standard output took every line.

        It is no error if its reader is gone, or if it was closed from the start.

        Raises:
            FaststartError: 9, standard output is a full disk, or failed in another way.
        """
        if self._failed and self._failed.errno != errno.EPIPE:
            message = f"standard output cannot be written: {self._failed.strerror}"
            raise FaststartError(Exit.IO_ERROR, message) from self._failed

    def _draw(self, text: str) -> None:
        wiped = self._wipe()
        with contextlib.suppress(OSError, ValueError):  # the terminal was closed
            self._drawn = display.line(text)[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        write(sys.stderr, f"{wiped}{self._drawn}")

    def _wipe(self) -> str:
        drawn, self._drawn = self._drawn, ""
        return f"\r{' ' * len(drawn)}\r" if drawn else ""


def write(stream: TextIO | None, text: str) -> OSError | None:
    """Write a text to a standard stream at once; characters that its encoding lacks become escapes.

    Args:
        stream: None where its descriptor was closed when the program began; then nothing is written.
        text: what to write.

    Returns:
        Why it could not be written; from then on all that the stream gets is thrown away.
    """
    if stream is None:
        return None
    encoding = stream.encoding or "utf-8"
    try:
        stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        stream.flush()
    except OSError as error:
        # Python writes what waits in the stream once more when it ends, and would fail with an exit code of its own.
        with contextlib.suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        return error
    return None


def crashed(kind: type[BaseException], error: BaseException, trace: types.TracebackType | None) -> None:
    """Show a defect of the program as Python does (sys.excepthook), and each line as all others."""
    for line in "".join(traceback.format_exception(kind, error, trace)).splitlines():
        write(sys.stderr, f"  {display.line(line)}\n")


@contextlib.contextmanager
def stopping_on_sigterm(patience: Patience) -> Iterator[None]:
    """Let SIGTERM ask for a stop while the block runs; main thread only."""

    def stop(*_: object) -> None:
        patience.stopped = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        # The result is told: nothing is left to stop.
        signal.signal(signal.SIGTERM, signal.SIG_IGN if early.installed else before)


def write_termination(path: str, message: bytes, say: Callable[[str], None]) -> None:
    """Write the termination message of a container; say why, if that fails."""
    try:
        with open(path, "wb") as file:
            file.write(message)
    except OSError as error:
        say(f"the termination message cannot be written: {error}")
