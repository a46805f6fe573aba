"""Clusters, their updates, and the tags of all that EKS has."""

from __future__ import annotations

import base64
import json
import re
import secrets

from lab.account.eks.access import add_entry, add_policy, policy_arn
from lab.account.eks.common import (
    LATEST,
    NO_ISSUES,
    active_cluster,
    end,
    find,
    may_do_anything,
    refuse_while_updating,
    refused,
    role_of,
    subnets_of,
    update,
)
from lab.account.place import Key, Place, Record, RefusedError, Values, now, page, without_none

_LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")

_CONFIG_UPDATES = {  # section of UpdateClusterConfig: type of the update
    "logging": "LoggingUpdate",
    "accessConfig": "AccessConfigUpdate",
    "upgradePolicy": "UpgradePolicyUpdate",
    "zonalShiftConfig": "ZonalShiftConfigUpdate",
    "remoteNetworkConfig": "RemoteNetworkConfigUpdate",
    "deletionProtection": "DeletionProtectionUpdate",
    "controlPlaneScalingConfig": "ControlPlaneScalingConfigUpdate",
    "resourcesVpcConfig": "VpcConfigUpdate",
}


def create_cluster(place: Place, asked: Values) -> Values:
    """With its own security group and network interfaces in EC2, and an access entry for who makes it."""
    name, vpc = asked["name"], asked["resourcesVpcConfig"]
    if ("cluster", name) in place.records:
        raise refused("ResourceInUse", f"Cluster already exists with name: {name}", clusterName=name)
    role = role_of(place, "eks.CreateCluster", asked["roleArn"])
    if not may_do_anything(role):  # the text on which terraform-provider-aws tries again (cluster.go)
        policy = f"arn:{place.partition}:iam::aws:policy/AmazonEKSClusterPolicy"
        text = "The provided role doesn't have the Amazon EKS Managed Policies associated with it. "
        raise refused("InvalidParameter", f"{text}Please ensure the following policy is attached: {policy}")
    subnets = subnets_of(place, vpc.get("subnetIds") or [])
    if len({subnet.availability_zone for subnet in subnets}) < 2:
        raise refused("InvalidParameter", "Subnets specified must be in at least two different AZs")
    group = _security_group(place, name, subnets[0].vpc_id)
    groups = [group, *vpc.get("securityGroupIds", [])]
    interfaces = [
        place.ec2.create_network_interface(subnet, "", group_ids=groups, description=f"Amazon EKS {name}").id
        for subnet in subnets
    ]
    issuer = secrets.token_hex(16).upper()
    access = asked.get("accessConfig") or {}
    public = {"endpointPublicAccess": True, "endpointPrivateAccess": False, "publicAccessCidrs": ["0.0.0.0/0"]}
    shape = {
        "name": name,
        "arn": place.arn("eks", f"cluster/{name}"),
        "createdAt": now(),
        "version": asked.get("version") or LATEST,
        "endpoint": f"https://{secrets.token_hex(16).upper()}.gr7.{place.region}.eks.amazonaws.com",
        "roleArn": asked["roleArn"],
        "resourcesVpcConfig": {
            "securityGroupIds": [],
            **public,
            **without_none(vpc),
            "clusterSecurityGroupId": group,
            "vpcId": subnets[0].vpc_id,
        },
        "kubernetesNetworkConfig": {
            "serviceIpv4Cidr": "172.20.0.0/16",
            "ipFamily": "ipv4",
            "elasticLoadBalancing": {"enabled": False},
            **without_none(asked.get("kubernetesNetworkConfig") or {}),
        },
        "logging": _logging(asked.get("logging") or {}),
        "identity": {"oidc": {"issuer": f"https://oidc.eks.{place.region}.amazonaws.com/id/{issuer}"}},
        "status": "CREATING",
        "certificateAuthority": {"data": base64.b64encode(f"{name}'s authority".encode()).decode()},
        "platformVersion": "eks.1",
        "tags": asked.get("tags") or {},
        "encryptionConfig": asked.get("encryptionConfig") or [],
        "health": NO_ISSUES,
        "accessConfig": {"authenticationMode": access.get("authenticationMode") or "CONFIG_MAP"},
        "upgradePolicy": asked.get("upgradePolicy") or {"supportType": "EXTENDED"},
        "deletionProtection": bool(asked.get("deletionProtection")),
        "controlPlaneScalingConfig": asked.get("controlPlaneScalingConfig") or {"tier": "standard"},
        **without_none({part: asked.get(part) for part in ("zonalShiftConfig", "remoteNetworkConfig")}),
    }
    own_addons = asked.get("bootstrapSelfManagedAddons") is not False
    notes = {"interfaces": interfaces, "group": group, "own_addons": own_addons, "came_from": ""}
    record = place.add(("cluster", name), shape, **notes)
    issue = {"code": "InsufficientFreeAddresses", "message": "One or more subnets lack free addresses"}
    place.later(
        ("cluster", name),
        "eks.CreateCluster",
        {"status": "ACTIVE"},
        {"status": "FAILED", "health": {"issues": [{**issue, "resourceIds": vpc["subnetIds"]}]}},
    )
    creator = place.caller
    if access.get("bootstrapClusterCreatorAdminPermissions") is not False and creator:
        add_entry(place, name, creator, {})
        add_policy(place, name, creator, policy_arn(place, "ClusterAdminPolicy"), {"type": "cluster", "namespaces": []})
    return {"cluster": record.shape}


