"""A program in a pod from its command line to its exit code: SIGTERM, the result for people and for the kubelet."""

from __future__ import annotations

import functools
import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from podkit import lines
from podkit.console import Console, stopping_on_sigterm, write_termination
from podkit.errors import Exit, FaststartError
from podkit.heap import READING_BYTES, bounded
from podkit.options import common, require_no_secrets
from podkit.patience import Patience
from podkit.report import Report
from podkit.stall import watching
from podkit.surroundings import Surroundings
from podkit.threads import start

A = TypeVar("A")
R = TypeVar("R", bound=Report)


_LAST_SECONDS = 5.0  # for report.json, before the program leaves a source that hangs


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
        memory: returns the most bytes of memory that `work` may take for what was asked for.
    """

    name: str
    parse: Callable[[Sequence[str]], A]
    report: Callable[[], R]
    work: Callable[[A, Surroundings, R], None]
    after: Callable[[A, Surroundings, R], None] = _nothing
    memory: Callable[[A], int] = lambda _: READING_BYTES

    def main(
        self,
        arguments: Sequence[str],
        *,
        proc: str = "/proc",
        sysfs: str = "/sys",
        sleep: Callable[[float], object] = time.sleep,
        end: Callable[[int], object] = os._exit,
    ) -> int:
        """Run the program, and tell people and the kubelet how it ended.

        Args:
            arguments: the command line without the program's name.
            proc: where proc is mounted; tests name a stand-in.
            sysfs: where sysfs is mounted; tests name a stand-in.
            sleep: how to let time pass between tries.
            end: ends the process from any of its threads; called when the source hangs.

        Returns:
            The exit code (contracts.md, "Exit codes").
        """
        console = Console(self.name, lines.secrets_of(os.environ, arguments))
        around = Surroundings(Patience(sleep), console.say, console.print, console.bar, proc, sysfs)
        report = self.report()
        report.tell = console.line
        log, around.patience.stall_seconds = common(arguments)
        asked: A | None = None

        def tell() -> None:
            report.retries = around.patience.retries
            console.say(report.line())
            if log is not None:
                write_termination(log, report.termination_message(), console.say)

        def leave(error: FaststartError) -> None:
            report.fail(error)
            tell()
            last: list[threading.Thread] = []  # in a thread, for the destination may hang, too
            start([functools.partial(self._leave, asked, around, report)], last, needed=0)
            for thread in last:
                thread.join(_LAST_SECONDS)
            end(error.code)

        with console.crashing(), stopping_on_sigterm(around.patience):
            try:
                require_no_secrets(arguments)
                asked = self.parse(arguments)
                with bounded(self.memory(asked)), watching(around.patience, leave):
                    self.work(asked, around, report)
                if report.code == Exit.DONE:
                    console.require_printed()
            except FaststartError as error:
                report.fail(error)
            tell()
            if asked is not None:
                self.after(asked, around, report)
        return report.code

    def _leave(self, asked: A | None, around: Surroundings, report: R) -> None:
        report.record()
        if asked is not None:
            self.after(asked, around, report)
