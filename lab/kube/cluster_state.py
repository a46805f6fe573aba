"""What stands in a cluster, and what should: pods and their nodes, volumes, rights, what is left at the end."""

from __future__ import annotations

import json
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lab.kube.api import Api
from lab.kube.control_plane import ControlPlane
from lab.kube.kubelet import is_ready

Object = dict[str, Any]

GROUP_LABEL = "faststart.dev/node-group"
OURS = ("faststart-system", "models")

# Kinds that a cluster fills by itself, or that go by themselves.
_NOT_OURS = {"events", "events.events.k8s.io", "leases.coordination.k8s.io", "endpoints", "componentstatuses"}

# What every service account may do (`kubectl auth can-i --list`): ask who it is and what it may, and find the API.
_FOR_ALL = {"selfsubjectreviews.authentication.k8s.io", "selfsubjectaccessreviews.authorization.k8s.io"}
_FOR_ALL |= {"selfsubjectrulesreviews.authorization.k8s.io"}

ASKED_VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection", "impersonate", "bind")
ASKED_RESOURCES = (
    "pods", "pods/exec", "pods/log", "secrets", "configmaps", "serviceaccounts", "serviceaccounts/token", "nodes",
    "persistentvolumes", "persistentvolumeclaims", "deployments.apps", "daemonsets.apps", "jobs.batch", "services",
    "namespaces", "roles.rbac.authorization.k8s.io", "clusterroles.rbac.authorization.k8s.io",
)  # fmt: skip


class WrongError(Exception):
    """Something is not as it should be; the text says what, and what was expected."""


def eventually(holds: Callable[[], str | None], seconds: float = 60) -> None:
    """Waits until nothing is wrong.

    Args:
        holds: says what is wrong; None if nothing is.
        seconds: for so long.

    Raises:
        WrongError: something still is.
    """
    give_up = time.monotonic() + seconds
    while why := holds():
        if time.monotonic() > give_up:
            raise WrongError(f"after {seconds:.0f} s: {why}")
        time.sleep(0.2)


def owner(pod: Object) -> str:
    """What made a pod, as `DaemonSet`, `ReplicaSet`, `Job`, or nothing."""
    owners = pod["metadata"].get("ownerReferences") or []
    return owners[0]["kind"] if owners else ""


def unsettled(api: Api) -> str | None:
    """The first pod that is neither ready nor done; None where all are."""
    for pod in api.all("Pod"):
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        phase = (pod.get("status") or {}).get("phase")
        if pod["metadata"].get("deletionTimestamp"):
            return f"{name} is ending"
        if owner(pod) == "Job":
            if phase != "Succeeded":
                return f"{name} of a Job is {phase}"
        elif phase != "Running" or not is_ready(pod):
            return f"{name} is {phase} and not ready: {why_pending(pod) or pod['status'].get('message', '')}"
    return None


def why_pending(pod: Object) -> str:
    """What the scheduler says of a pod; empty if nothing."""
    conditions = (pod.get("status") or {}).get("conditions") or []
    return next((one.get("message", "") for one in conditions if one["type"] == "PodScheduled"), "")


def misplaced(api: Api, wanted: Mapping[str, str]) -> list[str]:
    """The pods that are not where they should be.

    Servers belong to their node group and Jobs to `system`. Each daemon's pods belong on each node that its own rules
    let them on, and a driver's on every node. Everything else belongs on the CPU nodes.

    Args:
        api: the cluster.
        wanted: the node group of each server.
    """
    nodes = {node["metadata"]["name"]: node for node in api.all("Node")}
    group = {name: node["metadata"]["labels"].get(GROUP_LABEL, "") for name, node in nodes.items()}
    wrong: list[str] = []
    daemons: dict[str, set[str]] = defaultdict(set)
    for pod in api.all("Pod"):
        meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
        labels = meta.get("labels") or {}
        name = f"{meta['namespace']}/{meta['name']}"
        if owner(pod) == "DaemonSet":
            daemons[meta["ownerReferences"][0]["name"]].add(node)
            continue
        server = labels.get("faststart.dev/server")
        expected = wanted.get(server, "?") if server else "system"
        if group.get(node) != expected:
            wrong.append(f"{name} is on {node or 'no node'} ({group.get(node)}), expected on a node of {expected}")
    gpu = {name for name, node in nodes.items() if node["metadata"]["labels"].get("nvidia.com/gpu.present") == "true"}
    efa = {name for name, node in nodes.items() if "vpc.amazonaws.com/efa" in node["status"]["capacity"]}
    places = {"fsx-csi-node": set(nodes), "nvidia-device-plugin": gpu, "aws-efa-k8s-device-plugin": efa}
    for name, found in sorted(daemons.items()):
        # The plugin of EFA may run where there is no interface: it then offers none.
        missing = places.get(name, found) - found
        more = found - places.get(name, found) - (gpu if "efa" in name else set())
        wrong += [f"{name} does not run on {node}" for node in sorted(missing)]
        wrong += [f"{name} runs on {node}" for node in sorted(more)]
    return wrong


