"""Kubernetes objects out of the engine's state: each as the API server would get it, in a file."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from lab.kinds import CLUSTER_SCOPED

Resource = dict[str, Any]

RELEASE = "kubernetes:helm.sh/v3:Release"
SECRET_SIGNATURE = ("4dabf18193072939515e22adb298388d", "1b47061264138c4ac30d75fd1eb44270")
SECRET_SHOWN = "[secret]"  # noqa: S105 -- what is shown in a secret's place


def plain(value: Any) -> Any:
    """A value of the state without the engine's own marks: a secret is not shown, `__` keys are left out."""
    if isinstance(value, list):
        return [plain(one) for one in value]
    if not isinstance(value, dict):
        return value
    key, signature = SECRET_SIGNATURE
    if value.get(key) == signature:
        return SECRET_SHOWN
    return {name: plain(one) for name, one in value.items() if not name.startswith("__")}


def from_state(state: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """File name and document of each Kubernetes object and Helm release in an exported state."""
    taken: set[str] = set()
    for resource in state["deployment"].get("resources") or []:
        if resource["type"].startswith("kubernetes:") and resource.get("custom") and not resource.get("delete"):
            document = _release(resource) if resource["type"] == RELEASE else _object(resource)
            name = _file_name(document)
            while name in taken:
                name = f"{name}-again"
            taken.add(name)
            yield f"{name}.yaml", document


def _object(resource: Resource) -> dict[str, Any]:
    inputs = plain(resource["inputs"])
    group_version, kind = resource["type"].removeprefix("kubernetes:").rsplit(":", 1)
    metadata = dict(inputs.get("metadata") or {})
    # A name that the engine or the API server chose is in the outputs only.
    metadata.setdefault("name", _name(resource))
    first = {
        "apiVersion": inputs.get("apiVersion") or group_version.removeprefix("core/"),
        "kind": inputs.get("kind") or kind,
        "metadata": metadata,
    }
    return {**first, **{key: value for key, value in inputs.items() if key not in first}}


def _release(resource: Resource) -> dict[str, Any]:
    """A Helm release, in the words of its inputs: nothing renders the chart here."""
    inputs = plain(resource["inputs"])
    return {
        "kind": "Release",
        "name": inputs.get("name") or _name(resource),
        "namespace": inputs.get("namespace", "default"),
        "chart": inputs.get("chart"),
        "version": inputs.get("version"),
        "repository": (inputs.get("repositoryOpts") or {}).get("repo"),
        "values": inputs.get("values") or {},
    }


def _name(resource: Resource) -> str:
    made = plain(resource.get("outputs") or {})
    return (made.get("metadata") or {}).get("name") or resource["urn"].rsplit("::", 1)[1]


def _file_name(document: dict[str, Any]) -> str:
    metadata = document.get("metadata") or document
    scope = "cluster" if document["kind"] in CLUSTER_SCOPED else metadata.get("namespace") or "default"
    return f"{scope}-{document['kind'].lower()}-{metadata['name']}"


class _Dumper(yaml.SafeDumper):
    """Text of several lines as a block, so that programs in ConfigMaps can be read."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)


def dump(document: dict[str, Any]) -> str:
    """A document as YAML, its keys in their order."""
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


def write(state: dict[str, Any], folder: Path) -> list[Path]:
    """Writes every document into a folder of its own; what an earlier run left there goes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    written: list[Path] = []
    for name, document in from_state(state):
        written.append(folder / name)
        written[-1].write_text(dump(document), encoding="utf-8")
    return written
