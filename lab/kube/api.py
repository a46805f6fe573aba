"""Objects of a Kubernetes API as plain dictionaries."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from kubernetes import config, dynamic
from kubernetes.client import ApiException
from kubernetes.dynamic.exceptions import ConflictError, ForbiddenError, NotFoundError
from urllib3.exceptions import HTTPError

Object = dict[str, Any]

MERGE = "application/merge-patch+json"
WATCH_SECONDS = 5
"""After so long a watch begins again, so that a stop is noticed."""


class Api:
    """What the stand-in needs of the API server; may be used from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        """Takes the path of a kubeconfig."""
        client = config.new_client_from_config(str(kubeconfig))
        self._client = dynamic.DynamicClient(client, cache_file=str(kubeconfig.with_suffix(".discovery")))

    def _kind(self, kind: str) -> Any:
        version, _, name = kind.rpartition("/")
        return self._client.resources.get(api_version=version or "v1", kind=name)

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """An object, or None; kinds are `Pod`, `apps/v1/Deployment` and the like."""
        try:
            return self._kind(kind).get(name=name, namespace=namespace).to_dict()
        except NotFoundError:
            return None

    def all(self, kind: str, namespace: str | None = None) -> list[Object]:
        """All objects of a kind."""
        return self._list(kind, namespace)["items"]

    def _list(self, kind: str, namespace: str | None = None) -> Object:
        return self._kind(kind).get(namespace=namespace).to_dict()

    def create(self, kind: str, body: Mapping[str, Any], namespace: str | None = None) -> None:
        """Makes an object, if there is none of its name; an Event is dropped where its namespace is ending."""
        with contextlib.suppress(ConflictError, *([ForbiddenError] if kind == "Event" else [])):
            self._kind(kind).create(body=dict(body), namespace=namespace)

    def ask(self, kind: str, body: Mapping[str, Any]) -> Object:
        """The answer to a review."""
        return self._kind(kind).create(body=dict(body)).to_dict()

    def patch(
        self, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None, *, status: bool = False
    ) -> Object | None:
        """Merges into an object, or its status; None where it is gone."""
        resource = self._kind(kind)
        if status:
            resource = resource.status
        try:
            found = resource.patch(name=name, namespace=namespace, body=dict(body), content_type=MERGE)
        except NotFoundError:
            return None
        return found.to_dict()

    def delete(self, kind: str, name: str, namespace: str | None = None, uid: str | None = None) -> None:
        """Deletes an object at once, if it is there; with a uid only that very one."""
        options: Object = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        if uid:
            options["preconditions"] = {"uid": uid}
        with contextlib.suppress(NotFoundError, ConflictError):
            self._kind(kind).delete(name=name, namespace=namespace, body=options)

    def watch(self, kind: str, stopped: Callable[[], bool]) -> Iterator[tuple[str, Object]]:
        """All objects as ADDED, then every change, until told to stop; begins anew after an error.

        After each new beginning comes ("LISTED", {"items": all}) first: what is not among them is gone.
        """
        while not stopped():
            with contextlib.suppress(ApiException, HTTPError, OSError):
                listed = self._list(kind)
                yield "LISTED", {"items": listed["items"]}
                version = listed["metadata"]["resourceVersion"]
                while not stopped():
                    for event in self._kind(kind).watch(resource_version=version, timeout=WATCH_SECONDS):
                        found: Object = event["raw_object"]
                        version = found["metadata"]["resourceVersion"]
                        yield event["type"], found
