"""Measures one row: its contestants take turns, every second round backwards (A B B A)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.bench import explain, machine, tools
from lab.bench.measure import Bench, Contestant, Measured, RunFailedError
from lab.bench.results import Result
from lab.bench.rows import Row
from lab.bench.sources import Source

Say = Callable[[str], None]


@dataclass
class _Entry:
    """A contestant's runs so far; `failed` says why there are no more."""

    contestant: Contestant
    rounds: int
    failed: str | None = None
    runs: list[Measured] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        return {
            "name": self.contestant.name,
            "command": self.contestant.command,
            "why_fewer": self.contestant.why_fewer if len(self.runs) < self.rounds else "",
            "failed": self.failed,
            "runs": [run.document() for run in self.runs],
        }


def turns(contestants: Sequence[Contestant], pairs: int) -> Iterator[tuple[int, Contestant]]:
    """Who runs when: the round's number and the contestant."""
    for number in range(pairs):
        taking_part = [one for one in contestants if one.pairs is None or number < one.pairs]
        for one in reversed(taking_part) if number % 2 else taking_part:
            yield number, one


def measure_row(row: Row, bench: Bench, source: Source, data: Path, pairs: int, say: Say) -> Result:
    """Runs a row.

    A contestant that fails once is out, and the result says why: the others go on. Without the first one, there is
    nothing to compare with.

    Args:
        row: what is compared.
        bench: where.
        source: how the data set is seen.
        data: where it lies.
        pairs: how many rounds.
        say: takes a line for people.

    Raises:
        RunFailedError: the first contestant failed.
        SourceError: the source cannot be had.
    """
    now = machine.moment()
    entries = {one.name: _Entry(one, pairs) for one in row.contestants}
    for entry in entries.values():
        try:
            tools.require(entry.contestant.tools)
        except tools.ToolMissingError as error:
            entry.failed = f"could not run: {error}"
            say(f"{entry.contestant.name} {entry.failed}")
    for number, one in turns(row.contestants, pairs):
        entry = entries[one.name]
        if entry.failed:
            continue
        try:
            measured = bench.run(one, row.data_set, data, source, row.after, compare=number == 0)
        except RunFailedError as error:
            if one is row.contestants[0]:
                raise RunFailedError(f"{one.name} {error}") from error
            entry.failed = str(error)
            say(f"{one.name} {entry.failed}")
            continue
        entry.runs.append(measured)
        say(_line(number, pairs, one, measured))
    profile = {
        name: explain.syscalls(bench, entry.contestant, row.data_set, data, source, say)
        for name, entry in entries.items()
        if name in row.explained and not entry.failed
    }
    return {
        "row": row.name,
        "title": row.title,
        "data": row.data_set.words,
        "place": row.place,
        "after": row.after,
        "pairs": pairs,
        "contestants": [entry.document() for entry in entries.values()],
        "profile": profile,
        "machine": machine.describe(bench.work),
        "tools": tools.versions(),
        **now,
    }


def _line(number: int, pairs: int, contestant: Contestant, measured: Measured) -> str:
    return (
        f"{number + 1}/{pairs} {contestant.name:24} {measured.total:7.2f} s  (tool {measured.wall:.2f}, on disk "
        f"{measured.on_disk:.2f})  CPU {measured.user:.2f} + {measured.system:.2f} s  {measured.peak_mib:.0f} MiB"
    )
