"""What AWS refuses and HashiCorp's provider does not know: one table, each row with its source.

What the provider refuses by itself stands in no row. What no row can know, because only an account can be asked: quota,
capacity, and which of its zones offers an instance type (`aws ec2 describe-instance-type-offerings`).
"""

import base64
import ipaddress
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from lab.rehearsal.providers import aws_rules, wire
from lab.rehearsal.providers.aws_rules import Case, every, find, has_nodes
from lab.rehearsal.providers.aws_types import (
    ADDON,
    CLUSTER,
    EGRESS,
    GATEWAY,
    GROUP,
    INGRESS,
    LUSTRE,
    NAT,
    NODE_GROUP,
    SUBNET,
    TEMPLATE,
)
from lab.rehearsal.providers.protocol import RefusedError, World
from lab.rehearsal.providers.sdk_types import Problem

_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
_STEP_GIB, _SMALLEST_GIB = 2400, 1200
_LUSTRE_VERSIONS = ("2.10", "2.12", "2.15")
_LABEL = r"[A-Za-z0-9]([\w.-]*[A-Za-z0-9])?"
_GROUP_SIGNS = "._-:/()#,@[]+=&;{}!$*"
_GROUP_TEXT = rf"[a-zA-Z0-9 {re.escape(_GROUP_SIGNS)}]+"

Moment = Literal["check", "create", "update", "delete"]


@dataclass(frozen=True)
class Row:
    """Something that AWS refuses.

    Attributes:
        moment: When it does. A `check` sees the inputs alone, some of them unknown: it shows in a preview.
        type: Of what; empty: of every type.
        check: The rule. It yields what is wrong: a `Problem` in a check, else the service's sentence.
        source: Where AWS says so, or where somebody shows its answer.
    """

    moment: Moment
    type: str
    check: Callable[[Case], Iterator[Any]]
    source: str


def found(moment: Moment, case: Case) -> Iterator[Any]:
    """What the rows of a moment say of a case."""
    return (one for row in TABLE if row.moment == moment and row.type in ("", case.type) for one in row.check(case))


def refuse(moment: Moment, case: Case) -> None:
    """Raises a `RefusedError` with the first of these."""
    if text := next(found(moment, case), None):
        raise RefusedError(text)


# Of the inputs alone.


def _zone_is_of_the_region(case: Case) -> Iterator[Problem]:
    zone, region = case.inputs.get("availabilityZone"), case.inputs["region"]
    if zone is None or wire.has_unknown([zone, region]):
        return
    if not re.fullmatch(rf"{re.escape(region)}([a-z]|-[a-z0-9-]+)", zone):  # the latter is a Local or Wavelength Zone
        yield Problem(("availabilityZone",), f"{zone!r} is no zone of {region}")


def _tags_have_lengths(case: Case) -> Iterator[Problem]:
    for name, value in _pairs(case.inputs.get("tags")):
        if not 1 <= len(name) <= 128:
            yield Problem(("tags", name), f"the key of a tag has 1 to 128 characters, not {len(name)}")
        if value is not None and len(value) > 256:
            yield Problem(("tags", name), f"the value of a tag has up to 256 characters, not {len(value)}")


def _pairs(mapping: Any) -> Iterator[tuple[str, str | None]]:
    """The names and values of a mapping of texts; None for a value that is not known."""
    for name, value in mapping.items() if isinstance(mapping, dict) else ():
        yield name, value if isinstance(value, str) and wire.UNKNOWN not in value else None


def _capacity_comes_in_steps(case: Case) -> Iterator[Problem]:
    size, tier, efa = (case.inputs.get(one) for one in ("storageCapacity", "perUnitStorageThroughput", "efaEnabled"))
    if not _is_persistent_2_on_ssd(case) or not isinstance(size, int) or efa == wire.UNKNOWN:
        return
    if efa and tier in _EFA_STEP_GIB and size % _EFA_STEP_GIB[tier]:
        reason = f"with EFA at {tier} MB/s/TiB it must be a multiple of {_EFA_STEP_GIB[tier]} GiB"
        yield Problem(("storageCapacity",), reason)
    if not efa and size != _SMALLEST_GIB and size % _STEP_GIB:
        yield Problem(("storageCapacity",), f"must be {_SMALLEST_GIB} or a multiple of {_STEP_GIB} GiB")


