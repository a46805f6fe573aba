"""Paths and sizes as people read them."""

from __future__ import annotations

from podkit import lines

_UNITS = ("kB", "MB", "GB", "TB")


def show(path: bytes) -> str:
    """Return a path as one printable line of at most 1 KiB: what is no UTF-8 and control characters become escapes."""
    return lines.name(path.decode("utf-8", "backslashreplace"), lines.NAME_BYTES)


def size(number: float) -> str:
    """Return a number of bytes in the unit that suits it, in powers of 1000."""
    if number < 1000:
        return f"{number:.0f} bytes"
    power = 1
    while number >= 1000 ** (power + 1) and power < len(_UNITS):
        power += 1
    return f"{number / 1000**power:.2f} {_UNITS[power - 1]}"