def _security_group(place: Place, name: str, vpc: str) -> str:
    """The group that EKS makes for a cluster; all that is in it may talk to each other."""
    text = "EKS created security group applied to ENI that is attached to EKS Control Plane master nodes, as well as "
    title = f"eks-cluster-sg-{name}-{secrets.randbelow(10**9)}"
    tags = {"Name": title, f"kubernetes.io/cluster/{name}": "owned", "aws:eks:cluster-name": name}
    group = place.ec2.create_security_group(title, f"{text}any managed workloads.", vpc_id=vpc, tags=tags)
    place.ec2.authorize_security_group_ingress(group.id, "-1", None, None, [], source_groups=[{"GroupId": group.id}])
    return group.id


def _cluster_gone(place: Place, key: Key, record: Record) -> None:
    for interface in record.notes["interfaces"]:
        place.ec2.delete_network_interface(interface)
    place.ec2.delete_security_group(group_id=record.notes["group"])
    for kind in ("addon", "association", "entry", "policy", "update"):
        for inner, _ in place.under(kind, key[1]):
            del place.records[inner]


def describe_cluster(place: Place, asked: Values) -> Values:
    """As it is now."""
    return {"cluster": find(place, ("cluster", asked["name"]), look=True).shape}


def list_clusters(place: Place, asked: Values) -> Values:
    """All names."""
    return page("clusters", [key[1] for key, _ in place.under("cluster")], asked)


def delete_cluster(place: Place, asked: Values) -> Values:
    """Takes along all that is in it but node groups, which it refuses."""
    name = asked["name"]
    cluster = find(place, ("cluster", name))
    if cluster.shape["deletionProtection"]:
        raise refused("InvalidRequest", f"Cluster {name} has deletion protection enabled", clusterName=name)
    if groups := [key[2] for key, _ in place.under("nodegroup", name)]:
        raise refused("ResourceInUse", "Cluster has nodegroups attached", clusterName=name, nodegroupName=groups[0])
    refuse_while_updating(cluster, name)
    return {"cluster": end(place, ("cluster", name), "eks.DeleteCluster")}


def _logging(asked: Values) -> Values:
    on = {kind for one in asked.get("clusterLogging") or [] if one.get("enabled") for kind in one.get("types") or []}
    both = ((True, [kind for kind in _LOGS if kind in on]), (False, [kind for kind in _LOGS if kind not in on]))
    return {"clusterLogging": [{"types": types, "enabled": enabled} for enabled, types in both if types]}


