"""What surrounds a run of publish: command line, SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from modelfolder.patience import Patience
from preload.program import perform
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

    def work(around: Surroundings) -> None:
        asked = options.parse(arguments)
        if isinstance(asked, options.Check):
            check(asked, around, result)
        elif isinstance(asked, options.Removal):
            remove(asked, around, result)
        else:
            publish(asked, around, result)

    result = PublishReport()
    before = os.umask(0o022)  # servers read as another user
    try:
        perform("publish", arguments, result, work, Patience(sleep), proc, sysfs)
    finally:
        os.umask(before)
    return result.code
