"""What surrounds a run of preload: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence

from podkit.console import Words, stopping_on_sigterm, write_termination
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from preload import options
from preload.destination import remove_run
from preload.options import Options
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
    asked: Options | None = None

    def work(around: Surroundings) -> None:
        nonlocal asked
        asked = options.parse(arguments)
        _allow_open_files(FILES_PER_STREAM * asked.parallel)
        # A pod that was started again after a reset of its node has the uid that it had, and what it left.
        take_back(asked)
        run(asked, around, result)

    def after(patience: Patience) -> None:
        if asked:
            while asked.stay and not asked.plan and result.code == Exit.DONE and not patience.stopped:
                sleep(_STAY_SECONDS)
            take_back(asked)

    def take_back(asked: Options) -> None:
        if asked.stay and not asked.plan:
            remove_run(os.path.abspath(asked.destination), asked.stay)

    result = Report()
    perform("preload", arguments, result, work, Patience(sleep), proc, sysfs, after)
    return result.code


def perform(
    program: str,
    arguments: Sequence[str],
    result: Report,
    work: Callable[[Surroundings], None],
    patience: Patience,
    proc: str,
    sysfs: str,
    after: Callable[[Patience], None] = lambda _: None,
) -> None:
    """Do the work of a pod program, and tell people and the kubelet how it ended.

    Args:
        program: its name.
        arguments: its command line, which may name a file for the termination message.
        result: takes how it ended.
        work: the work; an error that is foreseen ends it.
        patience: is told of SIGTERM.
        proc: where proc is mounted.
        sysfs: where sysfs is mounted.
        after: called when the result is told, while SIGTERM still asks for a stop.
    """
    out = Words(program)
    log = options.termination_log(arguments)
    with stopping_on_sigterm(patience):
        try:
            work(Surroundings(patience, out.say, out.bar, proc, sysfs))
        except FaststartError as error:
            result.fail(error)
        result.retries = patience.retries
        out.say(result.line())
        if log is not None:
            write_termination(log, result.termination_message(), out.say)
        after(patience)


def _allow_open_files(number: int) -> None:
    """Raise the soft limit of open files by so many, where the hard one allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + number
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
