"""Standing rules, held by every stack file through the real program."""

import json
from typing import Any

import pytest

from infra.instance_types import GPU_TYPES, INSTANCE_TYPES
from infra.settings.key_reference import reference
from lab import ROOT
from tests import recording
from tests.recording import Recording, Registered

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
RELEASE = "kubernetes:helm.sh/v3:Release"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
ADD_ON = "aws:eks/addon:Addon"
ASSOCIATION = "aws:eks/podIdentityAssociation:PodIdentityAssociation"

# The stacks that come with the repository; a stack of somebody's own names a real account.
EXAMPLES = ("article", "research-dev")


def gpu_groups(stack: Recording) -> list[Registered]:
    return [group for group in stack.of(NODE_GROUP) if "GpuNodeGroup$" in group.urn]


def gpu_templates(stack: Recording) -> list[Registered]:
    return [template for template in stack.of(TEMPLATE) if "GpuNodeGroup$" in template.urn]


def releases(stack: Recording) -> dict[str, Registered]:
    """The Helm releases by the name of their chart."""
    return {one.inputs["chart"].rpartition("/")[2]: one for one in stack.of(RELEASE)}


def policies_of(stack: Recording, role: Registered) -> dict[str, Registered]:
    """What a role may do: attachments by the policy's name, inline policies by their own."""
    attached = stack.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
    return {
        one.inputs.get("policyArn", one.name).rpartition("/")[2]: one
        for one in (*attached, *stack.of("aws:iam/rolePolicy:RolePolicy"))
        if one.inputs["role"] == role.name
    }


def test_there_are_stacks() -> None:
    assert set(EXAMPLES) <= recording.STACKS.keys()


def test_every_kubernetes_object_uses_the_cluster_s_own_provider(stack: Recording) -> None:
    provider = stack.one("pulumi:providers:kubernetes")
    objects = [one for one in stack.resources if one.type.startswith("kubernetes:")]

    assert objects
    assert {one.provider.rpartition("::")[0] for one in objects} == {provider.urn}


def test_every_resource_has_a_component_as_its_parent(stack: Recording) -> None:
    components = {one.urn for one in stack.resources if not one.custom and not one.remote}

    for one in stack.resources:
        if one.custom or one.remote:
            assert one.parent in components, one.urn


def test_a_component_is_of_ours_and_one_noun(stack: Recording) -> None:
    for one in stack.resources:
        if not one.custom and not one.remote:
            assert one.type.startswith(("faststart:infra:", "faststart:workloads:")), one.type


def test_nothing_ignores_changes_since_nothing_else_owns_them(stack: Recording) -> None:
    assert [one.urn for one in stack.resources if one.ignore_changes] == []


def test_the_file_system_is_protected_as_the_stack_says_and_the_cluster_too(stack: Recording) -> None:
    protection = stack.settings.cluster.deletion_protection
    cluster = stack.one("eks:index:Cluster")

    assert stack.one(LUSTRE).protect is stack.settings.storage.protect
    assert cluster.protect is cluster.inputs["deletionProtection"] is protection
    assert {one.type for one in stack.resources if one.protect} <= {LUSTRE, "eks:index:Cluster"}


def test_the_kubeconfig_is_secret_wherever_it_goes(stack: Recording) -> None:
    assert stack.secret_outputs == {"kubeconfig"}
    assert "kubeconfig" in stack.one("pulumi:providers:kubernetes").secret_inputs


def test_the_outputs_are_those_of_the_contract(stack: Recording) -> None:
    assert set(stack.outputs) == {
        *("kubeconfig", "clusterName", "region", "dataZone", "vpcId", "dataSubnetId", "fileSystemId"),
        *("fileSystemDnsName", "mountName", "nodeGroups", "models", "servers", "nextCommands"),
    }


