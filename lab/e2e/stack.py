"""One stack as the program renders it, and its pods as processes: what is published, what is served, what is asked."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra import versions
from lab.e2e import translations
from lab.e2e.answers import PROMPTS, Answer, ask
from lab.e2e.translations import Source
from lab.e2e.vllm_environment import VllmEnvironment
from lab.kube.cluster_state import WrongError
from lab.kube.containers import Exit, ImageError, Object
from lab.kube.kubelet import is_ready
from lab.kube.local_node import LocalNode
from lab.kube.objects import Objects
from lab.kube.process import Process
from lab.kube.processes import Image, Processes
from lab.rehearsal import manifests
from lab.rehearsal.runner import Rehearsal

READY_SECONDS, END_SECONDS = 240, 240
_SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Images:
    """What plays the images that a stack's pods have."""

    def __init__(self, environment: VllmEnvironment) -> None:
        """Takes the environment that plays vLLM's image."""
        base = Path(sys.base_prefix)
        python = () if base.is_relative_to("/usr") else (base,)
        # What a container runtime takes from the image and from its passwd.
        vllm = {"PATH": f"{environment.folder}/bin:{_SYSTEM_PATH}", "HOME": "/home/vllm"}
        tools = {"PATH": f"{base}/bin:{_SYSTEM_PATH}", "HOME": "/root"}
        self._images = {
            # Of the environment's own version: tests/lab/e2e/test_version.py.
            versions.VLLM_IMAGE: Image(vllm, (environment.folder, *python)),
            versions.TOOLS_IMAGE: Image(tools, python),
        }

    def __call__(self, name: str) -> Image:
        """What plays an image.

        Raises:
            ImageError: nothing does.
        """
        found = self._images.get(name.partition("@")[0])
        if found is None:
            raise ImageError(f"{name} is not played here; {', '.join(self._images)} are")
        return found


@dataclass
class Server:
    """A pod that serves a model.

    Attributes:
        stack: where it runs.
        pod: as it was handed to the node.
        began: when that was, as time.monotonic says it.
    """

    stack: Stack
    pod: Object
    began: float
    ready_at: float = 0

    @property
    def preload(self) -> list[Process]:
        """The runs of its init container."""
        return self._runs("preload")

    @property
    def vllm(self) -> list[Process]:
        """The runs of its server."""
        return self._runs("vllm")

    def preload_run(self, number: int) -> Process:
        """The run of its init container with this number, once it is started.

        Raises:
            WrongError: it is not.
        """
        give_up = time.monotonic() + END_SECONDS
        while len(self.preload) <= number:
            if self.stack.node.errors or time.monotonic() > give_up:
                raise WrongError(
                    f"{self._last_words()}\npreload was started {len(self.preload)} times, not {number + 1}"
                )
            time.sleep(0.002)
        return self.preload[number]

    @property
    def model(self) -> str:
        """The name that it serves its model by."""
        args = next(one for one in self.pod["spec"]["containers"] if one["name"] == "vllm")["args"]
        return args[args.index("--served-model-name") + 1]

    @property
    def address(self) -> str:
        """The pod's."""
        return self.stack.node.address(self.pod)

    @property
    def port(self) -> int:
        """The one that vLLM listens on."""
        return self.pod["spec"]["containers"][0]["ports"][0]["containerPort"]

    def wait_ready(self) -> Server:
        """Waits until the kubelet says so.

        Raises:
            WrongError: it ends, or is not ready in time.
        """
        give_up = time.monotonic() + READY_SECONDS
        while not is_ready(self.stack.node.found(self.pod)):
            if self.stack.node.errors or time.monotonic() > give_up or self._has_failed():
                raise WrongError(f"{self.pod['metadata']['name']} is not ready: {self._last_words()}")
            time.sleep(0.05)
        self.ready_at = time.monotonic()
        return self

    def ask_all(self) -> list[Answer]:
        """What it says to all prompts."""
        return [self.ask(prompt) for prompt in PROMPTS]

    def ask(self, prompt: str, **more: Any) -> Answer:
        """What it says to one."""
        return ask(self.stack.processes, self.address, self.port, self.model, prompt, **more)

    def destination(self) -> Path:
        """Where its copy lies."""
        (found,) = [one for one in self.preload[0].spec["volumes"] if one["disk"]]
        return Path(found["source"])

    def _runs(self, container: str) -> list[Process]:
        uid = self.pod["metadata"]["uid"]
        return [
            one
            for one in self.stack.processes.started
            if one.pod["metadata"]["uid"] == uid and one.container["name"] == container
        ]

    def _has_failed(self) -> bool:
        # Each start that is waited for here comes at the first try.
        return len([one for one in (*self.preload, *self.vllm) if (end := one.exit()) and end.code]) > self.failures

    failures: int = 0

    def _last_words(self) -> str:
        runs = [*self.preload, *self.vllm]
        if self.stack.node.errors or not runs:
            return "; ".join(self.stack.node.errors) or "no container was started"
        words = "\n".join(line for _, line in runs[-1].lines.all()[-25:])
        return (
            f"{runs[-1].container['name']}: {runs[-1].exit() or 'it runs'}\n{words}\n(all of it: {runs[-1].lines.path})"
        )


