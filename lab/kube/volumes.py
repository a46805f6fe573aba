"""Whether a pod's volumes can be mounted now, and why not, in the kubelet's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lab.kube.containers import NotPlayedError, Object
from lab.kube.host import Host

_ALWAYS_THERE = {"emptyDir", "hostPath", "downwardAPI", "serviceAccountToken"}
"""Kinds of volumes, and of what is projected into one, that a node has by itself."""


def problem(host: Host, pod: Object) -> str | None:
    """Why a pod cannot have its volumes; None where it can.

    Raises:
        NotPlayedError: whether it can is not known of a volume of this kind.
    """
    return next(_problems(host, pod), None)


def _problems(host: Host, pod: Object) -> Iterator[str]:
    for volume in pod["spec"].get("volumes") or []:
        for why in _of_volume(host, pod, volume):
            yield f'MountVolume.SetUp failed for volume "{volume["name"]}" : {why}'


def _of_volume(host: Host, pod: Object, volume: Object) -> Iterator[str]:
    if "configMap" in volume:
        yield from _keyed(host, pod, "ConfigMap", volume["configMap"], volume["configMap"].get("name"))
    elif "secret" in volume:
        yield from _keyed(host, pod, "Secret", volume["secret"], volume["secret"].get("secretName"))
    elif "projected" in volume:
        for source in volume["projected"].get("sources") or []:
            for key, kind in (("configMap", "ConfigMap"), ("secret", "Secret")):
                if key in source:
                    yield from _keyed(host, pod, kind, source[key], source[key].get("name"))
            _require_known(source.keys() - {"configMap", "secret"}, "volumes.projected.sources")
    elif "persistentVolumeClaim" in volume:
        yield from _claimed(host, pod, volume["persistentVolumeClaim"]["claimName"])
    else:
        _require_known(volume.keys() - {"name"}, "volumes")


def _require_known(kinds: set[str], where: str) -> None:
    if unknown := sorted(kinds - _ALWAYS_THERE):
        raise NotPlayedError(f"not played: {', '.join(f'{where}.{kind}' for kind in unknown)}")


def _keyed(host: Host, pod: Object, kind: str, source: Mapping[str, Any], name: str | None) -> Iterator[str]:
    if source.get("optional"):
        return
    namespace = pod["metadata"]["namespace"]
    found = host.api.get(kind, name or "", namespace)
    what = kind.lower()
    if found is None:
        yield f'{what} "{name}" not found'
        return
    known = {**(found.get("data") or {}), **(found.get("binaryData") or {})}
    for item in source.get("items") or []:
        if item["key"] not in known:
            yield f"references non-existent {'config' if kind == 'ConfigMap' else 'secret'} key: {item['key']}"


def _claimed(host: Host, pod: Object, claim_name: str) -> Iterator[str]:
    claim = host.api.get("PersistentVolumeClaim", claim_name, pod["metadata"]["namespace"])
    if claim is None or claim.get("status", {}).get("phase") != "Bound":
        yield f'claim "{claim_name}" is not bound'
        return
    volume = host.api.get("PersistentVolume", claim["spec"]["volumeName"])
    csi = (volume or {}).get("spec", {}).get("csi")
    if not csi:
        return
    driver = host.api.get("storage.k8s.io/v1/CSIDriver", csi["driver"])
    if driver is None or driver["spec"].get("attachRequired", True):
        yield f"volume is not attached: no CSIDriver {csi['driver']} says that none is needed"
    if why := host.missing_driver(pod, csi["driver"]):
        yield why
