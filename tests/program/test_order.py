"""What must stand before what: GPU nodes come last, since every minute that they wait is paid for."""

import json

import pytest

from tests import recording
from tests.recording import Recording, Registered

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
RELEASE = "kubernetes:helm.sh/v3:Release"


def gpu_groups(stack: Recording) -> list[Registered]:
    return [group for group in stack.of(NODE_GROUP) if "GpuNodeGroup$" in group.urn]


def csi_releases(stack: Recording) -> list[Registered]:
    """The CSI driver's release; none where the stack switches it off."""
    return [one for one in stack.of(RELEASE) if one.inputs["chart"].endswith("aws-fsx-csi-driver")]


@pytest.mark.parametrize(
    "token",
    [
        "aws:fsx/lustreFileSystem:LustreFileSystem",
        RELEASE,
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:core/v1:PersistentVolume",
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:ConfigMap",
        "aws:eks/addon:Addon",
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "eks:index:Cluster",
    ],
)
def test_gpu_nodes_wait_for_all_that_their_pods_need(stack: Recording, token: str) -> None:
    needed = {one.urn for one in stack.of(token)}

    assert needed or (token == RELEASE and not stack.settings.charts())
    for group in gpu_groups(stack):
        assert needed <= stack.before(group)


def test_gpu_nodes_wait_for_the_system_nodes_and_not_the_other_way(stack: Recording) -> None:
    system = stack.one(NODE_GROUP, "system")

    for group in gpu_groups(stack):
        assert system.urn in stack.before(group)
        assert group.urn not in stack.before(system)


def test_servers_wait_for_their_nodes(stack: Recording) -> None:
    groups = {group.name: group.urn for group in gpu_groups(stack)}

    for deployment in stack.of("kubernetes:apps/v1:Deployment"):
        selector = deployment.inputs["spec"]["template"]["spec"]["nodeSelector"]
        assert groups[selector["faststart.dev/node-group"]] in stack.before(deployment)


def test_the_first_add_ons_stand_before_any_node_and_coredns_after_the_system_nodes(stack: Recording) -> None:
    add_ons = {one.inputs["addonName"]: one for one in stack.of("aws:eks/addon:Addon")}
    system = stack.one(NODE_GROUP, "system")

    assert add_ons.keys() == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent", "coredns"}
    for name in ("vpc-cni", "kube-proxy", "eks-pod-identity-agent"):
        for group in stack.of(NODE_GROUP):
            assert add_ons[name].urn in stack.before(group)
    assert add_ons["eks-pod-identity-agent"].urn in stack.before(add_ons["vpc-cni"])
    assert system.urn in stack.before(add_ons["coredns"])


def test_the_file_system_and_the_control_plane_do_not_wait_for_each_other(stack: Recording) -> None:
    file_system = stack.one("aws:fsx/lustreFileSystem:LustreFileSystem")
    cluster = stack.one("eks:index:Cluster")

    assert file_system.urn not in stack.before(cluster)
    assert cluster.urn not in stack.before(file_system)


def test_who_uses_a_role_waits_for_all_of_its_policies_and_loses_them_last(stack: Recording) -> None:
    """A role's name alone is no order: a node would not join, and a CNI would get no address, for the time between."""
    policies = [
        *stack.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment"),
        *stack.of("aws:iam/rolePolicy:RolePolicy"),
    ]
    users: dict[str, set[str]] = {}
    for role in stack.of("aws:iam/role:Role"):
        arn = json.dumps(f"arn:aws:test:::{role.name}")
        granted = {one.urn for one in policies if one.inputs["role"] == role.name}
        using = [one for one in stack.resources if arn in json.dumps(one.inputs)]
        assert granted, role.name
        # Each itself, not by way of something else that it happens to wait for.
        assert [one.urn for one in using if not granted <= one.depends_on] == []
        users[role.name] = {one.name for one in using}

    models = stack.settings.models
    assert users == {
        "cluster-cni": {"cluster-vpc-cni"},
        "nodes-role": {group.name for group in stack.of(NODE_GROUP)},
        **({"plugins-fsx-csi": {"plugins-fsx-csi"}} if csi_releases(stack) else {}),
        **{f"{name}-publish": {f"{name}-publish"} for name, model in models.items() if model.kind == "s3"},
    }


