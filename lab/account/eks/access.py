"""Pod identity associations and access entries."""

from __future__ import annotations

import uuid

from lab.account.eks.common import active_cluster, find, refused, role_of
from lab.account.place import Place, Record, Values, new_id, now, page, without_none

_POLICIES = ("AdminPolicy", "AdminViewPolicy", "ClusterAdminPolicy", "EditPolicy", "ViewPolicy")


def create_pod_identity_association(place: Place, asked: Values) -> Values:
    """One a service account."""
    active_cluster(place, asked["clusterName"])
    role_of(place, "eks.CreatePodIdentityAssociation", asked["roleArn"])
    return {"association": add_association(place, asked).shape}


def add_association(place: Place, asked: Values, owner: str = "") -> Record:
    """Keeps a new association; `owner` is the ARN of the add-on that it is part of."""
    cluster, number = asked["clusterName"], new_id("a")
    for _, one in place.under("association", cluster):
        if all(one.shape[part] == asked[part] for part in ("namespace", "serviceAccount")):
            text = f"Association already exists: {one.shape['associationId']}"
            raise refused("ResourceInUse", text, clusterName=cluster)
    shape = {part: asked[part] for part in ("clusterName", "namespace", "serviceAccount", "roleArn")} | {
        "associationArn": place.arn("eks", f"podidentityassociation/{cluster}/{number}"),
        "associationId": number,
        "tags": asked.get("tags") or {},
        "createdAt": now(),
        "modifiedAt": now(),
        "disableSessionTags": bool(asked.get("disableSessionTags")),
    }
    shape |= without_none({"targetRoleArn": asked.get("targetRoleArn"), "ownerArn": owner or None})
    return place.add(("association", cluster, number), shape)


def describe_pod_identity_association(place: Place, asked: Values) -> Values:
    """As it is now."""
    return {"association": find(place, ("association", asked["clusterName"], asked["associationId"])).shape}


def list_pod_identity_associations(place: Place, asked: Values) -> Values:
    """Those of a namespace or service account, if one is named."""
    cluster = asked["clusterName"]
    find(place, ("cluster", cluster))
    parts = ("clusterName", "namespace", "serviceAccount", "associationArn", "associationId", "ownerArn")
    found = [
        {part: one.shape[part] for part in parts if part in one.shape}
        for _, one in place.under("association", cluster)
        if all(asked.get(part) in (None, one.shape[part]) for part in ("namespace", "serviceAccount"))
    ]
    return page("associations", found, asked)


def update_pod_identity_association(place: Place, asked: Values) -> Values:
    """Another role."""
    record = find(place, ("association", asked["clusterName"], asked["associationId"]))
    if asked.get("roleArn"):
        role_of(place, "eks.UpdatePodIdentityAssociation", asked["roleArn"])
    parts = ("roleArn", "disableSessionTags", "targetRoleArn")
    record.shape |= without_none({part: asked.get(part) for part in parts}) | {"modifiedAt": now()}
    place.changed = True
    return {"association": record.shape}


def delete_pod_identity_association(place: Place, asked: Values) -> Values:
    """Gone at once."""
    key = ("association", asked["clusterName"], asked["associationId"])
    record = find(place, key)
    del place.records[key]
    place.changed = True
    return {"association": record.shape}


