"""An API server that is a dictionary: it keeps objects, and checks nothing."""

from __future__ import annotations

import copy
import threading
from collections.abc import Mapping
from typing import Any

Object = dict[str, Any]


def merged(old: Any, patch: Any) -> Any:
    """What a JSON merge patch makes of a value (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found


class Objects:
    """What `kube.api.Api` does for one kubelet, without a server; kinds are `Pod`, `apps/v1/Deployment` and the like.

    Attributes:
        objects: by kind, namespace and name.
        history: every state that a patched object has had.
        events: reason and message of each.
        deleted: the names of what was deleted.
    """

    def __init__(self, *objects: Object) -> None:
        self.objects: dict[tuple[str, str | None, str], Object] = {}
        self.history: list[Object] = []
        self.events: list[str] = []
        self.deleted: list[str] = []
        self._lock = threading.Lock()
        for one in objects:
            self.put(one)

    def put(self, one: Object) -> None:
        """Keeps an object, over one of the same name."""
        kind = "/".join(filter(None, [one.get("apiVersion", "v1").removeprefix("v1"), one["kind"]]))
        self.objects[kind, one["metadata"].get("namespace"), one["metadata"]["name"]] = one

    def get(self, kind: str, name: str, namespace: str | None = None) -> Object | None:
        """An object, or None."""
        return self.objects.get((kind, namespace, name))

    def create(self, kind: str, body: Mapping[str, Any], namespace: str | None = None) -> None:
        """Keeps an object."""
        if kind == "Event":
            self.events.append(f"{body['reason']}: {body['message']}")
            return
        self.put({**body, "kind": kind, "metadata": {**body["metadata"], "namespace": namespace}})

    def patch(
        self, kind: str, name: str, body: Mapping[str, Any], namespace: str | None = None, *, status: bool = False
    ) -> Object | None:
        """Merges into an object; None where there is none."""
        del status
        with self._lock:
            found = self.objects.get((kind, namespace, name))
            if found is None:
                return None
            found = self.objects[kind, namespace, name] = merged(found, copy.deepcopy(dict(body)))
            self.history.append(found)
            return found

    def delete(self, kind: str, name: str, namespace: str | None = None, uid: str | None = None) -> None:
        """Forgets an object."""
        del uid
        self.deleted.append(name)
        self.objects.pop((kind, namespace, name), None)
