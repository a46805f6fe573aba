"""The key reference of values of several forms; that of the stack file is held by `tests/program/test_stacks.py`."""

from infra.settings import schema
from infra.settings.key_reference import section_rows
from tests.infra.settings.forms import Group

ROWS = {row.key: row for row in section_rows(schema.of_section(Group), "x.")}


def row(key: str) -> tuple[str, str, str]:
    return ROWS[f"x.{key}"][1:]


def test_a_value_of_several_forms_has_a_row_that_names_them() -> None:
    assert row("capacity") == ("How it is bought.", "`onDemand`, `spot`, mapping by `kind`", "`onDemand`")
    assert row("bought") == ("How it was bought.", "mapping by `kind`", "-")
    assert row("block") == ("Its block.", "`none`, mapping", "`none`")
    assert row("count") == ("How many.", "whole number, `auto`", "-")
    assert row("names") == ("One or several.", "list of texts, text", "-")


def test_the_key_that_decides_has_one_row_and_the_keys_of_each_branch_say_where_they_are_taken() -> None:
    assert [key for key in ROWS if key.startswith("x.capacity.")] == [
        "x.capacity.kind",
        "x.capacity.reservationId",
        "x.capacity.window.firstDay",
        "x.capacity.window.days",
        "x.capacity.maxPrice",
    ]
    assert row("capacity.kind") == ("How the instances are bought.", "`block`, `spot`, `spotFleet`", "required")
    assert row("capacity.reservationId") == ("With `kind` `block`: The block's id.", "text", "required")
    assert row("capacity.window.days") == ("With `kind` `block`: How many days.", "whole number from 1", "`1`")
    assert row("capacity.maxPrice") == ("With `kind` `spot`, `spotFleet`: Most dollars an hour.", "whole number", "`3`")


def test_branches_of_entries_of_lists_and_of_branches_have_rows() -> None:
    assert row("wishes[]") == ("Next ones.", "mapping by `kind`", "-")
    assert row("wishes[].reservationId") == ("With `kind` `block`: The block's id.", "text", "required")
    assert row("disks.<name>.diskKind")[1] == "`slow`, `fast`"
    assert row("disks.<name>.where") == (
        "With `diskKind` `slow`: Where the slow disk is.",
        "`shelf`, `rack`",
        "required",
    )
    assert row("disks.<name>.number")[0] == "With `diskKind` `slow`: With `where` `shelf`: The place there."
    assert row("disks.<name>.capacity.maxPrice")[0].startswith(
        "With `diskKind` `fast`: With `kind` `spot`, `spotFleet`"
    )


def test_entries_and_lists_that_stand_beside_words_have_rows() -> None:
    assert row("windows") == ("When.", "`none`, list of mappings", "`none`")
    assert row("windows[].firstDay") == ("First day.", "text", "required")
    assert row("byDay") == ("When, by day.", "`none`, mapping", "`none`")
    assert row("byDay.<name>.firstDay") == ("First day.", "text", "required")


def test_a_section_that_is_told_by_its_shape_has_its_keys_as_they_are() -> None:
    for key in ("block", "tagged"):
        assert row(f"{key}.reservationId") == ("The block's id.", "text", "required")
