"""The kubelets of all stand-in nodes: they register, keep their leases, and lead the pods that are bound to them."""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lab.kube.api import Api
from lab.kube.cloud_nodes import CloudNode, nodes
from lab.kube.containers import Object, Runtime
from lab.kube.pod_status import timestamp
from lab.kube.pods import PodLife
from lab.kube.tools import kubernetes_version
from lab.rehearsal.providers.protocol import Cloud

LOOK_SECONDS = 0.2
"""How often the cloud is looked at for new nodes, and nodes for what their plugins offer."""

LEASE_SECONDS = 40
_RENEW_SECONDS = 2

GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"
DEVICE_PLUGINS = {("app.kubernetes.io/name", "nvidia-device-plugin"): GPU, ("name", "aws-efa-k8s-device-plugin"): EFA}
"""The label of a plugin's pods, and the resource that a node has while one of them is ready on it."""

CSI_DRIVERS = {("app", "fsx-csi-node"): "fsx.csi.aws.com"}
"""The label of a driver's pods, and the driver that mounts on a node while one of them is ready on it."""

_LEASES = "kube-node-lease"


class Kubelets:
    """Plays the kubelets of the nodes that stand in a cloud.

    Args:
        kubeconfig: leads to the API server.
        cloud: the folder of the stand-in cloud.
        runtime: starts containers.
        pace: the length of the kubelet's second, in seconds: probes, back-off, grace and image pulls go by it.

    Attributes:
        lost: names of nodes of which nothing is heard any more; a test adds to them.
        errors: what went wrong in these stand-ins themselves; who runs them looks.
    """

    def __init__(self, kubeconfig: Path, cloud: Path, runtime: Runtime, pace: float = 0.1) -> None:
        self.api = Api(kubeconfig)
        self.runtime = runtime
        self.pace = pace
        self.lost: set[str] = set()
        self._cloud = Cloud(cloud)
        self._nodes: dict[str, CloudNode] = {}
        self._addresses: dict[str, str] = {}
        self._lives: dict[str, PodLife] = {}
        self._images: set[tuple[str, str]] = set()
        self._told: dict[str, tuple[Mapping[str, str], list[str]]] = {}
        self._lock = threading.RLock()
        self._stopped = threading.Event()
        self.errors: list[str] = []

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Plays them while the block runs."""
        threads = [
            threading.Thread(target=self._forever, args=(work, seconds), daemon=True, name=work.__name__)
            for work, seconds in (
                (self._look, LOOK_SECONDS),
                (self._renew, _RENEW_SECONDS),
                (self._watch, LOOK_SECONDS),
            )
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            for life in self.lives():
                life.end()
            for thread in threads:
                thread.join(2)

    def lives(self) -> list[PodLife]:
        """The pods that are led now."""
        with self._lock:
            return list(self._lives.values())

    # ---- what a pod asks of its node

    def address(self, pod: Object) -> str:
        """One of its own, or the node's."""
        if pod["spec"].get("hostNetwork"):
            return self.host_address(pod)
        return self._address(pod["metadata"]["uid"], "10.20")

    def host_address(self, pod: Object) -> str:
        """The node's."""
        return self._address(pod["spec"]["nodeName"], "10.21")

    def _address(self, owner: str, network: str) -> str:
        with self._lock:
            number = len(self._addresses) + 1
            return self._addresses.setdefault(owner, f"{network}.{number // 250}.{number % 250 + 1}")

    def missing_driver(self, pod: Object, driver: str) -> str | None:
        """A driver is there while a pod of its is ready on the node."""
        if driver in self._ready_on(pod["spec"]["nodeName"], CSI_DRIVERS):
            return None
        return f"driver name {driver} not found in the list of registered CSI drivers"

    def needs_image(self, pod: Object, image: str) -> bool:
        """A node keeps what it has pulled."""
        with self._lock:
            found = (pod["spec"]["nodeName"], image)
            needed = found not in self._images
            self._images.add(found)
            return needed

    def is_lost(self, pod: Object) -> bool:
        """As a test says."""
        return pod["spec"]["nodeName"] in self.lost

    # ---- nodes

    def _forever(self, work: Any, seconds: float) -> None:
        while not self._stopped.wait(seconds):
            try:
                work()
            except Exception as error:  # noqa: BLE001 - the API server may be ending
                told = f"{work.__name__}: {error!r}"
                if not self._stopped.is_set() and told not in self.errors:
                    self.errors.append(told)

    def _look(self) -> None:
        """Registers new nodes, forgets those that are gone, tells what plugins offer."""
        found = {node.name: node for node in nodes(self._cloud.look("aws"))}
        for name in self._nodes.keys() - found.keys():
            self._remove(name)
        for name, node in found.items():
            if name not in self._nodes:
                self._register(node)
            elif name in self.lost:
                self._told.pop(name, None)  # once it is back it tells all, as a kubelet does
            else:
                self._tell(node)

    def _register(self, node: CloudNode) -> None:
        self._nodes[node.name] = node  # before it is there: pods may be bound to it at once
        metadata = {"name": node.name, "labels": dict(node.labels)}
        spec = {"providerID": f"stand-in:///{node.name}", "taints": [dict(taint) for taint in node.taints]}
        self.api.create("Node", {"metadata": metadata, "spec": spec})
        self.api.create("storage.k8s.io/v1/CSINode", {"metadata": {"name": node.name}, "spec": {"drivers": []}})
        lease = {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": _moment()}
        self.api.create("coordination.k8s.io/v1/Lease", {"metadata": {"name": node.name}, "spec": lease}, _LEASES)
        self._tell(node)

    def _tell(self, node: CloudNode) -> None:
        """Tells the API server what a node offers, where that has changed."""
        there = self._ready_on(node.name, DEVICE_PLUGINS)
        devices = {name: str(count) for name, count in ((GPU, node.gpus), (EFA, node.efa)) if count and name in there}
        drivers = sorted(self._ready_on(node.name, CSI_DRIVERS))
        before = self._told.get(node.name)
        if before == (devices, drivers):
            return
        # What a plugin that is gone had offered stays known, and is none.
        gone = {name: "0" for name in (before[0] if before else {}) if name not in devices}
        status: Object = {
            "capacity": {**node.capacity, **gone, **devices},
            "allocatable": {**node.allocatable, **gone, **devices},
        }
        if before is None:
            status |= self._first_status(node)
        if before is None or before[1] != drivers:
            spec = {"drivers": [{"name": name, "nodeID": node.name, "topologyKeys": []} for name in drivers]}
            self.api.patch("storage.k8s.io/v1/CSINode", node.name, {"spec": spec})
        self.api.patch("Node", node.name, {"status": status}, status=True)
        self._told[node.name] = (devices, drivers)

    def _first_status(self, node: CloudNode) -> Object:
        now = timestamp()
        conditions = {"MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False", "Ready": "True"}
        return {
            "addresses": [
                {"type": "InternalIP", "address": self._address(node.name, "10.21")},
                {"type": "Hostname", "address": node.name},
            ],
            "conditions": [
                {
                    "type": kind, "status": value, "reason": f"Kubelet{kind}", "message": "a stand-in",
                    "lastHeartbeatTime": now, "lastTransitionTime": now,
                }
                for kind, value in conditions.items()
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": f"v{kubernetes_version()}",
                "osImage": "stand-in", "kernelVersion": "6.12", "containerRuntimeVersion": "containerd://2",
                "machineID": "", "systemUUID": "", "bootID": "", "kubeProxyVersion": "",
            },
        }  # fmt: skip

    def _remove(self, name: str) -> None:
        """What EKS does with the nodes of a group that is deleted: their pods go, then they."""
        for life in self.lives():
            if life.pod["spec"].get("nodeName") == name:
                life.end()
                meta = life.pod["metadata"]
                self.api.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"])
        self.api.delete("Node", name)
        self.api.delete("storage.k8s.io/v1/CSINode", name)
        self.api.delete("coordination.k8s.io/v1/Lease", name, _LEASES)
        self._nodes.pop(name, None)
        self._told.pop(name, None)
        with self._lock:
            self._images = {one for one in self._images if one[0] != name}

    def _renew(self) -> None:
        for name in list(self._nodes):
            if name not in self.lost:
                self.api.patch("coordination.k8s.io/v1/Lease", name, {"spec": {"renewTime": _moment()}}, _LEASES)

    def _ready_on(self, node: str, labels: Mapping[tuple[str, str], str]) -> set[str]:
        """What the ready pods on a node stand for, by their labels."""
        found = set[str]()
        for life in self.lives():
            pod = life.pod
            if pod["spec"].get("nodeName") == node and is_ready(pod):
                has = (pod["metadata"].get("labels") or {}).items()
                found |= {what for label, what in labels.items() if label in has}
        return found

    # ---- pods

    def _watch(self) -> None:
        """Takes all pods and then every change, until told to stop."""
        for kind, found in self.api.watch("Pod", self._stopped.is_set):
            if kind == "LISTED":
                there = {pod["metadata"]["uid"] for pod in found["items"]}
                with self._lock:
                    gone = [key for key in self._lives if key not in there]
                for key in gone:
                    self._forget(key)
                for pod in found["items"]:
                    self._take(pod)
            elif kind == "DELETED":
                self._forget(found["metadata"]["uid"])
            else:
                self._take(found)

    def _take(self, pod: Object) -> None:
        if pod["spec"].get("nodeName") not in self._nodes:
            return
        with self._lock:
            life = self._lives.get(pod["metadata"]["uid"])
            if life:
                life.update(pod)
                return
            life = self._lives[pod["metadata"]["uid"]] = PodLife(self, pod)
        life.start()

    def _forget(self, key: str) -> None:
        with self._lock:
            life = self._lives.pop(key, None)
        if life:
            life.end()


def is_ready(pod: Object) -> bool:
    """Whether a pod's status says that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _moment() -> str:
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
