"""What surrounds a run of publish: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from modelfolder.console import Words, stopping_on_sigterm, write_termination
from modelfolder.errors import FaststartError
from modelfolder.patience import Patience
from preload.options import termination_log
from preload.run import Surroundings
from publish import options
from publish.checking import check
from publish.publishing import publish
from publish.removing import remove
from publish.report import PublishReport


def main(
    arguments: Sequence[str],
    *,
    proc: str = "/proc",
    sysfs: str = "/sys",
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Run publish.

    Args:
        arguments: the command line without the program's name.
        proc: where proc is mounted; tests name a stand-in.
        sysfs: where sysfs is mounted; tests name a stand-in.
        sleep: how to let time pass between tries.

    Returns:
        The exit code (contracts.md, "Exit codes"). 0 means that the destination is sealed, that --check found
        nothing that is wrong, or that what --remove named is gone.
    """
    patience = Patience(sleep)
    result = PublishReport()
    out = Words("publish")
    around = Surroundings(patience, out.say, out.bar, proc, sysfs)
    log = termination_log(arguments)
    before = os.umask(0o022)  # servers read as another user
    try:
        with stopping_on_sigterm(patience):
            try:
                asked = options.parse(arguments)
                if isinstance(asked, options.Check):
                    check(asked, around, result)
                elif isinstance(asked, options.Removal):
                    remove(asked, around, result)
                else:
                    publish(asked, around, result)
            except FaststartError as error:
                result.fail(error)
            result.retries = patience.retries
            out.say(result.line())
            if log is not None:
                write_termination(log, result.termination_message(), out.say)
    finally:
        os.umask(before)
    return result.code
