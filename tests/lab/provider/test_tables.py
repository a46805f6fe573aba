"""The tables by which a rehearsal judges without the provider, or beside it, compared with the provider's own word."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from lab.provider import mapping
from lab.provider.provider import Diff, Provider, RefusedError
from lab.provider.shape import Shape
from lab.rehearsal.providers import aws_rules, sdk_types, wire
from lab.rehearsal.providers.aws_types import CLUSTER, KINDS, NAT
from lab.rehearsal.release import released
from tests.lab.provider.conftest import stack_of
from tests.lab.rehearsal.refusals import ALSO_WELL, REFUSED, WELL, changed

pytestmark = pytest.mark.processes

ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
OTHERWISE = {
    (ENDPOINT, "privateDnsEnabled"): "replaced for a gateway, updated for an interface",
    (ENDPOINT, "dnsOptions"): "the same",
    (NAT, "secondaryPrivateIpAddressCount"): "the plan refuses it for a public one",
    (CLUSTER, "computeConfig"): "the plan refuses it without two other blocks of EKS Auto Mode",
}
"""Properties of which one plan says nothing, and why."""

_SCALARS = {"string": ("arn:aws:iam::111122223333:role/a", "arn:aws:iam::111122223333:role/b")}
_SCALARS |= {"number": (1, 2), "bool": (False, True)}


def value(shape: Shape, number: int) -> Any:
    """A value of an argument, another one for each number; plans look at the form of ARNs alone."""
    if shape.kind in _SCALARS:
        return _SCALARS[shape.kind][number]
    if shape.kind == "object":
        return {mapping.spellings(name, inner)[0]: value(inner, number) for name, inner in scalars(shape).items()}
    assert shape.inner is not None
    inside = value(shape.inner, number)
    return {"a": inside} if shape.kind == "map" else inside if shape.holds_one else [inside]


def scalars(shape: Shape) -> dict[str, Shape]:
    """The arguments of a block that can be set and are neither blocks nor lists."""
    return {name: one for name, one in shape.fields.items() if one.configurable and one.kind in _SCALARS}


def changes(name: str, shape: Shape) -> Iterator[tuple[Any, Any]]:
    """Values of a property before and after a change: of all of it, and of each value in its one block."""
    old = value(shape, 0)
    yield old, value(shape, 1)
    if shape.holds_one and shape.inner is not None and shape.inner.kind == "object":
        for argument, inner in scalars(shape.inner).items():
            yield old, {**old, mapping.spellings(argument, inner)[0]: value(inner, 1)}


@pytest.fixture(scope="module")
def inputs() -> Mapping[str, Mapping[str, Any]]:
    """Inputs of a resource of each type, as far as a stack has one."""
    found = [one for old in released() for one in stack_of(old).resources]
    return {one["type"]: {k: v for k, v in one["inputs"].items() if k[:2] != "__"} for one in reversed(found)}


def planned(provider: Provider, token: str, around: Mapping[str, Any], name: str, two: tuple[Any, Any]) -> Diff | None:
    """The provider's plan of a change, beside other inputs or alone; None where it refuses both."""
    for others in (around, {}):
        old, new = ({**others, name: one} for one in two)
        try:
            return provider.diff(token, "x", old, old, new)
        except RefusedError:
            continue
    return None


@pytest.mark.parametrize("token", KINDS)
def test_what_a_table_replaces_the_provider_replaces_and_nothing_else(
    provider: Provider, inputs: Mapping[str, Mapping[str, Any]], token: str
) -> None:
    around, different, compared = inputs.get(token, {}), [], set()
    for argument, shape in provider.shape(token).fields.items():
        names = [one for one in mapping.spellings(argument, shape) if one in sdk_types.input_names(token)]
        if not names or not shape.configurable or (token, names[0]) in OTHERWISE:
            continue
        for two in changes(names[0], shape):
            plan = planned(provider, token, around, names[0], two)
            assert plan is not None, names[0]
            old, new = ({**around, names[0]: one} for one in two)
            paths = [path for path, _ in wire.changes(old, new)]
            ours = any(aws_rules.cannot_change(token, path, old, new) for path in paths)
            if ours != any(path[:1] == (names[0],) for path in plan.replaced):
                different.append(paths)
        compared.add(names[0])

    assert different == []
    assert {one.partition(".")[0] for one in KINDS[token].replaces.split()} <= compared


@pytest.mark.parametrize(
    ("token", "changes"), [*((token, {}) for token in WELL), *ALSO_WELL, *(row[:2] for row in REFUSED)]
)
def test_what_aws_alone_refuses_the_provider_takes(provider: Provider, token: str, changes: dict[str, Any]) -> None:
    assert provider.check_new(token, changed(token, changes)) == []
