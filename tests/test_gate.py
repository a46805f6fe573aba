"""The gate's stages, and the table of their minutes that it reads its budgets from."""

import re

from lab import ROOT

MINUTES = 86


def rows() -> dict[str, tuple[int, ...]]:
    """Cold, warm and budgeted minutes of each stage."""
    table = (ROOT / "docs" / "contracts.md").read_text().partition("| stage | cold | warm | budget |\n")[2]
    found = re.findall(r"^\| ([^|]+) \| (\d+) \| (\d+) \| (\d+) \|$", table.partition("\n\n")[0], re.MULTILINE)
    return {name: tuple(map(int, minutes)) for name, *minutes in found}


def test_the_table_has_the_gate_s_stages_in_their_order() -> None:
    gate = (ROOT / ".ci" / "run").read_text()

    assert list(rows()) == re.findall(r'^ *(?:if )?(?:stage|tier) "([^"$]+)"', gate, re.MULTILINE)


def test_no_stage_is_expected_to_take_more_than_its_budget() -> None:
    assert [name for name, (cold, warm, budget) in rows().items() if not warm <= cold <= budget] == []


def test_the_budgets_leave_something_of_the_90_minutes() -> None:
    assert sum(budget for _, _, budget in rows().values()) <= MINUTES
