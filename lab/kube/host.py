"""What the life of a pod asks of the node that it runs on."""

from __future__ import annotations

from typing import Protocol

from lab.kube.api import Api
from lab.kube.containers import Object, Runtime


class Host(Protocol):
    """The node that a pod runs on.

    Attributes:
        api: the API server.
        runtime: starts containers.
        pace: the length of the kubelet's second, in seconds.
        errors: what went wrong in the kubelet's stand-in itself; who runs it looks.
    """

    api: Api
    runtime: Runtime
    pace: float
    errors: list[str]

    def address(self, pod: Object) -> str:
        """The pod's address."""
        ...

    def host_address(self, pod: Object) -> str:
        """The node's address."""
        ...

    def missing_driver(self, pod: Object, driver: str) -> str | None:
        """Why a CSI driver cannot mount on the pod's node now; None where it can."""
        ...

    def needs_image(self, pod: Object, image: str) -> bool:
        """Whether the node did not have an image yet; it has it from now on."""
        ...

    def is_lost(self, pod: Object) -> bool:
        """Whether nothing is heard of the node any more."""
        ...