def test_the_next_commands_name_this_cluster_and_every_server(stack: Recording) -> None:
    text = "\n".join(stack.outputs["nextCommands"])

    assert f"--name {stack.outputs['clusterName']} --region {stack.settings.aws.region}" in text
    for server in stack.settings.model_servers:
        assert f"deployment/faststart-{server} " in text
        assert f"service/faststart-{server} " in text


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_stack_of_the_repository_pins_an_example_account_and_says_what_to_fill_in(name: str) -> None:
    text = recording.STACKS[name].read_text()

    assert set(recording.stack_settings(name).aws.allowed_account_ids) <= {"111122223333", "444455556666"}
    assert text.startswith("# Fill in before a real `up`:")
    assert "example" in text.partition("config:")[0]


# The data zone.


def test_nodes_and_lustre_stand_in_one_subnet(stack: Recording) -> None:
    (data_subnet,) = {one.inputs["subnetIds"] for one in stack.of(LUSTRE)}

    assert {tuple(group.inputs["subnetIds"]) for group in stack.of(NODE_GROUP)} == {(data_subnet,)}
    assert stack.outputs["dataSubnetId"] == data_subnet


def test_every_zone_has_a_private_subnet_and_a_way_out(stack: Recording) -> None:
    network = stack.settings.network
    private = {
        one.inputs["availabilityZone"]: one for one in stack.of("aws:ec2/subnet:Subnet") if "private" in one.name
    }
    gateways = stack.of("aws:ec2/natGateway:NatGateway")
    routes = {one.name: one.inputs for one in stack.of("aws:ec2/route:Route")}

    assert private.keys() == set(network.zones)
    assert len(gateways) == (len(network.zones) if network.nat == "perZone" else 1)
    for zone in network.zones:
        gateway = zone if network.nat == "perZone" else network.data_zone
        assert routes[f"network-private-{zone}-default"]["natGatewayId"] == f"network-nat-{gateway}-id"
    (endpoint,) = stack.of("aws:ec2/vpcEndpoint:VpcEndpoint")
    assert endpoint.inputs["serviceName"].endswith(".s3")
    assert len(endpoint.inputs["routeTableIds"]) == len(network.zones)


# The control plane.


def test_the_control_plane_is_private_by_default_encrypted_and_logged(stack: Recording) -> None:
    inputs = stack.one("eks:index:Cluster").inputs

    assert inputs["authenticationMode"] == "API"
    assert inputs["endpointPrivateAccess"] is True
    assert inputs.get("endpointPublicAccess", False) is bool(inputs.get("publicAccessCidrs"))
    assert inputs["encryptionConfigKeyArn"] == f"arn:aws:test:::{stack.one('aws:kms/key:Key').name}"
    assert set(inputs["enabledClusterLogTypes"]) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    assert inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    assert inputs["skipDefaultNodeGroup"] is inputs["skipDefaultSecurityGroups"] is True


def test_the_key_of_kubernetes_secrets_rotates(stack: Recording) -> None:
    assert stack.one("aws:kms/key:Key").inputs["enableKeyRotation"] is True


def test_the_control_plane_comes_without_add_ons_and_identities_that_we_make_ourselves(stack: Recording) -> None:
    """pulumi-eks would make its own VPC CNI, kube-proxy, CoreDNS and OIDC provider beside ours."""
    inputs = stack.one("eks:index:Cluster").inputs

    assert inputs["bootstrapSelfManagedAddons"] is False
    assert inputs["useDefaultVpcCni"] is True
    assert inputs["kubeProxyAddonOptions"] == inputs["corednsAddonOptions"] == {"enabled": False}
    assert inputs["createOidcProvider"] is False


def test_add_ons_win_over_what_they_find(stack: Recording) -> None:
    """EKS refuses an add-on whose objects are there already, unless it may overwrite them."""
    assert stack.of(ADD_ON)
    for add_on in stack.of(ADD_ON):
        assert add_on.inputs["resolveConflictsOnCreate"] == add_on.inputs["resolveConflictsOnUpdate"] == "OVERWRITE"


