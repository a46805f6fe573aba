"""What the kubelet's stand-in cannot do, and where it fails itself, is told: no thread of it ends in silence."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.kube import kubelet
from lab.kube.containers import ImageError, Simulation
from lab.kube.kubelet import Kubelets
from lab.kube.local_node import LocalNode
from lab.kube.objects import Objects
from lab.kube.played import require_played
from lab.kube.processes import Image, Processes, Translated
from tests.lab.kube.support import FakeHost, Object, container, led, pod, until
from tests.recording import Recording

PROCESSES = {
    "volumes.nfs": pod(container("a"), volumes=[{"name": "v", "nfs": {"server": "s", "path": "/"}}]),
    "volumes.hostPath": pod(container("a"), volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
    "volumes.projected.sources.clusterTrustBundle": pod(
        container("a"), volumes=[{"name": "v", "projected": {"sources": [{"clusterTrustBundle": {"path": "ca"}}]}}]
    ),
    "startupProbe.exec": pod(container("a", startupProbe={"exec": {"command": ["true"]}, "periodSeconds": 1})),
    "livenessProbe.grpc": pod(container("a", livenessProbe={"grpc": {"port": 1}})),
    "lifecycle.postStart": pod(container("a", lifecycle={"postStart": {"exec": {"command": ["true"]}}})),
    "lifecycle.preStop.httpGet": pod(container("a", lifecycle={"preStop": {"httpGet": {"port": 1}}})),
    "env.valueFrom": pod(
        container("a", env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}])
    ),
    "envFrom": pod(container("a", envFrom=[{"secretRef": {"name": "s"}}])),
    "volumeMounts.subPathExpr": pod(
        container("a", volumeMounts=[{"name": "v", "mountPath": "/v", "subPathExpr": "$(A)"}])
    ),
    "volumeDevices": pod(init=(container("first", volumeDevices=[{"name": "v", "devicePath": "/dev/v"}]),)),
}


@pytest.fixture
def processes(tmp_path: Path) -> Processes:
    image = Image({})
    return Processes(
        tmp_path, lambda _: image, lambda *_: None, lambda _: "10.0.0.1", lambda _, found: Translated(found)
    )


@pytest.mark.parametrize("name", PROCESSES)
def test_a_pod_with_what_no_process_can_have_says_so_by_its_name_and_starts_nothing(
    processes: Processes, name: str
) -> None:
    node, whole = LocalNode(Objects(), processes, pace=0.02), PROCESSES[name]
    with node.running():
        node.start(whole)
        why = until(lambda: node.found(whole)["status"].get("message"))
        waiting = [
            one["state"]["waiting"]
            for part in ("initContainerStatuses", "containerStatuses")
            for one in node.found(whole)["status"][part]
        ]
        node.remove(whole)

    assert name in why
    assert {(one["reason"], one["message"]) for one in waiting} == {("CreateContainerError", why)}
    assert node.errors == [f"pod models/one: {why}"]
    assert f"Failed: {why}" in node.api.events
    assert not processes.started


@pytest.mark.parametrize(
    "volume",
    [{"nfs": {}}, {"csi": {"driver": "d"}}, {"projected": {"sources": [{"clusterTrustBundle": {"path": "ca"}}]}}],
    ids=lambda volume: next(iter(volume)),
)
def test_a_volume_of_which_nobody_knows_whether_it_can_be_mounted_is_told(volume: Object) -> None:
    host = FakeHost()
    with led(host, pod(container("a"), volumes=[{"name": "v", **volume}])) as one:
        one.until(lambda: host.errors)
        kind = "clusterTrustBundle" if "projected" in volume else next(iter(volume))
        assert kind in host.errors.pop()


class Failing:
    """A container whose one method fails."""

    def __init__(self, at: str) -> None:
        self._at = at

    def _fail(self, name: str) -> None:
        if name == self._at:
            raise RuntimeError(f"{name} fails")

    def exit(self) -> None:
        self._fail("exit")

    def passes(self, probe: object) -> bool:
        del probe
        self._fail("passes")
        return True

    def stop(self, seconds: float) -> Any:
        del seconds
        self._fail("stop")

    def used_gib(self, volume: str) -> float:
        del volume
        self._fail("used_gib")
        return 0


class FailingRuntime(Simulation):
    """Starts such containers, or fails itself."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self._at = at

    def pull_seconds(self, image: str) -> float:
        if self._at == "pull_seconds":
            raise RuntimeError("pull_seconds fails")
        return super().pull_seconds(image)

    def start(self, pod: Object, container: Object, *, ends: bool) -> Any:
        del pod, container, ends
        if self._at == "start":
            raise ImageError("start fails")
        return Failing(self._at)

    def clean(self, pod: Object) -> None:
        del pod
        if self._at == "clean":
            raise RuntimeError("clean fails")