def create_access_entry(place: Place, asked: Values) -> Values:
    """For a role or user that IAM has."""
    cluster, principal = asked["clusterName"], asked["principalArn"]
    if active_cluster(place, cluster).shape["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
        text = "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP]"
        raise refused("InvalidRequest", f"{text} to perform this operation.")
    if ("entry", cluster, principal) in place.records:
        raise refused("ResourceInUse", "The specified access entry resource is already in use on this cluster.")
    if principal not in [user.arn for user in place.iam.users.values()]:
        role_of(place, "eks.CreateAccessEntry", principal)
    return {"accessEntry": add_entry(place, cluster, principal, asked).shape}


def add_entry(place: Place, cluster: str, principal: str, asked: Values) -> Record:
    """Keeps a new access entry, without asking IAM."""
    kind, _, name = principal.rsplit(":", maxsplit=1)[-1].partition("/")
    session = f"arn:{place.partition}:sts::{place.account}:assumed-role/{name.split('/')[-1]}/{{{{SessionName}}}}"
    number = uuid.uuid4()
    shape = {
        "clusterName": cluster,
        "principalArn": principal,
        "kubernetesGroups": asked.get("kubernetesGroups") or [],
        "accessEntryArn": place.arn("eks", f"access-entry/{cluster}/{kind}/{place.account}/{name}/{number}"),
        "createdAt": now(),
        "modifiedAt": now(),
        "tags": asked.get("tags") or {},
        "username": asked.get("username") or (session if kind == "role" else principal),
        "type": asked.get("type") or "STANDARD",
    }
    return place.add(("entry", cluster, principal), shape)


def describe_access_entry(place: Place, asked: Values) -> Values:
    """As it is now."""
    return {"accessEntry": find(place, ("entry", asked["clusterName"], asked["principalArn"])).shape}


def list_access_entries(place: Place, asked: Values) -> Values:
    """The principals, or those with a policy."""
    cluster, policy = asked["clusterName"], asked.get("associatedPolicyArn")
    find(place, ("cluster", cluster))
    found = [
        key[2]
        for key, _ in place.under("entry", cluster)
        if policy is None or ("policy", cluster, key[2], policy) in place.records
    ]
    return page("accessEntries", found, asked)


def update_access_entry(place: Place, asked: Values) -> Values:
    """Its groups and name in Kubernetes."""
    record = find(place, ("entry", asked["clusterName"], asked["principalArn"]))
    parts = ("kubernetesGroups", "username")
    record.shape |= without_none({part: asked.get(part) for part in parts}) | {"modifiedAt": now()}
    place.changed = True
    return {"accessEntry": record.shape}


def delete_access_entry(place: Place, asked: Values) -> Values:
    """With its policies."""
    cluster, principal = asked["clusterName"], asked["principalArn"]
    find(place, ("entry", cluster, principal))
    for key, _ in [*place.under("policy", cluster, principal), *place.under("entry", cluster, principal)]:
        del place.records[key]
    place.changed = True
    return {}


def list_access_policies(place: Place, asked: Values) -> Values:
    """Some of those that AWS offers."""
    found = [{"name": f"AmazonEKS{one}", "arn": policy_arn(place, one)} for one in _POLICIES]
    return page("accessPolicies", found, asked)


def policy_arn(place: Place, name: str) -> str:
    """The ARN of an access policy, by its name without `AmazonEKS`."""
    return f"arn:{place.partition}:eks::aws:cluster-access-policy/AmazonEKS{name}"


def associate_access_policy(place: Place, asked: Values) -> Values:
    """Refused for an entry or a policy that is not there."""
    cluster, principal, policy = asked["clusterName"], asked["principalArn"], asked["policyArn"]
    find(place, ("entry", cluster, principal))
    if policy not in [policy_arn(place, one) for one in _POLICIES]:
        raise refused("InvalidParameter", f"The specified policyArn is invalid: {policy}")
    record = add_policy(place, cluster, principal, policy, asked["accessScope"])
    return {"clusterName": cluster, "principalArn": principal, "associatedAccessPolicy": record.shape}


def add_policy(place: Place, cluster: str, principal: str, policy: str, scope: Values) -> Record:
    """Gives an access entry a policy, or the same one another scope."""
    key = ("policy", cluster, principal, policy)
    since = place.records[key].shape["associatedAt"] if key in place.records else now()
    shape = {"policyArn": policy, "accessScope": scope, "associatedAt": since, "modifiedAt": now()}
    return place.add(key, shape)


def disassociate_access_policy(place: Place, asked: Values) -> Values:
    """Takes a policy away from an entry."""
    key = ("policy", asked["clusterName"], asked["principalArn"], asked["policyArn"])
    find(place, ("entry", *key[1:3]))
    if place.records.pop(key, None) is None:
        raise refused("ResourceNotFound", "The specified policyArn could not be found.")
    place.changed = True
    return {}


def list_associated_access_policies(place: Place, asked: Values) -> Values:
    """Of one entry."""
    cluster, principal = asked["clusterName"], asked["principalArn"]
    find(place, ("entry", cluster, principal))
    found = [one.shape for _, one in place.under("policy", cluster, principal)]
    return {"clusterName": cluster, "principalArn": principal} | page("associatedAccessPolicies", found, asked)