def _tier_is_one_of_persistent_2(case: Case) -> Iterator[Problem]:
    tier = case.inputs.get("perUnitStorageThroughput")
    if _is_persistent_2_on_ssd(case) and tier not in (*_EFA_STEP_GIB, wire.UNKNOWN):
        yield Problem(("perUnitStorageThroughput",), f"must be one of {', '.join(map(str, _EFA_STEP_GIB))}")


def _is_persistent_2_on_ssd(case: Case) -> bool:
    return case.inputs.get("deploymentType") == "PERSISTENT_2" and case.inputs.get("storageType", "SSD") == "SSD"


def _lustre_has_the_version(case: Case) -> Iterator[Problem]:
    version, metadata = case.inputs.get("fileSystemTypeVersion"), case.inputs.get("metadataConfiguration")
    if version in (None, wire.UNKNOWN):  # the default is what the other values need
        return
    if version not in _LUSTRE_VERSIONS:
        yield Problem(("fileSystemTypeVersion",), f"must be one of {', '.join(_LUSTRE_VERSIONS)}")
    elif metadata and version != "2.15":
        yield Problem(("metadataConfiguration",), "a metadata configuration needs fileSystemTypeVersion 2.15")
    elif case.inputs.get("deploymentType") == "PERSISTENT_2" and version == "2.10":
        yield Problem(("fileSystemTypeVersion",), "PERSISTENT_2 needs 2.12 or 2.15")


def _efa_needs_metadata(case: Case) -> Iterator[Problem]:
    kind, metadata = case.inputs.get("deploymentType"), case.inputs.get("metadataConfiguration")
    if case.inputs.get("efaEnabled") is True and (kind not in ("PERSISTENT_2", wire.UNKNOWN) or not metadata):
        yield Problem(("efaEnabled",), "EFA is only supported for PERSISTENT_2 with a metadata configuration")


def _iops_are_given_or_automatic(case: Case) -> Iterator[Problem]:
    metadata = case.inputs.get("metadataConfiguration")
    if isinstance(metadata, dict) and metadata.get("mode") == "AUTOMATIC" and metadata.get("iops"):
        yield Problem(("metadataConfiguration", "iops"), "IOPS cannot be set in mode AUTOMATIC")


def _size_lies_between_its_limits(case: Case) -> Iterator[Problem]:
    size = case.inputs["scalingConfig"]
    if not wire.has_unknown(size) and not size["minSize"] <= size["desiredSize"] <= size["maxSize"]:
        yield Problem(("scalingConfig", "desiredSize"), "must lie between minSize and maxSize")


def _disk_is_the_template_s(case: Case) -> Iterator[Problem]:
    if case.inputs.get("launchTemplate") and case.inputs.get("diskSize"):
        yield Problem(("diskSize",), "must be given in the launch template when there is one")


def _labels_have_lengths(case: Case) -> Iterator[Problem]:
    for name, value in _pairs(case.inputs.get("labels")):
        if len(name) > 63 or not re.fullmatch(rf"([a-z0-9.-]+/)?{_LABEL}", name):
            yield Problem(("labels", name), f"{name!r} is no name of a label, or has more than 63 characters")
        if value is not None and (len(value) > 63 or not re.fullmatch(_LABEL, value)):
            yield Problem(("labels", name), f"{value!r} is no value of a label, or has not 1 to 63 characters")


def _user_data_is_base64(case: Case) -> Iterator[Problem]:
    data = case.inputs.get("userData")
    if isinstance(data, str) and wire.UNKNOWN not in data:
        try:
            base64.b64decode(data, validate=True)
        except ValueError:
            yield Problem(("userData",), "invalid BASE64 encoding of user data")


