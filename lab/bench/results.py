"""What was measured, as it lies in build/bench/: one file a row."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab import files
from lab.bench.rows import Bar
from lab.bench.verdicts import PAIRS_NEEDED, Spread, Verdict, judge

Result = dict[str, Any]


@dataclass(frozen=True)
class Judgement:
    """How a bar fared.

    Attributes:
        bar: it.
        against: the contestant that it was compared with; of several, the best one.
        ratios: None where nothing was measured.
        verdict: met, not met or undecided.
        why: why it is undecided.
    """

    bar: Bar
    against: str
    ratios: Spread | None
    verdict: Verdict
    why: str


def write(folder: Path, result: Result) -> Path:
    """Puts a row's result in the place of an older one."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{result['row']}.json"
    files.replace(path, json.dumps(result, indent=1) + "\n")
    return path


def read(folder: Path, names: Iterable[str]) -> dict[str, Result]:
    """The results that there are, in the order of these names."""
    paths = {name: folder / f"{name}.json" for name in names}
    return {name: json.loads(path.read_bytes()) for name, path in paths.items() if path.is_file()}


def contestant(result: Result, name: str) -> Mapping[str, Any] | None:
    """What was measured of a contestant; None if it was not there."""
    return next((one for one in result["contestants"] if one["name"] == name), None)


def figures(measured: Mapping[str, Any], figure: str) -> list[float]:
    """One figure of each run; `cpu` is the CPU seconds in user space and in the kernel."""
    if figure == "cpu":
        return [run["user"] + run["system"] for run in measured["runs"]]
    return [run[figure] for run in measured["runs"]]


def spread(measured: Mapping[str, Any], figure: str) -> Spread | None:
    """Median and quartiles of a figure; None where there are no runs."""
    found = figures(measured, figure)
    return Spread.of(found) if found else None


def ratios(result: Result, of: str, against: str, figure: str = "total") -> Spread | None:
    """How many times more `against` took than `of`, pair by pair; None where there are no pairs."""
    ours, theirs = contestant(result, of), contestant(result, against)
    if ours is None or theirs is None:
        return None
    pairs = list(zip(figures(theirs, figure), figures(ours, figure), strict=False))
    return Spread.of([one / max(other, 1e-9) for one, other in pairs]) if pairs else None


def judgement(result: Result, bar: Bar) -> Judgement:
    """How a bar fared in a result."""
    against = _best(result, bar)
    if against is None:
        return Judgement(bar, bar.words, None, "undecided", "nothing to compare with was measured")
    found = ratios(result, bar.of, against, bar.figure)
    if found is None:
        failed = (contestant(result, bar.of) or {}).get("failed")
        return Judgement(bar, against, None, "undecided", f"{bar.of} {failed or 'was not measured'}")
    verdict, why = judge(found, bar.least, PAIRS_NEEDED)
    return Judgement(bar, against, found, verdict, why)


def _best(result: Result, bar: Bar) -> str | None:
    """Of those that a bar names, the one whose median is the smallest."""
    medians = {}
    for name in bar.against:
        measured = contestant(result, name)
        found = spread(measured, bar.figure) if measured else None
        if found:
            medians[name] = found.median
    return min(medians, key=lambda name: medians[name]) if medians else None
