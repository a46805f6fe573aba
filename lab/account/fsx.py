"""FSx for Lustre: file systems. Functions as in `eks/`.

The rules are those of the API reference and, where comments name it, of the FSx for Lustre user guide.
"""

from __future__ import annotations

import secrets
import uuid
from typing import Any

from lab.account.place import Key, Place, Record, RefusedError, Values, new_id, now, page, without_none

# GiB by MB/s/TiB, for file systems with EFA: LustreGuide/efa-file-systems.html.
_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
_STEP_GIB, _SMALLEST_GIB = 2400, 1200
# Metadata IOPS in AUTOMATIC mode, up to so many GiB: LustreGuide/managing-metadata-performance.html.
_AUTOMATIC_IOPS = ((1200, 1500), (2400, 3000), (9600, 6000), (45600, 12000))
_IOPS_STEP, _IOPS_STEP_GIB = 12000, 24000

_DEFAULTS = {"DataCompressionType": "NONE", "WeeklyMaintenanceStartTime": "1:06:00", "CopyTagsToBackups": False}
_ACTIONS_KEPT = 50


def create_file_system(place: Place, asked: Values) -> Values:
    """One for Lustre, with its network interface in EC2."""
    if asked["FileSystemType"] != "LUSTRE" or not asked.get("LustreConfiguration"):
        raise RefusedError("BadRequest", "Only file systems for Lustre, with a LustreConfiguration, are made here")
    token = asked.get("ClientRequestToken")
    for _, one in place.under("file-system"):
        if token and one.notes["token"] == token:
            if one.notes["asked"] != asked:
                raise RefusedError("IncompatibleParameterError", "The token was used with other parameters")
            return {"FileSystem": one.shape}
    given = without_none(asked["LustreConfiguration"])
    lustre = {**_DEFAULTS, "DeploymentType": "SCRATCH_1", "EfaEnabled": False, **given}
    size = asked.get("StorageCapacity") or 0
    subnets = place.ec2.describe_subnets(filters={"subnet-id": asked["SubnetIds"]})
    if len(asked["SubnetIds"]) != 1 or not subnets:
        text = f"Exactly one subnet of the account is needed, not {asked['SubnetIds']}"
        raise RefusedError("InvalidNetworkSettings", text)
    groups = asked.get("SecurityGroupIds") or []
    for group in groups:
        if not place.ec2.get_security_group_from_id(group):
            raise RefusedError("InvalidNetworkSettings", f"The security group {group} does not exist")
    _check_size(lustre, size)
    if lustre["EfaEnabled"]:
        _check_efa(place, lustre, groups)
    lustre["MountName"] = "fsx" if lustre["DeploymentType"] == "SCRATCH_1" else secrets.token_hex(4)
    lustre["LogConfiguration"] = lustre.get("LogConfiguration") or {"Level": "DISABLED"}
    if lustre["DeploymentType"].startswith("PERSISTENT"):
        lustre = {"AutomaticBackupRetentionDays": 0, **lustre}
    if (metadata := lustre.get("MetadataConfiguration")) and metadata["Mode"] == "AUTOMATIC":
        lustre["MetadataConfiguration"] = {**metadata, "Iops": _automatic_iops(size)}
    number = new_id("fs")
    text = f"Interface for FSx {number}"
    interface = place.ec2.create_network_interface(subnets[0], "", group_ids=groups, description=text).id
    key_of_fsx = place.arn("kms", f"key/{uuid.uuid5(uuid.NAMESPACE_DNS, f'{place.account} {place.region} aws/fsx')}")
    shape = {
        "OwnerId": place.account,
        "CreationTime": now(),
        "FileSystemId": number,
        "FileSystemType": "LUSTRE",
        "Lifecycle": "CREATING",
        "StorageCapacity": size,
        "StorageType": asked.get("StorageType") or "SSD",
        "VpcId": subnets[0].vpc_id,
        "SubnetIds": asked["SubnetIds"],
        "NetworkInterfaceIds": [interface],
        "DNSName": f"{number}.fsx.{place.region}.amazonaws.com",
        "KmsKeyId": asked.get("KmsKeyId") or key_of_fsx,
        "ResourceARN": place.arn("fsx", f"file-system/{number}"),
        "LustreConfiguration": lustre,
        "FileSystemTypeVersion": asked.get("FileSystemTypeVersion") or "2.10",
    }
    if asked.get("Tags"):
        shape["Tags"] = asked["Tags"]
    key = ("file-system", number)
    record = place.add(key, shape, token=token, asked=asked)
    # The states are the API's; its reference gives no text for a lack of capacity.
    message = f"Insufficient capacity in {subnets[0].availability_zone} to create the file system"
    failed = {"Lifecycle": "FAILED", "FailureDetails": {"Message": message}}
    place.later(key, "fsx.CreateFileSystem", {"Lifecycle": "AVAILABLE"}, failed)
    return {"FileSystem": record.shape}