def test_a_nat_gateway_waits_for_the_way_out_of_its_subnet(stack: Recording) -> None:
    """AWS refuses none without it, but what starts behind it would reach no registry."""
    public_route = stack.one("aws:ec2/route:Route", "network-public-default")
    associations = {
        one.inputs["subnetId"]: one for one in stack.of("aws:ec2/routeTableAssociation:RouteTableAssociation")
    }

    assert public_route.inputs["gatewayId"] == "network-internet-id"
    for gateway in stack.of("aws:ec2/natGateway:NatGateway"):
        association = associations[gateway.inputs["subnetId"]]
        assert association.inputs["routeTableId"] == public_route.inputs["routeTableId"]
        assert {public_route.urn, association.urn} <= stack.before(gateway)


@pytest.mark.parametrize(
    "token",
    [
        "aws:ec2/route:Route",
        "aws:ec2/routeTableAssociation:RouteTableAssociation",
        "aws:ec2/natGateway:NatGateway",
    ],
)
def test_system_nodes_wait_for_their_way_out(stack: Recording, token: str) -> None:
    assert {one.urn for one in stack.of(token)} <= stack.before(stack.one(NODE_GROUP, "system"))


@pytest.mark.parametrize(
    "token",
    [
        "kubernetes:core/v1:PersistentVolume",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:batch/v1:Job",
    ],
)
def test_what_is_mounted_waits_for_the_csi_driver_that_mounts_it(stack: Recording, token: str) -> None:
    """At destroy the driver goes after the last pod that needs it to unmount."""
    for one in stack.of(token):
        assert {release.urn for release in csi_releases(stack)} <= stack.before(one)


@pytest.mark.parametrize(
    "token",
    [
        "aws:eks/nodeGroup:NodeGroup",
        "aws:eks/addon:Addon",
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
    ],
)
def test_what_lives_in_the_cluster_hangs_on_an_output_of_it_so_that_destroy_takes_it_first(
    stack: Recording, token: str
) -> None:
    """`depends_on` a packaged component names only the component: its control plane could be deleted first."""
    cluster = stack.one("eks:index:Cluster")

    for one in stack.of(token):
        assert one.inputs["clusterName"] == cluster.inputs["name"]
        assert cluster.urn in one.depends_on or cluster.urn in stack.before(one)


def test_gpu_nodes_wait_for_the_publishing_of_the_models_they_serve_and_of_no_others() -> None:
    config = recording.stack_config("article")
    config["faststart:models"]["other"] = {"source": "s3://bucket/other", "revision": "1", "sizeGib": 1}
    config["faststart:nodeGroups"]["idle"] = config["faststart:nodeGroups"]["p5"]

    run = recording.run("article", config)

    jobs = {one.name: one.urn for one in run.of("kubernetes:batch/v1:Job") if one.name.endswith("-publish")}
    groups = {group.name: run.before(group) for group in gpu_groups(run)}
    assert {name for name, urn in jobs.items() if urn in groups["p5"]} == {"qwen3-235b-a22b-publish"}
    assert {name for name, urn in jobs.items() if urn in groups["idle"]} == set()


def test_publishing_waits_for_what_it_needs_and_for_no_plugin_of_the_gpu_nodes(stack: Recording) -> None:
    for job in stack.of("kubernetes:batch/v1:Job"):
        if not job.name.endswith("-publish"):
            continue
        before = stack.before(job)
        releases = {one.urn for one in stack.of(RELEASE)}
        assert releases & before == {one.urn for one in csi_releases(stack)}
        assert stack.one("aws:fsx/lustreFileSystem:LustreFileSystem").urn in before
        assert stack.one("kubernetes:batch/v1:Job", "claims-init").urn in before
        assert stack.one(NODE_GROUP, "system").urn in before
        assert {group.urn for group in gpu_groups(stack)} & before == set()


def test_who_publishes_from_a_bucket_waits_for_its_permission(stack: Recording) -> None:
    for association in stack.of("aws:eks/podIdentityAssociation:PodIdentityAssociation"):
        if association.name.endswith("-publish"):
            assert association.urn in stack.before(stack.one("kubernetes:batch/v1:Job", association.name))