@dataclass
class Stack:
    """A stack file's pods.

    Attributes:
        rehearsal: the engine that renders them.
        images: what plays their images.
        folder: where the node's disk, the file system and the logs are.
        source: where the model's source is asked.
    """

    rehearsal: Rehearsal
    images: Images
    folder: Path
    source: Source

    def __post_init__(self) -> None:
        """Makes the node."""
        self.objects = Objects()
        self._new_node(self.folder)
        self._servers = 0

    def _new_node(self, folder: Path) -> None:
        self.processes = Processes(
            folder,
            self.images,
            self.objects.get,
            self._address,
            lambda _, container: translations.translate(container, self.source, self.disk),
        )
        self.node = LocalNode(self.objects, self.processes)
        self.disk = translations.INSTANCE_STORAGE

    # ---- the stack file

    @property
    def config(self) -> dict[str, Any]:
        """The stack file's sections of faststart, as the engine reads them."""
        found = yaml.safe_load(self.rehearsal.copied_stack_file.read_text(encoding="utf-8"))["config"]
        return {key.removeprefix("faststart:"): value for key, value in found.items()}

    @property
    def server_name(self) -> str:
        """The one that is run."""
        return next(iter(self.config["modelServers"]))

    @property
    def model_name(self) -> str:
        """Its model."""
        return self.config["modelServers"][self.server_name]["model"]

    def set(self, key: str, value: str) -> None:
        """Changes the (copied) stack file."""
        self.rehearsal.command("config", "set", "--path", f"faststart:{key}", value)

    def render(self) -> None:
        """Deploys on the stand-in clouds, and takes the objects out of the engine's state.

        Raises:
            WrongError: the engine ends badly.
        """
        run = self.rehearsal.up()
        if run.code:
            raise WrongError(f"the up ended with {run.code}:\n{run.text[-3000:]}")
        state = json.loads(self.rehearsal.export())
        # The CSI driver's own object comes with its chart, which nothing renders here.
        driver = {"metadata": {"name": "fsx.csi.aws.com"}, "spec": {"attachRequired": False}}
        self.objects.put({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", **driver})
        for _, document in manifests.from_state(state):
            if document["kind"] == "PersistentVolumeClaim":
                document["status"] = {"phase": "Bound"}  # as its volume's claimRef says
            if document["kind"] != "Release":
                self.objects.put(document)

    def workload(self, kind: str, name: str, namespace: str) -> Object:
        """A Deployment or a Job.

        Raises:
            WrongError: the program renders none of this name.
        """
        group = {"Deployment": "apps/v1", "Job": "batch/v1"}[kind]
        found = self.objects.get(f"{group}/{kind}", name, namespace)
        if found is None:
            raise WrongError(f"there is no {kind} {namespace}/{name} in the state")
        return found

    # ---- pods

    @contextlib.contextmanager
    def elsewhere(self, folder: Path) -> Iterator[Stack]:
        """The same stack with an empty file system and another node, while the block runs."""
        kept = self.processes, self.node, self.disk
        shutil.rmtree(folder, ignore_errors=True)
        self._new_node(folder)
        try:
            self.make_folders()
            yield self
        finally:
            self.node.end()
            self.processes.end()
            kept[0].started.extend(self.processes.started)
            self.processes, self.node, self.disk = kept

    def make_folders(self) -> str:
        """Runs the Job that makes the file system's folders; as root only, since it gives them away."""
        pod = self.node.pod(self.workload("Job", "faststart-storage-init", "faststart-system"), "storage-init")
        if os.geteuid():
            for name in ("models", ".faststart/staging"):
                (self.lustre / name).mkdir(parents=True, exist_ok=True)
            return "made by hand: only root can give folders away"
        end = self._run_to_end(pod, "storage-init")
        if end.code:
            raise WrongError(f"storage-init ended with {end.code}: {self.processes.started[-1].lines.all()}")
        return "by the Job"

    @property
    def lustre(self) -> Path:
        """The folder that stands for the file system."""
        volume = next(one for (kind, _, _), one in self.objects.objects.items() if kind == "PersistentVolume")
        attributes = volume["spec"]["csi"]["volumeAttributes"]
        return self.processes.folder / "file-systems" / attributes["dnsname"] / attributes["mountname"]

    def published(self) -> Path:
        """The folder of the revision that the stack file names."""
        revision = self.config["models"][self.model_name]["revision"]
        return self.lustre / "models" / self.model_name / revision

    def publish(self) -> tuple[Exit, Process]:
        """Runs the Job that publishes what the stack file names, once; how it ended."""
        jobs = [
            one
            for (kind, _, _), one in self.objects.objects.items()
            if kind == "batch/v1/Job" and self._is_of_revision(one)
        ]
        if len(jobs) != 1:
            raise WrongError(f"{len(jobs)} Jobs publish it")
        end = self._run_to_end(self.node.pod(jobs[0], f"{jobs[0]['metadata']['name']}-0"), "publish")
        return end, self.processes.of(jobs[0]["metadata"]["name"], "publish")[-1]

    def start(self) -> Server:
        """Starts one more pod of the server's Deployment."""
        deployment = self.workload("Deployment", f"faststart-{self.server_name}", "models")
        self._servers += 1
        return self._start(self.node.pod(deployment, f"faststart-{self.server_name}-{self._servers}"))

    def start_from_published(self) -> Server:
        """Starts the server without a copy: it reads the published folder itself."""
        deployment = self.workload("Deployment", f"faststart-{self.server_name}", "models")
        pod = self.node.pod(deployment, f"reference-{self.server_name}")
        spec = pod["spec"]
        spec["initContainers"] = []
        (server,) = spec["containers"]
        (mount,) = [one for one in server["volumeMounts"] if one["name"] == "scratch"]
        mount |= {"name": "models", "subPath": str(self.published().relative_to(self.lustre)), "readOnly": True}
        return self._start(pod)

    def again(self, server: Server) -> Server:
        """Starts a pod again on its node, as after the node's restart: from its init containers, with its volumes."""
        return self._start(server.pod)

    def _start(self, pod: Object) -> Server:
        began = time.monotonic()
        self.node.start(pod)
        return Server(self, pod, began)

    def _run_to_end(self, pod: Object, container: str) -> Exit:
        self.node.start(pod)
        name = pod["metadata"]["name"]
        give_up = time.monotonic() + END_SECONDS
        while self.node.found(pod).get("status", {}).get("phase") not in ("Succeeded", "Failed"):
            if self.node.errors or time.monotonic() > give_up:
                raise WrongError(f"{name} does not end: {self.node.found(pod).get('status')}")
            time.sleep(0.02)
        end = next(one for one in reversed(self.processes.of(name, container))).exit()
        self.node.remove(pod)
        assert end is not None
        return end

    def _address(self, pod: Object) -> str:
        return self.node.address(pod)

    def _is_of_revision(self, job: Object) -> bool:
        labels = job["metadata"].get("labels") or {}
        revision = self.config["models"][self.model_name]["revision"]
        wanted: Sequence[tuple[str, str]] = (
            ("faststart.dev/model", self.model_name),
            ("faststart.dev/revision", revision),
        )
        return all(labels.get(key) == value for key, value in wanted)
