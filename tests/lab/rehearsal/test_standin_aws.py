"""The AWS stand-in over gRPC: what it answers, remembers and refuses."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi import _types
from pulumi.runtime.proto import provider_pb2 as pb

from lab.rehearsal.providers import protocol, sdk_types, wire
from lab.rehearsal.providers.aws_refusals import TABLE
from lab.rehearsal.providers.aws_rules import Case
from lab.rehearsal.providers.aws_types import (
    ADDON,
    CLUSTER,
    EGRESS,
    GROUP,
    INGRESS,
    KINDS,
    LOG_GROUP,
    LUSTRE,
    NODE_GROUP,
    ROLE,
    SUBNET,
    TEMPLATE,
    VPC,
)
from tests.lab.rehearsal.refusals import ALSO_WELL, REFUSED, WELL, changed
from tests.lab.rehearsal.support import (
    ACCOUNT,
    REGION,
    Client,
    cluster_inputs,
    network,
    node_group_inputs,
    serving,
    why,
)
from tests.lab.rehearsal.support import (
    ROLE as DEPLOY_ROLE,
)

EFA_LUSTRE = WELL[LUSTRE]


@pytest.fixture
def aws(tmp_path: Path) -> Iterator[Client]:
    with serving("aws", tmp_path) as client:
        client.configure(region=REGION, allowedAccountIds=f'["{ACCOUNT}"]', defaultTags='{"tags": {"team": "lab"}}')
        yield client


def refused(call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(grpc.RpcError) as error:
        call(*args, **options)
    return why(error.value)


def output_problems(token: str, outputs: dict[str, Any]) -> list[sdk_types.Problem]:
    """Outputs that the SDK's class does not know, or knows with another type."""
    cls = sdk_types.resource_class(token)
    assert cls is not None
    known = _types.resource_types(cls)
    found = [sdk_types.Problem((name,), "no such output") for name in outputs.keys() - known.keys()]
    for name in outputs.keys() & known.keys():
        found += sdk_types._check(wire.plain(outputs[name]), known[name], (name,))
    return found


def world(tmp_path: Path) -> protocol.World:
    return protocol.Cloud(tmp_path).look("aws")


# Configuration


def test_account_region_and_identity_come_from_the_configuration(tmp_path: Path):
    with serving("aws", tmp_path) as client:
        client.configure(region="us-west-2", assumeRoles=f'[{{"roleArn": "{DEPLOY_ROLE}"}}]')
        assert client.look_up("aws:index/getCallerIdentity:getCallerIdentity", {})["arn"] == DEPLOY_ROLE
        vpc = client.create(VPC, {"cidrBlock": "10.0.0.0/16"})
        assert vpc.outputs["arn"] == f"arn:aws:ec2:us-west-2:{ACCOUNT}:vpc/{vpc.id}"


def test_an_account_that_is_not_allowed_is_refused(tmp_path: Path):
    with serving("aws", tmp_path) as client:
        text = refused(
            client.configure,
            region=REGION,
            allowedAccountIds='["999988887777"]',
            assumeRoles=f'[{{"roleArn": "{DEPLOY_ROLE}"}}]',
        )
        assert text == f"stand-in for aws: AWS account ID not allowed: {ACCOUNT} (allowed: 999988887777)"


def test_a_misspelled_configuration_key_is_refused(aws: Client):
    answer = aws.stub.CheckConfig(pb.CheckRequest(news=wire.to_struct({"region": REGION, "allowedAccountId": "[]"})))
    assert [one.property for one in answer.failures] == ["allowedAccountId"]


def test_the_plugin_names_the_version_of_the_installed_sdk(aws: Client):
    assert aws.stub.GetPluginInfo(pb.CheckRequest()).version == protocol.sdk_version("aws")


def test_a_look_up_without_an_answer_names_itself(aws: Client):
    assert refused(aws.look_up, "aws:ec2/getAmi:getAmi", {}) == (
        "stand-in for aws: no answer for the look-up aws:ec2/getAmi:getAmi"
    )