def test_the_vpc_cni_gets_its_permissions_through_pod_identity(stack: Recording) -> None:
    """The nodes' role has none of them: without the association no pod gets an address."""
    (add_on,) = [one for one in stack.of(ADD_ON) if one.inputs["addonName"] == "vpc-cni"]
    (identity,) = add_on.inputs["podIdentityAssociations"]
    role = stack.one("aws:iam/role:Role", identity["roleArn"].rpartition(":")[2])
    (trust,) = json.loads(role.inputs["assumeRolePolicy"])["Statement"]

    assert identity["serviceAccount"] == "aws-node"
    assert policies_of(stack, role).keys() == {"AmazonEKS_CNI_Policy"}
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(trust["Action"]) == {"sts:AssumeRole", "sts:TagSession"}


def test_control_plane_logs_go_to_our_own_group_that_the_cluster_waits_for(stack: Recording) -> None:
    logs, cluster = stack.one("aws:cloudwatch/logGroup:LogGroup"), stack.one("eks:index:Cluster")

    assert logs.inputs["name"] == f"/aws/eks/{cluster.inputs['name']}/cluster"
    assert logs.inputs["retentionInDays"] > 0
    assert logs.urn in stack.before(cluster)


def test_the_kubeconfig_names_the_deploy_role_that_the_provider_assumes(stack: Recording) -> None:
    role = stack.settings.cluster.access.deploy_role

    assert stack.one("eks:index:Cluster").inputs.get("providerCredentialOpts") == ({"roleArn": role} if role else None)
    assert [one["roleArn"] for one in stack.settings.aws.assume_roles][-1:] == ([role] if role else [])
    assert stack.outputs["nextCommands"][0].partition(" --role-arn ")[2] == (role or "")


def test_the_kubernetes_provider_survives_a_changed_kubeconfig_and_updates_config_maps_in_place(
    stack: Recording,
) -> None:
    provider = stack.one("pulumi:providers:kubernetes").inputs

    assert provider["clusterIdentifier"] == "https://api.example"
    assert provider["enableConfigMapMutable"] in (True, "true")


@pytest.fixture(scope="module")
def over_tcp() -> Recording:
    """A file system without EFA beside nodes that have it; with access entries."""
    config = recording.stack_config("research-dev")
    config["faststart:nodeGroups"]["wide"] = {"instanceType": "g6.48xlarge", "size": {"desired": 0, "max": 1}}
    config["faststart:cluster"]["access"] = {
        "entries": {
            "ops": {"roleArn": "arn:aws:iam::444455556666:role/ops", "policy": "clusterAdmin"},
            "team": {"roleArn": "arn:aws:iam::444455556666:role/team", "policy": "view", "namespaces": ["models"]},
        }
    }
    return recording.run("research-dev", config)


def test_other_roles_get_access_entries(over_tcp: Recording) -> None:
    run = over_tcp

    assert {one.inputs["principalArn"].rpartition("/")[2] for one in run.of("aws:eks/accessEntry:AccessEntry")} == {
        "ops",
        "team",
    }
    scopes = {
        one.inputs["policyArn"].rpartition("/")[2]: one.inputs["accessScope"]
        for one in run.of("aws:eks/accessPolicyAssociation:AccessPolicyAssociation")
    }
    assert scopes == {
        "AmazonEKSClusterAdminPolicy": {"type": "cluster"},
        "AmazonEKSViewPolicy": {"type": "namespace", "namespaces": ["models"]},
    }


# Nodes.


def test_every_node_s_launch_template_is_safe_and_leaves_the_image_to_eks(stack: Recording) -> None:
    for template in stack.of(TEMPLATE):
        inputs = template.inputs
        (disk,) = inputs["blockDeviceMappings"]
        assert disk["ebs"]["encrypted"] == "true"
        assert disk["ebs"]["volumeType"] == "gp3"
        assert inputs["metadataOptions"]["httpTokens"] == "required"
        assert inputs["metadataOptions"]["httpPutResponseHopLimit"] == 1
        assert {one["resourceType"] for one in inputs["tagSpecifications"]} == {
            "instance",
            "volume",
            "network-interface",
        }
        # What a managed node group refuses in a launch template, or manages itself only without it.
        assert not {"imageId", "iamInstanceProfile", "hibernationOptions", "vpcSecurityGroupIds"} & inputs.keys()
        assert not {"instanceMarketOptions", "keyName", "securityGroupNames"} & inputs.keys()
        for interface in inputs["networkInterfaces"]:
            assert "subnetId" not in interface
            assert interface["securityGroups"] == ["sg-cluster", "models-lustre-id"]


