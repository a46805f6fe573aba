"""Standing rules, held by every stack file through the real program."""

import json
from typing import Any

import pytest

from infra.instance_types import GPU_TYPES, INSTANCE_TYPES
from infra.key_reference import reference
from tests import recording
from tests.recording import Recording, Registered

LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"
RELEASE = "kubernetes:helm.sh/v3:Release"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
VOLUME = "kubernetes:core/v1:PersistentVolume"
JOB = "kubernetes:batch/v1:Job"


def gpu_groups(stack: Recording) -> list[Registered]:
    return [group for group in stack.of(NODE_GROUP) if group.name != "system"]


def gpu_templates(stack: Recording) -> list[Registered]:
    return [template for template in stack.of(TEMPLATE) if template.name != "system"]


def test_there_are_stacks() -> None:
    assert {"article", "research-dev"} <= recording.STACKS.keys()


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


@pytest.mark.parametrize("name", recording.STACKS)
def test_the_file_system_is_protected_as_the_stack_says_and_the_cluster_too(name: str) -> None:
    config, run = recording.stack_config(name), recording.run(name)
    protection = config["faststart:cluster"].get("deletionProtection", True)

    assert run.one(LUSTRE).protect is config["faststart:storage"]["protect"]
    assert run.one("eks:index:Cluster").protect is protection
    assert run.one("eks:index:Cluster").inputs["deletionProtection"] is protection
    assert {one.type for one in run.resources if one.protect} <= {LUSTRE, "eks:index:Cluster"}


def test_the_kubeconfig_is_secret_wherever_it_goes(stack: Recording) -> None:
    assert stack.secret_outputs == {"kubeconfig"}
    assert "kubeconfig" in stack.one("pulumi:providers:kubernetes").secret_inputs


def test_the_outputs_are_those_of_the_contract(stack: Recording) -> None:
    assert set(stack.outputs) == {
        *("kubeconfig", "clusterName", "region", "dataZone", "vpcId", "dataSubnetId", "fileSystemId"),
        *("fileSystemDnsName", "mountName", "nodeGroups", "models", "servers", "nextCommands"),
    }


@pytest.mark.parametrize("name", recording.STACKS)
def test_the_next_commands_name_this_cluster_and_every_server(name: str) -> None:
    run, config = recording.run(name), recording.stack_config(name)
    text = "\n".join(run.outputs["nextCommands"])

    assert f"--name {run.outputs['clusterName']} --region {config['aws:region']}" in text
    for server in config["faststart:modelServers"]:
        assert f"deployment/faststart-{server} " in text
        assert f"service/faststart-{server} " in text


@pytest.mark.parametrize("name", recording.STACKS)
def test_a_stack_pins_an_example_account_its_region_and_says_what_to_fill_in(name: str) -> None:
    config = recording.stack_config(name)
    text = recording.STACKS[name].read_text()

    assert config["aws:allowedAccountIds"][0] in {"111122223333", "444455556666", "123456789012"}
    assert config["aws:region"]
    assert text.startswith("# Fill in before a real `up`:")
    assert "example" in text.partition("config:")[0]


# The data zone.


def test_nodes_and_lustre_stand_in_one_subnet(stack: Recording) -> None:
    (data_subnet,) = {one.inputs["subnetIds"] for one in stack.of(LUSTRE)}

    assert {tuple(group.inputs["subnetIds"]) for group in stack.of(NODE_GROUP)} == {(data_subnet,)}
    assert stack.outputs["dataSubnetId"] == data_subnet


@pytest.mark.parametrize("name", recording.STACKS)
def test_every_zone_has_a_private_subnet_and_a_way_out(name: str) -> None:
    run, network = recording.run(name), recording.stack_config(name)["faststart:network"]
    private = {one.inputs["availabilityZone"]: one for one in run.of("aws:ec2/subnet:Subnet") if "private" in one.name}
    gateways = run.of("aws:ec2/natGateway:NatGateway")
    routes = {one.name: one.inputs for one in run.of("aws:ec2/route:Route")}

    assert private.keys() == set(network["zones"])
    assert len(gateways) == (len(network["zones"]) if network["nat"] == "perZone" else 1)
    for zone in network["zones"]:
        gateway = zone if network["nat"] == "perZone" else network["dataZone"]
        assert routes[f"network-private-{zone}-default"]["natGatewayId"] == f"network-nat-{gateway}-id"
    (endpoint,) = run.of("aws:ec2/vpcEndpoint:VpcEndpoint")
    assert endpoint.inputs["serviceName"].endswith(".s3")
    assert len(endpoint.inputs["routeTableIds"]) == len(network["zones"])


# The control plane.