# Check


def test_mistakes_are_failures_with_the_path_of_the_property(aws: Client):
    assert aws.failures(TEMPLATE, {"metadataOptions": {"httpTokenz": "required"}}) == [
        "metadataOptions.httpTokenz: no such property of LaunchTemplateMetadataOptionsArgs; did you mean httpTokens?"
    ]


@pytest.mark.parametrize(("token", "changes", "complaint"), REFUSED)
def test_what_aws_alone_refuses_of_the_inputs_is_refused_in_the_preview(
    aws: Client, token: str, changes: dict[str, Any], complaint: str
):
    (found,) = aws.failures(token, changed(token, changes))
    assert found.startswith(complaint)


@pytest.mark.parametrize(("token", "changes"), [*((token, {}) for token in WELL), *ALSO_WELL])
def test_what_aws_takes_is_not_refused(aws: Client, token: str, changes: dict[str, Any]):
    assert aws.failures(token, changed(token, changes)) == []


@pytest.mark.parametrize("token", WELL)
def test_what_is_unknown_is_not_refused(aws: Client, token: str):
    for name in WELL[token].keys() - {"scalingConfig"}:
        assert aws.failures(token, changed(token, {name: wire.UNKNOWN})) == []
    assert aws.failures(token, {**dict.fromkeys(WELL[token], wire.UNKNOWN), "region": wire.UNKNOWN}) == []


def test_each_rule_of_aws_s_own_has_a_source_and_an_example():
    assert all(row.source.startswith(("https://docs.aws.amazon.com/", "https://github.com/")) for row in TABLE)
    checks = [row for row in TABLE if row.moment == "check"]
    cases = [Case(token, {"region": REGION, **changed(token, changes)}) for token, changes, _ in REFUSED]
    shown = {row for case in cases for row in checks if row.type in ("", case.type) and [*row.check(case)]}
    assert shown == {*checks}


def test_a_name_that_is_made_up_stays_the_same_in_every_later_run(aws: Client):
    first = aws.checked(ROLE, {"assumeRolePolicy": "{}"})
    again = aws.checked(ROLE, {"assumeRolePolicy": "{}"}, first)
    assert first["name"].startswith("thing-")
    assert again == first
    assert aws.checked(ROLE, {"assumeRolePolicy": "{}"})["name"] != first["name"]


# Create, read, update, delete


def test_a_round_trip_of_one_resource(aws: Client, tmp_path: Path):
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "lab"}}
    rid, planned = aws.plan(VPC, inputs)
    assert (rid, planned["tagsAll"]) == ("", {"team": "lab", "Name": "lab"})
    vpc = aws.create(VPC, inputs)
    assert vpc.id.startswith("vpc-")
    assert aws.diff(vpc, inputs).changes == pb.DiffResponse.DIFF_NONE

    more = {**inputs, "enableDnsHostnames": True}
    found = aws.diff(vpc, more)
    assert (list(found.detailedDiff), list(found.replaces)) == (["enableDnsHostnames"], [])
    before = vpc.outputs
    assert aws.update(vpc, more) == {**before, "enableDnsHostnames": True}
    assert wire.from_struct(aws.read(vpc).inputs) == more
    aws.delete(vpc)
    assert aws.read(vpc).id == ""
    assert world(tmp_path) == {}


def test_a_replacement_beside_its_predecessor_has_an_id_of_its_own(aws: Client):
    old, new = (aws.create(VPC, {"cidrBlock": "10.0.0.0/16"}) for _ in range(2))
    aws.delete(old)
    assert aws.read(new).id == new.id != old.id


