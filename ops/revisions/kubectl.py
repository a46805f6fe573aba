"""The few things that are asked of kubectl."""

import json
import shlex
import subprocess
from collections.abc import Mapping
from typing import Any, NamedTuple

from workloads.podkit import lines

_TIMEOUT = "--request-timeout=30s"


class KubectlError(Exception):
    """kubectl is missing, or did not do what was asked of it; the text says why."""


class Context(NamedTuple):
    """kubectl's current context.

    Attributes:
        name: What it is called.
        cluster: What its cluster is called; `aws eks update-kubeconfig` takes the ARN for that.
    """

    name: str
    cluster: str


def run(*arguments: str, document: Mapping[str, Any] | None = None) -> str:
    """Runs kubectl.

    Args:
        arguments: Its command line.
        document: What it gets on standard input, as JSON.

    Returns:
        What it printed.

    Raises:
        KubectlError: There is no kubectl, or it ended with another code than 0.
    """
    try:
        done = subprocess.run(
            ["kubectl", *arguments],
            input=json.dumps(document) if document else "",
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        text = f"kubectl cannot be started ({error.strerror}): install it, and put it on PATH"
        raise KubectlError(text) from error
    if done.returncode:
        said = lines.joined(done.stderr) or "it said nothing"
        raise KubectlError(f"`kubectl {shlex.join(arguments)}` ended with exit code {done.returncode}: {said}")
    return done.stdout


def current_context() -> Context | None:
    """The current context of the kubeconfig; None where there is none.

    Raises:
        KubectlError: kubectl cannot say.
    """
    config = json.loads(run("config", "view", "--output", "json"))
    for one in config["contexts"] or []:
        if one["name"] == config["current-context"]:
            return Context(one["name"], one["context"].get("cluster", ""))
    return None


class Cluster:
    """The cluster of one context, whatever the current one becomes meanwhile.

    Each method raises KubectlError where the cluster cannot be asked.
    """

    def __init__(self, context: Context) -> None:
        self._flags = ("--context", context.name, _TIMEOUT)

    def users(self, model: str, revision: str) -> list[str]:
        """What serves a revision, or would once it is scaled up: `Kind namespace/name`, in order."""
        labels = {
            "app.kubernetes.io/name": "vllm",
            "faststart.dev/model": model,
            "faststart.dev/revision": revision,
        }
        found = self._get(
            "deployments.apps,replicasets.apps,pods",
            "--all-namespaces",
            "--selector",
            ",".join(f"{name}={value}" for name, value in labels.items()),
        )
        # What a Deployment was before stays as a ReplicaSet without replicas.
        return sorted(
            f"{one['kind']} {one['metadata']['namespace']}/{one['metadata']['name']}"
            for one in found["items"]
            if one["kind"] != "ReplicaSet" or one["spec"]["replicas"]
        )

    def job(self, namespace: str, name: str) -> dict[str, Any]:
        """A Job."""
        return self._get("job", name, "--namespace", namespace)

    def pods_of(self, namespace: str, job: str) -> list[dict[str, Any]]:
        """The pods of a Job."""
        selector = f"batch.kubernetes.io/job-name={job}"
        return self._get("pods", "--namespace", namespace, "--selector", selector)["items"]

    def create(self, document: Mapping[str, Any]) -> None:
        """Makes an object that is not there."""
        run("create", "--filename", "-", *self._flags, document=document)

    def delete_job(self, namespace: str, name: str) -> None:
        """Deletes a Job, if there is one, and waits until its pods are gone, too."""
        how = ("--ignore-not-found", "--cascade=foreground", "--timeout=120s")
        run("delete", "job", name, "--namespace", namespace, *how, *self._flags)

    def _get(self, *arguments: str) -> dict[str, Any]:
        return json.loads(run("get", *arguments, "--output", "json", *self._flags))
