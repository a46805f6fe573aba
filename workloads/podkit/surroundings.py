"""What a program has around it: who stops it, whom it tells what, and where the kernel's file systems are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from podkit.patience import Patience


@dataclass(frozen=True)
class Surroundings:
    """What a run needs of the process that it is in.

    Attributes:
        patience: told when to stop.
        say: takes a line for people.
        print: takes a line of the result, for standard output.
        draw: takes a text that replaces the last one on a terminal; None if there is none.
        proc: where proc is mounted.
        sysfs: where sysfs is mounted.
    """

    patience: Patience
    say: Callable[[str], None]
    print: Callable[[str], None]
    draw: Callable[[str], None] | None
    proc: str
    sysfs: str
