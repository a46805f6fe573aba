"""Mistakes in values of several forms, in words."""

from typing import Any

import pytest

from tests.infra.settings.forms import Group, found

BLOCK = {"kind": "block", "reservationId": "cr-1"}
BLOCK_OR_SPOT = '"block", "spot" or "spotFleet"'
FORMS = f"a mapping with kind: {BLOCK_OR_SPOT}"
KEYS = "kind, reservationId or window"

MESSAGES: list[tuple[dict[str, Any], str, str]] = [
    # A word, or a mapping that a key decides.
    ({"capacity": "blok"}, "x.capacity", f'"blok" is not accepted; use "onDemand", "spot" or {FORMS}'),
    ({"capacity": 7}, "x.capacity", f'7 is not accepted; use "onDemand", "spot" or {FORMS}'),
    ({"capacity": [BLOCK]}, "x.capacity", f'[{{"kind": "block", "reservationId": "cr-1"}}] is not accepted; use "onDemand", "spot" or {FORMS}'),
    ({"capacity": {"kind": "blok"}}, "x.capacity.kind", f'"blok" is not accepted; use {BLOCK_OR_SPOT}'),
    ({"capacity": {"kind": None}}, "x.capacity.kind", f"null is not accepted; use {BLOCK_OR_SPOT}"),
    ({"capacity": {"kind": ["block"]}}, "x.capacity.kind", f'["block"] is not accepted; use {BLOCK_OR_SPOT}'),
    ({"capacity": {}}, "x.capacity.kind", f"is missing; use {BLOCK_OR_SPOT}"),
    ({"capacity": {"kind": "block"}}, "x.capacity.reservationId", "is missing: The block's id."),
    ({"capacity": BLOCK | {"reservationID": 1}}, "x.capacity.reservationID", f"no such key in this version (did you mean reservationId?); use {KEYS}"),
    ({"capacity": BLOCK | {"maxPrice": 1}}, "x.capacity.maxPrice", f"no such key in this version; use {KEYS}"),
    ({"capacity": BLOCK | {"window": {"firstDay": "1", "day": 1}}}, "x.capacity.window.day", "no such key in this version (did you mean days?); use firstDay or days"),
    ({"capacity": BLOCK | {"window": "now"}}, "x.capacity.window", 'a mapping is wanted, not "now"; keys: firstDay, days'),
    ({"capacity": {"kind": "spotFleet", "maxPrise": 1}}, "x.capacity.maxPrise", "no such key in this version (did you mean maxPrice?); use kind or maxPrice"),
    # A mapping that a key decides.
    ({"bought": "spot"}, "x.bought", f'a mapping is wanted, not "spot"; use {FORMS}'),
    ({"bought": {"kind": "x"}}, "x.bought.kind", f'"x" is not accepted; use {BLOCK_OR_SPOT}'),
    ({"bought": BLOCK | {"windows": 1}}, "x.bought.windows", f"no such key in this version (did you mean window?); use {KEYS}"),
    # In an entry, and one inside another.
    ({"disks": {"slow": {"diskKind": "slow"}}}, "x.disks.slow.where", 'is missing; use "shelf" or "rack"'),
    ({"disks": {"slow": {"diskKind": "slow", "where": "roof"}}}, "x.disks.slow.where", '"roof" is not accepted; use "shelf" or "rack"'),
    ({"disks": {"rack": {"diskKind": "slow", "where": "shelf", "numbers": 1}}}, "x.disks.rack.numbers", "no such key in this version (did you mean number?); use diskKind, where or number"),
    ({"disks": {"rack": {"diskKind": "slow", "where": "rack", "number": 1}}}, "x.disks.rack.number", "no such key in this version; use diskKind or where"),
    ({"disks": {"a": {"disk": "slow"}}}, "x.disks.a.diskKind", 'is missing; use "slow" or "fast"'),
    ({"disks": {"a": {"diskKind": "fast", "capacity": BLOCK | {"kinds": 1}}}}, "x.disks.a.capacity.kinds", f"no such key in this version (did you mean kind?); use {KEYS}"),
    ({"disks": {"a": {"diskKind": "fast", "capacity": {}}}}, "x.disks.a.capacity.kind", f"is missing; use {BLOCK_OR_SPOT}"),
    # In a list.
    ({"wishes": [BLOCK, {"kind": "spot", "maxPrice": "x"}]}, "x.wishes[1].maxPrice", 'a whole number is wanted, not "x"'),
    ({"wishes": [{"kind": "none"}]}, "x.wishes[0].kind", f'"none" is not accepted; use {BLOCK_OR_SPOT}'),
    ({"wishes": "spot"}, "x.wishes", 'a list is wanted, not "spot"'),
    # A word or a section, told apart by shape, and by a function.
    ({"block": BLOCK | {"reservation": 1}}, "x.block.reservation", f"no such key in this version (did you mean reservationId?); use {KEYS}"),
    ({"block": "some"}, "x.block", '"some" is not accepted; use "none" or a mapping with the keys kind, reservationId, window'),
    ({"tagged": BLOCK | {"reservation": 1}}, "x.tagged.reservation", f"no such key in this version (did you mean reservationId?); use {KEYS}"),
    ({"tagged": "some"}, "x.tagged", '"some" is not accepted; use "none" or a mapping with the keys kind, reservationId, window'),
    ({"windows": [{"firstDay": "1"}, {"firstDays": "1", "firstDay": "1"}]}, "x.windows[1].firstDays", "no such key in this version (did you mean firstDay?); use firstDay or days"),
    ({"byDay": {"list[Window]": {}}}, "x.byDay.list[Window].firstDay", "is missing: First day."),
    # Values.
    ({"count": "some"}, "x.count", '"some" is not accepted; use a whole number or "auto"'),
    ({"count": True}, "x.count", 'true is not accepted; use a whole number or "auto"'),
    ({"count": {}}, "x.count", '{} is not accepted; use a whole number or "auto"'),
    ({"names": ["a", 7]}, "x.names[1]", "a text is wanted, not 7; put it in quotes"),
    ({"names": 7}, "x.names", "7 is not accepted; use a list or a text"),
    ({"names": {}}, "x.names", "{} is not accepted; use a list or a text"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "key", "text"), MESSAGES)
def test_a_mistake_in_a_value_of_several_forms_is_told_once_and_by_its_path(
    value: dict[str, Any], key: str, text: str
) -> None:
    assert found(Group, value) == [(key, text)]


def test_all_forms_are_accepted() -> None:
    good = {
        "capacity": {"kind": "spotFleet"},
        "bought": BLOCK,
        "disks": {"slow": {"diskKind": "slow", "where": "rack"}, "b": {"diskKind": "fast", "capacity": BLOCK}},
        "wishes": [BLOCK, {"kind": "spot"}],
        "block": BLOCK,
        "tagged": BLOCK,
        "count": "auto",
        "names": "one",
    }

    assert found(Group, good) == []
    assert found(Group, good | {"capacity": "spot", "tagged": "none", "count": 7, "names": ["one"]}) == []


def test_every_mistake_of_a_branch_is_told() -> None:
    value = {"capacity": {"kind": "block", "maxPrice": 1, "window": {"days": 0}}}

    assert [key for key, _ in found(Group, value)] == [
        "x.capacity.reservationId",
        "x.capacity.window.firstDay",
        "x.capacity.window.days",
        "x.capacity.maxPrice",
    ]
