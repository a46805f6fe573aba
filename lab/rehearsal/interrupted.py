"""What an engine leaves that is ended in the middle of its work: its lock, and operations that the state calls pending.

Source: Pulumi 3.274.1, pkg/backend/diy/lock.go (the lock), pkg/backend/journal.go (which operations stay pending),
pkg/cmd/pulumi/operations/refresh.go (how creates are cleared; its `--import-pending-creates` imports nothing: it
only calls them `importing`).
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_CREATING = "creating"


class LockedError(Exception):
    """A lock of an engine that was killed is in the way; the text says how to remove it."""


class Pending(NamedTuple):
    """An operation that had begun, and whose end the engine did not see.

    Attributes:
        operation: the engine's word: creating, updating, deleting, reading, importing.
        urn: the resource.
        is_there: whether the state has the resource: one that was being created was made again by a later `up`.
    """

    operation: str
    urn: str
    is_there: bool = False


def locks(state: Path) -> list[str]:
    """The locks in a local state backend: who took each, and when."""
    found = []
    for path in sorted((state / ".pulumi" / "locks").rglob("*.json")):
        held = json.loads(path.read_text(encoding="utf-8"))
        found.append(f"process {held['pid']} of {held['username']}@{held['hostname']}, since {held['timestamp']}")
    return found


def pending(exported: Mapping[str, Any]) -> list[Pending]:
    """The pending operations of a state as the engine exports it, each once."""
    deployment = exported["deployment"]
    there = {one["urn"] for one in deployment.get("resources") or ()}
    found = {(one["type"], one["resource"]["urn"]) for one in deployment.get("pending_operations") or ()}
    return [Pending(operation, urn, urn in there) for operation, urn in sorted(found)]


def about_locks(stack: str, held: Sequence[str], target: str) -> str:
    """What locks of the rehearsed stack mean, and how to remove them; the caller has the rehearsal's own lock.

    Args:
        stack: its name.
        held: the locks.
        target: the command that removes them.
    """
    listed = "".join(f"    {one}\n" for one in held)
    return (
        f"the state of {stack} is locked: an engine was killed before it could remove its lock:\n{listed}"
        f"no other rehearsal of {stack} runs, so nobody needs the lock. To remove it:\n"
        f"    {target}\n"
        "on a real account, first make sure that nobody else runs pulumi on the stack; then:\n"
        f"    pulumi cancel {stack}"
    )


def about_pending(stack: str, found: Sequence[Pending]) -> str:
    """What pending operations mean on a real account, and what to do; empty where there are none."""
    if not found:
        return ""
    lines = [f"the state of {stack} has pending operations; the engine did not see how they ended:"]
    lines += [f"    {one.operation} {one.urn}" for one in found]
    creates = {one.is_there for one in found if one.operation == _CREATING}
    if creates:
        lines += [
            "on a real account, what was being created may exist and cost money, and the state does not know its id."
        ]
    if False in creates:
        lines += [
            "The next up creates it again: that makes a second one, or fails because its name or address is taken.",
            "So look for each in the account first. What exists can be deleted there, or imported: import.json lists",
            "all that the next up would create; keep in it what exists, with its ID.",
            f"    pulumi preview --stack {stack} --import-file import.json",
            f"    pulumi import --stack {stack} --file import.json --protect=false --generate-code=false",
        ]
    if True in creates:
        lines += [
            "What the state has by now was created again by a later up: look for a second one in the account, and",
            "delete the one whose id is not in the state.",
        ]
    if creates:
        lines += [
            "After that, remove the pending creates from the state:",
            f"    pulumi refresh --stack {stack} --clear-pending-creates",
        ]
    if any(one.operation != _CREATING for one in found):
        lines += ["what was being changed or deleted is in the state with its id: pulumi refresh reads how it is now."]
    return "\n".join(lines)
