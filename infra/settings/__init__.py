"""The stack file as frozen, validated values.

`load()` hands out `Settings`, or stops the run with every mistake of the stack file in one message, each by its stack
key with what would be accepted. What rests on an API model or a primary document refuses; what is field knowledge or
inference warns.

A new key is a field with a description in its section (the key reference in `stacks/README.md` is made from it), a new
type of value stands in `values`, and a rule that looks at several sections is a function under `@rule` in `rules`.
"""

from infra.settings.environment import Settings
from infra.settings.findings import PROJECT, Finding
from infra.settings.reading import check, load
from infra.settings.sections.aws import AwsSettings
from infra.settings.sections.cluster import ClusterSettings
from infra.settings.sections.models import ModelSettings
from infra.settings.sections.network import SERVICE_CIDR, NetworkSettings
from infra.settings.sections.nodes import NodeGroupSettings, SizeSettings, SystemNodesSettings
from infra.settings.sections.plugins import MirrorsSettings
from infra.settings.sections.servers import STALL_SECONDS, ModelServerSettings
from infra.settings.sections.storage import StorageSettings
from infra.settings.values import ModelName, Revision

__all__ = [
    "PROJECT",
    "SERVICE_CIDR",
    "STALL_SECONDS",
    "AwsSettings",
    "ClusterSettings",
    "Finding",
    "MirrorsSettings",
    "ModelName",
    "ModelServerSettings",
    "ModelSettings",
    "NetworkSettings",
    "NodeGroupSettings",
    "Revision",
    "Settings",
    "SizeSettings",
    "StorageSettings",
    "SystemNodesSettings",
    "check",
    "load",
]
