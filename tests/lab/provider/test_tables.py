"""The tables by which a rehearsal without the provider knows replacements, compared with the provider's own plans."""

from collections.abc import Mapping
from typing import Any

import pytest

from lab.provider import mapping
from lab.provider.provider import Provider, RefusedError
from lab.provider.shape import Shape
from lab.rehearsal.providers import aws_rules, sdk_types, wire
from lab.rehearsal.providers.aws_types import KINDS
from lab.rehearsal.release import released
from tests.lab.provider.conftest import stack_of

pytestmark = pytest.mark.processes

# These depend on other values: on the kind of the endpoint.
OTHERWISE = {("aws:ec2/vpcEndpoint:VpcEndpoint", name) for name in ("privateDnsEnabled", "dnsOptions")}


def value(shape: Shape, number: int) -> Any:
    """A value of an argument, another one for each number; plans look at no value's form."""
    scalars = {"string": ("one", "two"), "number": (1, 2), "bool": (False, True)}
    if shape.kind in scalars:
        return scalars[shape.kind][number]
    if shape.kind == "object":
        plain = {name: inner for name, inner in shape.fields.items() if inner.configurable and inner.kind in scalars}
        return {mapping.spellings(name, inner)[0]: value(inner, number) for name, inner in plain.items()}
    assert shape.inner is not None
    inside = value(shape.inner, number)
    return {"a": inside} if shape.kind == "map" else inside if shape.holds_one else [inside]


@pytest.fixture(scope="module")
def inputs() -> Mapping[str, Mapping[str, Any]]:
    """Inputs of a resource of each type, as far as a stack has one."""
    found = [one for old in released() for one in stack_of(old).resources]
    return {one["type"]: {k: v for k, v in one["inputs"].items() if k[:2] != "__"} for one in reversed(found)}


@pytest.mark.parametrize("token", KINDS)
def test_what_a_table_replaces_the_provider_replaces_and_nothing_else(
    provider: Provider, inputs: Mapping[str, Mapping[str, Any]], token: str
) -> None:
    base, different, compared = inputs.get(token, {}), [], 0
    for argument, shape in provider.shape(token).fields.items():
        names = [one for one in mapping.spellings(argument, shape) if one in sdk_types.input_names(token)]
        if not names or not shape.configurable or (token, names[0]) in OTHERWISE:
            continue
        old, new = ({**base, names[0]: value(shape, number)} for number in (0, 1))
        try:
            plan = provider.diff(token, "x", old, old, new)
        except RefusedError:  # these two values do not go with the others
            continue
        compared += 1
        ours = any(aws_rules.cannot_change(token, path, old, new) for path, _ in wire.changes(old, new))
        if ours != any(path[:1] == (names[0],) for path in plan.replaced):
            different.append(names[0])

    assert different == []
    assert compared >= 2
