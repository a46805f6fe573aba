"""Weight files that number themselves, such as model-00001-of-00003.safetensors: which are parts of one whole.

An index that does not name all of them makes vLLM 0.32 load less than there is, and without an index it does not see
that one is missing (model_loader/weight_utils.py: filter_duplicate_safetensors_files).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from modelfolder import names
from podkit.display import show

_PART = re.compile(rb"(?<!\d)(\d+)[-_.]of[-_.](\d+)")

Whole = tuple[bytes, bytes]
"""What the paths of the parts of one whole share: what stands before and after the number."""


@dataclass
class Parts:
    """Parts of one whole.

    Attributes:
        whole: what their paths share.
        count: how many there are by their own names.
        paths: by their numbers.
    """

    whole: Whole
    count: int
    paths: dict[int, bytes] = field(default_factory=dict)

    @property
    def first(self) -> bytes:
        """Return the path of the part with the lowest number."""
        return self.paths[min(self.paths)]

    @property
    def lost(self) -> int:
        """Return how many parts are missing; the first is number 0 or 1."""
        return self.count - sum(number - self._start in range(self.count) for number in self.paths)

    def absent(self, most: int) -> list[bytes]:
        """Return the paths of the first missing parts."""
        before, after = self.whole
        digits = min(len(path) - len(before + after) for path in self.paths.values())
        numbers = (number for number in itertools.count(self._start) if number not in self.paths)
        return [
            b"%s%0*d%s" % (before, digits, number, after) for number in itertools.islice(numbers, min(self.lost, most))
        ]

    @property
    def _start(self) -> int:
        return 0 if 0 in self.paths else 1


def whole_of(path: bytes) -> Whole | None:
    """Return what a weight file is a part of by its name; None if it is a whole of its own."""
    found = _numbers(path)
    return _whole(path, found) if found else None


def gather(paths: Iterable[bytes]) -> list[Parts]:
    """Return the wholes that some paths are parts of."""
    wholes: dict[Whole, Parts] = {}
    for path in paths:
        if found := _numbers(path):
            whole = _whole(path, found)
            wholes.setdefault(whole, Parts(whole, int(found[2]))).paths[int(found[1])] = path
    return list(wholes.values())


def disagreements(named: Collection[bytes], there: Iterable[bytes]) -> Iterator[str]:
    """Tell where an index names some parts of a whole and not others.

    Args:
        named: the paths that the index names; all are there.
        there: the paths of the folder.
    """
    held = {parts.whole: parts for parts in gather(there)}
    for parts in gather(named):
        beside = sorted(set(held[parts.whole].paths.values()) - set(named)) if parts.whole in held else []
        if beside:
            number = len(parts.paths)
            yield f"names {number} of {number + len(beside)} parts that are there: not {_some(beside, len(beside))}"
        elif parts.lost > 0:
            absent = _some(parts.absent(3), parts.lost)
            yield f"names {len(parts.paths)} parts of what has {parts.count} by its own names: not {absent}"


def _some(paths: list[bytes], number: int) -> str:
    return ", ".join(map(show, paths[:3])) + (", ..." if number > 3 else "")


def _numbers(path: bytes) -> re.Match[bytes] | None:
    return _PART.search(path, path.rfind(b"/") + 1) if names.is_weight(path) else None


def _whole(path: bytes, found: re.Match[bytes]) -> Whole:
    return path[: found.start()], path[found.end(1) :]
