"""What AWS itself refuses and HashiCorp's provider does not know: one table, each row with its source.

A row without a link says what follows from others in the cloud: a second subnet at the same addresses, nodes without
permissions. What the provider refuses by itself stands in no row.
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_rules import every, find, has_nodes
from lab.rehearsal.providers.aws_types import (
    ADDON,
    CLUSTER,
    GATEWAY,
    GROUP,
    LUSTRE,
    NAT,
    NODE_GROUP,
    SUBNET,
    TEMPLATE,
)
from lab.rehearsal.providers.protocol import RefusedError, World
from lab.rehearsal.providers.sdk_types import Problem

Values = dict[str, Any]
Refusals = Iterator[str]

_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
_STEP_GIB, _SMALLEST_GIB = 2400, 1200
_LUSTRE_VERSIONS = ("2.10", "2.12", "2.15")
_LABEL_NAME, _LABEL_VALUE = r"(?:[\w.-]{1,253}/)?[\w.-]{1,63}", r"[\w.-]{0,63}"

_DOCS = "https://docs.aws.amazon.com"
_USER_GUIDE = f"{_DOCS}/eks/latest/userguide"
_LUSTRE_GUIDE = f"{_DOCS}/fsx/latest/LustreGuide"
_EC2_GUIDE = f"{_DOCS}/AWSEC2/latest/UserGuide"


@dataclass(frozen=True)
class Row:
    """Something that AWS refuses.

    Attributes:
        moment: when it does; `check` is seen from the inputs alone, and so in a preview.
        type: of what.
        check: the rule, by its moment: of the inputs (problems), of the world and the inputs, of the world with the old
            and the new inputs, of the world and the state (texts).
        source: where AWS says so.
    """

    moment: Literal["check", "create", "update", "delete"]
    type: str
    check: Callable[..., Iterator[Any]]
    source: str = ""


def problems(token: str, inputs: Values, region: str) -> Iterator[Problem]:
    """What is refused of plain inputs that fit the SDK's types."""
    for row in _rows("check", token):
        yield from row.check(inputs)
    zone = inputs.get("availabilityZone")
    if isinstance(zone, str) and zone != wire.UNKNOWN and zone[:-1] != region:
        yield Problem(("availabilityZone",), f"{zone!r} is no zone of {region}")


def check_create(world: World, token: str, inputs: Values) -> None:
    """Refuses what cannot come into this world as it is."""
    _refuse(text for row in _rows("create", token) for text in row.check(world, inputs))


def check_update(world: World, token: str, old: Values, new: Values) -> None:
    """Refuses changes that a preview shows as harmless."""
    _refuse(text for row in _rows("update", token) for text in row.check(world, old, new))


def check_delete(world: World, token: str, state: Values) -> None:
    """Refuses what cannot leave this world, for other reasons than being named by others."""
    _refuse(text for row in _rows("delete", token) for text in row.check(world, state))


def _rows(moment: str, token: str) -> Iterator[Row]:
    return (row for row in TABLE if (row.moment, row.type) == (moment, token))


def _refuse(refusals: Refusals) -> None:
    if text := next(refusals, None):
        raise RefusedError(text)


# Of the inputs alone.


def _capacity_comes_in_steps(inputs: Values) -> Iterator[Problem]:
    size, tier, efa = (inputs.get(prop) for prop in ("storageCapacity", "perUnitStorageThroughput", "efaEnabled"))
    if inputs.get("deploymentType") != "PERSISTENT_2" or not isinstance(size, int) or efa == wire.UNKNOWN:
        return
    if efa and tier in _EFA_STEP_GIB and size % _EFA_STEP_GIB[tier]:
        reason = f"with EFA at {tier} MB/s/TiB it must be a multiple of {_EFA_STEP_GIB[tier]} GiB"
        yield Problem(("storageCapacity",), reason)
    if not efa and size != _SMALLEST_GIB and size % _STEP_GIB:
        yield Problem(("storageCapacity",), f"must be {_SMALLEST_GIB} or a multiple of {_STEP_GIB} GiB")


def _tier_is_one_of_persistent_2(inputs: Values) -> Iterator[Problem]:
    tier = inputs.get("perUnitStorageThroughput")
    if inputs.get("deploymentType") == "PERSISTENT_2" and tier not in (*_EFA_STEP_GIB, wire.UNKNOWN):
        yield Problem(("perUnitStorageThroughput",), f"must be one of {', '.join(map(str, _EFA_STEP_GIB))}")


