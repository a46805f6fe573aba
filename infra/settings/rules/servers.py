"""Rules about model servers: what they name is there, and their pods fit on the nodes."""

from collections.abc import Iterator

from infra import sizing
from infra.settings.findings import Finding, one_of, stack_key
from infra.settings.rules.rule import Declared, rule
from infra.settings.sections.models import Models, ModelSettings
from infra.settings.sections.nodes import NodeGroups, NodeGroupSettings
from infra.settings.sections.servers import ModelServers, ModelServerSettings, pod_size


@rule
def every_server_fits(
    models: Models, node_groups: NodeGroups, model_servers: ModelServers, declared: Declared
) -> Iterator[Finding]:
    """Refuses a server that names no model or node group or whose pods do not fit; warns where pods stay Pending."""
    pods: dict[str, list[sizing.PodSize]] = {name: [] for name in node_groups}
    for name, server in model_servers.items():
        yield from _unknown(name, "model", "models", server.model, declared.models)
        yield from _unknown(name, "nodeGroup", "nodeGroups", server.node_group, declared.node_groups)
        model, group = models.get(server.model), node_groups.get(server.node_group)
        if model is None or group is None:
            continue
        found = list(_pod_problems(name, server, model, group))
        yield from found
        if not any(finding.refuses for finding in found):
            pods[server.node_group] += [pod_size(server, model)] * server.replicas
    for name, group in node_groups.items():
        gpus = sum(pod.gpus for pod in pods[name])
        what = f"its servers' {len(pods[name])} pods with {gpus} GPUs"
        if (fewest := sizing.fewest_nodes(pods[name], group.facts)) > group.size.max:
            text = f"{group.size.max}, but {what} need at least {fewest} nodes; raise it, or lower replicas or gpus"
            yield Finding(stack_key("nodeGroups", name, "size", "max"), text)
        elif (need := sizing.nodes_needed(pods[name], group.facts)) > group.size.desired:
            text = (
                f"{group.size.desired}, but {what} fill {need} nodes: the others stay Pending, and `up` waits for none"
            )
            yield Finding(stack_key("nodeGroups", name, "size", "desired"), text, refuses=False)


def _unknown(server: str, field: str, section: str, value: str, declared: list[str]) -> Iterator[Finding]:
    if value not in declared:
        use = f"use {one_of(declared)}" if declared else "nothing is"
        yield Finding(stack_key("modelServers", server, field), f"{value!r} is not under {stack_key(section)}; {use}")


def _pod_problems(
    name: str, server: ModelServerSettings, model: ModelSettings, group: NodeGroupSettings
) -> Iterator[Finding]:
    facts, gib, size = group.facts, model.size_gib, stack_key("models", server.model, "sizeGib")
    if server.gpus > facts.gpus:
        text = f"{server.gpus}, but a {facts.name} has {facts.gpus}; use 1 to {facts.gpus}, or another node group"
        yield Finding(stack_key("modelServers", name, "gpus"), text)
    if (need := sizing.copy_space_gib(gib)) > (room := sizing.model_space_gib(facts)):
        text = f"{gib}, whose copy takes {need} GiB, but a {facts.name} (server {name}) has {room} GiB of NVMe for it"
        yield Finding(size, f"{text}; use a type with more NVMe, or a smaller model")
    if (need := sizing.page_cache_memory_gib(gib)) > facts.memory_gib:
        text = (
            f"wants {need} GiB of memory for a model of {gib} GiB, but a {facts.name} has {facts.memory_gib}; use auto"
        )
        if server.preload.write == "buffered":
            yield Finding(stack_key("modelServers", name, "preload", "write"), f"buffered {text}", refuses=False)
        if server.preload.cache == "keep":
            yield Finding(stack_key("modelServers", name, "preload", "cache"), f"keep {text}", refuses=False)
    # vLLM takes 90 % of a GPU's memory by default (--gpu-memory-utilization): weights and KV cache share it.
    usable = min(server.gpus, facts.gpus)
    memory = usable * facts.gpu_memory_gib
    gpus = f"the {memory:.0f} GiB of {usable} {facts.gpu} (server {name})"
    if gib > 0.9 * memory:
        text = f"{gib}, but of {gpus} weights can have {int(0.9 * memory)}; use more or larger GPUs"
        yield Finding(size, text)
    elif gib > 0.8 * memory:
        yield Finding(size, f"{gib} of {gpus}: little is left for the KV cache", refuses=False)
