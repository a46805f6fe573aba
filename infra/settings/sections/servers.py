"""A model server's section, and the copy to NVMe at its pods' start."""

import re
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, field_validator, model_validator

from infra import images, sizing, versions
from infra.settings.findings import refuse
from infra.settings.sections import Section
from infra.settings.sections.models import ModelSettings
from infra.settings.values import ServerName, Whole

# Flags of `vllm serve` that other keys decide, that need what the pod has not, or that would blind its probes.
_OWN_SERVER_FLAGS = {
    "--model": "models.<model> decides it",
    "--served-model-name": "modelServers.<server>.model decides it",
    "--host": "pods listen on all their addresses",
    "--port": "it is 8000, by contract",
    "--uds": "the probes need the port",
    "--tensor-parallel-size": "modelServers.<server>.gpus decides it",
    "-tp": "modelServers.<server>.gpus decides it",
    "--pipeline-parallel-size": "it takes more GPUs than the pod has",
    "-pp": "it takes more GPUs than the pod has",
    "--data-parallel-size": "it takes more GPUs than the pod has; use replicas",
    "-dp": "it takes more GPUs than the pod has; use replicas",
    "--nnodes": "a server is one pod in this version",
    "--shutdown-timeout": "it is part of the drain",
    "--config": "its file is not in the pod; write the flags here",
    "--ssl-keyfile": "the probes speak HTTP",
    "--ssl-certfile": "the probes speak HTTP",
    "--api-key": "a key in arguments is a key in the state and in every process list",
}


STALL_SECONDS = 600
"""What preload itself takes (workloads/podkit/patience.py: STALL_SECONDS has the source)."""


class PreloadSettings(Section):
    """The copy from Lustre to NVMe at a pod's start."""

    parallel_copies: Whole = Field(default=32, ge=1, le=256, description="Files that are copied at the same time.")
    write: Literal["auto", "direct", "buffered"] = Field(
        default="auto",
        description="Past the page cache or through it; `auto` = through it where the node's memory holds the model.",
    )
    cache: Literal["auto", "keep", "drop"] = Field(
        default="auto", description="Whether the copy is left in the page cache, from where vLLM then reads it."
    )
    verify: Literal["none", "size", "sha256"] = Field(
        default="size",
        description="What is checked: nothing, the model's structure and the sizes in the copy, or the content too.",
    )
    stall_seconds: Whole = Field(
        default=STALL_SECONDS,
        ge=10,
        le=86400,
        description="Seconds for which the file system may give nothing while it is read; then the copy ends with exit "
        "9 and begins again. The default is Lustre's own limit for one request.",
    )

    @model_validator(mode="after")
    def _something_is_there_to_keep(self) -> "PreloadSettings":
        if self.write == "direct" and self.cache == "keep":
            raise refuse("write: direct leaves nothing in the page cache; use auto or drop, or another write", "cache")
        return self


class ModelServerSettings(Section):
    """A vLLM Deployment and its Service."""

    model: str = Field(description="A name under `models`.")
    node_group: str = Field(description="A name under `nodeGroups`.")
    replicas: Whole = Field(default=1, ge=0, le=1000, description="Pods.")
    gpus: Whole = Field(ge=1, description="GPUs of one pod, and vLLM's tensor-parallel size.")
    image: str = Field(
        default=versions.VLLM_IMAGE,
        description="Image with vLLM that runs as uid 2000: with a tag, whose digest `make pin-images` looks up, or "
        "with a digest of your own.",
    )
    args: list[Annotated[str, StringConstraints(min_length=1)]] = Field(
        default=[], description="Further arguments of `vllm serve`."
    )
    preload: PreloadSettings = Field(default=PreloadSettings(), description="The copy to NVMe.")

    @field_validator("image")
    @classmethod
    def _tagged(cls, value: str) -> str:
        found = images.parse(value)
        if not found:
            raise refuse(f"{value!r} is no image reference; use one like {versions.VLLM_IMAGE}")
        if not found.digest and found.tag in ("", "latest"):
            raise refuse(f"{value!r} has no fixed tag; use one like {versions.VLLM_IMAGE}")
        release = re.match(r"v(\d+)\.(\d+)", found.tag)
        if found.repository.endswith("vllm/vllm-openai") and release and (int(release[1]), int(release[2])) < (0, 25):
            raise refuse(f"{value!r} runs as root; vllm-openai images run as uid 2000 from v0.25 on")
        return value

    @field_validator("args")
    @classmethod
    def _not_ours(cls, value: list[str]) -> list[str]:
        for arg in value:
            given = arg.partition("=")[0]
            # vLLM's parser takes `_` for `-`, and argparse takes any beginning of a flag.
            flag = given.replace("_", "-")
            ours = (
                why for name, why in _OWN_SERVER_FLAGS.items() if flag == name or (flag[4:] and name.startswith(flag))
            )
            if why := next(ours, None):
                raise refuse(f"{given} is not taken here: {why}")
        return value


ModelServers = dict[ServerName, ModelServerSettings]


def pod_size(server: ModelServerSettings, model: ModelSettings) -> sizing.PodSize:
    """What one pod of a server takes of its node."""
    return sizing.PodSize(gpus=server.gpus, nvme_gib=sizing.copy_space_gib(model.size_gib))
