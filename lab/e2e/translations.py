"""Everything in which what is run here differs from what the program rendered, in one table, and the proof of it.

A container's command, arguments, environment, mounts, user and rights are those of the rendered pod, but for the rows
of `TABLE`. `differences` compares the two: what the kernel said of the process that became the command, and what the
pod says. It knows the rows only as what may differ, and does none of the changes itself.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lab.kube.processes import Image, Processes, Translated

Object = dict[str, Any]

INSTANCE_STORAGE = "Amazon EC2 NVMe Instance Storage"
"""What sysfs says as the model of an instance's own disk."""


@dataclass(frozen=True)
class Row:
    """One difference.

    Attributes:
        of: the container that it is about.
        rendered: what the program says.
        run: what is run.
        why: the reason.
    """

    of: str
    rendered: str
    run: str
    why: str


REPLACED = {"vllm": {"--tensor-parallel-size": "1"}}
"""Values of arguments, by container and flag."""

ADDED = {"vllm": ("--enforce-eager",)}
"""Arguments, behind all others."""

ADDED_ENV = {"vllm": {"VLLM_CPU_KVCACHE_SPACE": "1"}}
"""Variables that the pod does not have."""

SOURCE_ENV = ("HF_ENDPOINT", "AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
"""Variables of `publish` that say where the model's source is to be asked."""

TABLE = (
    Row("vllm", "`--tensor-parallel-size N`", "`--tensor-parallel-size 1`", "there is no GPU; a CPU is one rank"),
    Row("vllm", "", "`--enforce-eager`", "CUDA graphs are for GPUs; compiling for a CPU takes 30 s a start"),
    Row("vllm", "", "`VLLM_CPU_KVCACHE_SPACE=1`", "the memory of the KV cache, in GiB: a GPU has its own"),
    Row("publish", "", ", ".join(f"`{name}`" for name in SOURCE_ENV), "the source is a stand-in on loopback"),
    Row("all", "an image", "folders of this machine", "there is no container runtime"),
    Row("all", "a volume", "a folder, mounted at the same path", "there is no Lustre, no NVMe, no kubelet"),
    Row("all", "`/sys` of the node", "one that names instance storage", "`--require-local-disk` looks there"),
)

# What a container runtime mounts in every container, and the image's folders.
_BASE_MOUNTS = re.compile(r"/(proc|sys|dev|usr|bin|sbin|lib|lib32|lib64|etc|tmp|run)?(/.*)?")
_NO_CAPABILITY = "0000000000000000"


@dataclass(frozen=True)
class Source:
    """Where the stand-in for a model's source is asked.

    Attributes:
        env: the variables that lead there, of `SOURCE_ENV`.
    """

    env: Mapping[str, str] = field(default_factory=dict)


def translate(container: Object, source: Source, disk: str = INSTANCE_STORAGE) -> Translated:
    """What is run in a container's place."""
    run, name = copy.deepcopy(container), container["name"]
    args: list[str] = list(run.get("args") or [])
    for flag, value in REPLACED.get(name, {}).items():
        if flag in args:
            args[args.index(flag) + 1] = value
    run["args"] = [*args, *ADDED.get(name, ())]
    more = {**ADDED_ENV.get(name, {}), **(source.env if name == "publish" else {})}
    run["env"] = [*(run.get("env") or []), *({"name": key, "value": value} for key, value in more.items())]
    return Translated(run, disk)


def differences(pod: Object, container: Object, record: Mapping[str, Any], image: Image) -> list[str]:
    """In what a process differs from its rendered container, beyond the table.

    Args:
        pod: as rendered.
        container: as rendered, of that pod.
        record: what the kernel said of the process when it became its command (`lab/kube/sandbox.py`).
        image: what played its image.

    Returns:
        One line each; none where all is as rendered.
    """
    if not record:
        return [f"{container['name']}: nothing is known of what was run"]
    found = [
        *_of_command(container, record["argv"]),
        *_of_environment(container, record["env"], image),
        *_of_mounts(pod, container, record["mounts"], image),
        *_of_rights(pod, container, record["status"]),
    ]
    return [f"{container['name']}: {one}" for one in found]


def unexplained(processes: Processes, image: Any) -> list[str]:
    """The differences of all containers that were started."""
    return [
        line
        for one in processes.started
        for line in differences(one.pod, one.container, one.record, image(one.container["image"]))
    ]


def _of_command(container: Object, argv: Sequence[str]) -> Iterator[str]:
    name = container["name"]
    rendered = [*(container.get("command") or []), *(container.get("args") or [])]
    run = list(argv)
    for added in ADDED.get(name, ()):
        if added not in rendered and added in run:
            run.remove(added)
    for flag in REPLACED.get(name, {}):
        for words in (rendered, run):
            if flag in words:
                words[words.index(flag) + 1] = "..."
    if rendered != run:
        yield f"the command is {run}, rendered is {rendered}"


def _of_environment(container: Object, env: Mapping[str, str], image: Image) -> Iterator[str]:
    name = container["name"]
    rendered = {one["name"]: one.get("value", "") for one in container.get("env") or []}
    expected = {**image.env, **rendered}
    allowed = {*ADDED_ENV.get(name, {}), *(SOURCE_ENV if name == "publish" else ())} - rendered.keys()
    for key in sorted(expected.keys() | env.keys()):
        if key not in allowed and expected.get(key) != env.get(key):
            yield f"{key} is {env.get(key)!r}, rendered is {expected.get(key)!r}"


def _of_mounts(pod: Object, container: Object, lines: Sequence[str], image: Image) -> Iterator[str]:
    mounts = {fields[4]: set(fields[5].split(",")) for fields in map(str.split, lines)}
    rendered = {one["mountPath"]: bool(one.get("readOnly")) for one in container.get("volumeMounts") or []}
    for path, read_only in rendered.items():
        if path not in mounts:
            yield f"{path} is not mounted"
        elif read_only and "ro" not in mounts[path]:
            yield f"{path} is not mounted read-only"
        elif not read_only and "rw" not in mounts[path] and not _is_read_only_volume(pod, container, path):
            yield f"{path} is mounted read-only"
    folders = {str(folder) for folder in image.folders}
    for path in mounts.keys() - rendered.keys() - folders:
        if not _BASE_MOUNTS.fullmatch(path):
            yield f"{path} is mounted and not rendered"
    own = container.get("securityContext") or {}
    if own.get("readOnlyRootFilesystem") and "ro" not in mounts["/"]:
        yield "the root file system can be written to"


def _is_read_only_volume(pod: Object, container: Object, path: str) -> bool:
    names = {one["name"] for one in container["volumeMounts"] if one["mountPath"] == path}
    kinds = ("configMap", "secret", "projected")
    return any(one["name"] in names and any(kind in one for kind in kinds) for one in pod["spec"]["volumes"])


def _of_rights(pod: Object, container: Object, status: Mapping[str, str]) -> Iterator[str]:
    whole, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    for key, line in (("runAsUser", "Uid"), ("runAsGroup", "Gid")):
        wanted = own.get(key, whole.get(key))
        if wanted is not None and set(status[line].split()) != {str(wanted)}:
            yield f"{line} is {status[line]}, rendered is {wanted}"
    if own.get("allowPrivilegeEscalation") is False and status["NoNewPrivs"] != "1":
        yield "it may gain privileges"
    capabilities = own.get("capabilities") or {}
    if capabilities.get("drop") == ["ALL"] and not capabilities.get("add") and status["CapBnd"] != _NO_CAPABILITY:
        yield f"its capabilities are {status['CapBnd']}"
