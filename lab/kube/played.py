"""What of a container's spec is done where containers are processes; the rest is refused, not passed over."""

from __future__ import annotations

from collections.abc import Iterator

from lab.kube.containers import NotPlayedError, Object

PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

# Resources are the scheduler's matter, and the policy for pulls that of a registry.
_CONTAINER = {"name", "image", "imagePullPolicy", "command", "args", "workingDir", "env", "ports", "resources"}
_CONTAINER |= {"volumeMounts", "securityContext", "lifecycle", "restartPolicy", *PROBES}
_CONTAINER |= {"terminationMessagePath", "terminationMessagePolicy"}
_ENV = {"name", "value"}
_MOUNT = {"name", "mountPath", "subPath", "readOnly"}
_PROBE = {"httpGet", "tcpSocket", "initialDelaySeconds", "periodSeconds", "timeoutSeconds"}
_PROBE |= {"successThreshold", "failureThreshold"}


def require_played(container: Object) -> None:
    """Holds that all fields of a container that say something are played.

    Raises:
        NotPlayedError: some are not; the text names them as `kubectl explain pod.spec.containers` does.
    """
    wanted = {f"{at}{key}" for at, part, played in _parts(container) for key in part if part[key] and key not in played}
    if wanted:
        raise NotPlayedError(f"not played where containers are processes: {', '.join(sorted(wanted))}")


def _parts(container: Object) -> Iterator[tuple[str, Object, set[str]]]:
    """Path and fields of each part of a container, with the fields that are played."""
    yield "", container, _CONTAINER
    for variable in container.get("env") or []:
        yield "env.", variable, _ENV
    for mount in container.get("volumeMounts") or []:
        yield "volumeMounts.", mount, _MOUNT
    for kind in PROBES:
        yield f"{kind}.", container.get(kind) or {}, _PROBE
    hooks = container.get("lifecycle") or {}
    yield "lifecycle.", hooks, {"preStop"}
    yield "lifecycle.preStop.", hooks.get("preStop") or {}, {"sleep"}
