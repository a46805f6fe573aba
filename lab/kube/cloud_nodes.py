"""The nodes that the node groups of a stand-in cloud stand for: labels, taints, and what a kubelet would offer on them.

What AWS and the image's own set-up decide is worked out here from the launch template and the user data, as they would:
what the program believes of it stands elsewhere (`infra.sizing`).
"""

import base64
import email
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from infra.instance_types import GIB, INSTANCE_TYPES, InstanceType
from lab.rehearsal.providers import wire

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
SUBNET = "aws:ec2/subnet:Subnet"

MIB = 2**20
MAX_PODS = 110

VM_OVERHEAD = 0.075
"""The share of an instance's memory that its kernel does not see: Karpenter's default of vmMemoryOverheadPercent."""

FILE_SYSTEM = 0.99
"""The share of a disk that XFS leaves for files: an assumption."""

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


@dataclass(frozen=True)
class CloudNode:
    """One node.

    Attributes:
        name: its host name.
        group: the node group's name.
        labels: those that the group, EKS and the kubelet set.
        taints: as in a Node's spec.
        capacity: by resource, without devices, which appear with their plugins.
        allocatable: the same, less what is reserved.
        gpus: that the NVIDIA plugin would offer.
        efa: interfaces that the EFA plugin would offer.
    """

    name: str
    group: str
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]
    gpus: int
    efa: int


def nodes(cloud: Mapping[str, Any]) -> list[CloudNode]:
    """The nodes that stand in a cloud.

    Args:
        cloud: what the stand-in for AWS remembers (`rehearsal.providers.protocol.World`).
    """
    return [node for _, group in _of(cloud, NODE_GROUP) for node in _nodes_of(cloud, group)]


def _of(cloud: Mapping[str, Any], kind: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for key, entry in sorted(cloud.items()):
        found, _, identity = key.partition("|")
        if found == kind:
            yield identity, {**wire.plain(entry["inputs"]), **wire.plain(entry["state"])}


def _nodes_of(cloud: Mapping[str, Any], group: Mapping[str, Any]) -> Iterator[CloudNode]:
    template = dict(_of(cloud, TEMPLATE))[group["launchTemplate"]["id"]]
    zone = str(dict(_of(cloud, SUBNET))[group["subnetIds"][0]]["availabilityZone"])
    facts = INSTANCE_TYPES[template["instanceType"]]
    capacity, allocatable = _offers(facts, template)
    interfaces = template.get("networkInterfaces") or []
    efa = sum("efa" in (one.get("interfaceType") or "") for one in interfaces)
    for number in range(int(group["scalingConfig"]["desiredSize"])):
        name = f"{group['nodeGroupName']}-{number}.{zone[:-1]}.compute.internal"
        labels = {
            **(group.get("labels") or {}),
            "eks.amazonaws.com/nodegroup": group["nodeGroupName"],
            "eks.amazonaws.com/capacityType": group.get("capacityType") or "ON_DEMAND",
            "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "node.kubernetes.io/instance-type": facts.name,
            "topology.kubernetes.io/region": zone[:-1],
            "topology.kubernetes.io/zone": zone,
        }
        taints = tuple(
            {"key": one["key"], "value": one.get("value", ""), "effect": _EFFECTS[one["effect"]]}
            for one in group.get("taints") or []
        )
        yield CloudNode(name, group["nodeGroupName"], labels, taints, capacity, allocatable, gpus=facts.gpus, efa=efa)


def _offers(facts: InstanceType, template: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    """Capacity and allocatable of a node that a template makes."""
    config = node_config(template.get("userData") or "")
    raid = (config.get("instance") or {}).get("localStorage", {}).get("strategy") == "RAID0"
    disk_bytes = facts.nvme_gb * 10**9 if raid else _root_gib(template) * GIB
    disk = int(disk_bytes * FILE_SYSTEM)
    memory = int(facts.memory_gib * GIB * (1 - VM_OVERHEAD))
    eviction = ((config.get("kubelet") or {}).get("config") or {}).get("evictionHard") or {}
    # nodeadm's reserves (awslabs/amazon-eks-ami: nodeadm/internal/kubelet): memory by the number of pods, 1 GiB of
    # disk, CPU by the number of cores.
    reserved_memory = (11 * MAX_PODS + 255) * MIB + _threshold(eviction.get("memory.available", "100Mi"), memory)
    reserved_disk = GIB + _threshold(eviction.get("nodefs.available", "10%"), disk)
    cores = facts.vcpus
    reserved_cpu = 60 + 10 * (cores > 1) + 5 * min(max(cores - 2, 0), 2) + 2.5 * max(cores - 4, 0)
    capacity = {
        "cpu": str(cores),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{disk // 1024}Ki",
        "pods": str(MAX_PODS),
    }
    allocatable = {
        **capacity,
        "cpu": f"{int(1000 * cores - reserved_cpu)}m",
        "memory": f"{(memory - reserved_memory) // 1024}Ki",
        "ephemeral-storage": str(disk - reserved_disk),
    }
    return capacity, allocatable


def node_config(user_data: str) -> dict[str, Any]:
    """The spec of the NodeConfig in user data; empty where there is none.

    Args:
        user_data: base64, as launch templates have it.
    """
    if not user_data:
        return {}
    message = email.message_from_bytes(base64.b64decode(user_data))
    for part in message.walk():
        if part.get_content_type() == "application/node.eks.aws":
            body = part.get_payload(decode=True)
            if isinstance(body, bytes):
                return json.loads(body)["spec"]
    return {}


def _root_gib(template: Mapping[str, Any]) -> int:
    return max((int(one["ebs"]["volumeSize"]) for one in template.get("blockDeviceMappings") or []), default=20)


def _threshold(text: str, whole: int) -> int:
    if text.endswith("%"):
        return int(whole * float(text[:-1]) / 100)
    found = re.fullmatch(r"(\d+)(Ki|Mi|Gi|)", text)
    if not found:
        raise ValueError(f"{text!r} is no threshold of the kubelet")
    return int(found[1]) * {"": 1, "Ki": 1024, "Mi": MIB, "Gi": GIB}[found[2]]
