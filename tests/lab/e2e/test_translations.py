"""The table of differences: it says what is done, and its page says it too."""

from __future__ import annotations

from lab import ROOT
from lab.e2e.translations import ADDED, ADDED_ENV, REPLACED, SOURCE_ENV, TABLE


def test_each_change_to_a_container_has_its_row_and_each_row_of_a_container_its_change() -> None:
    changes = {
        *((name, f"`{flag} {value}`") for name, flags in REPLACED.items() for flag, value in flags.items()),
        *((name, f"`{flag}`") for name, flags in ADDED.items() for flag in flags),
        *((name, f"`{key}={value}`") for name, env in ADDED_ENV.items() for key, value in env.items()),
        ("publish", ", ".join(f"`{name}`" for name in SOURCE_ENV)),
    }

    assert {(row.of, row.run) for row in TABLE if row.of != "all"} == changes


def test_the_page_has_the_table() -> None:
    page = (ROOT / "lab" / "e2e" / "README.md").read_text(encoding="utf-8").splitlines()
    rows = [f"| {row.of} | {row.rendered} | {row.run} | {row.why} |" for row in TABLE]

    start = page.index(rows[0])
    assert page[start : start + len(rows) + 1] == [*rows, ""]
