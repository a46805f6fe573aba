"""What the tests of kube share: an API server that is a dictionary, and a node that is only a pace."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kube.containers import Runtime, Simulation
from kube.pods import PodLife

Object = dict[str, Any]

PACE = 0.02


def merged(old: Any, patch: Any) -> Any:
    """What a JSON merge patch makes of a value (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


class FakeApi:
    """Keeps objects; `history` has every state that an object has had."""

    def __init__(self, *objects: Object) -> None:
        self.objects: dict[tuple[str, str | None, str], Object] = {}
        self.history: list[Object] = []
        self.events: list[str] = []
        self.deleted: list[str] = []
        self._lock = threading.Lock()
        for one in objects:
            self.put(one)

    def put(self, one: Object) -> None:
        kind = "/".join(filter(None, [one.get("apiVersion", "v1").removeprefix("v1"), one["kind"]]))
        self.objects[kind, one["metadata"].get("namespace"), one["metadata"]["name"]] = one

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        return self.objects.get((kind, namespace, name))

    def create(self, kind: str, body: Mapping[str, Any], namespace: str | None = None) -> None:
        if kind == "Event":
            self.events.append(f"{body['reason']}: {body['message']}")
            return
        self.put({**body, "kind": kind, "metadata": {**body["metadata"], "namespace": namespace}})

    def patch(
        self, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None, *, status: bool = False
    ) -> Object | None:
        del status
        with self._lock:
            found = self.objects.get((kind, namespace, name))
            if found is None:
                return None
            found = self.objects[kind, namespace, name] = merged(found, copy.deepcopy(dict(body)))
            self.history.append(found)
            return found

    def delete(self, kind: str, name: str, namespace: str | None = None, uid: str | None = None) -> None:
        del uid
        self.deleted.append(name)
        self.objects.pop((kind, namespace, name), None)


class FakeHost:
    """One node."""

    def __init__(self, *objects: Object, runtime: Runtime | None = None) -> None:
        self.api: Any = FakeApi(*objects)
        self.runtime: Any = runtime or Simulation(work_seconds=0.05, ready_seconds=0.05, pull_seconds=1)
        self.pace = PACE
        self.drivers: set[str] = set()
        self.lost = False
        self.images: set[str] = set()

    def address(self, pod: Object) -> str:
        return f"10.0.0.{len(pod['metadata']['name'])}"

    def host_address(self, pod: Object) -> str:
        del pod
        return "10.1.0.1"

    def missing_driver(self, pod: Object, driver: str) -> str | None:
        del pod
        return None if driver in self.drivers else f"driver name {driver} not found in the list of registered drivers"

    def needs_image(self, pod: Object, image: str) -> bool:
        del pod
        needed = image not in self.images
        self.images.add(image)
        return needed

    def is_lost(self, pod: Object) -> bool:
        del pod
        return self.lost


def pod(*containers: Object, init: tuple[Object, ...] = (), **spec: Any) -> Object:
    return {
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "models", "uid": "u1"},
        "spec": {"nodeName": "n1", "containers": list(containers), "initContainers": list(init), **spec},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    }


def container(name: str, **more: Any) -> Object:
    return {"name": name, "image": f"image-of-{name}", **more}


class Led:
    """A pod whose life is led."""

    def __init__(self, host: FakeHost, one: Object) -> None:
        self.host = host
        self.host.api.put(one)
        self.life = PodLife(host, one)

    @property
    def now(self) -> Object:
        return self.host.api.get("Pod", "one", "models") or {}

    @property
    def phase(self) -> str:
        return self.now.get("status", {}).get("phase", "")

    def condition(self, kind: str) -> str:
        conditions = self.now.get("status", {}).get("conditions") or []
        return next((one["status"] for one in conditions if one["type"] == kind), "")

    def state(self, name: str) -> Object:
        """The status of a container."""
        status = self.now.get("status", {})
        both = [*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])]
        return next(one for one in both if one["name"] == name)

    def until(self, holds: Callable[[], object], seconds: float = 10) -> None:
        give_up = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < give_up, self.now
            time.sleep(0.005)

    def ready(self) -> bool:
        return self.condition("Ready") == "True"

    def delete(self, grace_seconds: float = 30) -> None:
        meta = {**self.now["metadata"], "deletionTimestamp": "now", "deletionGracePeriodSeconds": grace_seconds}
        self.life.update({**self.now, "metadata": meta})


@contextmanager
def led(host: FakeHost, one: Object) -> Iterator[Led]:
    """Leads a pod while the block runs."""
    found = Led(host, one)
    found.life.start()
    try:
        yield found
    finally:
        host.lost = False
        found.life.end()
        assert found.life.join(5)