def test_the_control_plane_is_private_by_default_encrypted_and_logged(stack: Recording) -> None:
    inputs = stack.one("eks:index:Cluster").inputs

    assert inputs["authenticationMode"] == "API"
    assert inputs["endpointPrivateAccess"] is True
    assert inputs.get("endpointPublicAccess", False) is bool(inputs.get("publicAccessCidrs"))
    assert inputs["encryptionConfigKeyArn"]
    assert set(inputs["enabledClusterLogTypes"]) == {"api", "audit", "authenticator", "controllerManager", "scheduler"}
    assert inputs["upgradePolicy"] == {"supportType": "STANDARD"}
    assert inputs["skipDefaultNodeGroup"] is inputs["skipDefaultSecurityGroups"] is True


def test_control_plane_logs_go_to_our_own_group_that_the_cluster_waits_for(stack: Recording) -> None:
    logs, cluster = stack.one("aws:cloudwatch/logGroup:LogGroup"), stack.one("eks:index:Cluster")

    assert logs.inputs["name"] == f"/aws/eks/{cluster.inputs['name']}/cluster"
    assert logs.inputs["retentionInDays"] > 0
    assert logs.urn in stack.before(cluster)


def test_the_kubeconfig_names_the_deploy_role_that_the_provider_assumes(article: Recording) -> None:
    config = recording.stack_config("article")
    role = config["faststart:cluster"]["access"]["deployRole"]

    assert article.one("eks:index:Cluster").inputs["providerCredentialOpts"] == {"roleArn": role}
    assert config["aws:assumeRoles"] == [{"roleArn": role}]
    assert f"--role-arn {role}" in article.outputs["nextCommands"][0]


def test_the_kubernetes_provider_survives_a_changed_kubeconfig_and_updates_config_maps_in_place(
    stack: Recording,
) -> None:
    provider = stack.one("pulumi:providers:kubernetes").inputs

    assert provider["clusterIdentifier"] == "https://api.example"
    assert provider["enableConfigMapMutable"] in (True, "true")


def test_other_roles_get_access_entries() -> None:
    config = recording.stack_config("research-dev")
    config["faststart:cluster"]["access"] = {
        "entries": {
            "ops": {"roleArn": "arn:aws:iam::444455556666:role/ops", "policy": "clusterAdmin"},
            "team": {"roleArn": "arn:aws:iam::444455556666:role/team", "policy": "view", "namespaces": ["models"]},
        }
    }

    run = recording.run("research-dev", config)

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
        for interface in inputs["networkInterfaces"]:
            assert "subnetId" not in interface
            assert interface["securityGroups"] == ["sg-cluster", "models-lustre-id"]


@pytest.mark.parametrize("name", recording.STACKS)
def test_the_stack_s_tags_reach_instances_volumes_and_interfaces(name: str) -> None:
    tags = recording.stack_config(name)["aws:defaultTags"]["tags"]

    for template in recording.run(name).of(TEMPLATE):
        for one in template.inputs["tagSpecifications"]:
            assert tags.items() <= one["tags"].items()


def test_system_nodes_are_cpu_nodes_with_room_for_a_large_image(stack: Recording) -> None:
    group, template = stack.one(NODE_GROUP, "system"), stack.one(TEMPLATE, "system")

    assert group.inputs["amiType"] == "AL2023_x86_64_STANDARD"
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


@pytest.mark.parametrize("name", recording.STACKS)
def test_a_group_runs_the_nodes_that_the_stack_says(name: str) -> None:
    groups = recording.stack_config(name)["faststart:nodeGroups"]

    for group in gpu_groups(recording.run(name)):
        size = groups[group.name]["size"]
        assert group.inputs["scalingConfig"] == {
            "minSize": size["min"], "desiredSize": size["desired"], "maxSize": size["max"]
        }  # fmt: skip


def run_with_group(**group: Any) -> Recording:
    config = recording.stack_config("article")
    config["faststart:nodeGroups"] = {"g": {"size": {"desired": 0, "max": 1}, **group}}
    config["faststart:modelServers"] = {}
    return recording.run("article", config)


@pytest.mark.parametrize("name", GPU_TYPES)
def test_interfaces_follow_the_table_card_by_card(name: str) -> None:
    facts = INSTANCE_TYPES[name]
    (template,) = gpu_templates(run_with_group(instanceType=name))
    interfaces = template.inputs["networkInterfaces"]
    places = [(one["networkCardIndex"], one["deviceIndex"], one["interfaceType"]) for one in interfaces]

    assert places[0] == (0, 0, "interface")
    assert [kind for _, _, kind in places[1:]] == ["efa-only"] * facts.efa
    assert len({(card, device) for card, device, _ in places}) == len(places)
    assert all(card < facts.network_cards and device == (1 if card == 0 else 0) for card, device, _ in places[1:])
    # Every card beyond the first one carries EFA; on p6-b300 card 0 does not.
    assert {card for card, _, _ in places} == (set(range(facts.network_cards)) if facts.efa else {0})


