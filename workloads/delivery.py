"""How a server's pod gets its model: what of the pod's spec follows from that.

Another way is another function that makes a `Delivery`; `workloads.model_server` knows nothing else of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pulumi
import pulumi_kubernetes as k8s

from infra import images, layout, sizing
from infra.instance_types import GIB
from infra.settings import STALL_SECONDS, ModelServerSettings, ModelSettings
from workloads import pods

PROGRAM_VOLUME = "program"
_CLAIM_VOLUME = "models"
_COPY_VOLUME = "scratch"


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The part of a server's pod that brings the model to `infra.layout.MODEL`.

    Attributes:
        init_containers: What runs to its end, in this order, before vLLM starts.
        sidecars: What starts before vLLM and stays beside it: init containers with `restart_policy: Always`.
        program: The program that its containers run: its ConfigMaps are the volume `PROGRAM_VOLUME`.
        volumes: Further volumes of the pod.
        mounts: Mounts of vLLM's container, the model's among them.
        wait: What vLLM's command begins with where the model comes only after its container has started.
        requests: What vLLM's container requests of the node for the model, beside CPU, memory and GPUs.
    """

    init_containers: Sequence[k8s.core.v1.ContainerArgsDict] = ()
    sidecars: Sequence[k8s.core.v1.ContainerArgsDict] = ()
    program: str | None = None
    volumes: Sequence[k8s.core.v1.VolumeArgsDict]
    mounts: Sequence[k8s.core.v1.VolumeMountArgsDict]
    wait: Sequence[str] = ()
    requests: Mapping[str, str] = field(default_factory=dict)


def to_pod(
    settings: ModelServerSettings,
    model: ModelSettings,
    *,
    model_path: str,
    claim_name: pulumi.Input[str],
    requests: Mapping[str, str],
) -> Delivery:
    """Mode `pod`: an init container copies the model to an emptyDir on the node's NVMe, which ends with the pod.

    Args:
        settings: The server.
        model: The model that it serves.
        model_path: The model's folder on the file system, as pods see it.
        claim_name: The read-only claim on the models.
        requests: CPU and memory that vLLM's container requests. The copy requests them too: the scheduler counts the
            larger of both containers.
    """
    space_gib = sizing.copy_space_gib(model.size_gib)
    copy: Mapping[str, str] = {"ephemeral-storage": f"{space_gib}Gi"}
    return Delivery(
        init_containers=[
            {
                "name": "preload",
                "image": images.applied(settings.image),
                "command": ["python3", "-S", layout.START, "preload"],
                "args": _preload_arguments(settings, model, model_path),
                # CUDA images ask for all GPUs of the node; NVIDIA's runtime gives them to a container that requests
                # none.
                "env": pods.env({"PYTHONDONTWRITEBYTECODE": "1", "NVIDIA_VISIBLE_DEVICES": "void"}),
                # Without a memory limit, which would evict the copy from the page cache.
                "resources": {"requests": {**requests, **copy}},
                "security_context": pods.restricted(read_only_root=True),
                "volume_mounts": [
                    {"name": _CLAIM_VOLUME, "mount_path": layout.LUSTRE, "read_only": True},
                    {"name": _COPY_VOLUME, "mount_path": layout.MODEL},
                    {"name": PROGRAM_VOLUME, "mount_path": layout.PROGRAMS, "read_only": True},
                ],
            }
        ],
        program="preload",
        volumes=[
            {"name": _CLAIM_VOLUME, "persistent_volume_claim": {"claim_name": claim_name, "read_only": True}},
            {"name": _COPY_VOLUME, "empty_dir": {"size_limit": f"{space_gib}Gi"}},
        ],
        mounts=[{"name": _COPY_VOLUME, "mount_path": layout.MODEL, "read_only": True}],
        requests=copy,
    )


def _preload_arguments(settings: ModelServerSettings, model: ModelSettings, model_path: str) -> list[str]:
    preload = settings.preload
    return [
        model_path,
        layout.MODEL,
        "--parallel",
        str(preload.parallel_copies),
        "--write",
        preload.write,
        "--cache",
        preload.cache,
        "--verify",
        preload.verify,
        *(["--stall", str(preload.stall_seconds)] if preload.stall_seconds != STALL_SECONDS else []),  # its default
        "--files",
        *model.files,
        "--max-bytes",
        str(model.size_gib * GIB),
        "--require-local-disk",
        "--termination-log",
        layout.TERMINATION_LOG,
    ]
