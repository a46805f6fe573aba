"""One node and the pods on it, without an API server: what a kubelet does with pods that are handed to it."""

from __future__ import annotations

import contextlib
import copy
import threading
import uuid
from collections.abc import Iterator
from typing import Any

from lab.kube.containers import Object, Runtime
from lab.kube.objects import Objects
from lab.kube.pod_status import timestamp
from lab.kube.pods import PodLife

NAME = "node-0"
_END_SECONDS = 200


class LocalNode:
    """Plays the kubelet of one node that has everything its pods ask for.

    Attributes:
        api: what is kept of objects; a pod finds its ConfigMaps and claims there.
        runtime: starts containers.
        pace: the length of the kubelet's second, in seconds.
        errors: what went wrong in this stand-in itself; who runs it looks.
    """

    def __init__(self, objects: Objects, runtime: Runtime, pace: float = 1.0) -> None:
        self.api: Any = objects
        self.runtime = runtime
        self.pace = pace
        self.errors: list[str] = []
        self._addresses: dict[str, str] = {}
        self._lock = threading.Lock()
        self._lives: dict[str, PodLife] = {}

    # ---- pods

    def pod(self, workload: Object, name: str) -> Object:
        """A pod of a Deployment or a Job, as a controller would make it, bound to this node."""
        template = copy.deepcopy(workload["spec"]["template"])
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **(template.get("metadata") or {}),
                "name": name,
                "namespace": workload["metadata"]["namespace"],
                "uid": str(uuid.uuid4()),
            },
            "spec": {**template["spec"], "nodeName": NAME},
        }

    def start(self, pod: Object) -> PodLife:
        """Leads a pod from now on; one that was on the node before its restart is taken up again."""
        status = {"phase": "Pending", "podIP": self.address(pod)}
        started = {**pod, "status": status}
        self.api.put(started)
        life = self._lives[pod["metadata"]["uid"]] = PodLife(self, started)
        life.start()
        return life

    def found(self, pod: Object) -> Object:
        """A pod as it is now; empty if it is gone."""
        meta = pod["metadata"]
        return self.api.get("Pod", meta["name"], meta["namespace"]) or {}

    def delete(self, pod: Object, seconds: float | None = None) -> None:
        """Asks for a pod's end, with its own grace or so many seconds."""
        meta = pod["metadata"]
        change: Object = {"deletionTimestamp": timestamp()}
        if seconds is not None:
            change["deletionGracePeriodSeconds"] = seconds
        marked = self.api.patch("Pod", meta["name"], {"metadata": change}, meta["namespace"])
        if marked:
            self._lives[meta["uid"]].update(marked)

    def remove(self, pod: Object, seconds: float | None = None) -> None:
        """Deletes a pod and waits for its end.

        Raises:
            TimeoutError: it does not end.
        """
        self.delete(pod, seconds)
        if not self._lives[pod["metadata"]["uid"]].join(_END_SECONDS):
            raise TimeoutError(f"{pod['metadata']['name']} does not end")

    def end(self) -> None:
        """Forgets all pods."""
        for life in self._lives.values():
            life.end()
        for life in self._lives.values():
            life.join(5)

    @contextlib.contextmanager
    def running(self) -> Iterator[LocalNode]:
        """The node; its pods end with the block."""
        try:
            yield self
        finally:
            self.end()

    # ---- what a pod asks of its node

    def address(self, pod: Object) -> str:
        """One of the pod's own."""
        with self._lock:
            number = len(self._addresses) + 2
            return self._addresses.setdefault(pod["metadata"]["uid"], f"10.20.{number // 250}.{number % 250}")

    def host_address(self, pod: Object) -> str:
        """The node's."""
        del pod
        return "10.20.0.1"

    def missing_driver(self, pod: Object, driver: str) -> str | None:
        """None is missing."""
        del pod, driver
        return None

    def needs_image(self, pod: Object, image: str) -> bool:
        """Each is asked for, so that one that nothing plays is found."""
        del pod, image
        return True

    def is_lost(self, pod: Object) -> bool:
        """It is not."""
        del pod
        return False
