"""What the state of each stack will remember: a changed name is a replacement, unless an alias comes with it."""

import os
from pathlib import Path

import pytest

from tests import recording

URNS = Path(__file__).parent / "urns"


@pytest.mark.parametrize("stack", recording.STACKS)
def test_the_urns_of_a_stack_are_those_of_its_list(stack: str) -> None:
    path, urns = URNS / f"{stack}.txt", sorted(one.urn for one in recording.run(stack).resources)
    if os.environ.get("FASTSTART_WRITE_GOLDEN"):
        path.write_text("\n".join(urns) + "\n")

    assert path.exists(), f"{stack} has no list yet: run `make golden`"
    assert urns == path.read_text().splitlines(), "a rename needs an alias, and a line in CHANGELOG"


def test_no_list_is_left_of_a_stack_that_is_gone() -> None:
    assert {path.stem for path in URNS.glob("*.txt")} <= recording.STACKS.keys()
