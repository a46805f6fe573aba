"""Rules about the file system: how it is mounted, what it holds, and how fast it is read."""

from collections.abc import Iterator

from infra import sizing
from infra.settings.findings import Finding, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.models import Models
from infra.settings.sections.nodes import NodeGroups
from infra.settings.sections.servers import ModelServers
from infra.settings.sections.storage import StorageSettings


@rule
def warn_about_mounts_over_tcp(storage: StorageSettings, node_groups: NodeGroups) -> Iterator[Finding]:
    """Warns that an EFA-enabled file system is mounted over TCP, and of types for which it would stay so."""
    if not storage.efa:
        return
    text = "the file system can do EFA, but this version does not prepare the nodes' Lustre client: mounts ride TCP"
    yield Finding(stack_key("storage", "efa"), text, refuses=False)
    for name, group in node_groups.items():
        key = stack_key("nodeGroups", name, "instanceType")
        if group.facts.lustre_efa == "no":
            yield Finding(key, f"{group.instance_type} is no EFA client of Lustre: its mounts ride TCP", refuses=False)
        elif group.facts.lustre_efa == "derived":
            text = f"EFA to Lustre on {group.instance_type} follows from AWS's rule but is on no list of AWS's"
            yield Finding(key, text, refuses=False)


@rule
def warn_about_slow_copies(storage: StorageSettings, models: Models, model_servers: ModelServers) -> Iterator[Finding]:
    """Warns of servers whose copies may take longer than 30 minutes at the file system's throughput."""
    for name, server in model_servers.items():
        if model := models.get(server.model):
            seconds = sizing.copy_seconds(model.size_gib, storage.mib_per_second, server.replicas)
            if seconds > 1800:
                text = f"at {storage.mib_per_second} MiB/s server {name} may copy for {seconds // 60} minutes"
                yield Finding(stack_key("storage", "throughput"), text, refuses=False)


@rule
def the_models_fit_on_the_file_system(storage: StorageSettings, models: Models) -> Iterator[Finding]:
    """Refuses a capacity below the sum of all models' `sizeGib`."""
    capacity, total = storage.capacity_gib, sum(model.size_gib for model in models.values())
    if total > capacity:
        text = f"{capacity} is less than the {total} GiB of all models; grow it by whole steps"
        yield Finding(stack_key("storage", "capacityGib"), text)
