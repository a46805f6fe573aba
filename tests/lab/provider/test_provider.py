"""What HashiCorp's provider says of the resources that the program declares: which values, and which changes."""

from __future__ import annotations

import copy
import os
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from pulumi.runtime import rpc

from lab import ROOT
from lab.provider.mapping import Failure
from lab.provider.protocol import Plugin, ProviderError
from lab.provider.provider import Provider, RefusedError
from lab.provider.tool import ProviderTool
from tests.lab.provider.conftest import Stack

pytestmark = pytest.mark.processes

UNKNOWN = rpc.UNKNOWN


def changed(inputs: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Inputs with other values at dotted paths; None takes one away."""
    result = copy.deepcopy(inputs)
    for path, value in changes.items():
        *around, last = [int(step) if step.isdigit() else step for step in path.split(".")]
        inside: Any = result
        for step in around:
            inside = inside[step] if isinstance(step, int) else inside.setdefault(step, {})
        if value is None:
            del inside[last]
        else:
            inside[last] = value
    return result


def dotted(path: tuple[str | int, ...]) -> str:
    return ".".join(map(str, path))


# What it accepts


def test_every_resource_of_a_released_state_is_accepted(built: ProviderTool, stack: Stack) -> None:
    with Provider.without_account(built.program, stack.provider) as provider:
        found = [(one["urn"], provider.check_new(one["type"], one["inputs"])) for one in stack.resources]

    assert [one for one in found if one[1]] == []


def test_every_property_of_a_released_state_has_an_argument(built: ProviderTool, stack: Stack) -> None:
    with Provider.without_account(built.program, stack.provider) as provider:
        found = [(one["urn"], provider.read(one["type"], one["inputs"]).unmapped) for one in stack.resources]

    assert [one for one in found if one[1]] == []


def test_a_released_state_planned_over_itself_changes_nothing(built: ProviderTool, stack: Stack) -> None:
    with Provider.without_account(built.program, stack.provider) as provider:
        found = {
            one["urn"]: provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], one["inputs"])
            for one in stack.resources
        }

    assert {urn: diff for urn, diff in found.items() if diff.action != "none"} == {}


def test_unknown_values_pass(provider: Provider, stack: Stack) -> None:
    for one in stack.resources:
        for name in one["inputs"]:
            if not name.startswith("__"):
                assert provider.check(one["type"], {**one["inputs"], name: UNKNOWN}) == [], (one["urn"], name)


# What it refuses

WRONG = [
    ("LustreFileSystem", {"perUnitStorageThroughput": 77}, "perUnitStorageThroughput"),
    ("LustreFileSystem", {"perUnitStorageThroughput": 5000}, "perUnitStorageThroughput"),
    ("LustreFileSystem", {"storageCapacity": 1000}, "storageCapacity"),
    ("LustreFileSystem", {"kmsKeyId": "nokey"}, "kmsKeyId"),
    ("LustreFileSystem", {"metadataConfiguration.mode": "MANUAL"}, "metadataConfiguration.mode"),
    ("NodeGroup", {"amiType": "AL2023_NVIDIA"}, "amiType"),
    ("NodeGroup", {"capacityType": "BLOCK"}, "capacityType"),
    ("NodeGroup", {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}, "taints"),
    ("NodeGroup", {"nodeGroupName": "x" * 64}, "nodeGroupName"),
    ("NodeGroup", {"clusterName": "-bad-"}, "clusterName"),
    ("NodeGroup", {"launchTemplate.version": ""}, "launchTemplate.version"),
    ("NodeGroup", {"updateConfig.maxUnavailable": 101}, "updateConfig.maxUnavailable"),
    ("NodeGroup", {"updateConfig.maxUnavailable": 0}, "updateConfig.maxUnavailable"),
    ("Vpc", {"cidrBlock": "10.0.0.0/8"}, "cidrBlock"),
    ("Vpc", {"cidrBlock": "10.0.0.1/16"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.0.0.5/24"}, "cidrBlock"),
    ("Subnet", {"cidrBlock": "10.0.0.0/33"}, "cidrBlock"),
    ("LaunchTemplate", {"networkInterfaces.0.interfaceType": "efa_only"}, "networkInterfaces.0.interfaceType"),
    ("LaunchTemplate", {"metadataOptions.httpTokens": "maybe"}, "metadataOptions.httpTokens"),
    ("LaunchTemplate", {"metadataOptions.httpPutResponseHopLimit": 65}, "metadataOptions.httpPutResponseHopLimit"),
    ("LaunchTemplate", {"blockDeviceMappings.0.ebs.volumeType": "gp9"}, "blockDeviceMappings.0.ebs.volumeType"),
    ("LaunchTemplate", {"blockDeviceMappings.0.ebs.throughput": 5000}, "blockDeviceMappings.0.ebs.throughput"),
    ("LaunchTemplate", {"instanceMarketOptions": {"marketType": "free"}}, "instanceMarketOptions.marketType"),
    ("LaunchTemplate", {"tagSpecifications.0.resourceType": "thing"}, "tagSpecifications.0.resourceType"),
    ("LaunchTemplate", {"name": "a"}, "name"),
    ("Cluster", {"name": "my cluster"}, "name"),
    ("Cluster", {"enabledClusterLogTypes": ["everything"]}, "enabledClusterLogTypes"),
    ("Cluster", {"encryptionConfig.resources": ["pods"]}, "encryptionConfig.resources"),
    (
        "Cluster",
        {"kubernetesNetworkConfig.serviceIpv4Cidr": "8.8.0.0/16"},
        "kubernetesNetworkConfig.serviceIpv4Cidr",
    ),
    ("Cluster", {"vpcConfig.publicAccessCidrs": ["1.2.3.4"]}, "vpcConfig.publicAccessCidrs"),
    ("Cluster", {"roleArn": "x"}, "roleArn"),
    ("LogGroup", {"name": "a b"}, "name"),
    ("LogGroup", {"retentionInDays": 8}, "retentionInDays"),
    ("LogGroup", {"logGroupClass": "CHEAP"}, "logGroupClass"),
    ("Role", {"name": "r" * 65}, "name"),
    ("Role", {"assumeRolePolicy": "no json"}, "assumeRolePolicy"),
    ("SecurityGroup", {"name": "sg-x"}, "name"),
    ("Role", {"maxSessionDuration": 10}, "maxSessionDuration"),
    ("RolePolicyAttachment", {"policyArn": "x"}, "policyArn"),
    ("Key", {"deletionWindowInDays": 5}, "deletionWindowInDays"),
    ("Key", {"rotationPeriodInDays": 10}, "rotationPeriodInDays"),
    ("Addon", {"resolveConflictsOnCreate": "PRESERVE"}, "resolveConflictsOnCreate"),
    ("Addon", {"podIdentityAssociations": [{"roleArn": "x", "serviceAccount": "y"}]}, "podIdentityAssociations"),
    ("PodIdentityAssociation", {"roleArn": "x"}, "roleArn"),
    ("VpcEndpoint", {"vpcEndpointType": "X"}, "vpcEndpointType"),
    ("NatGateway", {"connectivityType": "x"}, "connectivityType"),
    ("RouteTableAssociation", {"gatewayId": "igw-1"}, "gatewayId"),
    ("Route", {"natGatewayId": "nat-1"}, "natGatewayId"),
]


@pytest.mark.parametrize(("kind", "changes", "path"), WRONG, ids=lambda one: str(one)[:60])
def test_a_wrong_value_is_refused_where_it_stands(
    provider: Provider, article: Stack, kind: str, changes: dict[str, Any], path: str
) -> None:
    one = article.one(kind)

    found = provider.check(one["type"], changed(one["inputs"], changes))

    assert path in [dotted(failure.path) for failure in found]


def test_a_refusal_is_the_provider_s_own_sentence(provider: Provider, article: Stack) -> None:
    one = article.one("Vpc")

    assert provider.check(one["type"], {**one["inputs"], "cidrBlock": "10.0.0.0/8"}) == [
        Failure(
            ("cidrBlock",),
            'expected "cidr_block" to contain a network Value with between 16 and 28 significant bits, got: 8',
        )
    ]


def test_a_value_of_another_type_is_refused_before_the_provider_sees_it(provider: Provider, article: Stack) -> None:
    one = article.one("NodeGroup")

    assert provider.check(one["type"], changed(one["inputs"], {"scalingConfig.maxSize": "many"})) == [
        Failure(("scalingConfig", "maxSize"), "a number is needed, not 'many'")
    ]


def test_what_only_the_plan_refuses_is_refused_of_a_new_resource(provider: Provider, article: Stack) -> None:
    one = article.one("LustreFileSystem")
    inputs = changed(one["inputs"], {"deploymentType": "SCRATCH_2"})

    assert provider.check(one["type"], inputs) == []
    assert provider.check_new(one["type"], inputs) == [
        Failure((), "metadata_configuration can only be set when deployment type is PERSISTENT_2")
    ]


# What it would change

CHANGES = [
    ("LustreFileSystem", {"storageCapacity": 9600}, "replace"),
    ("LustreFileSystem", {"storageCapacity": 28800}, "update"),
    ("LustreFileSystem", {"perUnitStorageThroughput": 500}, "update"),
    ("LustreFileSystem", {"efaEnabled": False}, "replace"),
    ("LustreFileSystem", {"subnetIds": "subnet-1"}, "replace"),
    ("LustreFileSystem", {"securityGroupIds": ["sg-1"]}, "replace"),
    ("LustreFileSystem", {"kmsKeyId": "arn:aws:kms:us-east-1:111122223333:key/1"}, "replace"),
    ("LustreFileSystem", {"dataCompressionType": "LZ4"}, "update"),
    ("Subnet", {"availabilityZone": "us-east-1c"}, "replace"),
    ("Subnet", {"cidrBlock": "10.20.99.0/24"}, "replace"),
    ("Cluster", {"version": "1.36"}, "update"),
    ("Cluster", {"version": "1.33"}, "update"),
    ("Cluster", {"name": "other"}, "replace"),
    ("Cluster", {"encryptionConfig": None}, "replace"),
    ("Cluster", {"vpcConfig.publicAccessCidrs": ["203.0.113.7/32"]}, "update"),
    ("Cluster", {"vpcConfig.subnetIds": ["subnet-1", "subnet-2"]}, "update"),
    ("LaunchTemplate", {"instanceType": "m7i.large"}, "update"),
    ("LaunchTemplate", {"networkInterfaces.0.securityGroups": ["sg-1"]}, "update"),
    ("NodeGroup", {"capacityType": "SPOT"}, "replace"),
    ("NodeGroup", {"amiType": "AL2023_x86_64_NVIDIA"}, "replace"),
    ("NodeGroup", {"subnetIds": ["subnet-1"]}, "replace"),
    ("NodeGroup", {"scalingConfig.maxSize": 9}, "update"),
    ("NodeGroup", {"labels.other": "label"}, "update"),
    ("NodeGroup", {"launchTemplate.version": "2"}, "update"),
    ("NodeGroup", {"version": "1.36"}, "update"),
    ("Vpc", {"cidrBlock": "10.99.0.0/16"}, "replace"),
    ("Vpc", {"tags": None}, "update"),
    ("Role", {"name": "other"}, "replace"),
    ("RolePolicyAttachment", {"role": "other"}, "replace"),
    ("Addon", {"addonVersion": "v1.2.3"}, "update"),
    ("Key", {"enableKeyRotation": False}, "update"),
    ("LogGroup", {"retentionInDays": 14}, "update"),
    ("SecurityGroup", {"description": "other"}, "replace"),
    ("SecurityGroupIngressRule", {"description": "other"}, "update"),
    ("NatGateway", {"subnetId": "subnet-1"}, "replace"),
    ("Route", {"destinationCidrBlock": "10.0.0.0/8"}, "replace"),
    ("Route", {"gatewayId": "igw-1"}, "update"),
    ("VpcEndpoint", {"routeTableIds": ["rtb-1"]}, "update"),
    ("PodIdentityAssociation", {"namespace": "other"}, "replace"),
    ("PodIdentityAssociation", {"roleArn": "arn:aws:iam::111122223333:role/other"}, "update"),
]


@pytest.mark.parametrize(("kind", "changes", "action"), CHANGES, ids=lambda one: str(one)[:60])
def test_a_change_is_an_update_or_a_replacement_by_the_provider_s_own_plan(
    provider: Provider, article: Stack, kind: str, changes: dict[str, Any], action: str
) -> None:
    one = article.one(kind)

    diff = provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], changed(one["inputs"], changes))

    ((path, value),) = changes.items()
    paths = [dotted(found) for found in diff.changed]
    if kind == "Vpc" and value is None:
        paths = ["tags"] if paths == ["tags.Name"] else paths
    assert (diff.action, paths) == (action, [path])
    assert [dotted(found) for found in diff.replaced] == ([path] if action == "replace" else [])


def test_outputs_that_follow_a_change_are_told_apart_from_it(provider: Provider, article: Stack) -> None:
    template, file_system = article.one("LaunchTemplate"), article.one("LustreFileSystem")

    def outputs(one: dict[str, Any], changes: dict[str, Any]) -> tuple[tuple[str | int, ...], ...]:
        new = changed(one["inputs"], changes)
        return provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], new).outputs

    assert outputs(template, {"instanceType": "m7i.large"}) == (("latestVersion",),)
    assert outputs(file_system, {"tags.Name": "other"}) == (("tagsAll", "Name"),)


def test_a_value_that_becomes_unknown_counts_as_changed(provider: Provider, article: Stack) -> None:
    found = {}
    for kind, name in (("Subnet", "vpcId"), ("LogGroup", "retentionInDays"), ("NodeGroup", "subnetIds")):
        one = article.one(kind)
        inputs = {**one["inputs"], name: UNKNOWN}
        found[name] = provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], inputs).action

    assert found == {"vpcId": "replace", "retentionInDays": "update", "subnetIds": "replace"}


def test_tags_of_the_provider_s_configuration_change_every_resource_that_has_tags(
    built: ProviderTool, article: Stack
) -> None:
    config = {**article.provider, "defaultTags": {"tags": {"project": "other"}}}
    with Provider.without_account(built.program, config) as provider:
        found = {
            kind: provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], one["inputs"])
            for kind in ("Vpc", "Route")
            for one in (article.one(kind),)
        }

    assert found["Vpc"].action == "update"
    assert found["Vpc"].outputs == (("tagsAll", "project"), ("tagsAll", "team"))
    assert found["Route"].action == "none"


def test_a_plan_that_the_provider_refuses_says_why(provider: Provider, article: Stack) -> None:
    one = article.one("LustreFileSystem")
    inputs = changed(one["inputs"], {"deploymentType": "PERSISTENT_1"})

    with pytest.raises(RefusedError, match="can only be set when deployment type is PERSISTENT_2"):
        provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], inputs)


def test_a_property_that_the_provider_does_not_know_yet_is_a_change_when_it_changes(
    provider: Provider, article: Stack
) -> None:
    one = article.one("NodeGroup")
    inputs = {**one["inputs"], "warmPoolConfig": {"enabled": True}}

    diff = provider.diff(one["type"], one["id"], one["inputs"], one["outputs"], inputs)

    assert (diff.action, diff.changed) == ("update", (("warmPoolConfig",),))


def test_a_type_that_was_trimmed_away_is_not_known(provider: Provider) -> None:
    assert provider.knows("aws:ec2/vpc:Vpc")
    assert not provider.knows("aws:s3/bucket:Bucket")
    with pytest.raises(ProviderError, match="no type for aws:s3/bucket:Bucket"):
        provider.check("aws:s3/bucket:Bucket", {})


# Its process


def running(folder: str) -> list[str]:
    """The processes whose socket lies in a folder."""
    found = subprocess.run(["ps", "-eww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in found.splitlines() if folder in line]


OWNER = """
import os, sys, time
from pathlib import Path
from lab.provider.protocol import Plugin
plugin = Plugin(Path(sys.argv[1]), {})
print("running", flush=True)
time.sleep(600)
"""


def test_the_provider_ends_with_its_owner_even_when_that_is_killed(built: ProviderTool, tmp_path: Any) -> None:
    program = tmp_path / "terraform-provider-aws"
    program.symlink_to(built.program)
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, program],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    try:
        assert owner.stdout.readline() == "running\n"
        assert running(str(program))
    finally:
        owner.kill()
        owner.communicate()

    deadline = time.monotonic() + 10
    while (running(str(program)) or [*tmp_path.glob("provider-*")]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(str(program))
    assert not [*tmp_path.glob("provider-*")]


def test_a_provider_that_has_ended_is_an_error(built: ProviderTool) -> None:
    plugin = Plugin(built.program, {})
    os.killpg(plugin._process.pid, signal.SIGKILL)
    plugin._process.wait()

    with plugin, pytest.raises(ProviderError, match="PlanResourceChange: "):
        plugin.call("PlanResourceChange", type_name="aws_vpc")


def test_a_program_that_is_no_provider_says_what_it_said(tmp_path: Any) -> None:
    program = tmp_path / "other"
    program.write_text("#!/bin/sh\necho hello\n")
    program.chmod(0o755)

    with pytest.raises(ProviderError, match="does not speak plugin protocol 5: it says 'hello'"):
        Plugin(program, {})
