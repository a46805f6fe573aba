"""Containers as processes of this machine: each in namespaces of its own, with its pod's volumes as folders.

A container gets what its spec says, unchanged: command, arguments, environment, mounts at their paths, read-only where
they are, user, groups, capabilities. What it does not get: limits of CPU and memory, seccomp, and a network that leads
anywhere (one with ports is alone with its pod's address; one without has this machine's network). Two containers of a
pod that run at once do not share their network.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.kube import pod_folders
from lab.kube.containers import Container, CreateError, Object, Runtime
from lab.kube.played import require_played
from lab.kube.process import Process, SandboxError

TERMINATION_LOG = "/dev/termination-log"
BOOT_ID = "/proc/sys/kernel/random/boot_id"


@dataclass(frozen=True)
class Image:
    """What plays an image.

    Attributes:
        env: what its configuration sets.
        folders: of this machine, that it consists of besides the system's; each is there at its own path.
        user: the name of uid 2000 in it.
        home: that user's.
    """

    env: Mapping[str, str]
    folders: tuple[Path, ...] = ()
    user: str = "vllm"
    home: str = "/home/vllm"


@dataclass(frozen=True)
class Translated:
    """What is run in a container's place.

    Attributes:
        container: as in a pod's spec.
        disk: model of the disk that sysfs names under volumes of the node; empty where sysfs says nothing.
    """

    container: Object
    disk: str = ""


@dataclass
class Processes:
    """Starts containers as processes.

    Attributes:
        folder: of everything: nodes' disks, the file systems, logs.
        image: finds what plays an image; raises kube.containers.ImageError where nothing does.
        get: finds objects, as `kube.api.Api.get` does.
        address: finds a pod's address.
        translate: gives what is run in a container's place.
        started: all that was started.
        kept: uids of pods whose folders stay when they are gone.
        tmpfs_bytes: volumes that are made so small, in memory, by their names.
        boot_id: of the node, where it is not this machine's.
    """

    folder: Path
    image: Callable[[str], Image]
    get: Callable[[str, str, str | None], Object | None]
    address: Callable[[Object], str]
    translate: Callable[[Object, Object], Translated]
    started: list[Process] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    tmpfs_bytes: Mapping[str, int] = field(default_factory=dict)
    boot_id: str = ""

    def pull_seconds(self, image: str) -> float:
        """None: it is here."""
        self.image(image)
        return 0

    def start(self, pod: Object, container: Object, *, ends: bool) -> Process:
        """Starts a container.

        Raises:
            ImageError: nothing plays its image.
            CreateError: this machine does not let it be started.
            NotPlayedError: it, or a volume of its pod, has something that is not done here.
        """
        del ends
        try:
            return self._start(pod, container)
        except (SandboxError, OSError) as error:
            raise CreateError(str(error)) from error

    def _start(self, pod: Object, container: Object) -> Process:
        require_played(container)
        meta, image = pod["metadata"], self.image(container["image"])
        translated = self.translate(pod, container)
        run = translated.container
        place = self._place(pod)
        number = sum(one.pod["metadata"]["uid"] == meta["uid"] for one in self.started)
        work = place / "containers" / f"{number}-{container['name']}"
        (work / "root").mkdir(parents=True, exist_ok=True)
        volumes = pod_folders.prepare(pod, place / "volumes", self.folder / "file-systems", self.get)
        log = work / "termination-log"
        log.touch()
        log.chmod(0o666)
        spec = self._spec(pod, run, image, work, translated.disk, volumes)
        (work / "spec.json").write_text(json.dumps(spec, indent=1), encoding="utf-8")
        process = Process(pod, container, run, work, volumes, spec)
        self.started.append(process)
        return process

    def clean(self, pod: Object) -> None:
        """Ends what still runs of a pod, and removes what it has left; its logs stay."""
        for one in self.started:
            if one.pod["metadata"]["uid"] == pod["metadata"]["uid"] and one.exit() is None:
                one.stop(0)
        if pod["metadata"]["uid"] not in self.kept:
            shutil.rmtree(self._place(pod) / "volumes", ignore_errors=True)

    def end(self) -> None:
        """Kills all that still runs."""
        for one in self.started:
            if one.exit() is None:
                one.stop(0)

    def of(self, pod: str, container: str) -> list[Process]:
        """Those that were started of pods whose names begin so, in their order."""
        return [
            one
            for one in self.started
            if one.pod["metadata"]["name"].startswith(pod) and one.container["name"] == container
        ]

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """A connection to a pod's address, as another pod would get one.

        Raises:
            OSError: nothing answers there.
        """
        for one in reversed(self.started):
            if address in (one.spec["addresses"] or ()) and one.exit() is None:
                return one.connect(port, seconds)
        raise ConnectionRefusedError(f"no pod that runs has the address {address}")

    def _place(self, pod: Object) -> Path:
        meta = pod["metadata"]
        return self.folder / "pods" / f"{meta['name']}-{meta['uid'][:8]}"

    def _spec(
        self, pod: Object, run: Object, image: Image, work: Path, disk: str, volumes: pod_folders.Volumes
    ) -> dict[str, Any]:
        whole, own = pod["spec"].get("securityContext") or {}, run.get("securityContext") or {}
        uid = int(own.get("runAsUser", whole.get("runAsUser", 2000)))
        gid = int(own.get("runAsGroup", whole.get("runAsGroup", 0)))
        groups = {gid, *(whole.get("supplementalGroups") or ()), *({whole["fsGroup"]} if "fsGroup" in whole else ())}
        capabilities = own.get("capabilities") or {}
        alone = any(one.get("ports") for one in pod["spec"]["containers"]) and not pod["spec"].get("hostNetwork")
        mounts = []
        for mount in run.get("volumeMounts") or []:
            found = volumes[mount["name"]]
            path = found.path and str(found.path / mount.get("subPath", ""))
            mounts.append(
                {
                    "source": path,
                    "bytes": self.tmpfs_bytes.get(mount["name"], found.bytes),
                    "target": mount["mountPath"],
                    "read_only": found.read_only or bool(mount.get("readOnly")),
                    "disk": disk if found.on_node and not mount.get("readOnly") else "",
                }
            )
            if mount["name"] in self.tmpfs_bytes:
                mounts[-1]["source"] = None
        log = run.get("terminationMessagePath") or TERMINATION_LOG
        mounts.append(
            {"source": str(work / "termination-log"), "target": log, "read_only": False, "bytes": 0, "disk": ""}
        )
        if self.boot_id:
            (work / "boot-id").write_text(self.boot_id + "\n", encoding="utf-8")
            mounts.append({**mounts[-1], "source": str(work / "boot-id"), "target": BOOT_ID, "read_only": True})
        system = _system()
        return {
            "root": str(work / "root"),
            "image": [*system.folders, *map(str, image.folders)],
            "links": system.links,
            "files": {
                "/etc/passwd": f"root:x:0:0:root:/root:/bin/sh\n{image.user}:x:2000:0::{image.home}:/bin/sh\n",
                "/etc/group": "root:x:0:\n",
                "/etc/hosts": f"127.0.0.1 localhost\n{self.address(pod)} {pod['metadata']['name']}\n",
            },
            "homes": [image.home],
            "volumes": mounts,
            "read_only_root": bool(own.get("readOnlyRootFilesystem")),
            "uid": uid,
            "gid": gid,
            "groups": sorted(groups),
            "drop": capabilities.get("drop") or [],
            "add": capabilities.get("add") or [],
            "no_new_privileges": own.get("allowPrivilegeEscalation") is False,
            "addresses": [self.address(pod)] if alone else None,
            "hostname": pod["metadata"]["name"],
            "directory": run.get("workingDir") or "/",
            "argv": [*(run.get("command") or []), *(run.get("args") or [])],
            "env": {**image.env, **{one["name"]: one.get("value", "") for one in run.get("env") or []}},
        }


class Chosen:
    """Runs the containers of some pods as processes, and plays those of the others.

    Attributes:
        played: what plays them.
        processes: what runs them.
    """

    def __init__(self, played: Runtime, processes: Processes, runs: Callable[[Object], bool]) -> None:
        """Takes both, and whether a pod is one of those that run."""
        self.played, self.processes, self._runs = played, processes, runs

    def pull_seconds(self, image: str) -> float:
        """As it is played: the others' images are here."""
        return self.played.pull_seconds(image)

    def start(self, pod: Object, container: Object, *, ends: bool) -> Container:
        """Starts a container."""
        return self._of(pod).start(pod, container, ends=ends)

    def clean(self, pod: Object) -> None:
        """Forgets a pod that is gone."""
        self._of(pod).clean(pod)

    def _of(self, pod: Object) -> Runtime:
        return self.processes if self._runs(pod) else self.played


