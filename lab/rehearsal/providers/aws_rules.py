"""What resources have to do with each other: who names whom, who keeps whom, and what cannot change in place."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_types import (
    ALIASES,
    BLOCKS,
    CLUSTER,
    LOG_GROUP,
    LUSTRE,
    NODE_GROUP,
    REFERENCES,
    Reference,
    kind_of,
)
from lab.rehearsal.providers.protocol import World

Values = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """What AWS is asked to do with a resource.

    Attributes:
        type: Its type.
        inputs: Plain, as they shall be; in a check the region is among them. Empty when it is deleted.
        old: The inputs that it has, when it is changed.
        id: Its id, when it is deleted.
        state: What is known of it, when it is deleted.
        world: All that is there; empty in a check.
    """

    type: str
    inputs: Values = field(default_factory=dict)
    old: Values = field(default_factory=dict)
    id: str = ""
    state: Values = field(default_factory=dict)
    world: World = field(default_factory=dict)


# References to the rest of the cloud.


def _references(inputs: Values) -> Iterator[tuple[Reference, str]]:
    """Every value in the inputs that names another resource."""
    for path, value in wire.leaves(inputs):
        steps = [step for step in path if isinstance(step, str)]
        reference = REFERENCES.get(".".join(steps[-2:])) or REFERENCES.get(steps[-1] if steps else "")
        if reference and isinstance(value, str) and value and wire.UNKNOWN not in value:
            yield reference, value


def _is(reference: Reference, value: str, rid: str, state: Values) -> bool:
    return value in [rid if prop == "id" else state.get(prop) for prop in reference.by.split()]


def find(world: World, prop: str, value: Any) -> Values:
    """The state of the resource that a property names; empty if there is none."""
    return _find(world, REFERENCES[prop], str(value))


def _find(world: World, reference: Reference, value: str) -> Values:
    if reference.by == "id" and (entry := world.get(f"{reference.type}|{value}")):
        return wire.plain(entry["state"])
    for key, entry in world.items():
        token, rid = key.split("|", 1)
        state = wire.plain(entry["state"])
        if token == reference.type and _is(reference, value, rid, state):
            return state
        if any(token == owner and wire.at(state, out) == value for owner, out in ALIASES.get(reference.type, ())):
            return state
    return {}


def every(world: World, token: str) -> Iterator[Values]:
    """The states of all resources of a type."""
    return (wire.plain(entry["state"]) for key, entry in world.items() if key.startswith(f"{token}|"))


def what_it_names_is_there(case: Case) -> Iterator[str]:
    """Refuses what names a resource that is not there."""
    for reference, value in _references(case.inputs):
        if "::aws:" in value or "alias/" in value or (reference is REFERENCES["gatewayId"] and "igw-" not in value):
            continue  # AWS's own policies, a key by its alias, other kinds of gateways
        if not _find(case.world, reference, value):
            yield f"{reference.missing.format(value)} (named by {case.type})"


def nobody_needs_it(case: Case) -> Iterator[str]:
    """Refuses to delete what others still need. A security group's own rules don't count: they go with it."""
    text, types = BLOCKS.get(case.type, ("", set()))
    for key, other in case.world.items():
        user, user_id = key.split("|", 1)
        if types is not None and user not in types:
            continue
        inputs = wire.plain(other["inputs"])
        used = any(ref.type == case.type and _is(ref, value, case.id, case.state) for ref, value in _references(inputs))
        if used and inputs.get("securityGroupId") != case.id:
            yield f"{text.format(case.id)}: {user} {user_id}"


def no_other_has_its_name(case: Case) -> Iterator[str]:
    """Refuses a second one of the same name, or of whatever else may be there only once."""
    kind = kind_of(case.type)
    wanted = [case.inputs.get(prop) for prop in kind.unique.split()]
    others = ([other.get(prop) for prop in kind.unique.split()] for other in every(case.world, case.type))
    if any(value is not None for value in wanted) and wanted in others:
        shown = ", ".join(str(value) for value in wanted if value is not None)
        yield f"{kind.taken}: {shown} exists already ({case.type})"


def has_nodes(world: World, cluster: str) -> bool:
    """Whether any node group of a cluster wants nodes."""
    groups = [group for group in every(world, NODE_GROUP) if group["clusterName"] == cluster]
    return any(group["scalingConfig"]["desiredSize"] > 0 for group in groups)


# Changes.


def cannot_change(token: str, path: wire.Path, old: Values, new: Values) -> bool:
    """Whether a change at `path` needs a new resource: by the type's table, or by the values."""
    if any(wire.under(path, prop) for prop in f"region {kind_of(token).replaces}".split()):
        return True
    before, after = (wire.at(side, ".".join(map(str, path))) for side in (old, new))
    shrinks = isinstance(before, int) and isinstance(after, int) and after < before
    if token == LUSTRE and path == ("storageCapacity",):
        return shrinks
    if token == LUSTRE and path == ("fileSystemTypeVersion",):
        return bool(before and after and after < before)
    if token == LUSTRE and path[0] == "metadataConfiguration":  # neither added nor taken away later
        return shrinks or not (old.get("metadataConfiguration") and new.get("metadataConfiguration"))
    if token == CLUSTER and path[0] == "encryptionConfig":
        return bool(old.get("encryptionConfig")) and not new.get("encryptionConfig")
    return False


# The log group of a cluster.


def writes_logs(world: World, group: str) -> bool:
    """Whether a cluster still writes into a log group."""
    clusters = [cluster for cluster in every(world, CLUSTER) if cluster.get("enabledClusterLogTypes")]
    return any(group == f"/aws/eks/{cluster['name']}/cluster" for cluster in clusters)


def put_log_group_of_eks(world: World, name: str) -> None:
    """EKS makes the group itself with its next line: without retention, and nobody ever deletes it."""
    world[f"{LOG_GROUP}|{name}"] = {"urn": "made by EKS itself", "inputs": {}, "state": {"name": name}}
