"""How a function becomes a rule: what it looks at is read from its parameters."""

from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from infra.settings import ClusterSettings, NetworkSettings, StorageSettings, rules, schema
from infra.settings.environment import SECTIONS
from infra.settings.findings import Finding
from infra.settings.rules.rule import Declared, rule
from infra.settings.schema import Entries
from infra.settings.sections.nodes import NodeGroups
from tests.infra.settings.support import refusals

DECLARED = Declared(node_groups=["p5", "g6"], models=[], model_servers=[])


def names_are_told(storage: StorageSettings, node_groups: NodeGroups, declared: Declared) -> Iterator[Finding]:
    yield Finding(f"{storage.capacity_gib}", ", ".join([*node_groups, *declared.node_groups]))


def no_section(network: NetworkSettings, pool: NetworkSettings) -> Iterator[Finding]:
    yield from ()


def another_section(network: ClusterSettings) -> Iterator[Finding]:
    yield from ()


def another_mapping(node_groups: dict[str, int]) -> Iterator[Finding]:
    yield from ()


def no_type(network) -> Iterator[Finding]:
    yield from ()


def test_a_rule_is_given_the_sections_that_its_parameters_name() -> None:
    storage = StorageSettings.model_validate({"capacityGib": 1200, "throughput": 125, "efa": False})
    given = {"storage": storage, "node_groups": {"g6": None}, "declared": DECLARED}

    assert list(rule(names_are_told).findings(given)) == [Finding("1200", "g6, p5, g6")]


def test_a_rule_finds_nothing_where_a_section_that_it_looks_at_has_a_mistake() -> None:
    assert list(rule(names_are_told).findings({"node_groups": {}, "declared": DECLARED})) == []


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (no_section, "rule no_section: pool is no section; use aws, network, "),
        (another_section, "rule another_section: network has another type than the section; use .*NetworkSettings"),
        (another_mapping, "rule another_mapping: node_groups has another type than the section"),
        (no_type, "rule no_type: network has another type than the section"),
    ],
)
def test_a_function_whose_parameters_are_no_sections_is_no_rule(function: Callable[..., Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        rule(function)


def test_the_rules_of_every_module_are_applied() -> None:
    folder = Path(rules.__file__).parent
    written = [line for path in folder.glob("*.py") for line in path.read_text().splitlines() if line == "@rule"]

    assert len(written) == len(rules.RULES)


def test_every_section_with_entries_has_its_names_declared() -> None:
    entries = [name for name, field in SECTIONS.items() if isinstance(schema.of_field(field), Entries)]

    assert [field.name for field in fields(Declared)] == entries


def test_a_server_is_held_against_the_names_of_mistaken_models_and_node_groups_too() -> None:
    found = refusals({"models.large.sizeGib": "big", "nodeGroups.g6.efa": True})

    assert [one.key for one in found] == ["faststart:nodeGroups.g6.efa", "faststart:models.large.sizeGib"]
