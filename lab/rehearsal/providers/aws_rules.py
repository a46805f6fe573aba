"""What AWS's services refuse for what else is in the cloud: asked when a resource is made, changed or deleted."""

import ipaddress
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
    SUBNET,
    Reference,
    kind_of,
)
from lab.rehearsal.providers.protocol import RefusedError, World

Values = dict[str, Any]

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