def test_refresh_shows_drift_in_what_the_program_sets_and_only_there(aws: Client, tmp_path: Path):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}})
    with protocol.Cloud(tmp_path).open("aws") as there:
        there[f"{VPC}|{vpc.id}"]["state"] |= {"tags": {"a": "c"}, "enableDnsSupport": False}
    assert wire.from_struct(aws.read(vpc).inputs) == {"cidrBlock": "10.0.0.0/16", "tags": {"a": "c"}}


def test_computed_outputs_that_do_not_change_stay_known_in_the_preview_of_an_update(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net))
    planned = aws.update(cluster, cluster_inputs(net, enabledClusterLogTypes=["api"]), preview=True)
    assert not wire.has_unknown(planned)
    assert planned == {**cluster.outputs, "enabledClusterLogTypes": ["api"]}
    assert planned["vpcConfig"]["clusterSecurityGroupId"].startswith("sg-")


def test_a_launch_template_gets_its_next_version_only_with_a_change_that_makes_one(aws: Client):
    template = aws.create(TEMPLATE, {"instanceType": "m6i.large"})
    assert aws.update(template, {"instanceType": "m6i.large", "tags": {"a": "b"}}, preview=True)["latestVersion"] == 1
    changed = {"instanceType": "m6i.xlarge"}
    assert aws.update(template, changed, preview=True)["latestVersion"] == wire.UNKNOWN
    assert aws.update(template, changed)["latestVersion"] == 2
    assert template.outputs["defaultVersion"] == 1


def test_an_ignored_change_is_no_change(aws: Client):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}})
    changed = {"cidrBlock": "10.1.0.0/16", "tags": {"a": "c"}}
    found = aws.diff(vpc, changed, ignore=("tags.a",))
    assert list(found.detailedDiff) == ["cidrBlock"]
    assert found.detailedDiff["cidrBlock"].kind == pb.PropertyDiff.UPDATE_REPLACE
    assert found.replaces == ["cidrBlock"]