def _version_exists(inputs: Values) -> Iterator[Problem]:
    version, metadata = inputs.get("fileSystemTypeVersion"), inputs.get("metadataConfiguration")
    if version not in (None, wire.UNKNOWN, *_LUSTRE_VERSIONS):
        yield Problem(("fileSystemTypeVersion",), f"must be one of {', '.join(_LUSTRE_VERSIONS)}")
    elif metadata and version not in (wire.UNKNOWN, _LUSTRE_VERSIONS[-1]):
        reason = f"a metadata configuration needs fileSystemTypeVersion {_LUSTRE_VERSIONS[-1]}"
        yield Problem(("metadataConfiguration",), reason)


def _efa_needs_metadata(inputs: Values) -> Iterator[Problem]:
    kind, metadata = inputs.get("deploymentType"), inputs.get("metadataConfiguration")
    if inputs.get("efaEnabled") is True and (kind not in ("PERSISTENT_2", wire.UNKNOWN) or not metadata):
        yield Problem(("efaEnabled",), "EFA is only supported for PERSISTENT_2 with a metadata configuration")


def _iops_are_given_or_automatic(inputs: Values) -> Iterator[Problem]:
    metadata = inputs.get("metadataConfiguration")
    if isinstance(metadata, dict) and metadata.get("mode") == "AUTOMATIC" and metadata.get("iops"):
        yield Problem(("metadataConfiguration", "iops"), "IOPS cannot be set in mode AUTOMATIC")


def _size_lies_between_its_limits(inputs: Values) -> Iterator[Problem]:
    size = inputs["scalingConfig"]
    if not wire.has_unknown(size) and not size["minSize"] <= size["desiredSize"] <= size["maxSize"]:
        yield Problem(("scalingConfig", "desiredSize"), "must lie between minSize and maxSize")


def _disk_is_the_template_s(inputs: Values) -> Iterator[Problem]:
    if inputs.get("launchTemplate") and inputs.get("diskSize"):
        yield Problem(("diskSize",), "must be given in the launch template when there is one")


def _labels_are_kubernetes_s(inputs: Values) -> Iterator[Problem]:
    labels = inputs.get("labels")
    for name, value in labels.items() if isinstance(labels, dict) else ():
        if not re.fullmatch(_LABEL_NAME, name):
            yield Problem(("labels", name), f"{name!r} is no name of a label")
        if value != wire.UNKNOWN and not re.fullmatch(_LABEL_VALUE, value):
            yield Problem(("labels", name), f"{value!r} is no value of a label")


def _user_data_is_base64(inputs: Values) -> Iterator[Problem]:
    data = inputs.get("userData")
    if isinstance(data, str) and wire.UNKNOWN not in data:
        try:
            base64.b64decode(data, validate=True)
        except ValueError:
            yield Problem(("userData",), "invalid BASE64 encoding of user data")


# Of what else is there, when it is made.


def _subnet_has_its_own_addresses(world: World, inputs: Values) -> Refusals:
    around = find(world, "vpcId", inputs["vpcId"]).get("cidrBlock")
    if not inputs.get("cidrBlock") or not around:
        return
    mine = ipaddress.IPv4Network(inputs["cidrBlock"])
    if not mine.subnet_of(ipaddress.IPv4Network(around)):
        yield f"InvalidSubnet.Range: The CIDR '{mine}' is invalid: not in the VPC's {around}"
    for other in every(world, SUBNET):
        if other["vpcId"] == inputs["vpcId"] and mine.overlaps(ipaddress.IPv4Network(other["cidrBlock"])):
            yield f"InvalidSubnet.Conflict: The CIDR '{mine}' conflicts with another subnet"


def _cluster_has_two_zones(world: World, inputs: Values) -> Refusals:
    subnets = [find(world, "subnetId", one) for one in inputs["vpcConfig"]["subnetIds"]]
    if len({subnet["availabilityZone"] for subnet in subnets}) < 2:
        yield "InvalidParameterException: Subnets specified must be in at least two different AZs"


def _cluster_role_has_a_policy(world: World, inputs: Values) -> Refusals:
    if not _may_do_anything(world, inputs["roleArn"]):
        text = f"The role {inputs['roleArn']} doesn't have the Amazon EKS Managed Policies associated with it (yet)"
        yield f"InvalidParameterException: {text}"


