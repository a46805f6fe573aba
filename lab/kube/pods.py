"""The life of one pod on a node, as its kubelet leads it: volumes, images, init containers, probes, the end."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterator

from lab.kube import volumes
from lab.kube.containers import Container, CreateError, Exit, HangsError, ImageError, NotPlayedError, Object, restarts
from lab.kube.host import Host
from lab.kube.pod_status import PodStatus, event, timestamp
from lab.kube.quantities import quantity
from lab.kube.slots import Probe, Slot

TICK = 0.05
BACK_OFF = (10.0, 20.0, 40.0, 80.0, 160.0, 300.0)
"""Seconds before a container that ended is started again; the last for all further ones (kubelet's defaults)."""

logger = logging.getLogger(__name__)
_GIB = 2**30
_FORCED = 137  # 128 + SIGKILL


class _DeletedError(Exception):
    """The pod was deleted while something was waited for."""


class PodLife:
    """Leads one pod from its binding to its end, in a thread.

    Attributes:
        pod: as the API server knew it last.
    """

    def __init__(self, host: Host, pod: Object) -> None:
        self.pod = pod
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"pod {pod['metadata']['name']}")
        self._host = host
        self._deleted = threading.Event()
        self._gone = threading.Event()
        policy = pod["spec"].get("restartPolicy", "Always")
        self._policy = policy
        self._slots = [
            Slot(spec, initial, restarts(spec, policy, initial=initial))
            for initial, specs in ((True, pod["spec"].get("initContainers") or []), (False, pod["spec"]["containers"]))
            for spec in specs
        ]
        self._status = PodStatus(self._slots)
        self._published: Object = {}

    @property
    def key(self) -> str:
        """The pod's uid."""
        return self.pod["metadata"]["uid"]

    def start(self) -> None:
        """Begins with it."""
        self._thread.start()

    def join(self, seconds: float) -> bool:
        """Waits for its end for so long; whether it came."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def update(self, pod: Object) -> None:
        """Takes what the API server says of the pod now; what others have set in its status is put right."""
        self.pod = pod
        if self._status.is_changed_in(pod):
            self._published = {}
        if pod["metadata"].get("deletionTimestamp"):
            self._deleted.set()

    def end(self) -> None:
        """Takes that the pod is gone."""
        self._gone.set()
        self._deleted.set()

    # ---- the course of things

    def _run(self) -> None:
        try:
            self._lead(self._live)
            self._deleted.wait()
            self._lead(self._terminate)
        except HangsError:
            self._gone.wait()
        self._lead(lambda: self._host.runtime.clean(self.pod))

    def _lead(self, part: Callable[[], None]) -> None:
        """Leads a part of its life; what else than the pod's deletion cuts that short is told.

        Raises:
            HangsError: a container does not end.
        """
        try:
            part()
        except _DeletedError:
            pass
        except HangsError:
            raise
        except Exception as error:
            logger.exception("the stand-in of the kubelet failed")
            self._give_up(error)

    def _give_up(self, error: Exception) -> None:
        """Tells why the pod is led no further: who runs the node, in its status, and in an event."""
        meta, why = self.pod["metadata"], str(error) if isinstance(error, NotPlayedError) else repr(error)
        self._host.errors.append(f"pod {meta['namespace']}/{meta['name']}: {why}")
        for slot in self._slots:
            if not slot.running and not slot.done:
                slot.state = {"waiting": {"reason": "CreateContainerError", "message": why}}
        self._status.reason = {"reason": "KubeletStandInFailed", "message": why}
        self._publish()
        self._event("Failed", why)

    def _live(self) -> None:
        meta = self.pod["metadata"]
        if meta.get("deletionTimestamp"):
            raise _DeletedError
        if self.pod.get("status", {}).get("phase") in ("Succeeded", "Failed"):
            self._status.phase = self.pod["status"]["phase"]
            return
        has_init = any(slot.initial for slot in self._slots)
        for slot in self._slots:
            if not slot.initial:
                slot.state = {"waiting": {"reason": "PodInitializing" if has_init else "ContainerCreating"}}
        self._publish()
        self._mount()
        if not self._initialize():
            return
        self._status.initialized = True
        for slot in self._of(initial=False):
            self._start(slot)
        self._publish()
        self._serve()

    def _of(self, *, initial: bool) -> Iterator[Slot]:
        return (slot for slot in self._slots if slot.initial == initial)

    def _mount(self) -> None:
        said = ""
        while why := volumes.problem(self._host, self.pod):
            if why != said:
                self._event("FailedMount", why)
                said = why
            self._wait(min(1.0, 2 * self._host.pace))

    def _initialize(self) -> bool:
        """Runs the init containers in order; False if the pod failed in one."""
        for slot in self._of(initial=True):
            self._start(slot)
            while not (slot.sidecar and slot.started):
                self._publish()
                self._wait(TICK)
                self._look(slot)
                if self._over() or self._evict():
                    return False
                if slot.done and slot.done.code == 0:
                    break
                self._look_after_sidecars(slot)
            self._publish()
        return True

    def _look_after_sidecars(self, but: Slot) -> None:
        for slot in self._of(initial=True):
            if slot.sidecar and slot is not but and slot.running:
                self._look(slot)

    def _serve(self) -> None:
        while not self._over():
            self._wait(TICK)
            for slot in self._slots:
                if not slot.initial or slot.sidecar:
                    self._look(slot)
            if self._evict():
                return
            self._publish()

    def _over(self) -> bool:
        """Whether the pod has come to its end by itself; its status says so then."""
        init, main = list(self._of(initial=True)), list(self._of(initial=False))
        failed_init = [slot for slot in init if slot.done and slot.done.code and slot.policy == "Never"]
        ended = all(slot.done for slot in main) and bool(main)
        if not failed_init and not ended:
            return False
        for slot in init:
            if slot.sidecar and slot.running:
                self._ended(slot, slot.running.stop(0))
        failed = failed_init or [slot for slot in main if slot.done and slot.done.code]
        self._status.phase = "Failed" if failed else "Succeeded"
        self._publish()
        return True

    # ---- one container

    def _start(self, slot: Slot) -> None:
        if self._host.needs_image(self.pod, slot.spec["image"]):
            self._pull(slot)
        # With the policy OnFailure, too, a container of a Job ends; an init container always does.
        ends = not slot.sidecar and (slot.initial or self._policy in ("Never", "OnFailure"))
        slot.running = self._create(slot, ends=ends)
        now = time.monotonic()
        slot.began, slot.done, slot.again_at = timestamp(), None, None
        slot.state = {"running": {"startedAt": slot.began}}
        slot.probes = {
            kind: Probe.of(slot.spec.get(f"{kind}Probe"), now, self._host.pace)
            for kind in ("startup", "readiness", "liveness")
        }
        slot.started = slot.probes["startup"] is None
        slot.ready = slot.started and slot.probes["readiness"] is None and not (slot.initial and not slot.sidecar)

    def _pull(self, slot: Slot) -> None:
        """Waits for an image; for as long as it cannot be had, with the kubelet's pauses and words."""
        image, pace = slot.spec["image"], self._host.pace
        pauses = itertools.chain(BACK_OFF, itertools.repeat(BACK_OFF[-1]))
        slot.state = {"waiting": {"reason": "ContainerCreating"}}
        while True:
            self._publish()
            try:
                seconds = self._host.runtime.pull_seconds(image)
            except ImageError as error:
                what = f'Failed to pull image "{image}": {error}'
                self._event("Failed", what)
                slot.state = {"waiting": {"reason": "ErrImagePull", "message": what}}
                self._publish()
                self._wait(TICK)
                slot.state = {
                    "waiting": {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{image}": {error}'}
                }
                self._publish()
                self._wait(pace * next(pauses))
            else:
                self._wait(pace * seconds)
                return

    def _create(self, slot: Slot, *, ends: bool) -> Container:
        """Starts a container; for as long as it cannot be created, with the kubelet's pauses and words."""
        while True:
            try:
                return self._host.runtime.start(self.pod, slot.spec, ends=ends)
            except CreateError as error:
                self._event("Failed", f"Error: {error}")
                slot.state = {"waiting": {"reason": "CreateContainerError", "message": str(error)}}
                self._publish()
                self._wait(self._host.pace * BACK_OFF[0])

    def _look(self, slot: Slot) -> None:
        """Takes note of what a container does, and starts it again where that is due."""
        if slot.running is None:
            if slot.again_at is not None and time.monotonic() >= slot.again_at:
                slot.restarts += 1
                self._start(slot)
            return
        found = slot.running.exit()
        if found is None:
            self._probe(slot, slot.running)
            return
        self._ended(slot, found)
        if slot.policy == "Always" or (slot.policy == "OnFailure" and found.code):
            self._back_off(slot)

    def _ended(self, slot: Slot, found: Exit) -> None:
        slot.running, slot.done, slot.ready, slot.started = None, found, slot.initial and found.code == 0, False
        slot.state = {
            "terminated": {
                "exitCode": found.code,
                "reason": "Completed" if found.code == 0 else "Error",
                **({"message": found.message} if found.message else {}),
                "startedAt": slot.began,
                "finishedAt": timestamp(),
            }
        }

    def _back_off(self, slot: Slot) -> None:
        slot.last = slot.state
        seconds = BACK_OFF[min(slot.restarts, len(BACK_OFF) - 1)]
        slot.done = None
        # The first start again comes at once; only from the second one on there is a pause.
        if not slot.restarts:
            slot.again_at = time.monotonic()
            return
        slot.again_at = time.monotonic() + self._host.pace * seconds
        what = f"back-off {seconds:.0f}s restarting failed container={slot.name} pod={self.pod['metadata']['name']}"
        slot.state = {"waiting": {"reason": "CrashLoopBackOff", "message": what}}
        self._event("BackOff", what)

    def _probe(self, slot: Slot, container: Container) -> None:
        now, pace = time.monotonic(), self._host.pace
        if not slot.started:
            startup = slot.probes["startup"]
            verdict = startup.verdict(container, now, pace) if startup else True
            if verdict:
                slot.started = True
                slot.ready = slot.probes["readiness"] is None
            elif verdict is False:
                self._kill(slot, container, "startup")
            return
        if readiness := slot.probes["readiness"]:
            verdict = readiness.verdict(container, now, pace)
            slot.ready = slot.ready if verdict is None else verdict
        if (liveness := slot.probes["liveness"]) and liveness.verdict(container, now, pace) is False:
            self._kill(slot, container, "liveness")

    def _kill(self, slot: Slot, container: Container, probe: str) -> None:
        self._event("Killing", f"Container {slot.name} failed {probe} probe, will be restarted")
        container.stop(self._host.pace * self._grace)
        self._ended(slot, Exit(_FORCED))
        if slot.policy != "Never":
            self._back_off(slot)

    # ---- disk

    def _evict(self) -> bool:
        """Ends the pod if it has written more than it may."""
        for volume in self.pod["spec"].get("volumes") or []:
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            if limit is None:
                continue
            used = sum(slot.running.used_gib(volume["name"]) for slot in self._slots if slot.running)
            if used * _GIB > quantity(limit):
                why = f'Usage of EmptyDir volume "{volume["name"]}" exceeds the limit "{limit}".'
                self._event("Evicted", why)
                for slot in self._slots:
                    if slot.running:
                        slot.running.stop(0)
                        self._ended(slot, Exit(_FORCED))
                self._status.phase, self._status.reason = "Failed", {"reason": "Evicted", "message": why}
                self._publish()
                return True
        return False

    # ---- the end

    @property
    def _grace(self) -> float:
        return float(self.pod["spec"].get("terminationGracePeriodSeconds", 30))

    def _terminate(self) -> None:
        """Ends the containers as a kubelet does, and tells the API server that the pod may go."""
        self._halt_if_lost()
        if self._gone.is_set():
            return
        pace = self._host.pace
        given = self.pod["metadata"].get("deletionGracePeriodSeconds")
        seconds = self._grace if given is None else float(given)
        running = [slot for slot in self._slots if slot.running]
        for slot in running:
            slot.ready = False
        self._publish()
        hooks = [
            float(((slot.spec.get("lifecycle") or {}).get("preStop") or {}).get("sleep", {}).get("seconds", 0))
            for slot in running
        ]
        waited = min(max(hooks, default=0.0), seconds)
        self._gone.wait(pace * waited)
        # Containers first, sidecars after them, the last one first.
        for slot in [*(s for s in running if not s.initial), *reversed([s for s in running if s.initial])]:
            if slot.running:
                self._ended(slot, slot.running.stop(max(pace * (seconds - waited), 0.1)))
        self._publish()
        meta = self.pod["metadata"]
        self._host.api.delete("Pod", meta["name"], meta["namespace"], uid=meta["uid"])

    def _halt_if_lost(self) -> None:
        while self._host.is_lost(self.pod) and not self._gone.is_set():
            self._gone.wait(TICK)

    def _wait(self, seconds: float) -> None:
        if self._deleted.wait(seconds):
            raise _DeletedError
        self._halt_if_lost()
        if self._gone.is_set():
            raise _DeletedError

    # ---- what the API server is told

    def _publish(self) -> None:
        """Tells the API server what has changed."""
        status = self._status.of(self.pod, self._host.address(self.pod), self._host.host_address(self.pod))
        if status == self._published or self._host.is_lost(self.pod) or self._gone.is_set():
            return
        meta = self.pod["metadata"]
        if self._host.api.patch("Pod", meta["name"], {"status": status}, meta["namespace"], status=True) is not None:
            self._published = status

    def _event(self, reason: str, message: str) -> None:
        self._host.api.create("Event", event(self.pod, reason, message), self.pod["metadata"]["namespace"])