def test_a_node_group_says_nothing_that_its_launch_template_says(stack: Recording) -> None:
    """EKS refuses disk size and remote access beside a template, and an instance type that stands in both."""
    for group in stack.of(NODE_GROUP):
        (template,) = [one for one in stack.of(TEMPLATE) if one.parent == group.parent]
        assert group.inputs["launchTemplate"] == {"id": f"{template.name}-id", "version": "1"}
        assert not {"diskSize", "instanceTypes", "remoteAccess"} & group.inputs.keys()
        assert template.inputs["instanceType"] in INSTANCE_TYPES


def test_the_stack_s_tags_reach_instances_volumes_and_interfaces(stack: Recording) -> None:
    for template in stack.of(TEMPLATE):
        for one in template.inputs["tagSpecifications"]:
            assert stack.settings.aws.tags.items() <= one["tags"].items()


def test_system_nodes_are_cpu_nodes_with_room_for_a_large_image(stack: Recording) -> None:
    group, template = stack.one(NODE_GROUP, "system"), stack.one(TEMPLATE, "system")
    size = stack.settings.system_nodes.size

    assert group.inputs["amiType"] == "AL2023_x86_64_STANDARD"
    assert group.inputs["scalingConfig"] == {"minSize": size.min, "desiredSize": size.desired, "maxSize": size.max}
    assert template.inputs["instanceType"] == stack.settings.system_nodes.instance_type
    assert INSTANCE_TYPES[template.inputs["instanceType"]].gpus == 0
    assert template.inputs["blockDeviceMappings"][0]["ebs"]["volumeSize"] >= 100
    assert "taints" not in group.inputs