def _template_has_the_version(world: World, inputs: Values) -> Refusals:
    used = inputs.get("launchTemplate") or {}
    version, latest = str(used.get("version")), find(world, "launchTemplate.id", used.get("id")).get("latestVersion", 0)
    if version.isdigit() and int(version) > latest:
        yield f"InvalidRequestException: launch template {used.get('id')} has no version {version}"


def _nodes_have_a_network(world: World, inputs: Values) -> Refusals:
    cluster = find(world, "clusterName", inputs["clusterName"])
    addons = [one["addonName"] for one in every(world, ADDON) if one["clusterName"] == inputs["clusterName"]]
    if cluster.get("bootstrapSelfManagedAddons") is False and "vpc-cni" not in addons:
        yield "NodeCreationFailure: nodes never become Ready: the cluster has no vpc-cni add-on (yet)"


def _node_role_has_a_policy(world: World, inputs: Values) -> Refusals:
    if not _may_do_anything(world, inputs["nodeRoleArn"]):
        text = f"no policy is attached to their role {inputs['nodeRoleArn']} (yet)"
        yield f"NodeCreationFailure: Instances failed to join the kubernetes cluster: {text}"


def _coredns_has_nodes(world: World, inputs: Values) -> Refusals:
    if inputs["addonName"] == "coredns" and not has_nodes(world, inputs["clusterName"]):
        yield f"the add-on coredns would stay DEGRADED until the time-out: cluster {inputs['clusterName']} has no nodes"


def _group_is_open_to_itself(world: World, inputs: Values) -> Refusals:
    groups = inputs.get("securityGroupIds") or []
    if inputs.get("efaEnabled") and not any(_is_open_to_itself(world, group) for group in groups):
        text = f"no group of {groups} allows all traffic from and to itself"
        yield f"BadRequest: Insufficient security group permissions to create an EFA-enabled file system: {text}"


def _is_open_to_itself(world: World, group: str) -> bool:
    if any(wire.at(cluster, "vpcConfig.clusterSecurityGroupId") == group for cluster in every(world, CLUSTER)):
        return True  # EKS keeps both rules in the group that it makes for a cluster
    ways = set()
    for way in ("ingress", "egress"):
        token = f"aws:vpc/securityGroup{way.title()}Rule:SecurityGroup{way.title()}Rule"
        pairs = [(rule, rule["securityGroupId"], rule.get("referencedSecurityGroupId")) for rule in every(world, token)]
        pairs += [
            (rule, rule["securityGroupId"], group if rule.get("self") else rule.get("sourceSecurityGroupId"))
            for rule in every(world, "aws:ec2/securityGroupRule:SecurityGroupRule")
            if rule["type"] == way
        ]
        owner = wire.plain(world.get(f"{GROUP}|{group}", {}).get("state", {}))
        pairs += [(rule, group, group if rule.get("self") else None) for rule in owner.get(way) or []]
        for rule, owner_id, other in pairs:
            if owner_id == other == group and str(rule.get("ipProtocol", rule.get("protocol"))) == "-1":
                ways.add(way)
    return ways == {"ingress", "egress"}


def _may_do_anything(world: World, role_arn: str) -> bool:
    role = find(world, "roleArn", role_arn)
    tokens = ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:iam/rolePolicy:RolePolicy")
    attached = any(one["role"] == role.get("name") for token in tokens for one in every(world, token))
    return attached or bool(role.get("managedPolicyArns") or role.get("inlinePolicies"))


# When it is changed.


def _tier_of_efa_stays(_: World, old: Values, new: Values) -> Refusals:
    tiers = [side.get("perUnitStorageThroughput") for side in (old, new)]
    if old.get("efaEnabled") and tiers[0] != tiers[1]:
        text = "The throughput of an EFA-enabled Lustre file system cannot be updated"
        yield f"BadRequest: {text} ({tiers[0]} to {tiers[1]} MB/s/TiB)"


def _cluster_stays_in_its_vpc(world: World, _: Values, new: Values) -> Refusals:
    vpc = wire.at(find(world, "clusterName", new["name"]), "vpcConfig.vpcId")
    if any(find(world, "subnetId", subnet)["vpcId"] != vpc for subnet in new["vpcConfig"]["subnetIds"]):
        yield "InvalidParameterException: Provided subnets belong to another VPC than the cluster's"


