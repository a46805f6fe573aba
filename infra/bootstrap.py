"""What a GPU node does before it joins the cluster: its user data, and all that decides it."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from infra.instance_types import InstanceType

_MIME_BOUNDARY = "faststart"


@dataclass(frozen=True, kw_only=True)
class Bootstrap:
    """What decides the user data of a group's nodes. What is not here changes no byte of it.

    Attributes:
        instance_type: The type of the nodes.
        lustre_net: What their mounts of the file system are meant to ride: EFA or TCP.
    """

    instance_type: InstanceType
    lustre_net: Literal["efa", "tcp"]


def user_data(node: Bootstrap) -> str:
    """The user data of a GPU node, before base64: a MIME document of at most 12 KiB.

    A changed byte is a new version of the launch template: it rolls the nodes and wipes their NVMe. EC2 takes 16 KB,
    and EKS appends a NodeConfig of its own (https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html).
    """
    return mime_document(user_data_parts(node))


def user_data_parts(node: Bootstrap) -> list[tuple[str, str]]:
    """The parts of the user data, in order, as (content type, body)."""
    return [("application/node.eks.aws", json.dumps(node_config(node.instance_type), indent=2) + "\n")]


def node_config(facts: InstanceType) -> dict[str, object]:
    """The NodeConfig for nodeadm: NVMe as one RAID0 array under kubelet and containerd, images pulled in parallel.

    Source: awslabs/amazon-eks-ami, nodeadm/doc/api.md. The eviction thresholds are nodeadm's own defaults, written out
    because `InstanceType.allocatable_nvme_gib` counts on them.
    """
    eviction = {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%"}
    spec: dict[str, object] = {"kubelet": {"config": {"evictionHard": eviction}}}
    if facts.nvme_gb:
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
        spec["featureGates"] = {"FastImagePull": True}
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def mime_document(parts: Sequence[tuple[str, str]]) -> str:
    """A multipart MIME document, byte by byte our own: a library's next release must not roll GPU nodes."""
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{_MIME_BOUNDARY}"', ""]
    for content_type, body in parts:
        lines += [f"--{_MIME_BOUNDARY}", f"Content-Type: {content_type}", "", body]
    return "\n".join([*lines, f"--{_MIME_BOUNDARY}--", ""])