def test_an_unknown_value_for_what_cannot_change_is_a_replacement(aws: Client):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16"})
    subnet = aws.create(SUBNET, {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24"})
    found = aws.diff(subnet, {"vpcId": wire.UNKNOWN, "cidrBlock": "10.0.1.0/24"})
    assert found.replaces == ["vpcId"]


def test_only_a_name_that_the_program_gives_makes_the_old_one_go_first(aws: Client):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16"})
    for name, first in (("fixed", True), (None, False)):
        inputs = {"vpcId": vpc.id, "description": "a", **({"name": name} if name else {})}
        group = aws.create(GROUP, inputs)
        found = aws.diff(group, {**inputs, "description": "b"})
        assert (found.replaces, found.deleteBeforeReplace) == (["description"], first)


def test_a_file_system_grows_in_place_and_shrinks_by_replacement(aws: Client):
    net = network(aws)
    inputs = {**EFA_LUSTRE, "efaEnabled": False, "subnetIds": net.subnets[0].id}
    lustre = aws.create(LUSTRE, inputs)
    assert lustre.outputs["vpcId"] == net.vpc.id
    assert list(aws.diff(lustre, {**inputs, "storageCapacity": 9600}).replaces) == []
    assert list(aws.diff(lustre, {**inputs, "storageCapacity": 2400}).replaces) == ["storageCapacity"]
    without = {name: value for name, value in inputs.items() if name != "metadataConfiguration"}
    assert list(aws.diff(lustre, without).replaces) == ["metadataConfiguration"]


def test_a_secret_is_still_one_in_the_outputs_and_after_a_refresh(aws: Client):
    secret = {"userData": wire.secret("c2VjcmV0")}
    template = aws.create(TEMPLATE, secret)
    assert template.outputs["userData"] == wire.secret("c2VjcmV0")
    assert aws.update(template, {**secret, "instanceType": "m6i.large"})["userData"] == wire.secret("c2VjcmV0")
    assert wire.from_struct(aws.read(template).inputs)["userData"] == wire.secret("c2VjcmV0")
    assert aws.diff(template, {**secret, "instanceType": "m6i.large"}).changes == pb.DiffResponse.DIFF_NONE


def test_what_is_made_of_a_secret_is_one_too(aws: Client):
    inputs = {"cidrBlock": "10.0.0.0/16", "tags": {"owner": wire.secret("somebody")}}
    _, planned = aws.plan(VPC, inputs)
    made = aws.create(VPC, inputs)
    tags = wire.secret({"team": "lab", "owner": "somebody"})
    assert planned["tagsAll"] == made.outputs["tagsAll"] == tags
    assert aws.update(made, {**inputs, "enableDnsSupport": True})["tagsAll"] == tags
    assert made.outputs["arn"].startswith("arn:")


def test_outputs_have_the_names_and_types_of_the_sdk(aws: Client, tmp_path: Path):
    net = network(aws)
    made = [net.vpc, net.role, net.attachment, *net.subnets]

    def make(token: str, **inputs: Any) -> Any:
        made.append(aws.create(token, inputs))
        return made[-1]

    gateway = make("aws:ec2/internetGateway:InternetGateway", vpcId=net.vpc.id)
    table = make("aws:ec2/routeTable:RouteTable", vpcId=net.vpc.id)
    make("aws:ec2/route:Route", routeTableId=table.id, destinationCidrBlock="0.0.0.0/0", gatewayId=gateway.id)
    make("aws:ec2/routeTableAssociation:RouteTableAssociation", routeTableId=table.id, subnetId=net.subnets[0].id)
    address = make("aws:ec2/eip:Eip", domain="vpc")
    nat = make("aws:ec2/natGateway:NatGateway", allocationId=address.id, subnetId=net.subnets[0].id)
    assert nat.outputs["publicIp"] == address.outputs["publicIp"]
    make("aws:ec2/vpcEndpoint:VpcEndpoint", vpcId=net.vpc.id, serviceName="s3", routeTableIds=[table.id])
    group = make(GROUP, vpcId=net.vpc.id)
    for token in (INGRESS, EGRESS):
        make(token, securityGroupId=group.id, referencedSecurityGroupId=group.id, ipProtocol="-1")
    template = make(TEMPLATE, instanceType="m6i.large")
    make("aws:iam/rolePolicy:RolePolicy", role=net.role.id, policy="{}")
    make("aws:kms/key:Key")
    make(LOG_GROUP, name="/aws/eks/lab/cluster", retentionInDays=7)
    make(CLUSTER, **cluster_inputs(net, enabledClusterLogTypes=["api"]))
    version = {"id": template.id, "version": "1"}
    nodes = make(NODE_GROUP, **node_group_inputs(net, launchTemplate=version))
    assert nodes.outputs["version"] == "1.35"
    make(ADDON, clusterName="lab", addonName="coredns")
    entry = {"clusterName": "lab", "principalArn": f"arn:aws:iam::{ACCOUNT}:role/elsewhere"}
    make("aws:eks/accessEntry:AccessEntry", **entry)
    access = {"policyArn": "arn:aws:eks::aws:cluster-access-policy/x", "accessScope": {"type": "cluster"}}
    make("aws:eks/accessPolicyAssociation:AccessPolicyAssociation", **entry, **access)
    identity = {"clusterName": "lab", "namespace": "a", "serviceAccount": "b", "roleArn": net.role.outputs["arn"]}
    make("aws:eks/podIdentityAssociation:PodIdentityAssociation", **identity)
    make(LUSTRE, **{**EFA_LUSTRE, "subnetIds": net.subnets[0].id, "securityGroupIds": [group.id]})

    assert {one.token for one in made} == KINDS.keys()
    found = {one.token: output_problems(one.token, one.outputs) for one in made}
    assert {token: problems for token, problems in found.items() if problems} == {}
    for one in reversed(made):
        aws.delete(one)
    assert world(tmp_path) == {}


def test_a_type_without_an_entry_gets_an_id_and_an_arn(aws: Client):
    bucket = aws.create("aws:sqs/queue:Queue", {})
    assert bucket.outputs["arn"] == f"arn:aws:sqs:{REGION}:{ACCOUNT}:queue/{bucket.id}"
    assert bucket.outputs["tagsAll"] == {"team": "lab"}


# References


@pytest.mark.parametrize(
    ("token", "inputs", "text"),
    [
        (SUBNET, {"vpcId": "vpc-0", "cidrBlock": "10.0.0.0/24"}, "InvalidVpcID.NotFound: The vpc ID 'vpc-0'"),
        (GROUP, {"vpcId": "vpc-0"}, "InvalidVpcID.NotFound"),
        (LUSTRE, {**EFA_LUSTRE, "subnetIds": "subnet-0"}, "InvalidSubnetID.NotFound: The subnet ID 'subnet-0'"),
        (ADDON, {"clusterName": "none", "addonName": "vpc-cni"}, "ResourceNotFoundException: No cluster found"),
        (
            "aws:iam/rolePolicy:RolePolicy",
            {"role": "nobody", "policy": "{}"},
            "NoSuchEntity: The role with name nobody cannot be found",
        ),
        (
            TEMPLATE,
            {"networkInterfaces": [{"securityGroups": ["sg-0"]}]},
            "InvalidGroup.NotFound: The security group 'sg-0'",
        ),
    ],
)  # fmt: skip
def test_what_names_a_resource_that_is_not_there_is_refused(aws: Client, token: str, inputs: dict[str, Any], text: str):
    assert refused(aws.create, token, inputs).startswith(f"stand-in for aws: {text}")


def test_a_second_one_of_the_same_name_is_refused(aws: Client):
    aws.create(LOG_GROUP, {"name": "/a"})
    assert "ResourceAlreadyExistsException: /a exists already" in refused(aws.create, LOG_GROUP, {"name": "/a"})


def test_subnets_lie_inside_their_vpc_and_do_not_overlap(aws: Client):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16"})
    aws.create(SUBNET, {"vpcId": vpc.id, "cidrBlock": "10.0.0.0/20"})
    assert "InvalidSubnet.Conflict" in refused(aws.create, SUBNET, {"vpcId": vpc.id, "cidrBlock": "10.0.1.0/24"})
    assert "InvalidSubnet.Range" in refused(aws.create, SUBNET, {"vpcId": vpc.id, "cidrBlock": "10.1.0.0/24"})


def test_what_is_still_in_use_is_not_deleted(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net))
    nodes = aws.create(NODE_GROUP, node_group_inputs(net))
    assert "DependencyViolation: " + net.vpc.id in refused(aws.delete, net.vpc)
    assert "DependencyViolation: " + net.subnets[0].id in refused(aws.delete, net.subnets[0])
    assert "ResourceInUseException: Cluster has nodegroups attached" in refused(aws.delete, cluster)
    assert "DeleteConflict: Cannot delete entity, must detach all policies first" in refused(aws.delete, net.role)
    for one in (nodes, cluster, net.attachment, net.role, *net.subnets, net.vpc):
        aws.delete(one)


def test_a_security_group_that_another_ones_rule_names_is_not_deleted(aws: Client):
    vpc = aws.create(VPC, {"cidrBlock": "10.0.0.0/16"})
    one, other = (aws.create(GROUP, {"vpcId": vpc.id}, name) for name in ("one", "other"))
    own = {"securityGroupId": one.id, "ipProtocol": "-1", "referencedSecurityGroupId": one.id}
    aws.create(INGRESS, own)
    rule = aws.create(INGRESS, {**own, "referencedSecurityGroupId": other.id}, "rule")
    assert "DependencyViolation" in refused(aws.delete, other)
    aws.delete(rule)
    aws.delete(other)
    aws.delete(one)


def test_an_internet_gateway_stays_as_long_as_a_nat_gateway_does(aws: Client):
    net = network(aws)
    gateway = aws.create("aws:ec2/internetGateway:InternetGateway", {"vpcId": net.vpc.id})
    address = aws.create("aws:ec2/eip:Eip", {})
    inputs = {"allocationId": address.id, "subnetId": net.subnets[0].id}
    nat = aws.create("aws:ec2/natGateway:NatGateway", inputs)
    assert "mapped public address" in refused(aws.delete, gateway)
    assert "InvalidIPAddress.InUse" in refused(aws.delete, address)
    for one in (nat, gateway, address):
        aws.delete(one)


# EKS and FSx


def test_a_cluster_with_deletion_protection_is_not_deleted(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net, deletionProtection=True))
    assert "has deletion protection on" in refused(aws.delete, cluster)
    aws.update(cluster, cluster_inputs(net, deletionProtection=False))
    aws.delete(cluster)


