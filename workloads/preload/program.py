"""What surrounds a run of preload: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence

from modelfolder.errors import FaststartError
from modelfolder.patience import Patience
from preload import options
from preload.report import Report
from preload.run import run


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
    """
    patience = Patience(sleep)
    result = Report()
    with _stop_on_sigterm(patience):
        try:
            run(options.parse(arguments), patience, result, _say, proc, sysfs)
        except FaststartError as error:
            result.fail(error)
        result.retries = patience.retries
        _say(result.line())
        log = options.termination_log(arguments)
        if log is not None:
            _write_termination(log, result)
    return result.code


def _say(line: str) -> None:
    print(f"preload: {line}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def _stop_on_sigterm(patience: Patience) -> Iterator[None]:
    def stop(*_: object) -> None:
        patience.stopped = True

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _write_termination(path: str, result: Report) -> None:
    try:
        with open(path, "wb") as file:
            file.write(result.termination_message())
    except OSError as error:
        _say(f"the termination message cannot be written: {error}")
