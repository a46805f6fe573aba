"""Sizes as a person reads them."""

from __future__ import annotations

import pytest

from podkit.display import size


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.00 kB"),
        (4_200_000, "4.20 MB"),
        (141e9, "141.00 GB"),
        (9e15, "9000.00 TB"),
    ],
)
def test_sizes_are_said_in_the_unit_that_suits_them(number, text):
    assert size(number) == text
