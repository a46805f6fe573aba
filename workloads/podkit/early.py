"""The end of a program that is told to stop before it stands; imported first, and imports next to nothing.

Imports take a tenth of a second. Before these lines nothing can be done: SIGTERM ends a process, and a container's
first one does not get it (signal(7), pid_namespaces(7)).
"""

from __future__ import annotations

import os
import signal
import sys

_MESSAGE = "stopped by SIGTERM before it began"
_LOG = "--termination-log"

installed = False
"""Whether the process is one of `end_on_sigterm`."""


def end_on_sigterm(program: str) -> None:
    """Let SIGTERM end the process with 143, a line and the termination message, until the program sees to that."""
    global installed  # noqa: PLW0603 - of the process, as the handler is

    def end(*_: object) -> None:
        _write(2, f"{program}: exit 143: {_MESSAGE}\n")
        if log := _log(sys.argv):
            _write(_opened(log), f'{{"code": 143, "message": "{_MESSAGE}"}}')
        os._exit(143)

    installed = True
    signal.signal(signal.SIGTERM, end)


def _write(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode())
    except OSError:  # nobody is left to tell
        return


def _opened(path: str) -> int:
    """Open a file for writing; -1 if that fails."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    except OSError:
        return -1


def _log(arguments: list[str]) -> str | None:
    """Return the file for the termination message that a command line names."""
    for number, argument in enumerate(arguments):
        if argument == _LOG:
            return (arguments[number + 1 :] or [None])[0]
        if argument.startswith(_LOG + "="):
            return argument[len(_LOG) + 1 :]
    return None
