"""A program in a pod from its command line to its exit code: SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from podkit.console import Console, stopping_on_sigterm, write_termination
from podkit.errors import Exit, FaststartError
from podkit.options import termination_log
from podkit.patience import Patience
from podkit.report import Report
from podkit.surroundings import Surroundings

A = TypeVar("A")
R = TypeVar("R", bound=Report)


def _nothing(*_: object) -> None:
    """Leave it at that."""


@dataclass(frozen=True)
class Program(Generic[A, R]):
    """What one program does; `main` does the rest.

    Attributes:
        name: begins each of its lines for people.
        parse: returns what a command line asks for; FaststartError 2, it is wrong.
        report: returns an empty report.
        work: does what was asked for; a FaststartError is a foreseen end.
        after: called once the result is told, while SIGTERM still asks for a stop; not after a wrong command line.
    """

    name: str
    parse: Callable[[Sequence[str]], A]
    report: Callable[[], R]
    work: Callable[[A, Surroundings, R], None]
    after: Callable[[A, Surroundings, R], None] = _nothing

    def main(
        self,
        arguments: Sequence[str],
        *,
        proc: str = "/proc",
        sysfs: str = "/sys",
        sleep: Callable[[float], object] = time.sleep,
    ) -> int:
        """Run the program, and tell people and the kubelet how it ended.

        Args:
            arguments: the command line without the program's name.
            proc: where proc is mounted; tests name a stand-in.
            sysfs: where sysfs is mounted; tests name a stand-in.
            sleep: how to let time pass between tries.

        Returns:
            The exit code (contracts.md, "Exit codes").
        """
        console = Console(self.name)
        around = Surroundings(Patience(sleep), console.say, console.print, console.bar, proc, sysfs)
        report = self.report()
        log = termination_log(arguments)
        with stopping_on_sigterm(around.patience):
            asked: A | None = None
            try:
                asked = self.parse(arguments)
                self.work(asked, around, report)
                if report.code == Exit.DONE:
                    console.require_printed()
            except FaststartError as error:
                report.fail(error)
            report.retries = around.patience.retries
            console.say(report.line())
            if log is not None:
                write_termination(log, report.termination_message(), console.say)
            if asked is not None:
                self.after(asked, around, report)
        return report.code
