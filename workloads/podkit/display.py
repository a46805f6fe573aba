"""Paths and sizes as people read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from podkit.masks import mask

T = TypeVar("T")

_UNITS = ("kB", "MB", "GB", "TB")


LINE = 4096
"""Characters that a line has at most; a termination message has as many bytes."""

_PATH = 1024  # characters of a path; its middle is the least telling part
_EDGE = 256  # characters at a cut in which a secret may have been cut in two


def line(text: str, most: int = LINE) -> str:
    """Return a text as one printable line: every text of a program that comes from elsewhere goes through here.

    Control characters, line breaks, characters that turn the direction of writing, and halves of characters become
    escapes; secrets in addresses are masked; of a long text the middle is left out.

    Args:
        text: anything.
        most: characters of the line.
    """
    found = _escape(mask(_cut(text, 2 * most, _EDGE)))
    return found if len(found) <= most else _cut(found, most)


def show(path: bytes) -> str:
    """Return a path as one printable line: bytes that are no UTF-8 and control characters become escapes."""
    found = _escape(_cut(path.decode("utf-8", "backslashreplace"), 2 * _PATH))
    return found if len(found) <= _PATH else _cut(found, _PATH)


def some(lines: Sequence[T], what: str, most: int = 100) -> Iterator[T | str]:
    """Return the first of some lines, and how many more there are.

    Args:
        lines: any number.
        what: what there is one line about each, in the plural.
        most: how many are returned.
    """
    yield from lines[:most]
    if len(lines) > most:
        yield f"... and {len(lines) - most} more {what}"


def _cut(text: str, most: int, edge: int = 0) -> str:
    """Return a text whose middle is left out if it is too long; its end often says what to do."""
    if len(text) <= most:
        return text
    room = most - 40
    head, tail = text[: room * 2 // 3], text[-(room // 3) :]
    if edge:
        head, tail = head[: max(head.rfind(" "), len(head) - edge)], tail[-max(len(tail) - edge, 1) :]
        tail = tail[tail.find(" ") + 1 :] if " " in tail[:edge] else tail
    return f"{head} [{len(text) - len(head) - len(tail)} characters left out] {tail}"


def _escape(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def size(number: float) -> str:
    """Return a number of bytes in the unit that suits it, in powers of 1000."""
    if number < 1000:
        return f"{number:.0f} bytes"
    power = 1
    while number >= 1000 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{number / 1000**power:.2f} {_UNITS[power - 1]}"