def test_a_cluster_takes_its_add_ons_and_objects_along(aws: Client, tmp_path: Path):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net))
    aws.create(ADDON, {"clusterName": "lab", "addonName": "vpc-cni"})
    with protocol.Cloud(tmp_path).open("kubernetes") as objects:
        objects[f"{cluster.outputs['endpoint']}|kubernetes:core/v1:Secret|a/b"] = {"state": {}}
    aws.delete(cluster)
    assert not [key for key in world(tmp_path) if key.startswith("aws:eks/")]
    assert protocol.Cloud(tmp_path).look("kubernetes") == {}


def test_kubernetes_goes_up_one_minor_version_at_a_time(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net, version="1.33"))
    text = refused(aws.update, cluster, cluster_inputs(net, version="1.35"))
    assert "Unsupported Kubernetes minor version update from 1.33 to 1.35" in text
    assert aws.update(cluster, cluster_inputs(net, version="1.34"))["version"] == "1.34"


def test_kubernetes_goes_back_once_to_the_version_that_it_came_from(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net, version="1.33"))
    never = "Unsupported Kubernetes minor version update from 1.33 to 1.32"
    assert never in refused(aws.update, cluster, cluster_inputs(net, version="1.32"))
    aws.update(cluster, cluster_inputs(net, version="1.34"))
    assert aws.update(cluster, cluster_inputs(net, version="1.33"))["version"] == "1.33"
    assert never in refused(aws.update, cluster, cluster_inputs(net, version="1.32"))


