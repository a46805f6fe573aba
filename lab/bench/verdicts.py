"""What a row's ratios say about its bar."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Verdict = Literal["met", "not met", "undecided"]

PAIRS_NEEDED = 7
LOWER_PART = 0.9
"""The lower quartile must reach this part of the bar."""


@dataclass(frozen=True)
class Spread:
    """Median and quartiles of some figures."""

    lower: float
    median: float
    upper: float
    count: int

    @classmethod
    def of(cls, figures: Sequence[float]) -> "Spread":
        """The spread of at least one figure."""
        if len(figures) == 1:
            return cls(figures[0], figures[0], figures[0], 1)
        lower, median, upper = statistics.quantiles(figures, n=4, method="inclusive")
        return cls(lower, median, upper, len(figures))


def judge(ratios: Spread, bar: float, pairs_needed: int = PAIRS_NEEDED) -> tuple[Verdict, str]:
    """Whether the ratios meet the bar; the text says why it is undecided, else it is empty."""
    enough = LOWER_PART * bar
    if ratios.count < pairs_needed:
        return "undecided", f"{_pairs(ratios.count)}, {pairs_needed} are needed"
    if ratios.median >= bar and ratios.lower >= enough:
        return "met", ""
    if ratios.median >= bar:
        return "undecided", f"the median reaches it, the lower quartile is under {LOWER_PART:g} of it"
    if ratios.upper < bar:
        return "not met", ""
    return "undecided", "the median misses it, the upper quartile reaches it"


def _pairs(count: int) -> str:
    return f"{count} pair" if count == 1 else f"{count} pairs"
