"""What the operations of EKS share: how resources are found, changed and ended."""

from __future__ import annotations

import uuid
from typing import Any

from lab.account.faults import ROLE_MISSING
from lab.account.place import Key, Place, Record, RefusedError, Values, now

LATEST = "1.35"
NO_ISSUES: Values = {"issues": []}


def refused(kind: str, message: str, **members: str) -> RefusedError:
    """An error with the members that EKS gives it beside its message."""
    refusal = RefusedError(f"{kind}Exception", message)
    vars(refusal).update(members)
    return refusal


def find(place: Place, key: Key, *, look: bool = False) -> Record:
    """The resource of that key, or the refusal of EKS where there is none; `look` counts a question about it."""
    record = place.look(key) if look else place.records.get(key)
    if record:
        return record
    text = {
        "cluster": "No cluster found for name: {}.",
        "nodegroup": "No node group found for name: {}.",
        "addon": "No addon: {} found in cluster",
        "association": "No association {} found in cluster",
        "entry": "The specified principalArn could not be found. {}",
        "update": "No update found for ID: {}",
    }[key[0]].format(key[-1])
    raise refused("ResourceNotFound", text)


def active_cluster(place: Place, name: str) -> Record:
    """The cluster of that name, unless it is still being made or deleted."""
    cluster = find(place, ("cluster", name))
    if cluster.shape["status"] not in ("ACTIVE", "UPDATING"):
        raise refused("InvalidRequest", f"Cluster '{name}' is not in ACTIVE status", clusterName=name)
    return cluster


def role_of(place: Place, operation: str, arn: str) -> Any:
    """The role of that ARN, in moto's IAM."""
    for role in place.iam.roles.values():
        if role.arn == arn:
            return role
    code, text = ROLE_MISSING[operation]
    raise RefusedError(code, text.format(arn=arn))


def may_do_anything(role: Any) -> bool:
    """Whether a role has any policy."""
    return bool(role.managed_policies or role.policies)


def subnets_of(place: Place, ids: list[str]) -> list[Any]:
    """Moto's subnets of these ids, or the refusal of EKS where one is missing."""
    found = [place.ec2.describe_subnets(filters={"subnet-id": [one]}) for one in ids]
    missing = [one for one, subnets in zip(ids, found, strict=True) if not subnets]
    if missing or not ids:
        raise refused("InvalidParameter", f"The subnet ID '{', '.join(missing)}' does not exist")
    return [subnets[0] for subnets in found]


def end(place: Place, key: Key, operation: str, failed: str = "") -> Values:
    """Begins the deletion of a resource, which a fault lets end in the state `failed`; returns its shape."""
    record = place.records[key]
    if record.shape["status"] != "DELETING":
        record.shape["status"] = "DELETING"
        record.pending.clear()
        place.later(key, operation, None, {"status": failed} if failed else None)
    return dict(record.shape)


def refuse_while_updating(record: Record, name: str) -> None:
    """Refuses a second change of a resource."""
    if record.shape["status"] == "UPDATING":  # cluster.go of terraform-provider-aws waits on "in progress"
        raise refused("ResourceInUse", f"Cannot change {name}: it has an update in progress")


def update(
    place: Place,
    key: Key,
    operation: str,
    kind: str,
    values: Values,
    params: list[Values] | None = None,
    failure: str = "Unknown",
) -> Values:
    """Begins an update of a resource, which shows the new values when it is over."""
    record = place.records[key]
    refuse_while_updating(record, key[-1])
    if record.shape["status"] not in ("ACTIVE", "DEGRADED", "UPDATE_FAILED"):
        raise refused("InvalidRequest", f"{key[-1]} cannot be updated as it is currently not in Active State")
    shape = {"id": str(uuid.uuid4()), "status": "InProgress", "type": kind, "params": params or []}
    shape |= {"createdAt": now(), "errors": []}
    number = ("update", key[1], shape["id"])
    place.add(number, shape, of=key)
    record.shape["status"] = "UPDATING"
    errors = [{"errorCode": failure, "errorMessage": f"The {kind} failed", "resourceIds": [key[-1]]}]
    place.later(key, operation, {**values, "status": "ACTIVE"}, {"status": "ACTIVE"}, update=number, errors=errors)
    return {"update": shape}