@pytest.mark.parametrize("forced", [False, True])
def test_kubernetes_goes_back_after_its_nodes_or_by_force(aws: Client, forced: bool):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net, version="1.33"))
    aws.update(cluster, cluster_inputs(net, version="1.34"))
    nodes = aws.create(NODE_GROUP, node_group_inputs(net, version="1.34"))
    back = cluster_inputs(net, version="1.33")
    assert "kubelet version skew: thing-" in refused(aws.update, cluster, back)
    if forced:
        back["forceUpdateVersion"] = True
    else:
        aws.update(nodes, node_group_inputs(net, version="1.33"))
    assert aws.update(cluster, back)["version"] == "1.33"


def test_a_cluster_stays_in_its_vpc(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net))
    other = aws.create(VPC, {"cidrBlock": "10.1.0.0/16"}, "other")
    subnet = aws.create(SUBNET, {"vpcId": other.id, "cidrBlock": "10.1.0.0/24"}, "other")
    moved = cluster_inputs(net, vpcConfig={"subnetIds": [subnet.id, net.subnets[1].id]})
    assert list(aws.diff(cluster, moved).replaces) == []
    assert "subnets belong to another VPC" in refused(aws.update, cluster, moved)


def test_a_cluster_wants_two_zones_and_a_role_with_a_policy(aws: Client):
    net = network(aws)
    one_zone = cluster_inputs(net, vpcConfig={"subnetIds": [net.subnets[0].id]})
    assert "at least two different AZs" in refused(aws.create, CLUSTER, one_zone)
    aws.delete(net.attachment)
    assert "doesn't have the Amazon EKS Managed Policies" in refused(aws.create, CLUSTER, cluster_inputs(net))


