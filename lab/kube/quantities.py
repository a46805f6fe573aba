"""Sizes as Kubernetes writes them."""

from __future__ import annotations

import re

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_UNITS |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def quantity(text: str | int) -> float:
    """The number of bytes that a quantity of Kubernetes stands for.

    Raises:
        ValueError: it is none that a size may be.
    """
    found = re.fullmatch(r"([\d.]+)([A-Za-z]*)", str(text))
    if not found or found[2] not in _UNITS:
        raise ValueError(f"{text!r} is no size")
    return float(found[1]) * _UNITS[found[2]]