def unbound(api: Api) -> list[str]:
    """Claims and volumes of ours that are not bound to each other."""
    wrong = []
    claims = [one for one in api.all("PersistentVolumeClaim") if one["metadata"]["namespace"] in OURS]
    volumes = {one["metadata"]["name"]: one for one in api.all("PersistentVolume")}
    for claim in claims:
        meta = claim["metadata"]
        volume = volumes.pop(claim["spec"].get("volumeName", ""), None)
        bound = volume and volume["status"]["phase"] == claim["status"]["phase"] == "Bound"
        reference = (volume or {}).get("spec", {}).get("claimRef") or {}
        if not bound or reference.get("uid") != meta["uid"]:
            wrong.append(f"{meta['namespace']}/{meta['name']} is {claim['status']['phase']}")
    return [*wrong, *(f"volume {name} has no claim" for name in volumes)]


def rights(plane: ControlPlane, api: Api, namespace: str, account: str) -> list[str]:
    """What a service account may do, of what is asked, beyond what every one may.

    Asked one by one, and by the API server's own list, which names what was not thought of.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]},
    }
    may = [
        f"{verb} {resource} in {place or 'all namespaces'}"
        for verb in ASKED_VERBS
        for resource in ASKED_RESOURCES
        for place in (namespace, "")
        if _allowed(api, review, verb, resource, place)
    ]
    listed = plane.kubectl("auth", "can-i", "--list", "--no-headers", f"--as={user}", "-n", namespace)
    for line in listed.splitlines():
        resource = line.split("  ")[0].strip()
        if resource and not resource.startswith("[") and resource not in _FOR_ALL:
            may.append(line.strip())
    return may


def _allowed(api: Api, review: Object, verb: str, resource: str, namespace: str) -> bool:
    whole, _, group = resource.partition(".")
    name, _, part = whole.partition("/")
    wanted = {"verb": verb, "resource": name, "subresource": part, "group": group, "namespace": namespace}
    body = {**review, "spec": {**review["spec"], "resourceAttributes": wanted}}
    return api.ask("authorization.k8s.io/v1/SubjectAccessReview", body)["status"]["allowed"]


def everything(plane: ControlPlane) -> set[str]:
    """All objects of the cluster, as `kind namespace/name`, but what it makes by itself all the time."""
    kinds = plane.kubectl("api-resources", "--verbs=list", "-o", "name").split()
    wanted = ",".join(sorted(kind for kind in kinds if kind not in _NOT_OURS))
    listed = json.loads(plane.kubectl("get", wanted, "--all-namespaces", "-o", "json"))
    return {
        f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in listed["items"]
    }


def leftovers(plane: ControlPlane, before: Iterable[str]) -> list[str]:
    """What stands in the cluster that was not there before."""
    return sorted(everything(plane) - set(before))


def refused(plane: ControlPlane, manifest: Mapping[str, Any]) -> str:
    """What the API server says to an object that it does not take; empty if it takes it (nothing is kept)."""
    command = [plane.tools.path("kubectl"), "--kubeconfig", plane.kubeconfig]
    command += ["create", "--dry-run=server", "--validate=strict", "-f", "-"]
    done = subprocess.run(command, input=json.dumps(manifest), capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""