def _check_size(lustre: Values, size: int) -> None:
    """API reference: CreateFileSystem, StorageCapacity; with EFA the user guide's steps."""
    tier = lustre.get("PerUnitStorageThroughput")
    if lustre["DeploymentType"] == "PERSISTENT_2" and tier not in _EFA_STEP_GIB:
        text = f"{tier} is not one of {', '.join(map(str, _EFA_STEP_GIB))}"
        raise RefusedError("InvalidPerUnitStorageThroughput", f"PerUnitStorageThroughput: {text}")
    step = _EFA_STEP_GIB[int(tier or 0)] if lustre["EfaEnabled"] and tier in _EFA_STEP_GIB else _STEP_GIB
    smallest = step if lustre["EfaEnabled"] else _SMALLEST_GIB
    if size < smallest or (size != smallest and size % step):
        text = f"must be {smallest} or a multiple of {step} GiB, not {size}"
        raise RefusedError("BadRequest", f"StorageCapacity {text}")


def _check_efa(place: Place, lustre: Values, groups: list[str]) -> None:
    """LustreGuide/efa-file-systems.html: the security group must allow all traffic to and from itself."""
    if lustre["DeploymentType"] != "PERSISTENT_2" or not lustre.get("MetadataConfiguration"):
        text = "EFA is only supported for PERSISTENT_2 file systems with a metadata configuration"
        raise RefusedError("BadRequest", text)
    if not any(_is_open_to_itself(place.ec2.get_security_group_from_id(group)) for group in groups):
        text = "Insufficient security group permissions to create an EFA-enabled file system"
        raise RefusedError("BadRequest", f"{text}: no group of {groups} allows all traffic from and to itself")


def _is_open_to_itself(group: Any) -> bool:
    return all(
        any(str(rule.ip_protocol) == "-1" and rule.source_group.get("GroupId") == group.id for rule in rules)
        for rules in (group.ingress_rules, group.egress_rules)
    )


def _automatic_iops(size_gib: int) -> int:
    for up_to, iops in _AUTOMATIC_IOPS:
        if size_gib <= up_to:
            return iops
    return size_gib // _IOPS_STEP_GIB * _IOPS_STEP


def _find(place: Place, number: str) -> Record:
    record = place.records.get(("file-system", number))
    if record is None:
        raise RefusedError("FileSystemNotFound", f"File system '{number}' does not exist.")
    return record


def describe_file_systems(place: Place, asked: Values) -> Values:
    """Those that are named, else all."""
    numbers = asked.get("FileSystemIds") or [key[1] for key, _ in place.under("file-system")]
    for number in numbers:
        place.look(("file-system", number))
    if asked.get("FileSystemIds"):
        found = [_find(place, number).shape for number in numbers]
    else:
        found = [one.shape for _, one in place.under("file-system")]
    return page("FileSystems", found, asked)


