"""What a kubelet tells the API server of a pod: its status, and events about it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field

from lab.kube.containers import Object
from lab.kube.slots import Slot


def timestamp() -> str:
    """This moment, as Kubernetes writes it."""
    return dt.datetime.now(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class PodStatus:
    """The status of one pod.

    Attributes:
        slots: its containers, in their order.
        phase: as in the status; Running comes by itself.
        reason: `reason` and `message` of the status, where something is to be said of the whole pod.
        initialized: whether its init containers are done.
    """

    slots: Sequence[Slot]
    phase: str = "Pending"
    reason: Object = field(default_factory=dict)
    initialized: bool = False
    _conditions: dict[str, Object] = field(default_factory=dict)
    _began: str = field(default_factory=timestamp)

    def is_changed_in(self, pod: Object) -> bool:
        """Whether somebody else has set a condition of ours: the controller of lost nodes does."""
        said = {one["type"]: one["status"] for one in (pod.get("status") or {}).get("conditions") or []}
        return any(said.get(kind) != one["status"] for kind, one in list(self._conditions.items()))

    def of(self, pod: Object, address: str, host_address: str) -> Object:
        """The status now; conditions that are not a kubelet's stay as the pod has them."""
        init, others = ([one for one in self.slots if one.initial == initial] for initial in (True, False))
        if self.phase == "Pending" and any(slot.began for slot in others):
            self.phase = "Running"
        over = self.phase in ("Succeeded", "Failed")
        unready = [slot.name for slot in self.slots if not slot.ready and (not slot.initial or slot.sidecar)]
        ready = not unready and not over
        completed = "PodCompleted" if self.phase == "Succeeded" else "ContainersNotReady"
        why: Object = {"reason": completed, "message": f"containers with unready status: [{' '.join(unready)}]"}
        incomplete = [one.name for one in init if not one.sidecar and not (one.done and one.done.code == 0)]
        initializing: Object = {
            "reason": "ContainersNotInitialized",
            "message": f"containers with incomplete status: [{' '.join(incomplete)}]",
        }
        self._condition("PodReadyToStartContainers", met=not over, why={})
        self._condition("Initialized", met=self.initialized or not init, why=initializing)
        self._condition("ContainersReady", met=ready, why=why)
        self._condition("Ready", met=ready, why=why)
        conditions = (pod.get("status") or {}).get("conditions") or []
        return {
            "phase": self.phase,
            **self.reason,
            "hostIP": host_address,
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": self._began,
            "conditions": [
                *(one for one in conditions if one["type"] not in self._conditions),
                *self._conditions.values(),
            ],
            "initContainerStatuses": [slot.status() for slot in init],
            "containerStatuses": [slot.status() for slot in others],
        }

    def _condition(self, kind: str, *, met: bool, why: Object) -> None:
        before = self._conditions.get(kind, {})
        value = "True" if met else "False"
        since = before["lastTransitionTime"] if before.get("status") == value else timestamp()
        self._conditions[kind] = {
            "type": kind, "status": value, "lastTransitionTime": since, **({} if met else why),
        }  # fmt: skip


def event(pod: Object, reason: str, message: str) -> Object:
    """An event about a pod."""
    meta, moment = pod["metadata"], timestamp()
    return {
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": "v1", "kind": "Pod", "name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"],
        },
        "reason": reason,
        "message": message,
        "type": "Normal" if reason == "Killing" else "Warning",
        "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "count": 1,
    }  # fmt: skip