def _group_has_plain_texts(case: Case) -> Iterator[Problem]:
    for name in ("name", "description"):
        text = case.inputs.get(name)
        if text is not None and wire.UNKNOWN not in text and not re.fullmatch(_GROUP_TEXT, text):
            yield Problem((name,), f"{text!r} must consist of letters, digits, blanks and {_GROUP_SIGNS}")


# Of what else is there, when it is made.


def _subnet_has_its_own_addresses(case: Case) -> Iterator[str]:
    around = find(case.world, "vpcId", case.inputs["vpcId"]).get("cidrBlock")
    if not case.inputs.get("cidrBlock") or not around:
        return
    mine = ipaddress.IPv4Network(case.inputs["cidrBlock"])
    if not mine.subnet_of(ipaddress.IPv4Network(around)):
        yield f"InvalidSubnet.Range: The CIDR '{mine}' is invalid: not in the VPC's {around}"
    for other in every(case.world, SUBNET):
        if other["vpcId"] == case.inputs["vpcId"] and mine.overlaps(ipaddress.IPv4Network(other["cidrBlock"])):
            yield f"InvalidSubnet.Conflict: The CIDR '{mine}' conflicts with another subnet"


def _cluster_has_two_zones(case: Case) -> Iterator[str]:
    subnets = [find(case.world, "subnetId", one) for one in case.inputs["vpcConfig"]["subnetIds"]]
    if len({subnet["availabilityZone"] for subnet in subnets}) < 2:
        yield "InvalidParameterException: Subnets specified must be in at least two different AZs"


def _cluster_role_has_a_policy(case: Case) -> Iterator[str]:
    role = case.inputs["roleArn"]
    if not _may_do_anything(case.world, role):
        text = f"The role {role} doesn't have the Amazon EKS Managed Policies associated with it (yet)"
        yield f"InvalidParameterException: {text}"


def _template_has_the_version(case: Case) -> Iterator[str]:
    used = case.inputs.get("launchTemplate") or {}
    latest = find(case.world, "launchTemplate.id", used.get("id")).get("latestVersion", 0)
    version = str(used.get("version"))
    if version.isdigit() and int(version) > latest:
        yield f"InvalidRequestException: launch template {used.get('id')} has no version {version}"


def _nodes_have_a_network(case: Case) -> Iterator[str]:
    name = case.inputs["clusterName"]
    addons = [one["addonName"] for one in every(case.world, ADDON) if one["clusterName"] == name]
    cluster = find(case.world, "clusterName", name)
    if cluster.get("bootstrapSelfManagedAddons") is False and "vpc-cni" not in addons:
        yield "NodeCreationFailure: nodes never become Ready: the cluster has no vpc-cni add-on (yet)"


def _node_role_has_a_policy(case: Case) -> Iterator[str]:
    role = case.inputs["nodeRoleArn"]
    if not _may_do_anything(case.world, role):
        text = f"no policy is attached to their role {role} (yet)"
        yield f"NodeCreationFailure: Instances failed to join the kubernetes cluster: {text}"


def _coredns_has_nodes(case: Case) -> Iterator[str]:
    name = case.inputs["clusterName"]
    if case.inputs["addonName"] == "coredns" and not has_nodes(case.world, name):
        yield f"the add-on coredns would stay DEGRADED until the time-out: cluster {name} has no nodes"


def _group_is_open_to_itself(case: Case) -> Iterator[str]:
    groups = case.inputs.get("securityGroupIds") or []
    if case.inputs.get("efaEnabled") and not any(_is_open_to_itself(case.world, group) for group in groups):
        text = f"no group of {groups} allows all traffic from and to itself"
        yield f"BadRequest: Insufficient security group permissions to create an EFA-enabled file system: {text}"


