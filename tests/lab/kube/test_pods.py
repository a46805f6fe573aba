"""The node stand-in leads a pod as a kubelet does."""

from __future__ import annotations

import itertools
import time
from typing import Any

import pytest

from lab.kube import volumes
from lab.kube.containers import Exit, Rule, Simulation
from lab.kube.quantities import quantity
from tests.lab.kube.support import FakeHost, container, led, pod

ALWAYS = float("inf")


def simulation(*rules: Rule) -> Simulation:
    found = Simulation(work_seconds=0.03, ready_seconds=0.03, pull_seconds=1)
    found.rules += rules
    return found


def started(host: FakeHost) -> list[str]:
    return [one.container for one in host.runtime.started]


def test_init_containers_run_one_after_the_other_and_then_the_others_together() -> None:
    host = FakeHost(runtime=simulation())
    with led(host, pod(container("a"), container("b"), init=(container("first"), container("second")))) as one:
        one.until(one.ready)
        assert started(host) == ["first", "second", "a", "b"]
        assert one.phase == "Running"
        assert one.state("first")["state"]["terminated"]["exitCode"] == 0
        assert [one.condition(kind) for kind in ("Initialized", "ContainersReady", "PodScheduled")] == ["True"] * 3

    initialized = [
        {state["type"]: state["status"] for state in now["status"]["conditions"]}["Initialized"]
        for now in host.api.history
    ]
    assert initialized == sorted(initialized)


def test_a_pod_of_a_job_ends_well_or_failed_by_its_containers() -> None:
    for code, phase in ((0, "Succeeded"), (6, "Failed")):
        host = FakeHost(runtime=simulation(Rule("one", "work", Exit(code, "said at the end"))))
        with led(host, pod(container("work"), restartPolicy="Never")) as one:
            one.until(lambda one=one, phase=phase: one.phase == phase)
            ended = one.state("work")["state"]["terminated"]
            assert (ended["exitCode"], ended["message"]) == (code, "said at the end")
            assert one.condition("Ready") == "False"


def test_an_init_container_that_fails_is_run_again_after_growing_pauses_and_keeps_the_others_waiting() -> None:
    host = FakeHost(runtime=simulation(Rule("one", "first", Exit(4, "damaged"), times=3)))
    with led(host, pod(container("a"), init=(container("first"),))) as one:
        one.until(lambda: one.state("first")["restartCount"] == 1)
        one.until(lambda: one.state("first")["state"].get("waiting", {}).get("reason") == "CrashLoopBackOff")
        assert one.state("first")["lastState"]["terminated"]["message"] == "damaged"
        assert one.state("a")["state"] == {"waiting": {"reason": "PodInitializing"}}
        one.until(one.ready)
        assert started(host) == ["first"] * 4 + ["a"]

    times = [one.at for one in host.runtime.started if one.container == "first"]
    pauses = [after - before for before, after in itertools.pairwise(times)]
    assert pauses[0] < pauses[1] < pauses[2]
    assert any("back-off" in event for event in host.api.events)


def test_an_image_that_no_registry_has_is_asked_for_again_after_pauses_until_it_is_there() -> None:
    host = FakeHost(runtime=simulation())
    host.runtime.unknown_images.add("image-of-a")
    with led(host, pod(container("a"))) as one:
        one.until(lambda: one.state("a")["state"].get("waiting", {}).get("reason") == "ImagePullBackOff")
        reasons = [
            container_status["state"]["waiting"]["reason"]
            for now in host.api.history
            for container_status in now["status"]["containerStatuses"]
        ]
        assert "ErrImagePull" in reasons
        assert one.phase == "Pending"
        host.runtime.unknown_images.clear()
        one.until(one.ready)

    assert any(text.startswith('Failed: Failed to pull image "image-of-a": ') for text in host.api.events)


def test_a_container_that_cannot_be_created_says_why_and_is_tried_again_until_it_can() -> None:
    host = FakeHost(runtime=simulation())
    host.runtime.not_created["a"] = "no such device"
    with led(host, pod(container("a"))) as one:
        one.until(lambda: one.state("a")["state"].get("waiting", {}).get("reason") == "CreateContainerError")
        assert one.state("a")["state"]["waiting"]["message"] == "no such device"
        assert one.phase == "Pending"
        host.runtime.not_created.clear()
        one.until(one.ready)

    assert "Failed: Error: no such device" in host.api.events


