"""The containers of one pod, each in all its starts, and their probes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lab.kube.containers import Container, Exit, Object


@dataclass
class Probe:
    """One probe of one container, and when it is due."""

    spec: Mapping[str, Any]
    due: float
    failures: int = 0
    successes: int = 0

    @classmethod
    def of(cls, spec: Mapping[str, Any] | None, now: float, pace: float) -> Probe | None:
        """The probe of a spec; None where there is none."""
        return None if spec is None else cls(spec, now + pace * spec.get("initialDelaySeconds", 0))

    def verdict(self, container: Container, now: float, pace: float) -> bool | None:
        """Whether it has passed or failed often enough; None while that is open or it is not due."""
        if now < self.due:
            return None
        self.due = now + pace * self.spec.get("periodSeconds", 10)
        if container.passes(self.spec):
            self.successes, self.failures = self.successes + 1, 0
            return True if self.successes >= self.spec.get("successThreshold", 1) else None
        self.failures, self.successes = self.failures + 1, 0
        return False if self.failures >= self.spec.get("failureThreshold", 3) else None


@dataclass
class Slot:
    """A container of a pod, in all its starts.

    Attributes:
        spec: what the pod says of it.
        initial: whether it is an init container.
        policy: when it is started again.
        state: as in a container's status.
        last: how its last run ended, as in a status.
    """

    spec: Object
    initial: bool
    policy: str
    state: Object = field(default_factory=lambda: {"waiting": {"reason": "PodInitializing"}})
    last: Object = field(default_factory=dict)
    restarts: int = 0
    running: Container | None = None
    began: str = ""
    started: bool = False
    ready: bool = False
    done: Exit | None = None
    again_at: float | None = None
    probes: dict[str, Probe | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The container's."""
        return self.spec["name"]

    @property
    def sidecar(self) -> bool:
        """Whether it is an init container that runs as long as the others."""
        return self.initial and self.policy == "Always"

    def status(self) -> Object:
        """As in a pod's status."""
        return {
            "name": self.name,
            "image": self.spec["image"],
            "imageID": f"stand-in://{self.spec['image']}" if self.began else "",
            "ready": self.ready,
            "restartCount": self.restarts,
            "started": self.started,
            "state": self.state,
            "lastState": self.last,
        }