def update_cluster_config(place: Place, asked: Values) -> Values:
    """One kind of change a call."""
    name = asked["name"]
    shape = active_cluster(place, name).shape
    given = [part for part in _CONFIG_UPDATES if asked.get(part) is not None]
    if len(given) != 1:
        raise refused("InvalidParameter", "Only one type of update can be allowed in a request", clusterName=name)
    (part,) = given
    kind, new = _CONFIG_UPDATES[part], asked[part]
    if part == "logging":
        old = {one["enabled"]: set(one["types"]) for one in shape["logging"]["clusterLogging"]}
        on = old.get(True, set())
        for one in new.get("clusterLogging") or []:
            on = on | set(one["types"]) if one.get("enabled") else on - set(one["types"])
        new = _logging({"clusterLogging": [{"enabled": True, "types": list(on)}]})
    elif isinstance(new, dict):
        if part == "resourcesVpcConfig" and not {"subnetIds", "securityGroupIds"} & without_none(new).keys():
            kind = "EndpointAccessUpdate"
        if new.get("subnetIds"):
            vpcs = {subnet.vpc_id for subnet in subnets_of(place, new["subnetIds"])}
            if vpcs != {shape["resourcesVpcConfig"]["vpcId"]}:
                text = "Provided subnets belong to another VPC than the cluster's"
                raise refused("InvalidParameter", text, clusterName=name)
        new = {**shape.get(part, {}), **without_none(new)}
    if new == shape.get(part):
        text = f"Cluster is already at the desired configuration with {part}: {json.dumps(new)}"
        raise refused("InvalidParameter", text, clusterName=name)
    return update(place, ("cluster", name), "eks.UpdateClusterConfig", kind, {part: new})


def update_cluster_version(place: Place, asked: Values) -> Values:
    """To the next minor version, or back to the one that the last update came from (`VersionRollback` in the model)."""
    name, target = asked["name"], asked["version"]
    cluster = active_cluster(place, name)
    current = cluster.shape["version"]
    minors = [int(one[1]) if (one := re.fullmatch(r"1\.(\d+)", version)) else -1 for version in (current, target)]
    back = target == cluster.notes["came_from"]
    if minors[1] != minors[0] + 1 and not back:
        text = f"Unsupported Kubernetes minor version update from {current} to {target}"
        raise refused("InvalidParameter", text, clusterName=name)
    wanted = target if back else current  # nodes are never newer than their cluster
    other = [key[2] for key, group in place.under("nodegroup", name) if group.shape["version"] != wanted]
    if other:
        text = f"Nodegroups {', '.join(other)} must be updated to match version {wanted} before the cluster is updated"
        raise refused("InvalidRequest", text, clusterName=name)
    cluster.notes["came_from"] = "" if back else current
    kind = "VersionRollback" if back else "VersionUpdate"
    params = [{"type": "Version", "value": target}, {"type": "PlatformVersion", "value": "eks.1"}]
    return update(place, ("cluster", name), "eks.UpdateClusterVersion", kind, {"version": target}, params)


def describe_update(place: Place, asked: Values) -> Values:
    """Counts as a question about what is updated, too."""
    found = find(place, ("update", asked["name"], asked["updateId"]))
    place.look(found.notes["of"])
    return {"update": found.shape}


def list_updates(place: Place, asked: Values) -> Values:
    """Of the cluster, or of the node group or add-on that is named."""
    name = asked["name"]
    of: Key = ("cluster", name)
    for kind, member in (("nodegroup", "nodegroupName"), ("addon", "addonName")):
        of = (kind, name, asked[member]) if asked.get(member) else of
    find(place, of)
    return page("updateIds", [key[2] for key, one in place.under("update", name) if one.notes["of"] == of], asked)


def _tags(place: Place, arn: str) -> dict[str, str]:
    names = ("arn", "nodegroupArn", "addonArn", "associationArn", "accessEntryArn")
    for record in place.records.values():
        if arn in [record.shape.get(name) for name in names]:
            return record.shape["tags"]
    raise RefusedError("NotFoundException", f"Not found: {arn}")


def tag_resource(place: Place, asked: Values) -> Values:
    """Adds and changes tags."""
    _tags(place, asked["resourceArn"]).update(asked["tags"])
    place.changed = True
    return {}


def untag_resource(place: Place, asked: Values) -> Values:
    """Takes tags away."""
    tags = _tags(place, asked["resourceArn"])
    for name in asked["tagKeys"]:
        tags.pop(name, None)
    place.changed = True
    return {}


def list_tags_for_resource(place: Place, asked: Values) -> Values:
    """As they are now."""
    return {"tags": _tags(place, asked["resourceArn"])}


GONE = {"cluster": _cluster_gone}
