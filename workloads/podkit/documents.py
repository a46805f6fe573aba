"""JSON that others wrote, read without trust: what it takes in memory is bounded, and what it holds can be written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, TypeVar

D = TypeVar("D", bound=dict[str, Any])

MAX_VALUES = 4_000_000
"""The most values, names of fields among them, that a text may hold. Each takes 125 bytes at the most (measured with
CPython 3.11: objects within objects), all together 500 MB; 60 MB of `[]` took 1.5 GB. An index has two for each tensor,
a safetensors header twelve, a manifest one for each block hash: enough for 330,000 tensors in one file, and DeepSeek-V3
has 92,000 in 163."""

_MARKS = (b",", b":", b"[", b"{")
"""Before each value but the first stands one of these; inside texts they count, too, and do no harm."""

_HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""The escape of a half of a character, alone or beside its other half."""


def parse(
    data: bytes,
    number: Callable[[str], object] = float,
    constant: Callable[[str], object] = float,
    fields: Callable[[list[tuple[str, Any]]], object] | None = None,
    *,
    halves: bool = False,
) -> Any:
    """Return what some JSON in UTF-8 stands for.

    Args:
        data: the text. Whoever reads it has bounded its size.
        number: makes a number of a text with a point or an exponent.
        constant: makes one of NaN, Infinity and -Infinity, which are no JSON and which Python writes.
        fields: makes an object of its names and values; None for a dict.
        halves: whether texts may hold halves of characters: Python's own library takes them.

    Raises:
        ValueError: it is no JSON, no UTF-8 or begins with a byte order mark; it holds more than MAX_VALUES values, a
            half of a character, which nothing can write, or a whole number of more digits than Python takes; it is
            nested deeper than Python goes. Also what the other arguments raise.
    """
    if (most := values(data)) > MAX_VALUES:
        raise ValueError(f"it holds up to {most} values, and {MAX_VALUES} are read at most")
    try:
        found = json.loads(data.decode(), parse_float=number, parse_constant=constant, object_pairs_hook=fields)
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no UTF-8 at byte {error.start}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not halves and _HALF.search(data):
        _require_whole(found)
    return found


def values(data: bytes) -> int:
    """Return how many values a text in JSON, or a part of one, holds at the most."""
    return 1 + sum(map(data.count, _MARKS))


def parse_object(
    data: bytes,
    number: Callable[[str], object] = float,
    constant: Callable[[str], object] = float,
    fields: Callable[[list[tuple[str, Any]]], D] = dict,
) -> D:
    """Return an object in JSON, as `parse` does.

    Raises:
        ValueError: as `parse` does; also where it is no object.
    """
    found = parse(data, number, constant, None if fields is dict else fields)
    if not isinstance(found, dict):
        raise ValueError(f"it is {kind(found)}, and an object is expected")  # noqa: TRY004 - of a text, not of ours
    return found  # pyright: ignore[reportReturnType] - a dict is what `fields` made


def kind(value: object) -> str:
    """Return what a value from JSON is, in JSON's words."""
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "a text"
        case list():
            return "a list"
        case _:
            return "an object"


def _require_whole(found: object) -> None:
    """Hold that no text holds a half of a character."""
    waiting = [found]
    while waiting:
        match waiting.pop():
            case str(text):
                try:
                    text.encode()
                except UnicodeEncodeError as error:
                    raise ValueError(f"it holds a half of a character: {error}") from error
            case list(items):
                waiting += items
            case dict(fields):
                waiting += fields
                waiting += fields.values()
            case _:
                pass
