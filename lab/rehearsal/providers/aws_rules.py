"""What AWS's services refuse: by their API models, by rules of their own, and by what else is in the cloud.

Rules about the inputs alone are asked in Check, so they show in a preview; those about the rest of the cloud when a
resource is made, changed or deleted.
"""

import base64
import functools
import ipaddress
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_types import (
    ADDON,
    ALIASES,
    BLOCKS,
    CLUSTER,
    GATEWAY,
    GROUP,
    LOG_GROUP,
    LUSTRE,
    NAT,
    NODE_GROUP,
    REFERENCES,
    ROLE,
    SERVICE_SHAPES,
    SUBNET,
    TEMPLATE,
    Reference,
    kind_of,
)
from lab.rehearsal.providers.protocol import RefusedError, World
from lab.rehearsal.providers.sdk_types import Problem

Values = dict[str, Any]
Problems = Iterator[Problem]

_NAME_RULES = {  # the services' limits, which the real provider checks before it asks
    ROLE: r"[\w+=,.@-]{1,64}",
    "aws:iam/policy:Policy": r"[\w+=,.@-]{1,128}",
    "aws:iam/instanceProfile:InstanceProfile": r"[\w+=,.@-]{1,128}",
    GROUP: r"(?!sg-)[\w .:/()#,@\[\]+=&;{}!$*-]{1,255}",
    TEMPLATE: r"[\w().\-/]{3,128}",
    LOG_GROUP: r"[\w.\-/#]{1,512}",
    "aws:kms/alias:Alias": r"alias/(?!aws/)[\w/-]{1,250}",
}
_RETENTION_DAYS = (
    *(0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}


# The inputs alone.


def problems(token: str, inputs: Values, region: str) -> Problems:
    """What the services would refuse in plain inputs that fit the SDK's types."""
    if token in SERVICE_SHAPES:
        for prop, value in inputs.items():
            yield from _against(member_of(token, prop), value, (prop,))
    name, rule = inputs.get("name"), _NAME_RULES.get(token)
    if rule and isinstance(name, str) and name != wire.UNKNOWN and not re.fullmatch(rule, name):
        yield Problem(("name",), f"{name!r} is no name for it; it must match {rule}")
    for prop in ("assumeRolePolicy", "policy"):
        text = inputs.get(prop)
        if isinstance(text, str) and wire.UNKNOWN not in text and not _is_json(text):
            yield Problem((prop,), "contains an invalid JSON policy")
    if check := _CHECKS.get(token):
        yield from check(inputs)
    zone = inputs.get("availabilityZone")
    if isinstance(zone, str) and zone != wire.UNKNOWN and zone[:-1] != region:
        yield Problem(("availabilityZone",), f"{zone!r} is no zone of {region}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


@functools.cache
def service_model(service: str) -> Any:
    """The model of a service's API, from botocore's files: no session, no network."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def member_of(token: str, prop: str) -> Any:
    """The API model's shape for a property of a type, None where there is none of the same meaning."""
    service, shapes, renamed = SERVICE_SHAPES[token]
    for shape in shapes:
        if found := _member(service_model(service).shape_for(shape), renamed.get(prop, prop)):
            return found
    return None


def _member(shape: Any, name: str) -> Any:
    return shape.members.get(name) or shape.members.get(name[0].upper() + name[1:])


def _against(shape: Any, value: Any, path: wire.Path) -> Problems:
    """Enums, lengths, ranges and patterns of one shape."""
    if shape is None or value is None or (isinstance(value, str) and wire.UNKNOWN in value):
        return
    kind, least, most = shape.type_name, shape.metadata.get("min"), shape.metadata.get("max")
    if kind == "structure" and isinstance(value, dict):
        for name, item in value.items():
            yield from _against(_member(shape, name), item, (*path, name))
    elif kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _against(shape.member, item, (*path, index))
    elif kind == "map" and isinstance(value, dict):
        for name, item in value.items():
            yield from _against(shape.key, name, (*path, name))
            yield from _against(shape.value, item, (*path, name))
    elif kind == "string" and isinstance(value, str):
        pattern = shape.metadata.get("pattern")
        if shape.enum and value not in shape.enum:
            yield Problem(path, f"{value!r} is not one of {', '.join(shape.enum)}")
        elif not (least or 0) <= len(value) <= (most or len(value)):
            yield Problem(path, f"{value!r} has {len(value)} characters, not {least or 0} to {most}")
        elif pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
            yield Problem(path, f"{value!r} does not match {pattern}")
    elif kind in ("integer", "long") and isinstance(value, int) and not isinstance(value, bool):
        within = (least is None or value >= least) and (most is None or value <= most)
        yield from [] if within else [Problem(path, f"{value} is not within {least} to {most}")]


def _check_lustre(inputs: Values) -> Problems:
    """Rules of FSx that its API model does not have."""
    looked_at = ("deploymentType", "fileSystemTypeVersion", "metadataConfiguration", "efaEnabled", "storageType")
    if wire.has_unknown([inputs.get(prop) for prop in (*looked_at, "storageCapacity", "perUnitStorageThroughput")]):
        return
    kind, version, metadata, efa, storage = (inputs.get(prop) for prop in looked_at)
    size, tier = inputs.get("storageCapacity"), inputs.get("perUnitStorageThroughput")
    if efa and (kind != "PERSISTENT_2" or not metadata):
        reason = "EFA is only supported for PERSISTENT_2 filesystems with metadata configuration"
        yield Problem(("efaEnabled",), reason)
    if metadata and (kind != "PERSISTENT_2" or version != "2.15"):
        reason = "a metadata configuration needs deploymentType PERSISTENT_2 and fileSystemTypeVersion 2.15"
        yield Problem(("metadataConfiguration",), reason)
    if metadata and metadata.get("mode") == "AUTOMATIC" and metadata.get("iops"):
        yield Problem(("metadataConfiguration", "iops"), "IOPS cannot be set in mode AUTOMATIC")
    if kind != "PERSISTENT_2" or storage not in (None, "SSD"):
        return
    if tier not in _EFA_STEP_GIB:
        yield Problem(("perUnitStorageThroughput",), f"must be one of {', '.join(map(str, _EFA_STEP_GIB))}")
    elif efa and (not size or size % _EFA_STEP_GIB[tier]):
        reason = f"with EFA at {tier} MB/s/TiB it must be a multiple of {_EFA_STEP_GIB[tier]} GiB"
        yield Problem(("storageCapacity",), reason)
    elif not efa and size != 1200 and (not size or size % 2400):
        yield Problem(("storageCapacity",), "must be 1200 or a multiple of 2400 GiB")


def _check_node_group(inputs: Values) -> Problems:
    size = inputs["scalingConfig"]
    if not wire.has_unknown(size) and not size["minSize"] <= size["desiredSize"] <= size["maxSize"]:
        yield Problem(("scalingConfig", "desiredSize"), "must lie between minSize and maxSize")
    if inputs.get("launchTemplate") and inputs.get("diskSize"):
        yield Problem(("diskSize",), "must be given in the launch template when there is one")


def _check_template(inputs: Values) -> Problems:
    data = inputs.get("userData")
    if isinstance(data, str) and wire.UNKNOWN not in data:
        try:
            base64.b64decode(data, validate=True)
        except ValueError:
            yield Problem(("userData",), "invalid BASE64 encoding of user data")


def _check_log_group(inputs: Values) -> Problems:
    days = inputs.get("retentionInDays", 0)
    if days not in (*_RETENTION_DAYS, wire.UNKNOWN):
        yield Problem(("retentionInDays",), f"must be one of {_RETENTION_DAYS}")


_CHECKS: dict[str, Callable[[Values], Problems]] = {
    LUSTRE: _check_lustre,
    NODE_GROUP: _check_node_group,
    TEMPLATE: _check_template,
    LOG_GROUP: _check_log_group,
}


# References to the rest of the cloud.


def _references(inputs: Values) -> Iterator[tuple[Reference, str]]:
    """Every value in the inputs that names another resource."""
    for path, value in wire.leaves(inputs):
        steps = [step for step in path if isinstance(step, str)]
        reference = REFERENCES.get(".".join(steps[-2:])) or REFERENCES.get(steps[-1] if steps else "")
        if reference and isinstance(value, str) and value and wire.UNKNOWN not in value:
            yield reference, value


def _is(reference: Reference, value: str, rid: str, state: Values) -> bool:
    return value in [rid if prop == "id" else state.get(prop) for prop in reference.by.split()]


def find(world: World, prop: str, value: Any) -> Values:
    """The state of the resource that a property names; empty if there is none."""
    return _find(world, REFERENCES[prop], str(value))


def _find(world: World, reference: Reference, value: str) -> Values:
    if reference.by == "id" and (entry := world.get(f"{reference.type}|{value}")):
        return wire.plain(entry["state"])
    for key, entry in world.items():
        token, rid = key.split("|", 1)
        state = wire.plain(entry["state"])
        if token == reference.type and _is(reference, value, rid, state):
            return state
        if any(token == owner and wire.at(state, out) == value for owner, out in ALIASES.get(reference.type, ())):
            return state
    return {}


def every(world: World, token: str) -> Iterator[Values]:
    """The states of all resources of a type."""
    return (wire.plain(entry["state"]) for key, entry in world.items() if key.startswith(f"{token}|"))


def check_references(world: World, token: str, inputs: Values) -> None:
    """Refuses what names a resource that is not there."""
    for reference, value in _references(inputs):
        if "::aws:" in value or "alias/" in value or (reference is REFERENCES["gatewayId"] and "igw-" not in value):
            continue  # AWS's own policies, a key by its alias, other kinds of gateways
        if not _find(world, reference, value):
            raise RefusedError(f"{reference.missing.format(value)} (named by {token})")


def check_unused(world: World, token: str, rid: str, state: Values) -> None:
    """Refuses to delete what others still need. A security group's own rules don't count: they go with it."""
    text, types = BLOCKS.get(token, ("", set()))
    for key, other in world.items():
        user, user_id = key.split("|", 1)
        if types is not None and user not in types:
            continue
        inputs = wire.plain(other["inputs"])
        used = any(ref.type == token and _is(ref, value, rid, state) for ref, value in _references(inputs))
        if used and inputs.get("securityGroupId") != rid:
            raise RefusedError(f"{text.format(rid)}: {user} {user_id}")


def check_unique(world: World, token: str, inputs: Values) -> None:
    """Refuses a second one of the same name, or of whatever else may be there only once."""
    kind = kind_of(token)
    wanted = [inputs.get(prop) for prop in kind.unique.split()]
    if any(value is not None for value in wanted):
        for other in every(world, token):
            if wanted == [other.get(prop) for prop in kind.unique.split()]:
                shown = ", ".join(str(value) for value in wanted if value is not None)
                raise RefusedError(f"{kind.taken}: {shown} exists already ({token})")


# Births and deaths.


def check_birth(world: World, token: str, inputs: Values) -> None:
    """Refuses what cannot come into this world as it is."""
    if check := _BIRTHS.get(token):
        check(world, inputs)


def check_death(world: World, token: str, state: Values) -> None:
    """Refuses what cannot leave it, for other reasons than being named by others."""
    if token == CLUSTER and state.get("deletionProtection"):
        raise RefusedError(f"InvalidRequestException: Cluster {state['name']} has deletion protection on")
    if token == GATEWAY:
        for nat in every(world, NAT):
            if find(world, "subnetId", nat["subnetId"]).get("vpcId") == state.get("vpcId"):
                text = f"Network {state.get('vpcId')} has some mapped public address(es)"
                raise RefusedError(f"DependencyViolation: {text}: a NAT gateway is still there")


def _subnet_born(world: World, inputs: Values) -> None:
    """Inside its VPC, beside its sisters."""
    around = find(world, "vpcId", inputs["vpcId"]).get("cidrBlock")
    if not inputs.get("cidrBlock") or not around:
        return
    mine = ipaddress.IPv4Network(inputs["cidrBlock"])
    if not mine.subnet_of(ipaddress.IPv4Network(around)):
        raise RefusedError(f"InvalidSubnet.Range: The CIDR '{mine}' is invalid: not in the VPC's {around}")
    for other in every(world, SUBNET):
        if other["vpcId"] == inputs["vpcId"] and mine.overlaps(ipaddress.IPv4Network(other["cidrBlock"])):
            raise RefusedError(f"InvalidSubnet.Conflict: The CIDR '{mine}' conflicts with another subnet")


def _cluster_born(world: World, inputs: Values) -> None:
    """In two zones, with a role that may do its work; and its log group is there from the first line on."""
    subnets = [find(world, "subnetId", one) for one in inputs["vpcConfig"]["subnetIds"]]
    if len({subnet["availabilityZone"] for subnet in subnets}) < 2:
        raise RefusedError("InvalidParameterException: Subnets specified must be in at least two different AZs")
    if not _may_do_anything(world, inputs["roleArn"]):
        text = f"The role {inputs['roleArn']} doesn't have the Amazon EKS Managed Policies associated with it (yet)"
        raise RefusedError(f"InvalidParameterException: {text}")
    group = f"/aws/eks/{inputs['name']}/cluster"
    if inputs.get("enabledClusterLogTypes") and f"{LOG_GROUP}|{group}" not in world:
        put_log_group_of_eks(world, group)


def _node_group_born(world: World, inputs: Values) -> None:
    """Nodes join only with permissions and a network plugin."""
    check_launch_template(world, inputs)
    cluster = find(world, "clusterName", inputs["clusterName"])
    addons = [one["addonName"] for one in every(world, ADDON) if one["clusterName"] == inputs["clusterName"]]
    if cluster.get("bootstrapSelfManagedAddons") is False and "vpc-cni" not in addons:
        raise RefusedError("NodeCreationFailure: nodes never become Ready: the cluster has no vpc-cni add-on (yet)")
    if not _may_do_anything(world, inputs["nodeRoleArn"]):
        text = f"no policy is attached to their role {inputs['nodeRoleArn']} (yet)"
        raise RefusedError(f"NodeCreationFailure: Instances failed to join the kubernetes cluster: {text}")


def check_launch_template(world: World, inputs: Values) -> None:
    """Refuses a version that the template does not have."""
    used = inputs.get("launchTemplate") or {}
    version, latest = str(used.get("version")), find(world, "launchTemplate.id", used.get("id")).get("latestVersion", 0)
    if version.isdigit() and int(version) > latest:
        raise RefusedError(f"InvalidRequestException: launch template {used.get('id')} has no version {version}")


def _addon_born(world: World, inputs: Values) -> None:
    if inputs["addonName"] == "coredns" and not has_nodes(world, inputs["clusterName"]):
        text = f"cluster {inputs['clusterName']} has no nodes"
        raise RefusedError(f"the add-on coredns would stay DEGRADED until the time-out: {text}")


def has_nodes(world: World, cluster: str) -> bool:
    """Whether any node group of a cluster wants nodes."""
    groups = [group for group in every(world, NODE_GROUP) if group["clusterName"] == cluster]
    return any(group["scalingConfig"]["desiredSize"] > 0 for group in groups)


def _lustre_born(world: World, inputs: Values) -> None:
    """With EFA, a security group must allow everything from and to itself, before."""
    groups = inputs.get("securityGroupIds") or []
    if inputs.get("efaEnabled") and not any(_is_open_to_itself(world, group) for group in groups):
        text = f"no group of {groups} allows all traffic from and to itself"
        raise RefusedError(
            f"BadRequest: Insufficient security group permissions to create an EFA-enabled file system: {text}"
        )


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


_BIRTHS: dict[str, Callable[[World, Values], None]] = {
    SUBNET: _subnet_born,
    CLUSTER: _cluster_born,
    NODE_GROUP: _node_group_born,
    ADDON: _addon_born,
    LUSTRE: _lustre_born,
}


# Changes.


def cannot_change(token: str, path: wire.Path, old: Values, new: Values) -> bool:
    """Whether a change at `path` needs a new resource: by the type's table, or by the values."""
    if any(wire.under(path, prop) for prop in kind_of(token).replaces.split()):
        return True
    before, after = (wire.at(side, ".".join(map(str, path))) for side in (old, new))
    shrinks = isinstance(before, int) and isinstance(after, int) and after < before
    if token == LUSTRE and path == ("storageCapacity",):
        return shrinks
    if token == LUSTRE and path[0] == "metadataConfiguration":  # neither added nor taken away later
        return shrinks or not (old.get("metadataConfiguration") and new.get("metadataConfiguration"))
    if token == CLUSTER and path[0] == "encryptionConfig":
        return bool(old.get("encryptionConfig")) and not new.get("encryptionConfig")
    return False


def check_update(world: World, token: str, old: Values, new: Values) -> None:
    """Refuses changes that a preview shows as harmless."""
    check_references(world, token, new)
    if token == NODE_GROUP:
        check_launch_template(world, new)
    tiers = [side.get("perUnitStorageThroughput") for side in (old, new)]
    if token == LUSTRE and old.get("efaEnabled") and tiers[0] != tiers[1]:
        text = "The throughput of an EFA-enabled Lustre file system cannot be updated"
        raise RefusedError(f"BadRequest: {text} ({tiers[0]} to {tiers[1]} MB/s/TiB)")
    vpc = wire.at(find(world, "clusterName", new["name"]), "vpcConfig.vpcId") if token == CLUSTER else None
    subnets = new["vpcConfig"]["subnetIds"] if token == CLUSTER else []
    if any(find(world, "subnetId", subnet)["vpcId"] != vpc for subnet in subnets):
        raise RefusedError("InvalidParameterException: Provided subnets belong to another VPC than the cluster's")
    versions = [re.fullmatch(r"1\.(\d+)", str(side.get("version"))) for side in (old, new)]
    if token == CLUSTER and versions[0] and versions[1] and int(versions[1][1]) - int(versions[0][1]) not in (0, 1):
        text = f"Unsupported Kubernetes minor version update from {old['version']} to {new['version']}"
        raise RefusedError(f"InvalidParameterException: {text}")


# The log group of a cluster.


def writes_logs(world: World, group: str) -> bool:
    """Whether a cluster still writes into a log group."""
    clusters = [cluster for cluster in every(world, CLUSTER) if cluster.get("enabledClusterLogTypes")]
    return any(group == f"/aws/eks/{cluster['name']}/cluster" for cluster in clusters)


def put_log_group_of_eks(world: World, name: str) -> None:
    """EKS makes the group itself with its next line: without retention, and nobody ever deletes it."""
    world[f"{LOG_GROUP}|{name}"] = {"urn": "made by EKS itself", "inputs": {}, "state": {"name": name}}
