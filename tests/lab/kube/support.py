"""What the tests of kube share: a node that is only a pace."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lab.kube.containers import Runtime, Simulation
from lab.kube.objects import Objects
from lab.kube.pods import PodLife

Object = dict[str, Any]

PACE = 0.02


def until(holds: Callable[[], Any]) -> Any:
    """Waits for what is true, and returns it."""
    give_up = time.monotonic() + 20
    while not (found := holds()):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    return found


class FakeHost:
    """One node."""

    def __init__(self, *objects: Object, runtime: Runtime | None = None) -> None:
        self.api: Any = Objects(*objects)
        self.runtime: Any = runtime or Simulation(work_seconds=0.05, ready_seconds=0.05, pull_seconds=1)
        self.pace = PACE
        self.drivers: set[str] = set()
        self.lost = False
        self.errors: list[str] = []
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
    assert host.errors == []
