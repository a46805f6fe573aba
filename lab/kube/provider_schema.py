"""Whether the provider that is built here knows what the program hands it: its SDK is newer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_OF_ANY_KIND = {"pulumi.json#/Any", "pulumi.json#/Json"}
_IDENTITY = {"apiVersion", "kind"}


def unknown(schema: Schema, resources: list[dict[str, Any]]) -> list[str]:
    """The inputs of the kubernetes package's resources that a schema does not have.

    Args:
        schema: Pulumi's schema of the package.
        resources: of an exported state.
    """
    found: list[str] = []
    for resource in resources:
        kind = resource["type"]
        if kind == "pulumi:providers:kubernetes":
            known = schema["provider"]["inputProperties"]
        elif kind.startswith("kubernetes:"):
            if kind not in schema["resources"]:
                found.append(f"{kind}: no such resource")
                continue
            known = schema["resources"][kind]["inputProperties"]
        else:
            continue
        name = resource["urn"].rpartition("::")[2]
        found += [f"{kind} {name}: {path}" for path in _unknown(schema, known, resource.get("inputs") or {}, "")]
    return sorted(set(found))


def _unknown(schema: Schema, known: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        return
    for key, inner in value.items():
        at = f"{path}.{key}".lstrip(".")
        if key.startswith("__") or (not path and key in _IDENTITY | {"version"}):
            continue
        if key not in known:
            yield at
            continue
        yield from _inside(schema, known[key], inner, at)


def _inside(schema: Schema, of: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _inside(schema, of.get("items", {}), one, path)
    elif "$ref" in of and of["$ref"] not in _OF_ANY_KIND:
        inner = schema["types"].get(of["$ref"].removeprefix("#/types/").replace("%2F", "/"))
        if inner and "properties" in inner:
            yield from _unknown(schema, inner["properties"], value, path)