@pytest.mark.parametrize("at", ["pull_seconds", "start", "exit", "passes", "used_gib", "stop", "clean"])
def test_what_fails_in_the_stand_in_itself_is_told_of_its_pod(at: str) -> None:
    host = FakeHost(runtime=FailingRuntime(at))
    scratch = [{"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}}]
    with led(host, pod(container("a", readinessProbe={"httpGet": {"port": 1}}), volumes=scratch)) as one:
        if at in ("stop", "clean"):
            one.until(one.ready)
            one.delete(grace_seconds=1)
        if at == "clean":
            one.life.end()
        one.until(lambda: host.errors)
        (why,) = host.errors
        host.errors.clear()

        assert why.startswith("pod models/one: ")
        assert f"{at} fails" in why
        if at != "clean":
            one.until(lambda: f"{at} fails" in one.now["status"].get("message", ""))


class Server:
    """An API server that hands out pods; a call of it may fail."""

    def __init__(self, *pods: Object) -> None:
        self._pods = pods

    def watch(self, kind: str, stopped: Callable[[], bool]) -> Iterator[tuple[str, Object]]:
        del kind
        yield "LISTED", {"items": self._pods}
        while not stopped():
            time.sleep(0.01)

    def patch(self, kind: str, name: str, *_: Any, **__: Any) -> None:
        raise RuntimeError(f"no {kind} {name} can be changed")


@pytest.fixture
def kubelets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    def made(*pods: Object) -> Kubelets:
        monkeypatch.setattr(kubelet, "Api", lambda _: Server(*pods))
        for name in ("LOOK_SECONDS", "_RENEW_SECONDS"):
            monkeypatch.setattr(kubelet, name, 0.01)
        return Kubelets(tmp_path / "kubeconfig", tmp_path / "cloud", Simulation())

    return made


def test_a_pod_that_cannot_be_read_is_told_by_the_thread_that_takes_pods(kubelets: Callable[..., Any]) -> None:
    one = kubelets({"metadata": {"uid": "u", "name": "one"}, "spec": {"nodeName": "n1"}})
    one._nodes["n1"] = object()
    one.lost.add("n1")
    with one.running():
        until(lambda: any(text.startswith("_watch: KeyError('containers')") for text in one.errors))


def test_a_lease_that_cannot_be_renewed_is_told_once(kubelets: Callable[..., Any]) -> None:
    one = kubelets()
    one._look = lambda: None
    one._nodes["n1"] = object()
    with one.running():
        until(lambda: one.errors)
        time.sleep(0.1)

    assert len(one.errors) == 1
    assert "_renew: RuntimeError('no coordination.k8s.io/v1/Lease n1 can be changed')" in one.errors


def test_a_cloud_that_cannot_be_read_is_told_by_the_thread_that_looks_for_nodes(
    kubelets: Callable[..., Any], tmp_path: Path
) -> None:
    one = kubelets()
    (tmp_path / "cloud" / "aws.json").write_text("[")
    with one.running():
        until(lambda: any(text.startswith("_look: JSONDecodeError") for text in one.errors))


def test_every_container_of_the_program_is_played(stack: Recording) -> None:
    specs = [
        one.inputs["spec"]["template"]["spec"] for one in stack.kubernetes() if "template" in one.inputs.get("spec", {})
    ]
    containers = [one for spec in specs for part in ("initContainers", "containers") for one in spec.get(part, [])]

    assert containers
    for one in containers:
        require_played(one)
