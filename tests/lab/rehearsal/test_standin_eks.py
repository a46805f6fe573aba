"""The component `eks.Cluster` of the stand-in: the children that the real one registers, and what it refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2 as pb

from lab.rehearsal.providers import protocol, wire
from lab.rehearsal.providers.aws_types import CLUSTER
from tests.lab.rehearsal.support import REGION, ROLE, Client, Monitor, monitoring, serving, urn, why

COMPONENT = "eks:index:Cluster"
STANDS = {
    CLUSTER: {
        "id": "lab",
        "name": "lab",
        "arn": f"arn:aws:eks:{REGION}:111122223333:cluster/lab",
        "endpoint": "https://x.eks.amazonaws.com",
        "certificateAuthority": {"data": "ca"},
        "identities": [{"oidcs": [{"issuer": "https://oidc/id/x"}]}],
        "vpcConfig": {"clusterSecurityGroupId": "sg-own"},
    },
    "aws:iam/role:Role": {"id": "role", "name": "role", "arn": ROLE},
}
OURS = {
    "name": "lab",
    "version": "1.35",
    "vpcId": "vpc-1",
    "privateSubnetIds": ["subnet-1", "subnet-2"],
    "authenticationMode": "API",
    "skipDefaultNodeGroup": True,
    "skipDefaultSecurityGroups": True,
    "useDefaultVpcCni": True,
    "kubeProxyAddonOptions": {"enabled": False},
    "bootstrapSelfManagedAddons": False,
}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with serving("eks", tmp_path) as one:
        yield one


def construct(client: Client, monitor: Monitor, inputs: dict[str, Any], **options: Any) -> Any:
    with monitoring(monitor) as address:
        return client.stub.Construct(
            pb.ConstructRequest(
                type=COMPONENT,
                name="fs",
                monitorEndpoint=address,
                inputs=wire.to_struct(inputs),
                inputDependencies={
                    name: pb.ConstructRequest.PropertyDependencies(urns=[f"urn:{name}"]) for name in inputs
                },
                **options,
            )
        )


def refused(client: Client, inputs: dict[str, Any]) -> str:
    with pytest.raises(grpc.RpcError) as error:
        construct(client, Monitor(), inputs)
    return why(error.value)


def test_the_children_are_those_of_the_real_component(client: Client):
    monitor = Monitor(STANDS)
    construct(client, monitor, OURS)
    assert [(one.type, one.name, one.parent.rsplit("::", 1)[-1]) for one in monitor.registered] == [
        (COMPONENT, "fs", ""),
        ("eks:index:ServiceRole", "fs-eksRole", "fs"),
        ("aws:iam/role:Role", "fs-eksRole-role", "fs-eksRole"),
        ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "fs-eksRole-4b490823", "fs-eksRole"),
        (CLUSTER, "fs-eksCluster", "fs"),
        ("pulumi:providers:kubernetes", "fs-eks-k8s", "fs"),
    ]
    assert monitor.look_ups == ["aws:index/getPartition:getPartition"]
    cluster = monitor.named("fs-eksCluster")
    assert wire.from_struct(cluster.object) == {
        "name": "lab",
        "version": "1.35",
        "roleArn": ROLE,
        "vpcConfig": {"subnetIds": ["subnet-1", "subnet-2"]},
        "bootstrapSelfManagedAddons": False,
        "accessConfig": {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": True},
        "tags": {"Name": "fs-eksCluster"},
    }
    assert urn("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "fs-eksRole-4b490823") in cluster.dependencies
    assert list(cluster.ignoreChanges) == [
        "accessConfig.bootstrapClusterCreatorAdminPermissions",
        "bootstrapSelfManagedAddons",
    ]
    assert cluster.version == protocol.sdk_version("aws")


def test_the_options_reach_the_control_plane(client: Client):
    monitor = Monitor(STANDS)
    options = {
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["203.0.113.0/24"],
        "encryptionConfigKeyArn": "arn:key",
        "enabledClusterLogTypes": ["api"],
        "deletionProtection": True,
        "upgradePolicy": {"supportType": "STANDARD"},
        "kubernetesServiceIpAddressRange": "172.20.0.0/16",
    }
    construct(client, monitor, {**OURS, **options}, protect=True)
    cluster = monitor.named("fs-eksCluster")
    inputs = wire.from_struct(cluster.object)
    assert cluster.protect
    assert inputs["vpcConfig"] == {
        "subnetIds": ["subnet-1", "subnet-2"],
        "endpointPrivateAccess": True,
        "endpointPublicAccess": True,
        "publicAccessCidrs": ["203.0.113.0/24"],
    }
    assert inputs["encryptionConfig"] == {"provider": {"keyArn": "arn:key"}, "resources": ["secrets"]}
    assert inputs["kubernetesNetworkConfig"] == {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"}
    same = ("enabledClusterLogTypes", "deletionProtection", "upgradePolicy")
    assert {name: inputs[name] for name in same} == {name: options[name] for name in same}


def test_each_input_depends_on_what_its_option_is_made_of(client: Client):
    monitor = Monitor(STANDS)
    inputs = {**OURS, "publicAccessCidrs": ["203.0.113.0/24"], "endpointPublicAccess": True}
    construct(client, monitor, {**inputs, "encryptionConfigKeyArn": "arn:key"}, dependencies=["urn:logs"])
    made_of = {name: list(one.urns) for name, one in monitor.named("fs-eksCluster").propertyDependencies.items()}
    assert made_of["vpcConfig"] == ["urn:endpointPublicAccess", "urn:privateSubnetIds", "urn:publicAccessCidrs"]
    assert made_of["encryptionConfig"] == ["urn:encryptionConfigKeyArn"]
    assert made_of["roleArn"] == [urn("aws:iam/role:Role", "fs-eksRole-role")]
    assert list(monitor.named("fs").dependencies) == ["urn:logs"]
    provider = monitor.named("fs-eks-k8s")
    assert list(provider.propertyDependencies["kubeconfig"].urns) == [urn(CLUSTER, "fs-eksCluster")]


def test_the_kubeconfig_names_region_cluster_and_role(client: Client):
    answer = construct(client, Monitor(STANDS), {**OURS, "providerCredentialOpts": {"roleArn": ROLE}})
    state = wire.from_struct(answer.state)
    assert json.loads(state["kubeconfigJson"]) == state["kubeconfig"]
    assert state["kubeconfig"]["users"][0]["user"]["exec"]["args"] == [
        *("--region", REGION, "eks", "get-token", "--cluster-name", "lab", "--output", "json", "--role", ROLE)
    ]
    assert state["clusterSecurityGroupId"] == state["nodeSecurityGroupId"] == "sg-own"
    assert list(answer.stateDependencies["kubeconfigJson"].urns) == [urn(CLUSTER, "fs-eksCluster")]
    assert list(answer.stateDependencies["oidcProviderArn"].urns) == []


def test_what_the_engine_does_not_know_yet_is_unknown(client: Client):
    state = wire.from_struct(construct(client, Monitor(), {**OURS, "vpcId": wire.UNKNOWN}).state)
    for name in ("kubeconfig", "kubeconfigJson", "clusterSecurityGroupId", "oidcProviderUrl"):
        assert state[name] == wire.UNKNOWN
    assert state["eksCluster"] == {wire.SIG: wire.RESOURCE, "urn": urn(CLUSTER, "fs-eksCluster"), "id": ""}


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"versionn": "1"}, "versionn: no such property of ClusterArgs; did you mean version?"),
        ({"authenticationMode": "AP"}, "authenticationMode: 'AP' is not one of CONFIG_MAP, API, API_AND_CONFIG_MAP"),
        (
            {"publicAccessCidrs": ["0.0.0.0/0"], "endpointPublicAccess": False},
            "`publicAccessCidrs` can only be set when `endpointPublicAccess` is true",
        ),
    ],
)
def test_what_the_real_component_refuses_is_refused(client: Client, change: dict[str, Any], text: str):
    assert text in refused(client, {**OURS, **change})


REFERENCE = {wire.SIG: wire.RESOURCE, "urn": "urn:pulumi:a::b::aws:iam/role:Role::c", "id": "c"}


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("accessEntries", {"admin": {"principalArn": ROLE}}),
        ("autoMode", {"enabled": True}),
        ("clusterTags", {"a": "b"}),
        ("corednsAddonOptions", {"enabled": True}),
        ("corednsAddonOptions", {"configurationValues": {"replicaCount": 1}}),
        ("createOidcProvider", True),
        ("enableConfigMapMutable", True),
        ("fargate", True),
        ("instanceRoles", [REFERENCE]),
        ("ipFamily", "ipv6"),
        ("nodeSecurityGroupTags", wire.UNKNOWN),
        ("roleMappings", [{"roleArn": ROLE, "username": "u", "groups": ["g"]}]),
        ("serviceRole", REFERENCE),
        ("subnetIds", ["subnet-1"]),
        ("vpcCniOptions", {"warmIpTarget": 0, "enablePrefixDelegation": True}),
    ],
)
def test_an_option_that_the_stand_in_does_not_cover_is_refused_by_name(client: Client, option: str, value: Any):
    text = f"stand-in for eks: {COMPONENT}: not covered by the rehearsal's stand-in: `{option}`"
    assert refused(client, {**OURS, option: value}) == text


@pytest.mark.parametrize(
    ("option", "shown"),
    [
        ("authenticationMode", '`authenticationMode` other than "API"'),
        ("skipDefaultNodeGroup", "`skipDefaultNodeGroup` other than true"),
        ("skipDefaultSecurityGroups", "`skipDefaultSecurityGroups` other than true"),
        ("useDefaultVpcCni", "`useDefaultVpcCni` other than true"),
        ("kubeProxyAddonOptions", "`kubeProxyAddonOptions.enabled` other than false"),
        ("vpcId", "no `vpcId`"),
        ("privateSubnetIds", "no `privateSubnetIds`"),
    ],
)
def test_the_lack_of_an_option_that_would_make_the_real_component_do_more_is_refused(
    client: Client, option: str, shown: str
):
    without = {name: value for name, value in OURS.items() if name != option}
    text = f"stand-in for eks: {COMPONENT}: not covered by the rehearsal's stand-in: {shown}"
    assert refused(client, without) == text


def test_each_option_that_is_not_covered_is_named_and_nothing_is_registered(client: Client):
    monitor = Monitor(STANDS)
    change = {"tags": {"a": "b"}, "gpu": True, "skipDefaultNodeGroup": False, "authenticationMode": "CONFIG_MAP"}
    with pytest.raises(grpc.RpcError) as error:
        construct(client, monitor, {**OURS, **change})
    assert why(error.value).endswith(
        ': `gpu`, `tags`, `authenticationMode` other than "API", `skipDefaultNodeGroup` other than true'
    )
    assert monitor.registered == []


def test_an_option_that_is_given_and_does_nothing_changes_nothing(client: Client):
    idle = {
        "autoMode": {"enabled": False},
        "corednsAddonOptions": {"enabled": False},
        "createOidcProvider": False,
        "fargate": False,
        "roleMappings": [],
        "tags": {},
    }
    plain, with_idle = Monitor(STANDS), Monitor(STANDS)
    construct(client, plain, OURS)
    construct(client, with_idle, {**OURS, **idle})
    assert with_idle.registered == plain.registered


def test_another_component_and_a_method_are_not_covered(client: Client):
    with pytest.raises(grpc.RpcError) as error, monitoring(Monitor()) as address:
        client.stub.Construct(pb.ConstructRequest(type="eks:index:ManagedNodeGroup", monitorEndpoint=address))
    text = "stand-in for eks: eks:index:ManagedNodeGroup is not covered by the rehearsal's stand-in, only "
    assert why(error.value) == text + COMPONENT
    with pytest.raises(grpc.RpcError) as error:
        client.stub.Call(pb.CallRequest(tok="eks:index:Cluster/getKubeconfig"))
    text = "stand-in for eks: eks:index:Cluster/getKubeconfig is not covered by the rehearsal's stand-in"
    assert why(error.value) == text
