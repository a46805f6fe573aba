"""The AWS stand-in with an emulated account behind it: HashiCorp's provider makes, reads, changes and deletes there."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import status_pb2

from lab.account.faults import Fault
from lab.account.process import Account
from lab.provider.provider import environment
from lab.provider.tool import ProviderTool
from lab.rehearsal.providers import aws_account, wire
from lab.rehearsal.providers.aws_types import CLUSTER, LOG_GROUP, ROLE, SUBNET, VPC
from lab.rehearsal.providers.protocol import Cloud
from tests.lab.rehearsal.support import ACCOUNT, REGION, Client, Made, cluster_inputs, network, served, urn, why

pytestmark = pytest.mark.processes

ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
TRUST = '{"Version": "2012-10-17", "Statement": []}'
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"


@dataclass
class Lab:
    """The stand-in, what it keeps beside the account, and the account."""

    client: Client
    cloud: Cloud
    account: Account

    def drift(self, made: Made) -> list[str]:
        """The inputs that the next deployment would change after a refresh."""
        found = self.client.read(made)
        seen = Made(made.token, made.name, found.id, wire.from_struct(found.inputs), wire.from_struct(found.properties))
        return sorted(self.client.diff(seen, made.inputs).detailedDiff)

    def is_there(self, made: Made) -> bool:
        return bool(self.client.read(made).id)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, built: ProviderTool) -> Iterator[Lab]:
    cloud = Cloud(tmp_path_factory.mktemp("cloud"))
    with Account(cloud.account, REGION, ACCOUNT) as account:
        stand_in = aws_account.AwsInAccount(cloud)
        stand_in.provider = built.program
        with served(stand_in) as client:
            tags = '{"tags": {"team": "lab"}}'
            client.configure(region=REGION, allowedAccountIds=f'["{ACCOUNT}"]', defaultTags=tags)
            yield Lab(client, cloud, account)


@pytest.fixture
def longest_wait(lab: Lab) -> Iterator[Callable[[float], object]]:
    file = lab.cloud.folder / "longest-wait"
    yield lambda seconds: file.write_text(str(seconds), encoding="utf-8")
    file.unlink(missing_ok=True)


@pytest.fixture
def faults(lab: Lab) -> Iterator[Callable[..., None]]:
    yield lambda *faults: lab.account.set(faults=faults)
    lab.account.set()


def half_made(error: grpc.RpcError) -> pb.ErrorResourceInitFailed:
    """What the engine gets of a resource that stands although its creation failed."""
    said: Any = error
    detail = pb.ErrorResourceInitFailed()
    status = status_pb2.Status.FromString(dict(said.trailing_metadata())["grpc-status-details-bin"])
    assert status.details[0].Unpack(detail)
    return detail


def test_a_resource_lives_in_the_account_and_nowhere_else(lab: Lab) -> None:
    made = lab.client.create(LOG_GROUP, {"name": "/lab/one", "retentionInDays": 7})

    assert lab.client.read(made).properties == wire.to_struct(made.outputs)
    assert lab.drift(made) == []
    lab.client.update(made, {"name": "/lab/one", "retentionInDays": 14})
    (group,) = lab.account.client("logs").describe_log_groups(logGroupNamePrefix="/lab/one")["logGroups"]
    assert (group["retentionInDays"], made.outputs["tagsAll"]) == (14, {"team": "lab"})
    assert lab.drift(made) == []
    lab.client.delete(made)
    assert not lab.is_there(made)
    assert [one for one in lab.account.standing() if "/lab/one" in one] == []


def test_a_creation_that_is_only_previewed_makes_nothing(lab: Lab) -> None:
    before = lab.account.standing()

    assert lab.client.plan(LOG_GROUP, {"name": "/lab/planned"})[0] == ""
    assert lab.account.standing() == before


def keep_logs_longer(lab: Lab, made: Made) -> None:
    lab.account.client("logs").put_retention_policy(logGroupName=made.id, retentionInDays=365)


def tag_the_role(lab: Lab, made: Made) -> None:
    lab.account.client("iam").tag_role(RoleName=made.id, Tags=[{"Key": "by", "Value": "hand"}])


def let_anybody_assume(lab: Lab, made: Made) -> None:
    anybody = TRUST.replace("[]", '[{"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]')
    lab.account.client("iam").update_assume_role_policy(RoleName=made.id, PolicyDocument=anybody)


def make_public(lab: Lab, made: Made) -> None:
    lab.account.client("ec2").modify_subnet_attribute(SubnetId=made.id, MapPublicIpOnLaunch={"Value": True})


def take_names_away(lab: Lab, made: Made) -> None:
    lab.account.client("ec2").modify_vpc_attribute(VpcId=made.id, EnableDnsHostnames={"Value": False})


def open_the_endpoint(lab: Lab, made: Made) -> None:
    access = {"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]}
    lab.account.client("eks").update_cluster_config(name=made.id, resourcesVpcConfig=access)


VPC_INPUTS = {"cidrBlock": "10.7.0.0/16", "enableDnsHostnames": True}


@pytest.mark.parametrize(
    ("token", "inputs", "change", "drift"),
    [
        (LOG_GROUP, {"name": "/lab/drift", "retentionInDays": 7}, keep_logs_longer, ["retentionInDays"]),
        (ROLE, {"name": "tagged", "assumeRolePolicy": TRUST}, tag_the_role, ["tags.by", "tagsAll.by"]),
        (ROLE, {"name": "open", "assumeRolePolicy": TRUST}, let_anybody_assume, ["assumeRolePolicy"]),
        (VPC, VPC_INPUTS, take_names_away, ["enableDnsHostnames"]),
        (SUBNET, {"cidrBlock": "10.7.0.0/24", "mapPublicIpOnLaunch": False}, make_public, ["mapPublicIpOnLaunch"]),
        (CLUSTER, {}, open_the_endpoint, ["vpcConfig.endpointPublicAccess"]),
    ],
    ids=lambda one: getattr(one, "__name__", None),
)
def test_what_somebody_changed_in_the_account_is_seen_by_a_refresh(
    lab: Lab, token: str, inputs: dict[str, Any], change: Callable[[Lab, Made], None], drift: list[str]
) -> None:
    if token == SUBNET:
        inputs = {**inputs, "vpcId": lab.client.create(VPC, VPC_INPUTS).id}
    elif token == CLUSTER:
        inputs = cluster_inputs(network(lab.client))
        inputs["vpcConfig"] |= {"endpointPublicAccess": False, "endpointPrivateAccess": True}
    made = lab.client.create(token, inputs)
    assert lab.drift(made) == []

    change(lab, made)

    assert lab.drift(made) == drift


def test_what_somebody_deleted_in_the_account_is_gone_for_a_refresh(lab: Lab) -> None:
    made = lab.client.create(LOG_GROUP, {"name": "/lab/lost"})
    lab.account.client("logs").delete_log_group(logGroupName="/lab/lost")

    assert not lab.is_there(made)


def test_what_the_account_refuses_leaves_nothing_behind(lab: Lab) -> None:
    inputs = {"role": "nobody", "policyArn": "arn:aws:iam::aws:policy/ReadOnlyAccess"}

    with pytest.raises(grpc.RpcError, match="NoSuchEntity") as refused:
        lab.client.create(ATTACHMENT, inputs)

    said: Any = refused.value
    assert said.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert [key for key in lab.cloud.look("aws") if key.startswith(ATTACHMENT) and "nobody" in key] == []


@pytest.mark.parametrize(
    ("fault", "seconds", "words"),
    [("fails", 0, "unexpected state 'FAILED'"), ("stays", 3, "timeout while waiting for state to become 'ACTIVE'")],
)
def test_what_stands_after_a_failed_creation_reaches_the_engine_with_its_id_and_the_next_update_keeps_it(
    lab: Lab,
    faults: Callable[..., None],
    longest_wait: Callable[[float], object],
    fault: str,
    seconds: float,
    words: str,
) -> None:
    inputs = lab.client.checked(CLUSTER, {**cluster_inputs(network(lab.client)), "name": f"it-{fault}"})
    faults(Fault("eks.CreateCluster", fault, times=1))
    longest_wait(seconds)

    with pytest.raises(grpc.RpcError) as failed:
        lab.client.stub.Create(pb.CreateRequest(urn=urn(CLUSTER), properties=wire.to_struct(inputs), timeout=1800))

    detail = half_made(failed.value)
    assert detail.id == f"it-{fault}"
    assert words in why(failed.value)
    assert [*detail.reasons] == [why(failed.value)]
    made = Made(CLUSTER, "thing", detail.id, inputs, wire.from_struct(detail.properties))
    assert made.outputs["name"] == f"it-{fault}"
    assert lab.client.update(made, inputs) == made.outputs


def test_a_type_of_a_service_that_the_built_provider_lacks_is_refused_with_the_place_to_add_it(lab: Lab) -> None:
    (found,) = lab.client.failures("aws:sqs/queue:Queue", {})

    assert "has no aws:sqs/queue:Queue" in found
    assert "lab/provider/trimmed_module.py" in found


def test_what_is_secret_in_the_inputs_is_secret_in_all_that_is_known_of_a_resource(lab: Lab) -> None:
    made = lab.client.create(LOG_GROUP, {"name": "/lab/secret", "tags": wire.secret({"key": "tell-nobody"})})

    for outputs in (made.outputs, wire.from_struct(lab.client.read(made).properties)):
        assert {name for name, value in outputs.items() if wire.has_secret(value)} == {"tags", "tagsAll"}
        assert "tell-nobody" not in str({name: one for name, one in outputs.items() if not wire.has_secret(one)})


def test_who_asks_for_a_cluster_finds_it_where_the_stand_in_for_kubernetes_looks(lab: Lab) -> None:
    made = lab.client.create(CLUSTER, {**cluster_inputs(network(lab.client)), "name": "seen"})

    assert lab.cloud.look("aws")[f"{CLUSTER}|seen"]["state"]["endpoint"] == made.outputs["endpoint"]


def test_no_variable_of_the_caller_reaches_the_provider(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ROLE_ARN", "AWS_CONFIG_FILE", "HTTPS_PROXY", "AWS_REGION"):
        monkeypatch.setenv(name, str(tmp_path / "elsewhere"))

    found = environment("http://127.0.0.1:1")

    assert [name for name, value in found.items() if "elsewhere" in value] == []
    assert {name for name in found if name.startswith("AWS_")} == {
        "AWS_CONFIG_FILE",
        "AWS_SHARED_CREDENTIALS_FILE",
        "AWS_EC2_METADATA_DISABLED",
        "AWS_ENDPOINT_URL",
    }
