"""Add-ons, with the pod identity associations that they own."""

from __future__ import annotations

import uuid

from lab.account.eks.access import add_association
from lab.account.eks.common import (
    LATEST,
    NO_ISSUES,
    active_cluster,
    end,
    find,
    refuse_while_updating,
    refused,
    role_of,
    update,
)
from lab.account.place import Key, Place, Record, Values, now, page, without_none

# The form is EKS's (describe-addon-versions); the numbers stand for what changes every few weeks.
_ADDONS = {
    "vpc-cni": "v1.20.4-eksbuild.2",
    "coredns": "v1.12.4-eksbuild.1",
    "kube-proxy": "v1.35.0-eksbuild.2",
    "eks-pod-identity-agent": "v1.3.10-eksbuild.1",
    "eks-node-monitoring-agent": "v1.4.3-eksbuild.1",
    "aws-ebs-csi-driver": "v1.54.0-eksbuild.1",
    "aws-fsx-csi-driver": "v1.7.0-eksbuild.1",
    "metrics-server": "v0.8.0-eksbuild.5",
}


def describe_addon_versions(_place: Place, asked: Values) -> Values:
    """One version of each add-on that is known here, compatible with the version that is asked about."""
    name, cluster = asked.get("addonName"), asked.get("kubernetesVersion") or LATEST
    if name and name not in _ADDONS:
        raise refused("ResourceNotFound", f"Addon {name} not found")
    compatible = [{"clusterVersion": cluster, "platformVersions": ["*"], "defaultVersion": True}]
    addons = [
        {
            "addonName": addon,
            "type": "networking",
            "owner": "aws",
            "publisher": "eks",
            "addonVersions": [
                {
                    "addonVersion": version,
                    "architecture": ["amd64", "arm64"],
                    "compatibilities": compatible,
                    "requiresConfiguration": False,
                    "requiresIamPermissions": addon in ("vpc-cni", "aws-ebs-csi-driver", "aws-fsx-csi-driver"),
                }
            ],
        }
        for addon, version in _ADDONS.items()
        if name in (None, "", addon)
    ]
    return page("addons", addons, asked)


def create_addon(place: Place, asked: Values) -> Values:
    """With the pod identity associations that it is given."""
    cluster, name = asked["clusterName"], asked["addonName"]
    key = ("addon", cluster, name)
    active_cluster(place, cluster)
    if key in place.records:
        raise refused("ResourceInUse", "Addon already exists.", clusterName=cluster, addonName=name)
    _check_addon(asked, name)
    if asked.get("serviceAccountRoleArn"):
        role_of(place, "eks.CreateAddon", asked["serviceAccountRoleArn"])
    shape = {
        "addonName": name,
        "clusterName": cluster,
        "status": "CREATING",
        "addonVersion": asked.get("addonVersion") or _ADDONS[name],
        "health": NO_ISSUES,
        "addonArn": place.arn("eks", f"addon/{cluster}/{name}/{uuid.uuid4()}"),
        "createdAt": now(),
        "modifiedAt": now(),
        "tags": asked.get("tags") or {},
    }
    parts = ("serviceAccountRoleArn", "configurationValues", "namespaceConfig")
    shape |= without_none({part: asked.get(part) for part in parts})
    shape |= _associate(place, "eks.CreateAddon", cluster, shape["addonArn"], asked.get("podIdentityAssociations"))
    record = place.add(key, shape)
    place.later(key, "eks.CreateAddon", {"status": "ACTIVE"}, _degraded(name))
    return {"addon": record.shape}


def _check_addon(asked: Values, name: str) -> None:
    if name not in _ADDONS:
        raise refused("InvalidParameter", f"Addon {name} specified is not supported", addonName=name)
    if asked.get("addonVersion") not in (None, "", _ADDONS[name]):
        text = f"Addon version {asked['addonVersion']} specified is not supported; supported here: {_ADDONS[name]}"
        raise refused("InvalidParameter", text, addonName=name)


def _degraded(name: str) -> Values:
    # docs.aws.amazon.com/eks/latest/userguide/troubleshooting.html, and the issue codes of the model.
    text = f"The add-on is unhealthy because it doesn't have the desired number of replicas ({name})."
    issue = {"code": "InsufficientNumberOfReplicas", "message": text, "resourceIds": []}
    return {"status": "DEGRADED", "health": {"issues": [issue]}}


def _associate(place: Place, operation: str, cluster: str, owner: str, wanted: list[Values] | None) -> Values:
    """Makes the associations of an add-on what is wanted."""
    if wanted is None:
        return {}
    for link in wanted:
        role_of(place, operation, link["roleArn"])
    for key, one in place.under("association", cluster):
        if one.shape.get("ownerArn") == owner:
            del place.records[key]
    made = [
        add_association(place, {**one, "clusterName": cluster, "namespace": "kube-system"}, owner) for one in wanted
    ]
    return {"podIdentityAssociations": [one.shape["associationArn"] for one in made]}


def describe_addon(place: Place, asked: Values) -> Values:
    """As it is now; coredns is healthy only where a node group wants nodes."""
    cluster, name = asked["clusterName"], asked["addonName"]
    find(place, ("cluster", cluster))
    shape = find(place, ("addon", cluster, name), look=True).shape
    if name == "coredns" and shape["status"] == "ACTIVE":
        sizes = [group.shape["scalingConfig"].get("desiredSize", 0) for _, group in place.under("nodegroup", cluster)]
        return {"addon": shape if any(sizes) else {**shape, **_degraded(name)}}
    return {"addon": shape}


def list_addons(place: Place, asked: Values) -> Values:
    """All names."""
    find(place, ("cluster", asked["clusterName"]))
    return page("addons", [key[2] for key, _ in place.under("addon", asked["clusterName"])], asked)


def update_addon(place: Place, asked: Values) -> Values:
    """Its version, values, role or associations."""
    cluster, name = asked["clusterName"], asked["addonName"]
    key = ("addon", cluster, name)
    shape = find(place, key).shape
    _check_addon(asked, name)
    refuse_while_updating(place.records[key], name)
    parts = ("addonVersion", "serviceAccountRoleArn", "configurationValues")
    values = without_none({part: asked.get(part) for part in parts})
    links = asked.get("podIdentityAssociations")
    values |= _associate(place, "eks.UpdateAddon", cluster, shape["addonArn"], links)
    params = [{"type": "AddonVersion", "value": values.get("addonVersion", shape["addonVersion"])}]
    values["modifiedAt"] = now()
    return update(place, key, "eks.UpdateAddon", "AddonUpdate", values, params, failure="ConfigurationConflict")


def delete_addon(place: Place, asked: Values) -> Values:
    """With its associations."""
    key = ("addon", asked["clusterName"], asked["addonName"])
    find(place, key)
    return {"addon": end(place, key, "eks.DeleteAddon", "DELETE_FAILED")}


def _addon_gone(place: Place, key: Key, record: Record) -> None:
    for inner, one in place.under("association", key[1]):
        if one.shape.get("ownerArn") == record.shape["addonArn"]:
            del place.records[inner]


GONE = {"addon": _addon_gone}
