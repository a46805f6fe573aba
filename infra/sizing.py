"""Rules with numbers, as pure functions: what fits where, and how long it may take.

Both the refusals of `infra.settings` and the resources of the components ask here, so that the plan cannot promise
what the cluster then refuses.
"""

import ipaddress
import math
from collections.abc import Sequence
from dataclasses import dataclass

from infra.instance_types import InstanceType

# What the images of one node may take of its NVMe: the vLLM image is about 10 GB packed and 30 GB unpacked, and a
# roll-out holds two of them.
IMAGES_GIB = 60
# Logs and the compile cache of one server.
SERVER_FILES_GIB = 10

# https://docs.aws.amazon.com/fsx/latest/LustreGuide/increase-storage-capacity.html
_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}
_PLAIN_MINIMUM_GIB = 1200
_PLAIN_STEP_GIB = 2400


def lustre_capacity_problem(capacity_gib: int, throughput: int, *, efa: bool) -> str | None:
    """Says why FSx would refuse the capacity of a PERSISTENT_2 SSD file system, and what it accepts.

    Args:
        capacity_gib: Storage capacity in GiB.
        throughput: Throughput tier in MB/s per TiB.
        efa: Whether the file system is EFA-enabled; its minimum and step then hang on the tier.

    Returns:
        The reason, or None where the capacity is accepted. Source of the sizes: the FSx for Lustre guide, "Increasing
        storage capacity" and "Using FSx for Lustre".
    """
    step = _EFA_STEP_GIB[throughput] if efa else _PLAIN_STEP_GIB
    if capacity_gib > 0 and (capacity_gib % step == 0 or (not efa and capacity_gib == _PLAIN_MINIMUM_GIB)):
        return None
    why = f"EFA at {throughput} MB/s/TiB" if efa else "no EFA"
    first = [] if efa else [_PLAIN_MINIMUM_GIB]
    use = ", ".join(str(size) for size in [*first, step, 2 * step, 3 * step])
    return f"{capacity_gib} is no whole number of {step} GiB steps ({why}); use {use}, ..."


def smallest_lustre_gib(throughput: int, *, efa: bool) -> int:
    """The smallest capacity in GiB that FSx accepts at a throughput tier in MB/s per TiB."""
    return _EFA_STEP_GIB[throughput] if efa else _PLAIN_MINIMUM_GIB


def lustre_mib_per_second(capacity_gib: int, throughput: int) -> int:
    """What the disks of a file system give all clients together, in MiB/s; `throughput` is in MB/s per TiB."""
    return capacity_gib * throughput * 10**6 // (1024 * 2**20)


def copy_space_gib(model_gib: int) -> int:
    """NVMe in GiB that a pod asks for to hold a copy of a model of `model_gib`: 5 % more, and its own files."""
    return math.ceil(model_gib * 1.05) + SERVER_FILES_GIB


def model_space_gib(instance_type: InstanceType) -> int:
    """NVMe in GiB that pods of one node can ask for together: what the kubelet offers, less the images."""
    return max(0, instance_type.allocatable_nvme_gib - IMAGES_GIB)


def page_cache_memory_gib(model_gib: int) -> int:
    """Memory in GiB from which on preload copies a model of `model_gib` through the page cache: 1.3 times it, and 4.

    preload asks for what is available when it starts, which is less than what EC2 sells: where this is more than the
    node's memory, its own choice (`auto`) is never a buffered copy.
    """
    return math.ceil(model_gib * 13 / 10) + 4


@dataclass(frozen=True, kw_only=True)
class PodSize:
    """What one pod takes of a node: GPUs, and NVMe in GiB."""

    gpus: int
    nvme_gib: int


def nodes_needed(pods: Sequence[PodSize], instance_type: InstanceType) -> int:
    """Nodes of one type that these pods fill, placed one after the other, the largest first.

    Raises:
        ValueError: A pod does not fit on an empty node.
    """
    free: list[list[int]] = []
    for pod in sorted(pods, key=lambda pod: (pod.gpus, pod.nvme_gib), reverse=True):
        if pod.gpus > instance_type.gpus or pod.nvme_gib > model_space_gib(instance_type):
            raise ValueError(f"{pod} does not fit on {instance_type.name}")
        node = next((node for node in free if node[0] >= pod.gpus and node[1] >= pod.nvme_gib), None)
        if node is None:
            node = [instance_type.gpus, model_space_gib(instance_type)]
            free.append(node)
        node[0] -= pod.gpus
        node[1] -= pod.nvme_gib
    return len(free)