def update_file_system(place: Place, asked: Values) -> Values:
    """Leaves administrative actions behind; more storage is optimized after the file system is available again."""
    number = asked["FileSystemId"]
    key = ("file-system", number)
    shape = _find(place, number).shape
    if shape["Lifecycle"] != "AVAILABLE":
        raise RefusedError("BadRequest", f"File system {number} is {shape['Lifecycle']}, not AVAILABLE")
    new, old = without_none(asked.get("LustreConfiguration") or {}), shape["LustreConfiguration"]
    tier, size = new.get("PerUnitStorageThroughput"), asked.get("StorageCapacity")
    if tier is not None and tier != old.get("PerUnitStorageThroughput") and old["EfaEnabled"]:
        # LustreGuide/managing-throughput-capacity.html
        raise RefusedError("BadRequest", "The throughput of an EFA-enabled Lustre file system cannot be updated")
    lustre = {**old, **new}
    if size is not None:
        if size <= shape["StorageCapacity"]:
            text = f"StorageCapacity {size} must be greater than the current {shape['StorageCapacity']}"
            raise RefusedError("BadRequest", text)
        _check_size(lustre, size)
    if metadata := new.get("MetadataConfiguration"):
        if not old.get("MetadataConfiguration"):
            raise RefusedError("BadRequest", "A file system without metadata configuration cannot get one")
        merged = {**old["MetadataConfiguration"], **without_none(metadata)}
        if merged["Iops"] < old["MetadataConfiguration"]["Iops"]:
            raise RefusedError("BadRequest", "Metadata IOPS can only be increased")
        lustre["MetadataConfiguration"] = merged
    if lustre.get("MetadataConfiguration", {}).get("Mode") == "AUTOMATIC":
        iops = _automatic_iops(size or shape["StorageCapacity"])
        lustre["MetadataConfiguration"] = {**lustre["MetadataConfiguration"], "Iops": iops}
    parts = ("StorageCapacity", "FileSystemTypeVersion")
    values = without_none({part: asked.get(part) for part in parts})
    target = {**values, "LustreConfiguration": new} if new else dict(values)
    if not target:
        raise RefusedError("BadRequest", "No values to update were given")
    action = {
        "AdministrativeActionType": "FILE_SYSTEM_UPDATE",
        "RequestTime": now(),
        "Status": "IN_PROGRESS",
        "TargetFileSystemValues": target,
    }
    before = shape.get("AdministrativeActions", [])[: _ACTIONS_KEPT - 2]
    shape["AdministrativeActions"] = [action, *before]
    shape["Lifecycle"] = "UPDATING"
    answer = {"FileSystem": dict(shape)}
    done = {**values, "LustreConfiguration": lustre, "Lifecycle": "AVAILABLE"}
    details = {"Message": "Amazon FSx failed to process the update"}
    failed = {
        "Lifecycle": "AVAILABLE",
        "AdministrativeActions": [{**action, "Status": "FAILED", "FailureDetails": details}, *before],
    }
    finished = [{**action, "Status": "COMPLETED"}, *before]
    if size is None:
        place.later(key, "fsx.UpdateFileSystem", {**done, "AdministrativeActions": finished}, failed)
        return answer
    optimizing = {**action, "AdministrativeActionType": "STORAGE_OPTIMIZATION", "ProgressPercent": 0}
    middle = [{**action, "Status": "UPDATED_OPTIMIZING"}, optimizing, *before]
    place.later(key, "fsx.UpdateFileSystem", {**done, "AdministrativeActions": middle}, failed)
    if place.records[key].pending[-1].values is not failed:
        last = {**optimizing, "Status": "COMPLETED", "ProgressPercent": 100}
        place.later(key, "fsx.StorageOptimization", {"AdministrativeActions": [finished[0], last, *before]})
    return answer


def delete_file_system(place: Place, asked: Values) -> Values:
    """Without a last backup."""
    number = asked["FileSystemId"]
    record = _find(place, number)
    if record.shape["Lifecycle"] != "DELETING":
        record.shape["Lifecycle"] = "DELETING"
        record.pending.clear()
        message = {"Message": "Amazon FSx failed to delete the file system"}
        failed = {"Lifecycle": "FAILED", "FailureDetails": message}
        place.later(("file-system", number), "fsx.DeleteFileSystem", None, failed)
    return {"FileSystemId": number, "Lifecycle": "DELETING"}


def _gone(place: Place, _key: Key, record: Record) -> None:
    for interface in record.shape["NetworkInterfaceIds"]:
        place.ec2.delete_network_interface(interface)


def _by_arn(place: Place, arn: str) -> Record:
    for _, record in place.under("file-system"):
        if record.shape["ResourceARN"] == arn:
            return record
    raise RefusedError("ResourceNotFound", f"The resource {arn} does not exist")


def tag_resource(place: Place, asked: Values) -> Values:
    """Adds and changes tags."""
    shape = _by_arn(place, asked["ResourceARN"]).shape
    named = {one["Key"]: one for one in [*shape.get("Tags", []), *asked["Tags"]]}
    shape["Tags"] = list(named.values())
    place.changed = True
    return {}


def untag_resource(place: Place, asked: Values) -> Values:
    """Takes tags away."""
    shape = _by_arn(place, asked["ResourceARN"]).shape
    kept = [one for one in shape.pop("Tags", []) if one["Key"] not in asked["TagKeys"]]
    if kept:
        shape["Tags"] = kept
    place.changed = True
    return {}


def list_tags_for_resource(place: Place, asked: Values) -> Values:
    """As they are now."""
    tags = _by_arn(place, asked["ResourceARN"]).shape.get("Tags", [])
    return page("Tags", tags, asked) if tags else {}


GONE = {"file-system": _gone}
