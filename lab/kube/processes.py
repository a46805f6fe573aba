"""Containers as processes of this machine: each in namespaces of its own, with its pod's volumes as folders.

A container gets what its spec says, unchanged: command, arguments, environment, mounts at their paths, read-only where
they are, user, groups, capabilities. What it does not get: limits of CPU and memory, seccomp, and a network that leads
anywhere (one with ports is alone with its pod's address; one without has this machine's network). Two containers of a
pod that run at once do not share their network.
"""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.kube import pod_folders
from lab.kube.containers import Container, CreateError, Exit, Object, Runtime
from lab.kube.played import require_played

_SANDBOX = (sys.executable, "-I", "-S", Path(__file__).with_name("sandbox.py"))
TERMINATION_LOG = "/dev/termination-log"
BOOT_ID = "/proc/sys/kernel/random/boot_id"
TERMINATION_MAX_BYTES = 4096
"""What the kubelet keeps of a container's message."""

LAST_LINES, LAST_BYTES = 80, 2048
"""How much of a log becomes the message with FallbackToLogsOnError."""

_LOOK_SECONDS = 1.0  # how often folders are measured
_FORCED = 128 + signal.SIGKILL


class SandboxError(Exception):
    """This machine does not let processes be put into namespaces; the text says what it said."""


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


class Lines:
    """What a process says, line by line, with the moment of each; also written into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def follow(self, stream: Any) -> None:
        """Takes lines until the stream ends, and closes it."""
        with stream, self.path.open("a", encoding="utf-8") as log:
            for line in stream:
                now = time.monotonic()
                log.write(line)
                log.flush()
                with self._lock:
                    self._found.append((now, line.rstrip("\n")))

    def all(self) -> list[tuple[float, str]]:
        """Moment (of time.monotonic) and text of each so far."""
        with self._lock:
            return list(self._found)


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


class Process:
    """A container that runs as a process.

    Attributes:
        pod, container: as the API server has them.
        run: what is run in the container's place.
        spec: what the sandbox was told.
        lines: what it says.
        began, ended: moments of time.monotonic; ended is None while it runs.
    """

    def __init__(
        self,
        pod: Object,
        container: Object,
        run: Object,
        work: Path,
        volumes: pod_folders.Volumes,
        spec: dict[str, Any],
    ) -> None:
        self.pod, self.container, self.run, self.spec = pod, container, run, spec
        self.work = work
        self._volumes = volumes
        self._exit: Exit | None = None
        self._record: dict[str, Any] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self.lines = Lines(work / "log")
        self.began, self.ended = time.monotonic(), None
        command = [*_SANDBOX, "run", work / "spec.json", work / "record.json"]
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        assert self._popen.stdout is not None
        first = self._popen.stdout.readline()
        # The sandbox's first line is the number of the command's process; another one says why there is none.
        self.pid = int(first) if first.strip().isdigit() else 0
        self._reader = threading.Thread(target=self.lines.follow, args=(self._popen.stdout,), daemon=True)
        self._reader.start()
        if not self.pid:
            self._popen.wait()
            self._reader.join()
            raise SandboxError(first.strip() or "the sandbox ended at once")

    @property
    def record(self) -> dict[str, Any]:
        """What it was when it became its command; empty before."""
        if not self._record:
            with contextlib.suppress(ValueError, OSError):
                self._record = json.loads((self.work / "record.json").read_text(encoding="utf-8"))
        return self._record

    def exit(self) -> Exit | None:
        """How it ended."""
        if self._exit is None and (code := self._popen.poll()) is not None:
            self.ended = time.monotonic()
            self._reader.join(2)
            _ = self.record  # which goes with its folder
            self._exit = Exit(code if code >= 0 else 128 - code, self._message(code))
        return self._exit

    def wait(self, seconds: float) -> Exit | None:
        """How it ended, after at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
        return self.exit()

    def passes(self, probe: Mapping[str, Any]) -> bool:
        """Asks it over HTTP, or for a connection, as the kubelet does."""
        seconds = float(probe.get("timeoutSeconds", 1))
        asked = probe.get("httpGet") or probe["tcpSocket"]
        try:
            with contextlib.closing(self.connect(self._port(asked["port"]), seconds)) as one:
                if "tcpSocket" in probe:
                    return True
                connection = http.client.HTTPConnection(self._address, timeout=seconds)
                connection.sock = one
                connection.request("GET", asked.get("path", "/"))
                return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False

    def connect(self, port: int, seconds: float) -> socket.socket:
        """A connection to one of its ports.

        Raises:
            OSError: nothing answers.
        """
        if self.spec["addresses"] is None:
            return socket.create_connection(("127.0.0.1", port), seconds)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [*_SANDBOX, "connect", str(self.pid), self._address, str(port), str(seconds)]
            subprocess.run(command, stdin=theirs.fileno(), env={"PATH": os.defpath}, check=False)
            ours.setblocking(False)
            answer, found, *_ = socket.recv_fds(ours, 16, 1)
        if not found:
            number = int(answer or errno.EIO)
            raise OSError(number, os.strerror(number))
        made = socket.socket(fileno=found[0])
        made.settimeout(seconds)
        return made

    def signal(self, number: int) -> None:
        """Sends a signal to the command."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self, seconds: float) -> Exit:
        """SIGTERM, and after so many seconds SIGKILL to all that is in it."""
        if self.exit() is None and seconds > 0:
            self.signal(signal.SIGTERM)
            self.wait(seconds)
        if self.exit() is None:
            self.signal(signal.SIGKILL)
            self.wait(10)
        return self.exit() or Exit(_FORCED)

    def used_gib(self, volume: str) -> float:
        """Measures the folder; not more often than every second."""
        found = self._volumes.get(volume)
        mounted = any(one["name"] == volume for one in self.run.get("volumeMounts") or [])
        if not mounted or not found or found.path is None:
            return 0
        at, used = self._used.get(volume, (0.0, 0.0))
        if time.monotonic() - at > _LOOK_SECONDS:
            used = pod_folders.bytes_in(found.path) / 2**30
            self._used[volume] = (time.monotonic(), used)
        return used

    @property
    def _address(self) -> str:
        return (self.spec["addresses"] or ["127.0.0.1"])[0]

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(one["containerPort"] for one in self.container.get("ports") or [] if one.get("name") == port)

    def _message(self, code: int) -> str:
        text = (self.work / "termination-log").read_bytes()[-TERMINATION_MAX_BYTES:].decode(errors="replace")
        if not text and code and self.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = "\n".join(line for _, line in self.lines.all()[-LAST_LINES:])[-LAST_BYTES:]
        return text


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