def fewest_nodes(pods: Sequence[PodSize], instance_type: InstanceType) -> int:
    """Nodes of one type without which these pods cannot run, however they are placed."""
    if len(set(pods)) <= 1:
        return nodes_needed(pods, instance_type)
    gpus = sum(pod.gpus for pod in pods) / instance_type.gpus
    nvme = sum(pod.nvme_gib for pod in pods) / model_space_gib(instance_type)
    return math.ceil(max(gpus, nvme))


def cpu_request(instance_type: InstanceType, gpus: int) -> int:
    """CPUs that a server with `gpus` GPUs requests: two a GPU and four for the copy, never over its share of the node.

    An eighth of the node, and at least one CPU, stays with the kubelet and the daemons.
    """
    share = (instance_type.vcpus - max(1, instance_type.vcpus // 8)) * gpus // instance_type.gpus
    return max(1, min(2 * gpus + 4, share))


def memory_request_gib(instance_type: InstanceType, gpus: int) -> int:
    """Memory in GiB that a server with `gpus` GPUs requests: 16 a GPU, never over 70 % of its share of the node.

    The rest of the node is not idle: page cache of the copy lives there.
    """
    share = int(instance_type.memory_gib * 0.7 * gpus / instance_type.gpus)
    return max(1, min(16 * gpus, share))


def shared_memory_gib(instance_type: InstanceType) -> int:
    """Upper bound in GiB of /dev/shm: 16 (vLLM's queues and NCCL), less on a node with little memory."""
    return max(1, min(16, instance_type.memory_gib // 4))


def startup_probe_failures(model_gib: int) -> int:
    """Failures of a 10 s startup probe before vLLM is given up: (600 s + 1.5 s a GB) / 10, at least 60."""
    gigabytes = model_gib * 2**30 / 10**9
    return max(60, math.ceil((600 + 1.5 * gigabytes) / 10))


def copy_seconds(model_gib: int, file_system_mib_per_second: int, pods: int) -> int:
    """Seconds after which a copy is given up.

    The bound is 512 MiB/s, a quarter of what a client gets over TCP from three servers (a field figure, so it stands
    well below it), or half of the share that one of `pods` starting together has of what the file system's disks give.
    """
    share = max(1, file_system_mib_per_second) / max(1, pods)
    return math.ceil(model_gib * 1024 / min(512, share / 2))


def publish_seconds(model_gib: int) -> int:
    """Seconds after which publishing is given up: half an hour for node and image, and the model at 32 MiB/s.

    That is far below what S3 and Hugging Face give, and covers the second read, in which each block is hashed: a Job
    that hangs costs a CPU node, one that is given up too early costs the download.
    """
    return 1800 + model_gib * 1024 // 32


def progress_deadline_seconds(model_gib: int, file_system_mib_per_second: int, pods: int) -> int:
    """Seconds until a roll-out counts as failed: 1200 for node and image, the copy, and the startup probe's budget."""
    copy = copy_seconds(model_gib, file_system_mib_per_second, pods)
    return 1200 + copy + 10 * startup_probe_failures(model_gib)


def roll_out_seconds(model_gib: int, file_system_mib_per_second: int, pods: int, grace_seconds: int) -> int:
    """Seconds until an update of all pods, one after the other, is given up: for each the old one's end and a start."""
    one = grace_seconds + progress_deadline_seconds(model_gib, file_system_mib_per_second, 1)
    return max(one * pods, progress_deadline_seconds(model_gib, file_system_mib_per_second, pods))


def node_roll_minutes(nodes: int) -> int:
    """Minutes after which an update of a node group is given up: 30, and for each node, one after the other, 30 more.

    A node's pods have 15 minutes to leave (https://docs.aws.amazon.com/eks/latest/userguide/managed-node-update-behavior.html);
    the end of a p5 node and the start of the next are a guess of ours.
    """
    return 30 + 30 * nodes


# Which eighth of the VPC a zone's subnets take: by the zone's letter, so that reordering zones moves none.
ZONE_LETTERS = "abcdefg"


def private_subnet_cidr(vpc_cidr: str, zone: str) -> str:
    """The zone's private subnet: one eighth of the VPC, by the zone's last letter (a to g)."""
    network = ipaddress.IPv4Network(vpc_cidr)
    return str(list(network.subnets(prefixlen_diff=3))[ZONE_LETTERS.index(zone[-1])])


def public_subnet_cidr(vpc_cidr: str, zone: str) -> str:
    """The zone's public subnet, for a NAT gateway: one eighth of the VPC's last eighth, by the zone's last letter."""
    last = list(ipaddress.IPv4Network(vpc_cidr).subnets(prefixlen_diff=3))[-1]
    return str(list(last.subnets(prefixlen_diff=3))[ZONE_LETTERS.index(zone[-1])])