def _version_goes_up_by_one_or_back(world: World, old: Values, new: Values) -> Refusals:
    """Back only to the version that the last update came from; that it is less than 7 days old is not looked at."""
    minors = [re.fullmatch(r"1\.(\d+)", str(side.get("version"))) for side in (old, new)]
    if not minors[0] or not minors[1] or old["version"] == new["version"]:
        return
    entry = world[f"{CLUSTER}|{new['name']}"]
    if int(minors[1][1]) - int(minors[0][1]) == 1:
        entry["upgradedFrom"] = old["version"]
    elif entry.pop("upgradedFrom", None) != new["version"]:
        text = f"Unsupported Kubernetes minor version update from {old['version']} to {new['version']}"
        yield f"InvalidParameterException: {text}"


def _template_still_has_the_version(world: World, _: Values, new: Values) -> Refusals:
    return _template_has_the_version(world, new)


# When it is deleted.


def _protection_is_off(_: World, state: Values) -> Refusals:
    if state.get("deletionProtection"):
        yield f"InvalidRequestException: Cluster {state['name']} has deletion protection on"


def _no_nat_is_behind_it(world: World, state: Values) -> Refusals:
    for nat in every(world, NAT):
        if find(world, "subnetId", nat["subnetId"]).get("vpcId") == state.get("vpcId"):
            text = f"Network {state.get('vpcId')} has some mapped public address(es)"
            yield f"DependencyViolation: {text}: a NAT gateway is still there"


TABLE = (
    Row("check", LUSTRE, _capacity_comes_in_steps, f"{_LUSTRE_GUIDE}/efa-file-systems.html"),
    Row("check", LUSTRE, _tier_is_one_of_persistent_2, f"{_LUSTRE_GUIDE}/using-fsx-lustre.html"),
    Row("check", LUSTRE, _version_exists, f"{_DOCS}/fsx/latest/APIReference/API_CreateFileSystem.html"),
    Row("check", LUSTRE, _efa_needs_metadata, f"{_LUSTRE_GUIDE}/efa-file-systems.html"),
    Row("check", LUSTRE, _iops_are_given_or_automatic, f"{_LUSTRE_GUIDE}/managing-metadata-performance.html"),
    Row(
        "check",
        NODE_GROUP,
        _size_lies_between_its_limits,
        f"{_DOCS}/eks/latest/APIReference/API_NodegroupScalingConfig.html",
    ),
    Row("check", NODE_GROUP, _disk_is_the_template_s, f"{_USER_GUIDE}/launch-templates.html"),
    Row("check", NODE_GROUP, _labels_are_kubernetes_s, f"{_DOCS}/eks/latest/APIReference/API_CreateNodegroup.html"),
    Row(
        "check",
        TEMPLATE,
        _user_data_is_base64,
        f"{_DOCS}/AWSEC2/latest/APIReference/API_RequestLaunchTemplateData.html",
    ),
    Row(
        "create",
        SUBNET,
        _subnet_has_its_own_addresses,
        f"{_DOCS}/vpc/latest/userguide/subnet-sizing.html",
    ),
    Row("create", CLUSTER, _cluster_has_two_zones, f"{_USER_GUIDE}/network-reqs.html"),
    Row("create", CLUSTER, _cluster_role_has_a_policy, f"{_USER_GUIDE}/cluster-iam-role.html"),
    Row("create", NODE_GROUP, _template_has_the_version),
    Row("create", NODE_GROUP, _nodes_have_a_network, f"{_USER_GUIDE}/troubleshooting.html"),
    Row("create", NODE_GROUP, _node_role_has_a_policy, f"{_USER_GUIDE}/create-node-role.html"),
    Row("create", ADDON, _coredns_has_nodes, f"{_USER_GUIDE}/troubleshooting.html"),
    Row("create", LUSTRE, _group_is_open_to_itself, f"{_LUSTRE_GUIDE}/efa-file-systems.html"),
    Row("update", NODE_GROUP, _template_still_has_the_version),
    Row("update", LUSTRE, _tier_of_efa_stays, f"{_LUSTRE_GUIDE}/managing-throughput-capacity.html"),
    Row("update", CLUSTER, _cluster_stays_in_its_vpc, f"{_USER_GUIDE}/network-reqs.html"),
    Row("update", CLUSTER, _version_goes_up_by_one_or_back, f"{_USER_GUIDE}/rollback-cluster.html"),
    Row("delete", CLUSTER, _protection_is_off, f"{_USER_GUIDE}/delete-cluster.html"),
    Row("delete", GATEWAY, _no_nat_is_behind_it, f"{_EC2_GUIDE}/elastic-ip-addresses-eip.html"),
)
"""Which rule AWS has for which type at which moment. References between resources, and what exists already, are in
`aws_types` for all types alike."""