def test_an_init_container_that_fails_ends_a_pod_that_is_never_restarted() -> None:
    host = FakeHost(runtime=simulation(Rule("one", "first", Exit(3))))
    with led(host, pod(container("a"), init=(container("first"),), restartPolicy="Never")) as one:
        one.until(lambda: one.phase == "Failed")
        assert started(host) == ["first"]


def test_a_sidecar_holds_the_next_ones_back_until_it_has_started_and_outlives_them() -> None:
    probe = {"periodSeconds": 2, "failureThreshold": 100}
    sidecar = container("side", restartPolicy="Always", startupProbe=probe)
    host = FakeHost(runtime=simulation())
    with led(host, pod(container("work"), init=(sidecar, container("next")), restartPolicy="Never")) as one:
        one.until(lambda: one.phase == "Succeeded")
        assert started(host) == ["side", "next", "work"]
        side, work = (one.state(name)["state"]["terminated"] for name in ("side", "work"))
        assert side["finishedAt"] >= work["finishedAt"]


def test_readiness_comes_with_the_probes_and_not_before_startup_has_passed() -> None:
    probes = {
        "startupProbe": {"initialDelaySeconds": 5, "periodSeconds": 5, "failureThreshold": 60},
        "readinessProbe": {"periodSeconds": 5, "successThreshold": 2},
    }
    host = FakeHost(runtime=simulation())
    began = time.monotonic()
    with led(host, pod(container("a", **probes))) as one:
        one.until(lambda: one.state("a")["state"].get("running"))
        assert not one.ready()
        one.until(one.ready)

    # An image of 1 s, 5 s before the first startup probe, and two passes of readiness 5 s apart.
    assert time.monotonic() - began >= 11 * host.pace
    unstarted = [now["status"]["containerStatuses"][0] for now in host.api.history if "status" in now]
    assert not any(state["ready"] and not state["started"] for state in unstarted)


def test_a_container_that_never_passes_its_startup_probe_is_killed_and_started_again() -> None:
    probe = {"periodSeconds": 1, "failureThreshold": 2}
    host = FakeHost(runtime=simulation(Rule("one", "a", ready=False)))
    with led(host, pod(container("a", startupProbe=probe), terminationGracePeriodSeconds=1)) as one:
        one.until(one.ready)
        assert one.state("a")["restartCount"] == 1
        assert one.state("a")["lastState"]["terminated"]["exitCode"] == 137
    assert any("failed startup probe" in event for event in host.api.events)


def test_a_pod_ends_in_order_and_only_then_may_go() -> None:
    hook = {"preStop": {"sleep": {"seconds": 10}}}
    host = FakeHost(runtime=simulation())
    with led(host, pod(container("a", lifecycle=hook), terminationGracePeriodSeconds=90)) as one:
        one.until(one.ready)
        began = time.monotonic()
        one.delete(grace_seconds=90)
        one.until(lambda: host.api.deleted)
        assert 10 * host.pace <= time.monotonic() - began < 90 * host.pace + 1

    ready = [state["ready"] for now in host.api.history for state in now["status"]["containerStatuses"]]
    assert ready[-1] is False


@pytest.mark.parametrize("moment", ["mounting", "initializing", "running", "over"])
def test_a_pod_that_is_deleted_goes_whatever_it_was_doing(moment: str) -> None:
    waiting: Rule = Rule("one", "first", Exit(0), after=60)
    rules = [waiting] if moment == "initializing" else []
    claim = [{"name": "m", "persistentVolumeClaim": {"claimName": "models"}}] if moment == "mounting" else []
    policy = "Never" if moment == "over" else "Always"
    host = FakeHost(runtime=simulation(*rules))
    one_pod = pod(container("a"), init=(container("first"),), volumes=claim, restartPolicy=policy)
    with led(host, one_pod) as one:
        done = {
            "mounting": lambda: host.api.events,
            "initializing": lambda: "first" in started(host),
            "running": one.ready,
            "over": lambda: one.phase == "Succeeded",
        }[moment]
        one.until(done)
        one.delete(grace_seconds=1)
        one.until(lambda: host.api.deleted == ["one"])


def test_a_pod_that_hangs_stays_until_somebody_takes_it_away() -> None:
    host = FakeHost(runtime=simulation(Rule("one", "a", hangs=True, times=ALWAYS)))
    with led(host, pod(container("a"))) as one:
        one.until(one.ready)
        one.delete(grace_seconds=1)
        one.until(lambda: not one.ready())
        time.sleep(0.1)
        assert host.api.deleted == []


