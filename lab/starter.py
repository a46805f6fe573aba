"""Starts programs that do not outlive who started them."""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_STARTER = (
    "import ctypes, os, sys; owner, number = map(int, sys.argv[1:3]); ctypes.CDLL(None).prctl(1, number); "
    "os.getppid() == owner and os.execv(sys.argv[3], sys.argv[3:])"
)


def bound(
    command: Sequence[str | Path], end: signal.Signals = signal.SIGKILL, owner: int | str | None = None
) -> list[str]:
    """A command line that runs a program which gets a signal when the thread that started it is gone.

    The kernel sends it (prctl(2), PR_SET_PDEATHSIG). Elsewhere than on Linux this is the command itself.

    Args:
        command: the program, by its path, and its arguments.
        end: the signal.
        owner: the process that starts it, if that is not this one: its number, or what stands for it in a shell.
    """
    plain = [str(part) for part in command]
    if sys.platform != "linux":
        return plain
    return [sys.executable, "-S", "-c", _STARTER, str(owner or os.getpid()), str(int(end)), *plain]
