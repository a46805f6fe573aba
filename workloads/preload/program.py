"""What surrounds a run of preload: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Sequence

from modelfolder.console import Words, stopping_on_sigterm, write_termination
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
    out = Words("preload")
    around = Surroundings(patience, out.say, out.bar, proc, sysfs)
    log = options.termination_log(arguments)
    stay = None
    with stopping_on_sigterm(patience):
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
            write_termination(log, result.termination_message(), out.say)
        while stay and not patience.stopped:
            sleep(_STAY_SECONDS)
        if stay and stay.stay:
            remove_run(os.path.abspath(stay.destination), stay.stay)
    return result.code


def _allow_open_files(number: int) -> None:
    """Raise the soft limit of open files by so many, where the hard one allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + number
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )
