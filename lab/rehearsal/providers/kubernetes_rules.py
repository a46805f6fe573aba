"""What the API server refuses in an object's text, and what can't be changed in it, by kind."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.sdk_types import Problem

_VOLUME_SOURCES = (
    "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc flexVolume flocker gcePersistentDisk glusterfs "
    "hostPath iscsi local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume"
)
REPLACES = {
    "ClusterRoleBinding": "roleRef",
    "ConfigMap": "data binaryData",
    "DaemonSet": "spec.selector",
    "Deployment": "spec.selector",
    "Job": "spec.completions spec.parallelism spec.selector spec.template",
    "PersistentVolume": " ".join(f"spec.{source}" for source in _VOLUME_SOURCES.split()),
    "PersistentVolumeClaim": "spec.accessModes spec.selector spec.storageClassName spec.volumeName",
    "Release": "name namespace",
    "ResourceQuota": "spec.scopes",
    "RoleBinding": "roleRef",
    "Secret": "type stringData data",
    "Service": "spec.clusterIP",
    "StatefulSet": "spec.podManagementPolicy spec.revisionHistoryLimit spec.selector spec.serviceName "
    "spec.volumeClaimTemplates",
    "StorageClass": "parameters provisioner",
}
"""What the real provider replaces for, beside metadata's name and namespace: `forceNew` in
https://github.com/pulumi/pulumi-kubernetes/blob/9497796/provider/pkg/provider/diff.go (v4.32; without Pod's list);
Release: its own `Diff` in helm_release.go."""

IMMUTABLE = {
    "CSIDriver": "spec.attachRequired spec.volumeLifecycleModes",
    "PersistentVolume": "spec.nodeAffinity spec.volumeMode",
    "PersistentVolumeClaim": "spec.dataSource spec.dataSourceRef spec.volumeMode",
    "StorageClass": "reclaimPolicy volumeBindingMode",
}
"""What the provider tries to update and the API server then refuses (kubernetes/kubernetes: pkg/apis/*/validation)."""

_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_DOMAIN = rf"(?=.{{1,253}}$){_LABEL}(\.{_LABEL})*"
_TEXT = r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_LABELS = ("labels", "matchLabels", "nodeSelector")


def object_problems(kind: str, inputs: dict[str, Any]) -> Iterator[Problem]:
    """Names and labels of an object that are refused."""
    name = wire.at(inputs, "metadata.name")
    if isinstance(name, str) and wire.UNKNOWN not in name and not kind.endswith(("Role", "RoleBinding")):
        rule = _LABEL if kind in ("Namespace", "Service") else _DOMAIN
        if not re.fullmatch(rule, name) or (kind == "Service" and name[0].isdigit()):
            yield Problem(("metadata", "name"), f"{name!r} is no DNS name (RFC 1123: a-z, 0-9, '-')")
    yield from _text_problems(inputs, ())


def _text_problems(value: Any, path: wire.Path) -> Iterator[Problem]:
    """Labels, selectors, and names of containers, volumes and ports, wherever they are."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _text_problems(item, (*path, index))
        return
    if not isinstance(value, dict):
        return
    for key, item in value.items():
        if key in _LABELS and isinstance(item, dict):
            yield from _label_problems(item, (*path, key))
        elif key in ("containers", "initContainers", "volumes") and isinstance(item, list):
            for index, one in enumerate(item):
                name = one.get("name") if isinstance(one, dict) else None
                if isinstance(name, str) and wire.UNKNOWN not in name and not re.fullmatch(_LABEL, name):
                    yield Problem((*path, key, index, "name"), f"{name!r} is no DNS label (RFC 1123)")
        yield from _text_problems(item, (*path, key))


def _label_problems(labels: dict[str, Any], path: wire.Path) -> Iterator[Problem]:
    for key, value in labels.items():
        prefix, slash, name = key.rpartition("/")
        if not name or not re.fullmatch(_TEXT, name) or (slash and not re.fullmatch(_DOMAIN, prefix)):
            yield Problem((*path, key), "is no label key ([prefix/]name, at most 63 characters in the name)")
        if isinstance(value, str) and wire.UNKNOWN not in value and not re.fullmatch(_TEXT, value):
            yield Problem((*path, key), f"{value!r} is no label value (at most 63 of A-Z a-z 0-9 - _ .)")


def release_problems(inputs: dict[str, Any]) -> Iterator[Problem]:
    """A chart is a folder that is there, an OCI address, or a name in a repository."""
    chart, repository = inputs.get("chart"), wire.at(inputs, "repositoryOpts.repo")
    if isinstance(chart, str) and wire.UNKNOWN not in chart and not repository:
        is_path = chart.startswith((".", "/")) or Path(chart).exists()
        if is_path and not Path(chart).exists():
            yield Problem(("chart",), f"path {chart!r} not found")
        elif not is_path and not chart.startswith("oci://") and "/" not in chart:
            yield Problem(("chart",), f"{chart!r} is no folder here, and no repository is given")
    name = inputs.get("name")
    if isinstance(name, str) and wire.UNKNOWN not in name and not re.fullmatch(rf"(?=.{{1,53}}$){_DOMAIN}", name):
        yield Problem(("name",), f"{name!r} is no release name (a DNS name of at most 53 characters)")