def test_gpu_groups_end_old_nodes_first_and_carry_labels_and_taint_of_the_contract(stack: Recording) -> None:
    for group in gpu_groups(stack):
        inputs = group.inputs
        assert inputs["amiType"] == "AL2023_x86_64_NVIDIA"
        assert inputs["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}
        assert inputs["nodeRepairConfig"] == {"enabled": True}
        assert inputs["labels"]["faststart.dev/node-group"] == group.name
        assert inputs["labels"]["faststart.dev/lustre-expected"] in ("efa", "tcp")
        assert inputs["labels"]["nvidia.com/gpu.present"] == "true"
        assert inputs["taints"] == [{"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}]
        assert group.delete_before_replace


def test_a_group_runs_the_nodes_that_the_stack_says(stack: Recording) -> None:
    groups = {group.name: group.inputs for group in gpu_groups(stack)}
    types = {template.name: template.inputs["instanceType"] for template in gpu_templates(stack)}

    assert groups.keys() == types.keys() == stack.settings.node_groups.keys()
    for name, wanted in stack.settings.node_groups.items():
        assert groups[name]["scalingConfig"] == {
            "minSize": wanted.size.min, "desiredSize": wanted.size.desired, "maxSize": wanted.size.max
        }  # fmt: skip
        assert types[name] == wanted.instance_type


@pytest.fixture(scope="module")
def many_groups() -> Recording:
    """A node group of each GPU type in one stack, one without EFA and one of spot capacity."""
    config = recording.stack_config("article")
    size = {"desired": 0, "max": 1}
    config["faststart:nodeGroups"] = {
        **{name.replace(".", "-"): {"instanceType": name, "size": size} for name in GPU_TYPES},
        "plain": {"instanceType": "p5.48xlarge", "size": size, "efa": False},
        "spot": {"instanceType": "g6.12xlarge", "size": size, "capacity": "spot"},
    }
    config["faststart:modelServers"] = {}
    return recording.run("article", config)


@pytest.mark.parametrize("name", GPU_TYPES)
def test_interfaces_follow_the_table_card_by_card(many_groups: Recording, name: str) -> None:
    facts = INSTANCE_TYPES[name]
    template = many_groups.one(TEMPLATE, name.replace(".", "-"))
    interfaces = template.inputs["networkInterfaces"]
    places = [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in interfaces]

    assert places[0] == (0, 0, "interface")
    assert [kind for _, _, kind in places[1:]] == ["efa-only"] * facts.efa
    assert len({(card, device) for card, device, _ in places}) == len(places)
    assert all(card < facts.network_cards and device == (1 if card == 0 else 0) for card, device, _ in places[1:])
    # Every card beyond the first one carries EFA; on p6-b300 card 0 does not.
    assert {card for card, _, _ in places} == (set(range(facts.network_cards)) if facts.efa else {0})


def test_without_efa_a_node_has_one_interface_and_expects_tcp(many_groups: Recording) -> None:
    assert len(many_groups.one(TEMPLATE, "plain").inputs["networkInterfaces"]) == 1
    assert many_groups.one(NODE_GROUP, "plain").inputs["labels"]["faststart.dev/lustre-expected"] == "tcp"


def test_a_node_expects_efa_where_file_system_interfaces_and_type_have_it(
    many_groups: Recording, over_tcp: Recording
) -> None:
    expected = {one.name: one.inputs["labels"]["faststart.dev/lustre-expected"] for one in gpu_groups(many_groups)}

    for name in GPU_TYPES:
        assert expected[name.replace(".", "-")] == ("tcp" if INSTANCE_TYPES[name].lustre_efa == "no" else "efa")
    assert len(over_tcp.one(TEMPLATE, "wide").inputs["networkInterfaces"]) > 1
    assert {one.inputs["labels"]["faststart.dev/lustre-expected"] for one in gpu_groups(over_tcp)} == {"tcp"}


def test_spot_capacity_is_asked_for_where_the_stack_says_so(many_groups: Recording) -> None:
    capacity = {one.name: one.inputs["capacityType"] for one in gpu_groups(many_groups)}

    assert {name for name, kind in capacity.items() if kind == "SPOT"} == {"spot"}
    assert set(capacity.values()) == {"SPOT", "ON_DEMAND"}


def test_the_nodes_role_can_join_and_pull_and_no_more(stack: Recording) -> None:
    role = stack.one("aws:iam/role:Role", "nodes-role")

    assert policies_of(stack, role).keys() == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}
    assert {group.inputs["nodeRoleArn"] for group in stack.of(NODE_GROUP)} == {f"arn:aws:test:::{role.name}"}


def test_no_policy_of_ours_allows_more_than_named_actions(stack: Recording) -> None:
    for policy in stack.of("aws:iam/rolePolicy:RolePolicy"):
        for statement in json.loads(policy.inputs["policy"])["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert all("*" not in action for action in actions)


# Storage.


def test_the_file_system_is_what_the_stack_asks_for(stack: Recording) -> None:
    storage, file_system = stack.settings.storage, stack.one(LUSTRE)

    assert file_system.inputs["storageCapacity"] == storage.capacity_gib
    assert file_system.inputs["perUnitStorageThroughput"] == storage.throughput
    assert file_system.inputs["efaEnabled"] is storage.efa
    assert file_system.inputs["deploymentType"] == "PERSISTENT_2"
    assert file_system.inputs["fileSystemTypeVersion"] == "2.15"
    assert file_system.inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}
    assert file_system.timeouts == {"create": "60m", "update": "60m", "delete": "30m"}


INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"


def test_lustre_s_rules_name_the_group_and_stand_before_the_file_system(stack: Recording) -> None:
    group, file_system = stack.one("aws:ec2/securityGroup:SecurityGroup"), stack.one(LUSTRE)
    itself = f"{group.name}-id"

    assert file_system.inputs["securityGroupIds"] == [itself]
    for token in (INGRESS, EGRESS):
        (rule,) = [one for one in stack.of(token) if one.inputs["securityGroupId"] == itself]
        named = {key: rule.inputs.get(key) for key in ("ipProtocol", "referencedSecurityGroupId", "fromPort", "toPort")}
        assert named == {"ipProtocol": "-1", "referencedSecurityGroupId": itself, "fromPort": None, "toPort": None}
        assert rule.urn in stack.before(file_system)


def test_every_rule_names_a_security_group_but_the_one_that_lets_the_vpc_to_the_api_server(stack: Recording) -> None:
    """Also none in a group's own inline lists, which would fight with the rules that are resources."""
    rules = [*stack.of(INGRESS), *stack.of(EGRESS)]
    ranged = {one.name: one for one in rules if "referencedSecurityGroupId" not in one.inputs}

    assert not [one for one in rules if {"cidrIpv6", "prefixListId"} & one.inputs.keys()]
    assert {name for name, one in ranged.items() if one.type != INGRESS} == set()
    for api in ranged.values():
        assert api.inputs["securityGroupId"] == "sg-cluster"
        assert api.inputs["cidrIpv4"] == stack.settings.network.cidr
        assert (api.inputs["ipProtocol"], api.inputs["fromPort"], api.inputs["toPort"]) == ("tcp", 443, 443)
    assert not any({"ingress", "egress"} & one.inputs.keys() for one in stack.of("aws:ec2/securityGroup:SecurityGroup"))
    assert {one.type for one in stack.resources if "ecurityGroup" in one.type} == {
        "aws:ec2/securityGroup:SecurityGroup", INGRESS, EGRESS
    }  # fmt: skip


def test_volumes_are_static_kept_zoned_and_have_handles_of_their_own(stack: Recording) -> None:
    volumes = {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in stack.of(VOLUME)}
    zone = stack.outputs["dataZone"]

    assert volumes.keys() == {"faststart-models-rw-faststart-system", "faststart-models-ro-models"}
    assert len({spec["csi"]["volumeHandle"] for spec in volumes.values()}) == 2
    for name, spec in volumes.items():
        assert spec["persistentVolumeReclaimPolicy"] == "Retain"
        assert spec["storageClassName"] == ""
        assert spec["mountOptions"] == (["flock", "ro"] if "-ro-" in name else ["flock"])
        assert spec["csi"]["volumeAttributes"] == {
            "dnsname": stack.outputs["fileSystemDnsName"], "mountname": stack.outputs["mountName"]
        }  # fmt: skip
        (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
        assert term["matchExpressions"] == [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]


def test_a_claim_and_its_volume_name_each_other(stack: Recording) -> None:
    volumes = {one.inputs["metadata"]["name"]: one.inputs["spec"] for one in stack.of(VOLUME)}

    for claim in stack.of(CLAIM):
        meta, spec = claim.inputs["metadata"], claim.inputs["spec"]
        volume = volumes[spec["volumeName"]]
        assert volume["claimRef"] == {"namespace": meta["namespace"], "name": meta["name"]}
        assert spec["storageClassName"] == ""
        assert spec["resources"]["requests"] == volume["capacity"]


def test_only_faststart_system_has_a_claim_that_can_write(stack: Recording) -> None:
    claims = {(one.inputs["metadata"]["namespace"], one.inputs["metadata"]["name"]) for one in stack.of(CLAIM)}

    assert claims == {("faststart-system", "faststart-models-rw"), ("models", "faststart-models-ro")}


# Plugins.


def test_the_charts_that_the_settings_want_are_installed(stack: Recording) -> None:
    wanted = {chart.name: chart.version for chart in stack.settings.charts()}

    assert {name: one.inputs["version"] for name, one in releases(stack).items()} == wanted
    for release in stack.of(RELEASE):
        # A release that failed half way is taken back, so that the next `up` finds none and starts again.
        assert release.inputs["atomic"] is True
        assert release.inputs["namespace"] == "kube-system"


def test_the_csi_controller_can_look_at_file_systems_and_nothing_else(article: Recording) -> None:
    policy = json.loads(article.one("aws:iam/rolePolicy:RolePolicy", "plugins-fsx-csi").inputs["policy"])
    association = article.one(ASSOCIATION, "plugins-fsx-csi")
    release = releases(article)["aws-fsx-csi-driver"]
    role = article.one("aws:iam/role:Role", "plugins-fsx-csi")

    assert [statement["Action"] for statement in policy["Statement"]] == ["fsx:DescribeFileSystems"]
    assert policies_of(article, role).keys() == {"plugins-fsx-csi"}
    assert association.inputs["roleArn"] == f"arn:aws:test:::{role.name}"
    assert association.inputs["namespace"] == release.inputs["namespace"]
    assert association.inputs["serviceAccount"] == release.inputs["values"]["controller"]["serviceAccount"]["name"]
    assert association.urn in article.before(release)


def test_the_csi_driver_runs_on_every_node_and_is_told_the_region(stack: Recording) -> None:
    """Its pods are one hop too far from the metadata service to ask it; GPU nodes are tainted."""
    for release in [one for name, one in releases(stack).items() if name == "aws-fsx-csi-driver"]:
        values = release.inputs["values"]
        assert values["node"]["tolerateAllTaints"] is True
        assert values["node"]["region"] == values["controller"]["region"] == stack.settings.aws.region


def test_the_efa_plugin_comes_where_a_group_has_efa(stack: Recording) -> None:
    efa = any(len(template.inputs["networkInterfaces"]) > 1 for template in gpu_templates(stack))

    assert ("aws-efa-k8s-device-plugin" in releases(stack)) is (efa and stack.settings.plugins.efa)


@pytest.mark.parametrize(
    ("key", "chart"),
    [
        ("fsxCsi", "aws-fsx-csi-driver"),
        ("efa", "aws-efa-k8s-device-plugin"),
        ("nvidia", "nvidia-device-plugin"),
    ],
)
def test_each_plugin_can_be_switched_off(key: str, chart: str) -> None:
    config = recording.stack_config("article")
    every = {chart.name for chart in recording.checked(config, "article").charts()}

    less = recording.checked(config | {"faststart:plugins": {key: False}}, "article").charts()

    assert {chart.name for chart in less} == every - {chart}


def test_a_plugin_that_is_off_leaves_no_release_and_no_permission() -> None:
    config = recording.stack_config("article") | {"faststart:plugins": {"fsxCsi": False, "nvidia": False}}

    run = recording.run("article", config)

    assert releases(run).keys() == {"aws-efa-k8s-device-plugin"}
    assert [one.name for one in run.of(ASSOCIATION) if one.name.startswith("plugins-")] == []


@pytest.mark.parametrize(
    ("mirror", "chart", "repository"),
    [
        ("https://charts.example.com/x", "aws-fsx-csi-driver", {"repo": "https://charts.example.com/x"}),
        ("oci://registry.example.com/charts", "oci://registry.example.com/charts/aws-fsx-csi-driver", None),
    ],
)
def test_a_mirror_takes_the_place_of_the_charts_repositories(mirror: str, chart: str, repository: Any) -> None:
    config = recording.stack_config("research-dev") | {"faststart:mirrors": {"charts": mirror}}

    release = next(one for one in recording.run("research-dev", config).of(RELEASE) if "fsx" in one.name)

    assert release.inputs["chart"] == chart
    assert release.inputs.get("repositoryOpts") == repository


def test_a_mirror_folder_holds_a_chart_a_subfolder(tmp_path: Any) -> None:
    for name in ("aws-fsx-csi-driver", "nvidia-device-plugin"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Chart.yaml").touch()
    config = recording.stack_config("research-dev") | {"faststart:mirrors": {"charts": str(tmp_path)}}

    charts = {one.inputs["chart"] for one in recording.run("research-dev", config).of(RELEASE)}

    assert charts == {f"{tmp_path}/aws-fsx-csi-driver", f"{tmp_path}/nvidia-device-plugin"}


# The reference.


def test_the_key_reference_is_what_the_settings_make() -> None:
    page = (ROOT / "stacks" / "README.md").read_text()

    assert page == reference(), "run `make docs`"
