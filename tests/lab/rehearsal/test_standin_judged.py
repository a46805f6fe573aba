"""The AWS stand-in where HashiCorp's provider was built: that one checks inputs and plans changes."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2 as pb

from lab.provider.tool import ProviderTool
from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_types import GROUP, LUSTRE, SUBNET, VPC
from tests.lab.rehearsal.refusals import changed
from tests.lab.rehearsal.support import ACCOUNT, REGION, Client, Made, serving, urn, why

pytestmark = pytest.mark.processes

VPC_INPUTS = {"cidrBlock": "10.0.0.0/16"}
LUSTRE_INPUTS = {
    "deploymentType": "PERSISTENT_2",
    "efaEnabled": True,
    "fileSystemTypeVersion": "2.15",
    "metadataConfiguration": {"mode": "AUTOMATIC"},
    "perUnitStorageThroughput": 1000,
    "storageCapacity": 9600,
    "storageType": "SSD",
}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory, built: ProviderTool) -> Iterator[Client]:
    with serving("aws", tmp_path_factory.mktemp("judged"), built.program) as client:
        client.configure(region=REGION, allowedAccountIds=f'["{ACCOUNT}"]', defaultTags='{"tags": {"team": "lab"}}')
        yield client


@pytest.fixture(scope="module")
def subnet(judged: Client) -> Made:
    vpc = judged.create(VPC, VPC_INPUTS)
    return judged.create(SUBNET, {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24", "availabilityZone": f"{REGION}a"})


@pytest.fixture(scope="module")
def lustre(judged: Client, subnet: Made) -> Made:
    """A file system as the engine knows it, to be planned for; nothing was made."""
    inputs = judged.checked(LUSTRE, {**LUSTRE_INPUTS, "subnetIds": subnet.id})
    return Made(LUSTRE, "thing", "fs-0123456789abcdef0", inputs, {**inputs, "arn": "arn:aws:fsx:::file-system/fs-0"})


def plan(client: Client, made: Made, changes: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The inputs that change, and those that need a new resource."""
    found = client.diff(made, {**made.inputs, **changes})
    return sorted(found.detailedDiff), sorted(found.replaces)


def test_a_value_is_refused_with_the_provider_s_own_sentence(judged: Client) -> None:
    (found,) = judged.failures(VPC, {"cidrBlock": "10.0.0.0/8"})

    assert found.startswith('cidrBlock: expected "cidr_block" to contain a network Value')


def test_what_only_the_plan_of_a_creation_refuses_is_refused_at_check(judged: Client, subnet: Made) -> None:
    inputs = {**LUSTRE_INPUTS, "deploymentType": "SCRATCH_2", "subnetIds": subnet.id}

    assert [one for one in judged.failures(LUSTRE, inputs) if "metadata_configuration can only be set" in one]


def test_what_the_provider_takes_and_aws_refuses_is_still_refused(judged: Client, subnet: Made) -> None:
    """A step of 4800 GiB for EFA at 1000 MB/s/TiB is no rule of the provider's."""
    inputs = {**LUSTRE_INPUTS, "storageCapacity": 6000, "subnetIds": subnet.id}

    assert [one for one in judged.failures(LUSTRE, inputs) if one.startswith("storageCapacity: ")]


@pytest.mark.parametrize(
    ("token", "changes", "paths"),
    [
        (LUSTRE, {"storageCapacity": 1000}, ["storageCapacity"]),
        (LUSTRE, {"perUnitStorageThroughput": 77}, ["perUnitStorageThroughput"]),
        (LUSTRE, {"fileSystemTypeVersion": "new"}, ["fileSystemTypeVersion"]),
        (LUSTRE, {"metadataConfiguration": {"mode": "AUTOMATIC", "iops": 17}}, ["metadataConfiguration.iops"]),
        (GROUP, {"name": 'sg-"'}, ["name"]),
        (GROUP, {"description": '"' * 256}, ["description"]),
        (
            LUSTRE,
            {"perUnitStorageThroughput": 77, "metadataConfiguration": None},
            ["perUnitStorageThroughput", "efaEnabled"],
        ),
    ],
)
def test_what_provider_and_aws_both_refuse_is_refused_once_and_the_rest_beside_it(
    judged: Client, token: str, changes: dict[str, Any], paths: list[str]
) -> None:
    assert [one.partition(":")[0] for one in judged.failures(token, changed(token, changes))] == paths


def test_unknown_values_are_not_judged(judged: Client) -> None:
    assert judged.failures(VPC, {"cidrBlock": wire.UNKNOWN}) == []
    assert judged.failures(LUSTRE, {**LUSTRE_INPUTS, "subnetIds": wire.UNKNOWN}) == []


@pytest.mark.parametrize(
    ("changes", "replaces"),
    [
        ({"storageCapacity": 4800}, True),
        ({"storageCapacity": 14400}, False),
        ({"efaEnabled": False}, True),
        ({"tags": {"a": "b"}}, False),
        ({"subnetIds": wire.UNKNOWN}, True),
    ],
    ids=str,
)
def test_a_change_is_what_the_provider_plans(
    judged: Client, lustre: Made, changes: dict[str, Any], replaces: bool
) -> None:
    changed, replaced = plan(judged, lustre, changes)

    assert set(changes) <= {one.partition(".")[0] for one in changed}
    assert bool(replaced) == replaces


def test_inputs_that_are_the_same_change_nothing(judged: Client, lustre: Made) -> None:
    assert plan(judged, lustre, {}) == ([], [])


def test_a_change_that_the_provider_refuses_to_plan_is_told_with_its_sentence(judged: Client, lustre: Made) -> None:
    news = {**lustre.inputs, "deploymentType": "SCRATCH_2"}
    request = pb.DiffRequest(
        id=lustre.id,
        urn=urn(LUSTRE),
        olds=wire.to_struct(lustre.outputs),
        old_inputs=wire.to_struct(lustre.inputs),
        news=wire.to_struct(news),
    )
    with pytest.raises(grpc.RpcError) as refused:
        judged.stub.Diff(request)

    assert "metadata_configuration can only be set" in why(refused.value)


def test_the_throughput_of_efa_is_an_update_to_the_provider_and_refused_by_aws_when_it_is_made(
    judged: Client, lustre: Made
) -> None:
    assert plan(judged, lustre, {"perUnitStorageThroughput": 500}) == (["perUnitStorageThroughput"], [])
