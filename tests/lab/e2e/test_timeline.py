"""The breakdown of a cold start: its parts follow each other, its table adds up, its picture is one."""

from __future__ import annotations

import xml.etree.ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from lab.e2e.timeline import Span, picture, table

KEYS = ("publish", "copy", "import", "engine", "weights", "warm-up", "ready", "token")
SECONDS = st.lists(st.floats(0.001, 5000, allow_nan=False), min_size=len(KEYS), max_size=len(KEYS))


def made(seconds: list[float]) -> list[Span]:
    found, at = list[Span](), 0.0
    for key, length in zip(KEYS, seconds, strict=True):
        found.append(Span(key, f"the <{key}>", at, at + length, "note & more, and more"))
        at += length
    return found


@given(seconds=SECONDS)
def test_the_table_ends_with_what_lies_between_publishing_and_readiness(seconds: list[float]) -> None:
    lines = table(made(seconds)).splitlines()

    assert len(lines) == len(KEYS) + 1
    assert abs(float(lines[-1].split()[-2]) - sum(seconds[1:])) < 0.006


@given(seconds=SECONDS)
def test_the_picture_is_well_formed_and_all_bars_are_within_it(seconds: list[float]) -> None:
    root = ET.fromstring(picture(made(seconds), "a <title> & more"))
    width = float(root.attrib["viewBox"].split()[2])
    bars = [one for one in root.iter("{http://www.w3.org/2000/svg}rect") if "rx" in one.attrib]

    assert len(bars) == len(KEYS)
    for one in bars:
        assert 0 <= float(one.attrib["x"]) <= float(one.attrib["x"]) + float(one.attrib["width"]) <= width
