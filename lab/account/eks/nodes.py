"""Managed node groups."""

from __future__ import annotations

import uuid

from moto.core.exceptions import ServiceException

from lab.account.eks.common import (
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
from lab.account.place import Place, Values, now, page, without_none


def create_nodegroup(place: Place, asked: Values) -> Values:
    """Its nodes are not in EC2: only its status says whether they came."""
    cluster_name, name = asked["clusterName"], asked["nodegroupName"]
    key = ("nodegroup", cluster_name, name)
    cluster = active_cluster(place, cluster_name)
    if key in place.records:
        text = f"NodeGroup already exists with name {name} and cluster name {cluster_name}"
        raise refused("ResourceInUse", text, clusterName=cluster_name, nodegroupName=name)
    role = role_of(place, "eks.CreateNodegroup", asked["nodeRole"])
    subnets_of(place, asked["subnets"])
    template = _template(place, asked["launchTemplate"]) if asked.get("launchTemplate") else None
    if template and asked.get("diskSize"):
        raise refused("InvalidParameter", "Disk size must be specified within the launch template.")
    version = asked.get("version") or cluster.shape["version"]
    _refuse_newer_nodes(version, cluster.shape["version"])
    group = f"eks-{name}-{uuid.uuid4()}"
    shape = {
        "nodegroupName": name,
        "nodegroupArn": place.arn("eks", f"nodegroup/{cluster_name}/{name}/{uuid.uuid4()}"),
        "clusterName": cluster_name,
        "version": version,
        "releaseVersion": asked.get("releaseVersion") or _release(version),
        "createdAt": now(),
        "modifiedAt": now(),
        "status": "CREATING",
        "capacityType": asked.get("capacityType") or "ON_DEMAND",
        "scalingConfig": asked.get("scalingConfig") or {"minSize": 2, "maxSize": 2, "desiredSize": 2},
        "subnets": asked["subnets"],
        "amiType": asked.get("amiType") or "AL2023_x86_64_STANDARD",
        "nodeRole": asked["nodeRole"],
        "labels": asked.get("labels") or {},
        "taints": asked.get("taints") or [],
        "resources": {"autoScalingGroups": [{"name": group}]},
        "health": NO_ISSUES,
        "updateConfig": asked.get("updateConfig") or {"maxUnavailable": 1},
        "tags": asked.get("tags") or {},
    }
    shape |= without_none({part: asked.get(part) for part in ("nodeRepairConfig", "remoteAccess", "warmPoolConfig")})
    if template:
        shape["launchTemplate"] = template[0]
    else:
        shape["diskSize"] = asked.get("diskSize") or 20
    if asked.get("instanceTypes") or not (template and template[1]):
        shape["instanceTypes"] = asked.get("instanceTypes") or ["t3.medium"]
    record = place.add(key, shape)
    types = ", ".join(shape.get("instanceTypes") or [template[1] if template else ""])
    # docs.aws.amazon.com/eks/latest/userguide/troubleshooting.html, and the issue codes of the model.
    text = f"Could not launch instances. InsufficientInstanceCapacity - We currently do not have sufficient {types} "
    failed = _failed_group("AsgInstanceLaunchFailures", f"{text}capacity in the Availability Zone you requested", group)
    addons = [key[2] for key, _ in place.under("addon", cluster_name)]
    alone = not cluster.notes["own_addons"] and "vpc-cni" not in addons
    wanted = shape["scalingConfig"].get("desiredSize", 0) > 0
    if wanted and (alone or not may_do_anything(role)):
        lack = "the cluster has no vpc-cni add-on" if alone else f"no policy is attached to {asked['nodeRole']}"
        text = f"Instances failed to join the kubernetes cluster: {lack}"
        end = failed = _failed_group("NodeCreationFailure", text, group)
    else:
        end = {"status": "ACTIVE"}
    place.later(key, "eks.CreateNodegroup", end, failed)
    return {"nodegroup": record.shape}


def _failed_group(code: str, message: str, resource: str) -> Values:
    issue = {"code": code, "message": message, "resourceIds": [resource]}
    return {"status": "CREATE_FAILED", "health": {"issues": [issue]}}


def _release(version: str) -> str:
    return f"{version}.0-20260101"


def _refuse_newer_nodes(version: str, cluster_version: str) -> None:
    if tuple(map(int, version.split("."))) > tuple(map(int, cluster_version.split("."))):
        text = f"Nodegroup Kubernetes version {version} should not be newer than the cluster's {cluster_version}"
        raise refused("InvalidParameter", text)


def _template(place: Place, asked: Values) -> tuple[Values, str]:
    """A launch template as node groups show it, and its instance type."""
    if bool(asked.get("id")) == bool(asked.get("name")):
        text = "Either provide launch template ID or launch template name in the request."
        raise refused("InvalidParameter", text)
    try:
        if asked.get("id"):
            template = place.ec2.get_launch_template(asked["id"])
        else:
            template = place.ec2.get_launch_template_by_name(asked["name"])
        version = template.get_version(asked.get("version") or "$Default")
    except (ServiceException, ValueError) as missing:
        text = f"Launch template {asked} was not found: {missing}"
        raise refused("InvalidRequest", text) from missing
    shape = {"id": template.id, "name": template.name, "version": str(version.number)}
    return shape, version.instance_type or ""


def describe_nodegroup(place: Place, asked: Values) -> Values:
    """As it is now."""
    find(place, ("cluster", asked["clusterName"]))
    key = ("nodegroup", asked["clusterName"], asked["nodegroupName"])
    return {"nodegroup": find(place, key, look=True).shape}


def list_nodegroups(place: Place, asked: Values) -> Values:
    """All names."""
    find(place, ("cluster", asked["clusterName"]))
    return page("nodegroups", [key[2] for key, _ in place.under("nodegroup", asked["clusterName"])], asked)


def delete_nodegroup(place: Place, asked: Values) -> Values:
    """With its nodes."""
    key = ("nodegroup", asked["clusterName"], asked["nodegroupName"])
    refuse_while_updating(find(place, key), key[2])
    return {"nodegroup": end(place, key, "eks.DeleteNodegroup", "DELETE_FAILED")}


def update_nodegroup_config(place: Place, asked: Values) -> Values:
    """Labels, taints, sizes and how it is updated and repaired."""
    key = ("nodegroup", asked["clusterName"], asked["nodegroupName"])
    shape = find(place, key).shape
    parts = ("scalingConfig", "updateConfig", "nodeRepairConfig", "warmPoolConfig")
    values = without_none({part: asked.get(part) for part in parts})
    values["scalingConfig"] = {**shape["scalingConfig"], **without_none(values.get("scalingConfig") or {})}
    if labels := asked.get("labels"):
        kept = {name: one for name, one in shape["labels"].items() if name not in (labels.get("removeLabels") or [])}
        values["labels"] = {**kept, **(labels.get("addOrUpdateLabels") or {})}
    if taints := asked.get("taints"):
        gone = [*(taints.get("removeTaints") or []), *(taints.get("addOrUpdateTaints") or [])]
        names = {(one["key"], one["effect"]) for one in gone}
        kept_taints = [one for one in shape["taints"] if (one["key"], one["effect"]) not in names]
        values["taints"] = [*kept_taints, *(taints.get("addOrUpdateTaints") or [])]
    values["modifiedAt"] = now()
    return update(place, key, "eks.UpdateNodegroupConfig", "ConfigUpdate", values)


def update_nodegroup_version(place: Place, asked: Values) -> Values:
    """Another Kubernetes version, or another version of the same launch template: the nodes are replaced."""
    key = ("nodegroup", asked["clusterName"], asked["nodegroupName"])
    shape, cluster = find(place, key).shape, active_cluster(place, asked["clusterName"]).shape
    version = asked.get("version") or (cluster["version"] if not asked.get("launchTemplate") else shape["version"])
    _refuse_newer_nodes(version, cluster["version"])
    release = shape["releaseVersion"] if version == shape["version"] else _release(version)
    values: Values = {"version": version, "releaseVersion": asked.get("releaseVersion") or release}
    params = [{"type": "Version", "value": version}, {"type": "ReleaseVersion", "value": values["releaseVersion"]}]
    if asked.get("launchTemplate"):
        template, _ = _template(place, asked["launchTemplate"])
        if template["id"] != shape.get("launchTemplate", {}).get("id"):
            raise refused("InvalidParameter", "Launch template of a nodegroup cannot be changed, only its version")
        values["launchTemplate"] = template
        params.append({"type": "LaunchTemplateVersion", "value": template["version"]})
    values["modifiedAt"] = now()
    operation = "eks.UpdateNodegroupVersion"
    return update(place, key, operation, "VersionUpdate", values, params, failure="PodEvictionFailure")
