"""Lines for people on standard output and error, SIGTERM, and the termination message.

All that a program tells goes through `Console.line`: nothing of a folder, a manifest, a hub or a bucket reaches a
terminal as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Collection, Iterator
from types import TracebackType
from typing import TextIO

from podkit import lines
from podkit.early import Early
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience


class Console:
    """Lines on standard output, and lines with the program's name on standard error.

    On a terminal a bar can stay below those on standard error.

    Args:
        program: its name.
        secrets: texts that stand in no line, whatever it is about.
    """

    def __init__(self, program: str, secrets: Collection[str] = ()) -> None:
        self._program = program
        self._secrets = secrets
        self._drawn = ""
        self._failed: OSError | None = None

    @property
    def bar(self) -> Callable[[str], None] | None:
        """Return what draws the bar; None where there is no terminal."""
        return self._draw if sys.stderr and sys.stderr.isatty() else None

    def line(self, text: str) -> str:
        """Return a text as one printable line, without secrets, of at most 4 KiB."""
        return lines.line(text, self._secrets)

    def say(self, text: str) -> None:
        """Write a line to standard error; what becomes of it changes no exit code."""
        write(sys.stderr, f"{self._wipe()}{self.line(f'{self._program}: {text}')}\n")

    def print(self, text: str) -> None:
        """Write a line of the result to standard output."""
        self._failed = self._failed or write(sys.stdout, f"{self.line(text)}\n")

    @contextlib.contextmanager
    def crashing(self) -> Iterator[None]:
        """Let the traceback of a crash while the block runs, in any thread, be told as lines are.

        Libraries put addresses into their exceptions, and strangers' names.
        """
        before, threading.excepthook = threading.excepthook, lambda crash: self._crashed(*crash[:3])
        try:
            yield
        except Exception:
            sys.excepthook = self._crashed
            raise
        finally:
            threading.excepthook = before

    def _crashed(self, kind: type[BaseException], error: BaseException | None, where: TracebackType | None) -> None:
        text = "".join(traceback.format_exception(kind, error, where)).splitlines()
        write(sys.stderr, self._wipe())
        lines.tell_many(text, lambda one: write(sys.stderr, f"{self.line(one)}\n"), "lines")

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
            self._drawn = self.line(text)[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
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


@contextlib.contextmanager
def stopping_on_sigterm(patience: Patience) -> Iterator[None]:
    """Let SIGTERM ask for a stop while the block runs; main thread only.

    What `podkit.early` did before is not put back: it would tell of another end than the one that was told by then.
    """

    def stop(*_: object) -> None:
        patience.stopped = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN if isinstance(before, Early) else before)


def write_termination(path: str, message: bytes, say: Callable[[str], None]) -> None:
    """Write the termination message of a container; say why, if that fails."""
    try:
        with open(path, "wb") as file:
            file.write(message)
    except OSError as error:
        say(f"the termination message cannot be written: {error}")
