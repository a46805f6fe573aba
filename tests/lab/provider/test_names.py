"""The arguments of pulumi-aws's SDK beside those of the provider that is built here, for all types that are used.

pulumi-aws bridges a later release, so it may have more. Whatever else differs would make the mapping by names wrong.
"""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Iterator
from typing import Any

import pytest
from pulumi import _types

from lab.provider import mapping
from lab.provider.provider import Provider
from lab.provider.shape import Shape
from lab.rehearsal.providers import sdk_types
from lab.rehearsal.providers.aws_types import KINDS

pytestmark = pytest.mark.processes

LATER = "pulumi-aws 7.51 bridges a later release, which has it"

DIFFERENCES = {
    "aws:ec2/launchTemplate:LaunchTemplate: networkInterfaces.enaQueueCount: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: defaultAddonsToRemoves: the SDK alone": "the bridge's own, deprecated",
    "aws:eks/cluster:Cluster: kubeApiServerConfig: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: kubeControllerManagerConfig: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: kubeSchedulerConfig: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: outpostConfig.controlPlanePlacement.spreadLevel: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: outpostConfig.etcdInstanceType: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: outpostConfig.etcdPlacement: the SDK alone": LATER,
    "aws:eks/cluster:Cluster: vpcConfig.controlPlaneEgressMode: the SDK alone": LATER,
    "aws:eks/nodeGroup:NodeGroup: warmPoolConfig: the SDK alone": LATER,
    "aws:eks/podIdentityAssociation:PodIdentityAssociation: policy: the SDK alone": LATER,
}
"""Each difference, with its reason."""


def arguments_class(found: Any) -> Any:
    """The class that lists the properties of an object, out of a type of the SDK; None for anything else."""
    found = _types.unwrap_type(found) if found is not None else None
    origin = typing.get_origin(found)
    if origin in (typing.Union, types.UnionType):
        members = [one for one in typing.get_args(found) if not typing.is_typeddict(one)]
        return next((inner for one in members if (inner := arguments_class(one))), None)
    if origin in (list, collections.abc.Sequence):
        return arguments_class(typing.get_args(found)[0])
    return found if isinstance(found, type) and _types.is_input_type(found) else None


def differences(arguments: Any, shape: Shape, path: str = "") -> Iterator[str]:
    """The names that only one of the two has."""
    sdk = sdk_types._fields(arguments)
    spelled = {
        name: inner
        for argument, inner in shape.fields.items()
        for name in mapping.spellings(argument, inner)
        if name in sdk
    }
    for argument, inner in shape.fields.items():
        ours = argument in ("id", "tags_all", "timeouts") or (inner.computed and not inner.configurable)
        if not ours and not any(name in sdk for name in mapping.spellings(argument, inner)):
            yield f"{path}{mapping.camel(argument)}: the provider alone"
    for name, (found, _) in sdk.items():
        inner = spelled.get(name)
        if inner is None:
            yield f"{path}{name}: the SDK alone"
            continue
        while inner.inner is not None:
            inner = inner.inner
        nested = arguments_class(found)
        if nested is not None and inner.kind == "object":
            yield from differences(nested, inner, f"{path}{name}.")
        elif inner.kind == "object" or (nested is not None and nested.__name__ != "PolicyDocumentArgs"):
            yield f"{path}{name}: an object in one of them"


@pytest.mark.parametrize("token", sorted(KINDS))
def test_the_provider_has_every_type_that_is_used(provider: Provider, token: str) -> None:
    assert provider.knows(token)


def test_the_arguments_of_the_sdk_are_the_provider_s_but_for_what_is_listed(provider: Provider) -> None:
    found = {
        f"{token}: {difference}"
        for token in KINDS
        for difference in differences(sdk_types.args_class(token), provider.shape(token))
    }

    assert found == DIFFERENCES.keys()