def _is_open_to_itself(world: World, group: str) -> bool:
    if any(wire.at(cluster, "vpcConfig.clusterSecurityGroupId") == group for cluster in every(world, CLUSTER)):
        return True  # EKS keeps both rules in the group that it makes for a cluster
    return all(
        any(
            rule["securityGroupId"] == rule.get("referencedSecurityGroupId") == group and rule["ipProtocol"] == "-1"
            for rule in every(world, token)
        )
        for token in (INGRESS, EGRESS)
    )


def _may_do_anything(world: World, role_arn: str) -> bool:
    role = find(world, "roleArn", role_arn)
    tokens = ("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "aws:iam/rolePolicy:RolePolicy")
    attached = any(one["role"] == role.get("name") for token in tokens for one in every(world, token))
    return attached or bool(role.get("managedPolicyArns") or role.get("inlinePolicies"))


# When it is changed.


def _tier_of_efa_stays(case: Case) -> Iterator[str]:
    tiers = [side.get("perUnitStorageThroughput") for side in (case.old, case.inputs)]
    if case.old.get("efaEnabled") and tiers[0] != tiers[1]:
        text = "The throughput of an EFA-enabled Lustre file system cannot be updated"
        yield f"BadRequest: {text} ({tiers[0]} to {tiers[1]} MB/s/TiB)"


def _cluster_stays_in_its_vpc(case: Case) -> Iterator[str]:
    vpc = wire.at(find(case.world, "clusterName", case.inputs["name"]), "vpcConfig.vpcId")
    subnets = [find(case.world, "subnetId", one) for one in case.inputs["vpcConfig"]["subnetIds"]]
    if any(subnet["vpcId"] != vpc for subnet in subnets):
        yield "InvalidParameterException: Provided subnets belong to another VPC than the cluster's"


def _version_goes_up_by_one_or_back(case: Case) -> Iterator[str]:
    """Back only to the version that the last update came from; that it is less than 7 days old is not looked at."""
    old, new = (str(side.get("version")) for side in (case.old, case.inputs))
    minors = [re.fullmatch(r"1\.(\d+)", version) for version in (old, new)]
    if not minors[0] or not minors[1] or old == new:
        return
    entry = case.world[f"{CLUSTER}|{case.inputs['name']}"]
    if int(minors[1][1]) - int(minors[0][1]) == 1:
        entry["upgradedFrom"] = old
    elif entry.pop("upgradedFrom", None) != new:
        yield f"InvalidParameterException: Unsupported Kubernetes minor version update from {old} to {new}"
    elif not case.inputs.get("forceUpdateVersion"):
        groups = [one for one in every(case.world, NODE_GROUP) if one["clusterName"] == case.inputs["name"]]
        if newer := [one["nodeGroupName"] for one in groups if one.get("version") == old]:
            yield f"InvalidRequestException: kubelet version skew: {', '.join(newer)} must go back to {new} first"


# When it is deleted.


def _protection_is_off(case: Case) -> Iterator[str]:
    if case.state.get("deletionProtection"):
        yield f"InvalidRequestException: Cluster {case.state['name']} has deletion protection on"


def _no_nat_is_behind_it(case: Case) -> Iterator[str]:
    vpc = case.state.get("vpcId")
    if any(find(case.world, "subnetId", nat["subnetId"]).get("vpcId") == vpc for nat in every(case.world, NAT)):
        text = f"Network {vpc} has some mapped public address(es)"
        yield f"DependencyViolation: {text}: a NAT gateway is still there"


_DOCS = "https://docs.aws.amazon.com"
_EC2_API = f"{_DOCS}/AWSEC2/latest/APIReference"
_EC2_ERRORS = f"{_EC2_API}/errors-overview.html"
_EKS_API, _EKS_GUIDE = f"{_DOCS}/eks/latest/APIReference", f"{_DOCS}/eks/latest/userguide"
_FSX_API, _FSX_GUIDE = f"{_DOCS}/fsx/latest/APIReference", f"{_DOCS}/fsx/latest/LustreGuide"
_METADATA = f"{_FSX_API}/API_CreateFileSystemLustreMetadataConfiguration.html"
_SIZES = "https://github.com/terraform-aws-modules/terraform-aws-eks/issues/3306"
_COREDNS = "https://github.com/maddevsio/aws-eks-base/issues/112"

TABLE = (
    Row("check", "", _zone_is_of_the_region, f"{_EC2_API}/API_CreateSubnet.html"),
    Row("check", "", _tags_have_lengths, f"{_DOCS}/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions"),
    Row("check", LUSTRE, _capacity_comes_in_steps, f"{_FSX_GUIDE}/increase-storage-capacity.html"),
    Row("check", LUSTRE, _tier_is_one_of_persistent_2, f"{_FSX_GUIDE}/managing-throughput-capacity.html"),
    Row("check", LUSTRE, _lustre_has_the_version, f"{_FSX_API}/API_CreateFileSystem.html"),
    Row("check", LUSTRE, _efa_needs_metadata, f"{_FSX_GUIDE}/efa-file-systems.html"),
    Row("check", LUSTRE, _iops_are_given_or_automatic, _METADATA),
    Row("check", NODE_GROUP, _size_lies_between_its_limits, _SIZES),
    Row("check", NODE_GROUP, _disk_is_the_template_s, f"{_EKS_API}/API_CreateNodegroup.html"),
    Row("check", NODE_GROUP, _labels_have_lengths, f"{_EKS_API}/API_CreateNodegroup.html"),
    Row("check", TEMPLATE, _user_data_is_base64, f"{_EC2_API}/API_RequestLaunchTemplateData.html"),
    Row("check", GROUP, _group_has_plain_texts, f"{_EC2_API}/API_CreateSecurityGroup.html"),
    Row("create", "", aws_rules.what_it_names_is_there, _EC2_ERRORS),
    Row("create", "", aws_rules.no_other_has_its_name, _EC2_ERRORS),
    Row("create", SUBNET, _subnet_has_its_own_addresses, _EC2_ERRORS),
    Row("create", CLUSTER, _cluster_has_two_zones, f"{_EKS_GUIDE}/network-reqs.html"),
    Row("create", CLUSTER, _cluster_role_has_a_policy, f"{_EKS_GUIDE}/cluster-iam-role.html"),
    Row("create", NODE_GROUP, _template_has_the_version, _EC2_ERRORS),
    Row("create", NODE_GROUP, _nodes_have_a_network, f"{_EKS_API}/API_CreateCluster.html"),
    Row("create", NODE_GROUP, _node_role_has_a_policy, f"{_EKS_GUIDE}/create-node-role.html"),
    Row("create", ADDON, _coredns_has_nodes, _COREDNS),
    Row("create", LUSTRE, _group_is_open_to_itself, f"{_FSX_GUIDE}/cannot-create-fs.html"),
    Row("update", "", aws_rules.what_it_names_is_there, _EC2_ERRORS),
    Row("update", NODE_GROUP, _template_has_the_version, _EC2_ERRORS),
    Row("update", LUSTRE, _tier_of_efa_stays, f"{_FSX_GUIDE}/managing-throughput-capacity.html"),
    Row("update", CLUSTER, _cluster_stays_in_its_vpc, f"{_EKS_API}/API_UpdateClusterConfig.html"),
    Row("update", CLUSTER, _version_goes_up_by_one_or_back, f"{_EKS_GUIDE}/rollback-cluster.html"),
    Row("delete", "", aws_rules.nobody_needs_it, _EC2_ERRORS),
    Row("delete", CLUSTER, _protection_is_off, f"{_EKS_GUIDE}/deletion-protection.html"),
    Row("delete", GATEWAY, _no_nat_is_behind_it, f"{_EC2_API}/API_DetachInternetGateway.html"),
)
"""Which rule AWS has for which type at which moment; the first row that refuses is the service's answer."""
