"""What surrounds a run of preload: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from modelfolder.errors import FaststartError
from modelfolder.patience import Patience
from preload import options
from preload.destination import remove_run
from preload.report import Report
from preload.run import Surroundings, run

FILES_PER_STREAM = 8
"""What a stream has open at once, with room to spare: source, part, both folders, and what is closed late."""

_STAY_SECONDS = 0.5  # between two looks whether a sidecar may end


def main(
    arguments: Sequence[str],
    *,
    proc: str = "/proc",
    sysfs: str = "/sys",
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Run preload.

    Args:
        arguments: the command line without the program's name.
        proc: where proc is mounted; tests name a stand-in.
        sysfs: where sysfs is mounted; tests name a stand-in.
        sleep: how to let time pass between tries.

    Returns:
        The exit code (contracts.md, "Exit codes"). 0 means that the marker stands, or that --plan was given.
        With --stay it is returned after SIGTERM.
    """
    patience = Patience(sleep)
    result = Report()
    out = _Words()
    around = Surroundings(patience, out.say, out.draw if sys.stderr.isatty() else None, proc, sysfs)
    log = options.termination_log(arguments)
    stay = None
    with _stop_on_sigterm(patience):
        try:
            asked = options.parse(arguments)
            _allow_open_files(FILES_PER_STREAM * asked.parallel)
            run(asked, around, result)
            stay = asked if asked.stay and not asked.plan else None
        except FaststartError as error:
            result.fail(error)
        result.retries = patience.retries
        out.say(result.line())
        if log is not None:
            _write_termination(log, result, out.say)
        while stay and not patience.stopped:
            sleep(_STAY_SECONDS)
        if stay and stay.stay:
            remove_run(os.path.abspath(stay.destination), stay.stay)
    return result.code


class _Words:
    """Lines on standard error, and on a terminal a bar below them that lines push on."""

    def __init__(self) -> None:
        self._drawn = ""

    def say(self, line: str) -> None:
        print(f"{self._wipe()}preload: {line}", file=sys.stderr, flush=True)

    def draw(self, text: str) -> None:
        wiped = self._wipe()
        self._drawn = text[: os.get_terminal_size(sys.stderr.fileno()).columns - 1]
        print(f"{wiped}{self._drawn}", end="", file=sys.stderr, flush=True)

    def _wipe(self) -> str:
        drawn, self._drawn = self._drawn, ""
        return f"\r{' ' * len(drawn)}\r" if drawn else ""


def _allow_open_files(number: int) -> None:
    """Raise the soft limit of open files by so many, where the hard one allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + number
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


@contextlib.contextmanager
def _stop_on_sigterm(patience: Patience) -> Iterator[None]:
    def stop(*_: object) -> None:
        patience.stopped = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write_termination(path: str, result: Report, say: Callable[[str], None]) -> None:
    try:
        with open(path, "wb") as file:
            file.write(result.termination_message())
    except OSError as error:
        say(f"the termination message cannot be written: {error}")
