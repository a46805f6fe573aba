"""Mistakes and warnings, and the words that they are made of."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from pydantic_core import PydanticCustomError

PROJECT = "faststart"


class Finding(NamedTuple):
    """A mistake (`refuses`) or a warning, by stack key."""

    key: str
    text: str
    refuses: bool = True

    def __str__(self) -> str:
        """The line a person reads."""
        return f"{self.key}: {self.text}"


def stack_key(*parts: str) -> str:
    """The full key of a place in the stack file: `faststart:network.zones` of `network` and `zones`."""
    return f"{PROJECT}:{'.'.join(parts)}"


def refuse(text: str, field: str = "") -> PydanticCustomError:
    """The error that a check of a value or section raises, for pydantic to collect.

    Args:
        text: What is wrong and what would be accepted, for the person who wrote the stack file.
        field: The mistaken key, where the check is over a whole section.
    """
    return PydanticCustomError("faststart", "{text}", {"text": text, "field": field})


def one_of(names: Sequence[Any]) -> str:
    """Names as a list in words: `a, b or c`."""
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def shown(value: Any) -> str:
    """A value as a stack file could hold it, on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)
