"""A pod's volumes as folders of this machine, laid out as the kubelet does it."""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.kube.containers import NotPlayedError, Object
from lab.kube.quantities import quantity

Get = Callable[[str, str, "str | None"], "Object | None"]

_DATA = "..data"


@dataclass(frozen=True)
class Volume:
    """One volume.

    Attributes:
        path: its folder; None: memory.
        bytes: how much fits, of memory.
        read_only: whether nobody may write, whatever a mount says.
        on_node: whether it lies on the node's disk.
    """

    path: Path | None
    bytes: int = 0
    read_only: bool = False
    on_node: bool = False


Volumes = Mapping[str, Volume]


def prepare(pod: Object, folder: Path, file_systems: Path, get: Get) -> Volumes:
    """Makes a pod's volumes, or finds those that are there.

    Args:
        pod: the pod.
        folder: of the pod's own volumes on its node.
        file_systems: of those that are mounted over the network, a folder each.
        get: finds objects, as `kube.api.Api.get` does.

    Returns:
        The volumes by their names.

    Raises:
        NotPlayedError: a volume of a kind that is not made here.
    """
    return {one["name"]: _volume(pod, one, folder / one["name"], file_systems, get) for one in _wanted(pod)}


def bytes_in(folder: Path) -> int:
    """The bytes that the files in a folder take on their disk."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(path) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


def _wanted(pod: Object) -> list[Object]:
    return pod["spec"].get("volumes") or []


def _volume(pod: Object, spec: Object, folder: Path, file_systems: Path, get: Get) -> Volume:
    namespace = pod["metadata"]["namespace"]
    match spec:
        case {"emptyDir": {"medium": "Memory"} as found}:
            return Volume(None, int(quantity(found.get("sizeLimit", "1Gi"))))
        case {"emptyDir": _}:
            _make_empty(folder, (pod["spec"].get("securityContext") or {}).get("fsGroup"))
            return Volume(folder, on_node=True)
        case {"configMap": found}:
            _write(folder, _files(get, "ConfigMap", found["name"], namespace, found))
            return Volume(folder, read_only=True)
        case {"secret": found}:
            _write(folder, _files(get, "Secret", found["secretName"], namespace, found))
            return Volume(folder, read_only=True)
        case {"projected": found}:
            files: dict[str, bytes] = {}
            for source in found.get("sources") or []:
                (key,) = source
                kinds = {"configMap": "ConfigMap", "secret": "Secret"}
                if key == "serviceAccountToken":
                    files[source[key]["path"]] = b"a stand-in's token, which nobody takes"
                    continue
                if key not in kinds:
                    raise NotPlayedError(f"not played where containers are processes: volumes.projected.sources.{key}")
                files |= _files(get, kinds[key], source[key]["name"], namespace, source[key])
            _write(folder, files)
            return Volume(folder, read_only=True)
        case {"persistentVolumeClaim": found}:
            return _claimed(get, found, namespace, file_systems)
        case _:
            kinds = ", ".join(sorted(spec.keys() - {"name"}))
            raise NotPlayedError(f"not played where containers are processes: volumes.{kinds}")


def _claimed(get: Get, claimed: Object, namespace: str, file_systems: Path) -> Volume:
    claim = get("PersistentVolumeClaim", claimed["claimName"], namespace) or {}
    volume = (get("PersistentVolume", claim["spec"]["volumeName"], None) or {})["spec"]
    # As the driver's node part mounts: by address, which all volumes of one file system share.
    attributes = volume["csi"]["volumeAttributes"]
    folder = file_systems / attributes["dnsname"] / attributes["mountname"]
    folder.mkdir(parents=True, exist_ok=True)
    read_only = "ro" in (volume.get("mountOptions") or []) or bool(claimed.get("readOnly"))
    return Volume(folder, read_only=read_only)


def _make_empty(folder: Path, group: int | None) -> None:
    if folder.exists():
        return
    folder.mkdir(parents=True)
    if group is not None and os.geteuid() == 0:
        os.chown(folder, 0, group)
    folder.chmod(0o777 if group is None else 0o2777)


def _files(get: Get, kind: str, name: str, namespace: str, source: Mapping[str, Any]) -> dict[str, bytes]:
    """Path and content of what a ConfigMap or a Secret gives."""
    found = get(kind, name, namespace) or {}
    encoded = {**(found.get("binaryData") or {}), **((found.get("data") or {}) if kind == "Secret" else {})}
    content = {key: base64.b64decode(text) for key, text in encoded.items()}
    if kind == "ConfigMap":
        content |= {key: text.encode() for key, text in (found.get("data") or {}).items()}
    items = source.get("items")
    if items is None:
        return content
    return {item["path"]: content[item["key"]] for item in items}


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes files as the kubelet does: into a folder with a name of its own, to which links lead."""
    shutil.rmtree(folder, ignore_errors=True)
    version = folder / "..1"
    version.mkdir(parents=True)
    for path, content in files.items():
        target = version / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(0o644)
    (folder / _DATA).symlink_to(version.name)
    for name in _tops(files):
        (folder / name).symlink_to(f"{_DATA}/{name}")


def _tops(files: Mapping[str, bytes]) -> Iterator[str]:
    yield from sorted({path.partition("/")[0] for path in files})