def test_without_efa_a_node_has_one_interface_and_expects_tcp() -> None:
    run = run_with_group(instanceType="p5.48xlarge", efa=False)
    (group,) = gpu_groups(run)
    (template,) = gpu_templates(run)

    assert len(template.inputs["networkInterfaces"]) == 1
    assert group.inputs["labels"]["faststart.dev/lustre-expected"] == "tcp"


def test_spot_capacity_is_asked_for_where_the_stack_says_so() -> None:
    (group,) = gpu_groups(run_with_group(instanceType="g6.12xlarge", capacity="spot"))

    assert group.inputs["capacityType"] == "SPOT"


def test_the_nodes_role_can_join_and_pull_and_no_more(stack: Recording) -> None:
    policies = {
        one.inputs["policyArn"].rpartition("/")[2]
        for one in stack.of("aws:iam/rolePolicyAttachment:RolePolicyAttachment")
        if one.inputs["role"] == "nodes-role"
    }

    assert policies == {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"}


def test_no_policy_of_ours_allows_more_than_named_actions(stack: Recording) -> None:
    for policy in stack.of("aws:iam/rolePolicy:RolePolicy"):
        for statement in json.loads(policy.inputs["policy"])["Statement"]:
            actions = statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]]
            assert all("*" not in action for action in actions)


# Storage.


@pytest.mark.parametrize("name", recording.STACKS)
def test_the_file_system_is_what_the_stack_asks_for(name: str) -> None:
    storage, file_system = recording.stack_config(name)["faststart:storage"], recording.run(name).one(LUSTRE)

    assert file_system.inputs["storageCapacity"] == storage["capacityGib"]
    assert file_system.inputs["perUnitStorageThroughput"] == storage["throughput"]
    assert file_system.inputs["efaEnabled"] is storage["efa"]
    assert file_system.inputs["deploymentType"] == "PERSISTENT_2"
    assert file_system.inputs["fileSystemTypeVersion"] == "2.15"
    assert file_system.inputs["metadataConfiguration"] == {"mode": "AUTOMATIC"}
    assert file_system.timeouts == {"create": "60m", "update": "60m", "delete": "30m"}


def test_lustre_s_rules_name_the_group_and_stand_before_the_file_system(stack: Recording) -> None:
    group = stack.one("aws:ec2/securityGroup:SecurityGroup")
    file_system = stack.one(LUSTRE)
    rules = [
        *stack.of("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"),
        *stack.of("aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"),
    ]

    assert len(rules) == 2
    for rule in rules:
        assert rule.inputs["referencedSecurityGroupId"] == rule.inputs["securityGroupId"] == f"{group.name}-id"
        assert rule.inputs["ipProtocol"] == "-1"
        assert rule.urn in stack.before(file_system)
    assert file_system.inputs["securityGroupIds"] == [f"{group.name}-id"]


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


def test_the_csi_controller_can_look_at_file_systems_and_nothing_else(stack: Recording) -> None:
    policy = json.loads(stack.one("aws:iam/rolePolicy:RolePolicy", "plugins-fsx-csi").inputs["policy"])
    association = stack.one("aws:eks/podIdentityAssociation:PodIdentityAssociation", "plugins-fsx-csi")
    release = next(one for one in stack.of(RELEASE) if "fsx" in one.name)

    assert [statement["Action"] for statement in policy["Statement"]] == ["fsx:DescribeFileSystems"]
    assert association.inputs["serviceAccount"] == release.inputs["values"]["controller"]["serviceAccount"]["name"]
    assert association.urn in stack.before(release)


@pytest.mark.parametrize("name", recording.STACKS)
def test_the_efa_plugin_comes_where_a_group_has_efa(name: str) -> None:
    run = recording.run(name)
    efa = any(len(template.inputs["networkInterfaces"]) > 1 for template in gpu_templates(run))

    assert any("efa" in one.name for one in run.of(RELEASE)) is efa


@pytest.mark.parametrize(("key", "word"), [("fsxCsi", "fsx-csi"), ("efa", "efa"), ("nvidia", "nvidia")])
def test_each_plugin_can_be_switched_off(key: str, word: str) -> None:
    config = recording.stack_config("article") | {"faststart:plugins": {key: False}}

    names = [one.name for one in recording.run("article", config).of(RELEASE)]

    assert len(names) == 2
    assert not any(word in name for name in names)


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
    page = (recording.ROOT / "stacks" / "README.md").read_text()

    assert page == reference(), "run `make docs`"
