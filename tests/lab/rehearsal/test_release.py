"""Released versions: each has its states, and each row of their lists names the entry of CHANGELOG that explains it."""

import re
from pathlib import Path

import pytest

from lab import ROOT
from lab.rehearsal.events import Step
from lab.rehearsal.release import Change, Released, changed, entries, released

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
BY_THE_NODES = {"aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/nodeGroup:NodeGroup"}
URN = "urn:pulumi:dev::faststart::faststart:infra:Network$aws:ec2/vpc:Vpc::network-vpc"


def effects(entry: str) -> set[str]:
    return set(re.findall(r"\*\*(\w+)\*\*", entry.partition("Effect:")[2]))


def test_each_version_of_the_changelog_keeps_the_states_of_its_stacks() -> None:
    versions = set(re.findall(r"^## (\d+\.\d+\.\d+) ", CHANGELOG, re.MULTILINE))

    assert {one.version for one in released()} == versions
    assert all(one.stack_file.is_file() for one in released())


@pytest.mark.parametrize("old", released(), ids=lambda one: f"{one.version}-{one.stack}")
def test_each_change_of_an_upgrade_is_the_effect_of_an_entry_of_the_changelog(old: Released) -> None:
    since = entries(CHANGELOG, old.version)
    for change in old.changes():
        assert change.entry in since, f"{change.urn}: CHANGELOG has no entry with the title {change.entry!r}"
        told = effects(since[change.entry])
        assert change.what in told or ("nodes" in told and change.type in BY_THE_NODES), change


def test_entries_are_those_above_a_version_by_their_titles() -> None:
    text = (
        "# Changelog\n\n## Unreleased\n\n### Added\n\n- **One.** It\n  does. Effect: **none**.\n- Untitled.\n\n"
        "## 0.2.0 - 2027-01-01\n\n- **Two: more.** Effect: **update**.\n\n"
        "## 0.1.0 - 2026-12-01\n\n- **Old.** Effect: none.\n"
    )

    assert entries(text, "0.1.0") == {
        "One": "**One.** It does. Effect: **none**.",
        "Two: more": "**Two: more.** Effect: **update**.",
    }
    assert list(entries(text, "0.2.0")) == ["One"]


@pytest.mark.parametrize(
    ("ops", "what"),
    [
        (["same"], []),
        (["update"], ["update"]),
        (["create-replacement", "replace", "delete-replaced"], ["replace"]),
        (["delete-replaced", "create"], ["replace"]),
        (["delete"], ["delete"]),
    ],
)
def test_what_happens_to_a_resource_is_one_word(ops: list[str], what: list[str]) -> None:
    steps = [Step(op, URN, number, number + 1) for number, op in enumerate(ops)]

    assert [one.what for one in changed(steps)] == what


def test_default_providers_follow_the_sdks_and_are_no_change() -> None:
    urn = "urn:pulumi:dev::faststart::pulumi:providers:aws::"
    steps = [Step("create", f"{urn}default_7_51_1", 1, 2), Step("update", f"{urn}ours", 3, 4)]

    assert [one.urn for one in changed(steps)] == [f"{urn}ours"]


def test_a_list_that_is_written_anew_keeps_the_entries_of_rows_that_stay(tmp_path: Path) -> None:
    old = Released("0.1.0", "dev", tmp_path)
    old.golden.parent.mkdir()
    old.golden.write_text(f"update {URN} A title of words\ndelete {URN}-2 Gone\n")

    old.write_changes([Change("update", URN), Change("create", f"{URN}-3")])

    assert old.changes() == [Change("update", URN, "A title of words"), Change("create", f"{URN}-3", "?")]