def test_a_pod_that_writes_more_than_its_volume_may_hold_is_evicted_in_the_kubelet_s_words() -> None:
    scratch = [{"name": "scratch", "emptyDir": {"sizeLimit": "10Gi"}}, {"name": "other", "emptyDir": {}}]
    host = FakeHost(runtime=simulation(Rule("one", "a", fills={"scratch": 11, "other": 99})))
    with led(host, pod(container("a"), volumes=scratch)) as one:
        one.until(lambda: one.phase == "Failed")
        status = one.now["status"]
        assert (status["reason"], status["message"]) == (
            "Evicted", 'Usage of EmptyDir volume "scratch" exceeds the limit "10Gi".'
        )  # fmt: skip
        assert one.state("a")["state"]["terminated"]["exitCode"] == 137


def test_of_a_lost_node_nothing_is_heard_until_it_is_back() -> None:
    host = FakeHost(runtime=simulation(Rule("one", "a", Exit(1), after=0.1)))
    with led(host, pod(container("a"), restartPolicy="Never")) as one:
        one.until(lambda: one.phase == "Running")
        host.lost = True
        seen = len(host.api.history)
        time.sleep(0.2)
        assert len(host.api.history) == seen
        host.lost = False
        one.until(lambda: one.phase == "Failed")


def test_a_status_that_somebody_else_has_set_is_put_right() -> None:
    host = FakeHost(runtime=simulation())
    with led(host, pod(container("a"))) as one:
        one.until(one.ready)
        unready = [{"type": "Ready", "status": "False", "reason": "NodeNotReady"}]
        host.api.patch("Pod", "one", {"status": {"conditions": unready}}, "models", status=True)
        one.life.update(one.now)
        one.until(one.ready)


# Volumes


def config_map(**data: str) -> dict[str, object]:
    return {"kind": "ConfigMap", "metadata": {"name": "program", "namespace": "models"}, "data": data}


def mounted(*objects: dict[str, object], drivers: tuple[str, ...] = (), volume: dict[str, Any]) -> str | None:
    host = FakeHost(*objects)
    host.drivers |= set(drivers)
    return volumes.problem(host, pod(container("a"), volumes=[{"name": "v", **volume}]))


ITEMS = [{"key": "preload.run.py", "path": "preload/run.py"}]


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ((), 'configmap "program" not found'),
        ((config_map(other=""),), "references non-existent config key: preload.run.py"),
        ((config_map(**{"preload.run.py": ""}),), None),
    ],
)
@pytest.mark.parametrize("projected", [False, True])
def test_a_config_map_is_mounted_once_it_has_every_key_that_is_asked_for(
    objects: tuple[dict[str, object], ...], why: str | None, projected: bool
) -> None:
    source = {"name": "program", "items": ITEMS}
    found = mounted(
        *objects, volume={"projected": {"sources": [{"configMap": source}]}} if projected else {"configMap": source}
    )

    assert found == (why and f'MountVolume.SetUp failed for volume "v" : {why}')


def test_a_claim_is_mounted_once_it_is_bound_and_its_driver_runs_on_the_node() -> None:
    claim = {
        "kind": "PersistentVolumeClaim", "metadata": {"name": "models", "namespace": "models"},
        "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"},
    }  # fmt: skip
    volume = {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"csi": {"driver": "fsx.csi.aws.com"}}}
    driver = {
        "apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": "fsx.csi.aws.com"},
        "spec": {"attachRequired": False},
    }  # fmt: skip
    asked = {"persistentVolumeClaim": {"claimName": "models"}}

    assert "is not bound" in (mounted(volume=asked) or "")
    assert "is not bound" in (mounted({**claim, "status": {"phase": "Pending"}}, volume, driver, volume=asked) or "")
    assert "no CSIDriver" in (mounted(claim, volume, volume=asked) or "")
    assert "not found in the list" in (mounted(claim, volume, driver, volume=asked) or "")
    assert mounted(claim, volume, driver, drivers=("fsx.csi.aws.com",), volume=asked) is None


@pytest.mark.parametrize(("text", "number"), [("10Gi", 10 * 2**30), ("1500M", 1.5e9), ("0.5Ti", 2**39), (7, 7)])
def test_a_quantity_is_a_number_of_bytes(text: str | int, number: float) -> None:
    assert quantity(text) == number


@pytest.mark.parametrize("text", ["", "10GiB", "-1Gi", "Gi", "1e3"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no size"):
        quantity(text)