def test_nodes_want_a_network_plugin_and_their_policies_first(aws: Client):
    net = network(aws)
    aws.create(CLUSTER, cluster_inputs(net, bootstrapSelfManagedAddons=False))
    assert "no vpc-cni add-on" in refused(aws.create, NODE_GROUP, node_group_inputs(net))
    aws.create(ADDON, {"clusterName": "lab", "addonName": "vpc-cni"})
    aws.delete(net.attachment)
    assert "NodeCreationFailure: Instances failed to join" in refused(aws.create, NODE_GROUP, node_group_inputs(net))


def test_a_node_group_wants_a_version_that_its_launch_template_has(aws: Client):
    net = network(aws)
    aws.create(CLUSTER, cluster_inputs(net))
    template = aws.create(TEMPLATE, {"instanceType": "m6i.large"})
    inputs = node_group_inputs(net, launchTemplate={"id": template.id, "version": "2"})
    assert "has no version 2" in refused(aws.create, NODE_GROUP, inputs)


def test_coredns_before_any_node_is_refused(aws: Client):
    net = network(aws)
    aws.create(CLUSTER, cluster_inputs(net))
    inputs = {"clusterName": "lab", "addonName": "coredns"}
    assert "would stay DEGRADED" in refused(aws.create, ADDON, inputs)
    aws.create(NODE_GROUP, node_group_inputs(net))
    aws.create(ADDON, inputs)


def test_eks_makes_the_log_group_anew_that_is_deleted_before_its_cluster(aws: Client, tmp_path: Path):
    net = network(aws)
    logs = aws.create(LOG_GROUP, {"name": "/aws/eks/lab/cluster", "retentionInDays": 7})
    cluster = aws.create(CLUSTER, cluster_inputs(net, enabledClusterLogTypes=["api"]))
    aws.delete(logs)
    aws.delete(cluster)
    assert world(tmp_path)[f"{LOG_GROUP}|/aws/eks/lab/cluster"]["urn"] == "made by EKS itself"


def test_a_log_group_made_after_its_cluster_is_there_already(aws: Client):
    aws.create(CLUSTER, cluster_inputs(network(aws), enabledClusterLogTypes=["api"]))
    assert "exists already" in refused(aws.create, LOG_GROUP, {"name": "/aws/eks/lab/cluster"})


def test_an_efa_file_system_wants_its_security_rules_first(aws: Client):
    net = network(aws)
    group = aws.create(GROUP, {"vpcId": net.vpc.id})
    inputs = {**EFA_LUSTRE, "subnetIds": net.subnets[0].id, "securityGroupIds": [group.id]}
    rule = {"securityGroupId": group.id, "ipProtocol": "-1", "referencedSecurityGroupId": group.id}
    aws.create(INGRESS, rule)
    assert "Insufficient security group permissions" in refused(aws.create, LUSTRE, inputs)
    aws.create(EGRESS, rule)
    aws.create(LUSTRE, inputs)


def test_the_throughput_of_an_efa_file_system_looks_changeable_and_is_not(aws: Client):
    net = network(aws)
    cluster = aws.create(CLUSTER, cluster_inputs(net))
    group = wire.at(cluster.outputs, "vpcConfig.clusterSecurityGroupId")
    inputs = {**EFA_LUSTRE, "storageCapacity": 9600, "subnetIds": net.subnets[0].id, "securityGroupIds": [group]}
    lustre = aws.create(LUSTRE, inputs)
    slower = {**inputs, "perUnitStorageThroughput": 500}
    assert list(aws.diff(lustre, slower).replaces) == []
    assert aws.update(lustre, slower, preview=True)["perUnitStorageThroughput"] == 500
    assert "throughput of an EFA-enabled Lustre file system cannot be updated" in refused(aws.update, lustre, slower)
