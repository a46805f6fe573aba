"""What runs in pods: nothing, that behaves as it should, or as a test tells it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

Object = dict[str, Any]


class Exit(NamedTuple):
    """How a container ended; the message is what it left in its termination log."""

    code: int
    message: str = ""


class ImageError(Exception):
    """An image cannot be pulled; the text is the registry's, or says what there is."""


class CreateError(Exception):
    """A container cannot be created; the text says why."""


class NotPlayedError(Exception):
    """A pod has something that the kubelet's stand-in does not do; the text names it."""


class Container(Protocol):
    """A container that was started."""

    def exit(self) -> Exit | None:
        """How it ended; None while it runs."""
        ...

    def passes(self, probe: Mapping[str, Any]) -> bool:
        """Whether it passes a probe now."""
        ...

    def stop(self, seconds: float) -> Exit:
        """Ends it: politely, and after so many seconds by force."""
        ...

    def used_gib(self, volume: str) -> float:
        """What it has written into one of its volumes, in GiB."""
        ...


class Runtime(Protocol):
    """Starts containers."""

    def pull_seconds(self, image: str) -> float:
        """How long an image takes to a node that does not have it.

        Raises:
            ImageError: it cannot be pulled.
        """
        ...

    def start(self, pod: Object, container: Object, *, ends: bool) -> Container:
        """Starts a container of a pod; `ends`: it is one that does its work and ends.

        Raises:
            CreateError: it cannot be created.
            NotPlayedError: it has something that is not done here.
        """
        ...

    def clean(self, pod: Object) -> None:
        """Forgets a pod that is gone."""
        ...


@dataclass
class Rule:
    """What some containers do that is not the usual.

    Attributes:
        pod: how the names of their pods begin.
        container: their name; any where it is empty.
        exit: how it ends; None: as usual.
        after: seconds until then.
        times: how many of them do so; then it is over.
        ready: whether it ever passes a probe.
        fills: GiB that it writes into volumes, by the volume's name.
        hangs: whether it does not end when it is told to, nor by force.
    """

    pod: str
    container: str = ""
    exit: Exit | None = None
    after: float = 0.2
    times: float = 1
    ready: bool = True
    fills: Mapping[str, float] = field(default_factory=dict)
    hangs: bool = False


@dataclass(frozen=True)
class Started:
    """A container that a simulation started, as a test sees it."""

    namespace: str
    pod: str
    container: str
    node: str
    at: float


class Simulation:
    """Containers that take a moment, then pass their probes or end well, but where a rule says something else.

    Attributes:
        rules: the first that fits is used; tests add to them.
        unknown_images: what is in the names of images that no registry has.
        not_created: why containers, by their names, cannot be created.
        started: all that was started.
    """

    def __init__(self, work_seconds: float = 0.3, ready_seconds: float = 0.3, pull_seconds: float = 0.5) -> None:
        self.rules: list[Rule] = []
        self.unknown_images: set[str] = set()
        self.not_created: dict[str, str] = {}
        self.started: list[Started] = []
        self._seconds = work_seconds, ready_seconds
        self._pull_seconds = pull_seconds
        self._running: list[tuple[str, Simulated]] = []
        self._lock = threading.Lock()

    def pull_seconds(self, image: str) -> float:
        """The same for all images."""
        if any(part in image for part in self.unknown_images):
            raise ImageError(f"rpc error: code = NotFound desc = failed to resolve reference {image!r}: not found")
        return self._pull_seconds

    def start(self, pod: Object, container: Object, *, ends: bool) -> Simulated:
        """Starts the clock of a container."""
        if why := self.not_created.get(container["name"]):
            raise CreateError(why)
        meta = pod["metadata"]
        with self._lock:
            rule = self._rule(meta["name"], container["name"])
            node = pod["spec"].get("nodeName", "")
            self.started.append(Started(meta["namespace"], meta["name"], container["name"], node, time.monotonic()))
            work, ready = self._seconds
            one = Simulated(rule, Exit(0) if ends else None, work, ready)
            self._running.append((meta["name"], one))
        return one

    def hang(self, pod: str) -> None:
        """Lets what runs in pods, whose names begin so, not end any more."""
        for name, one in self._running:
            if name.startswith(pod):
                one.hangs = True

    def clean(self, pod: Object) -> None:
        """Forgets what ran in it."""
        with self._lock:
            self._running = [one for one in self._running if one[0] != pod["metadata"]["name"]]

    def _rule(self, pod: str, container: str) -> Rule:
        for rule in self.rules:
            if rule.times > 0 and pod.startswith(rule.pod) and rule.container in ("", container):
                rule.times -= 1
                return rule
        return Rule("")


class Simulated:
    """See `Simulation`."""

    def __init__(self, rule: Rule, usual: Exit | None, work_seconds: float, ready_seconds: float) -> None:
        self._rule = rule
        self._exit = rule.exit or usual
        self._began = time.monotonic()
        self._until = rule.after if rule.exit else work_seconds
        self._ready_seconds = ready_seconds
        self._stopped: Exit | None = None
        self.hangs = rule.hangs

    def exit(self) -> Exit | None:
        """After the time that it takes."""
        if self._stopped:
            return self._stopped
        return self._exit if self._exit and time.monotonic() - self._began >= self._until else None

    def passes(self, probe: Mapping[str, Any]) -> bool:
        """After the time that it takes, whatever is asked."""
        del probe
        return self._rule.ready and time.monotonic() - self._began >= self._ready_seconds

    def stop(self, seconds: float) -> Exit:
        """At once, or not at all."""
        if self.hangs:
            time.sleep(seconds)
            raise HangsError
        self._stopped = self.exit() or Exit(0)
        return self._stopped

    def used_gib(self, volume: str) -> float:
        """What the rule says."""
        return self._rule.fills.get(volume, 0.0)


class HangsError(Exception):
    """A container does not end, whatever is done: its pod stays Terminating."""


def restarts(container: Object, policy: str, *, initial: bool) -> str:
    """Return the restart policy of a container: its own, or that of its pod.

    Args:
        container: of a pod's spec.
        policy: the pod's.
        initial: whether it is an init container; one with the policy Always is a sidecar.
    """
    own = container.get("restartPolicy")
    if own:
        return str(own)
    return "OnFailure" if initial and policy == "Always" else policy