@dataclass(frozen=True)
class _System:
    """What all images have of this machine's system."""

    folders: tuple[str, ...]
    links: Mapping[str, str]


def _system() -> _System:
    folders = ["/usr"]
    links = {}
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        path = Path(name)
        if path.is_symlink():
            links[name] = str(path.readlink())
        elif path.exists():
            folders.append(name)
    wanted = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ssl", "/etc/alternatives")
    folders += [name for name in (*wanted, "/etc/nsswitch.conf", "/etc/resolv.conf") if Path(name).exists()]
    return _System(tuple(folders), links)


def check(folder: Path) -> None:
    """Holds that containers can be run as processes here.

    Args:
        folder: an empty one.

    Raises:
        SandboxError: they cannot.
    """
    if sys.platform != "linux":
        raise SandboxError("namespaces are Linux's")
    pod = {
        "metadata": {"name": "check", "namespace": "default", "uid": "check"},
        "spec": {"containers": [{"name": "check", "image": "any", "ports": [{"containerPort": 1}]}]},
    }
    container = {"name": "check", "image": "any", "command": ["true"]}
    image = Image({"PATH": os.defpath})
    runtime = Processes(
        folder, lambda _: image, lambda *_: None, lambda _: "10.0.0.1", lambda _, found: Translated(found)
    )
    process = runtime.start(pod, container, ends=True)
    found = process.wait(20)
    if found is None or found.code:
        process.stop(0)
        raise SandboxError(" / ".join(line for _, line in process.lines.all()) or f"it ended with {found}")
