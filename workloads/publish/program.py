"""What surrounds a run of publish: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from modelfolder.names import show
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from preload.program import perform
from preload.run import Surroundings
from publish import options
from publish.checking import check
from publish.publishing import publish
from publish.removing import remove
from publish.report import PublishReport

AGAIN = (Exit.BUSY, Exit.IO_ERROR, Exit.NETWORK)
"""Exit codes after which another try can help."""

PAUSES = (10.0, 30.0, 60.0)
"""Seconds before the second try and the next ones. A choice of ours: each try has its own patience with single
requests, so these are for what is away for longer."""


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

    def work(around: Surroundings) -> None:
        asked = options.parse(arguments)
        if isinstance(asked, options.Check):
            check(asked, around, result)
        elif isinstance(asked, options.Removal):
            remove(asked, around, result)
        else:
            _try(asked, around, result)

    result = PublishReport()
    before = os.umask(0o022)  # servers read as another user
    try:
        perform("publish", arguments, result, work, Patience(sleep), proc, sysfs)
    finally:
        os.umask(before)
    return result.code


def _try(asked: options.Options, around: Surroundings, result: PublishReport) -> None:
    """Publish, and do so again after a growing pause where that can help.

    Raises:
        FaststartError: any exit code of publish: one that another try would meet again, or that of the last try.
    """
    for number in range(1, asked.tries + 1):
        try:
            publish(asked, around, result)
        except FaststartError as error:
            if not (error.code in AGAIN or error.passing) or number == asked.tries:
                raise
            pause = PAUSES[min(number, len(PAUSES)) - 1]
            about = f"{show(error.file)}: " if error.file else ""
            around.say(f"{about}{error.message}; try {number + 1} of {asked.tries} begins in {pause:.0f} s")
            around.patience.pause(pause)
        else:
            return
