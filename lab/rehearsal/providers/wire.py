"""Values as they travel between the engine and a provider, and what a provider does with them.

On the wire a value is JSON in which a few objects mean more: a secret, an output, a reference to a resource. In
this package they stay as they came ("wire form"), so that a secret is still one when it goes back; `plain` takes the
meaning off where a rule has to look at the value itself.
"""

import json
from collections.abc import Iterator
from typing import Any, Literal

from google.protobuf import json_format, struct_pb2
from pulumi.runtime import rpc

SIG: str = rpc._special_sig_key  # noqa: SLF001 - fixed by the protocol; the SDK has no public name for them
SECRET: str = rpc._special_secret_sig  # noqa: SLF001
OUTPUT: str = rpc._special_output_value_sig  # noqa: SLF001
RESOURCE: str = rpc._special_resource_sig  # noqa: SLF001
UNKNOWN: str = rpc.UNKNOWN
_UNKNOWNS = {  # the engine has one for each kind of value; nobody here needs to tell them apart
    UNKNOWN,
    "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
    "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
    "030794c1-ac77-496b-92df-f27374a8bd58",
    "e48ece36-62e2-4504-bad9-02848725956a",
    "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
}

Path = tuple[str | int, ...]
Change = Literal["add", "delete", "update"]


def from_struct(struct: struct_pb2.Struct) -> dict[str, Any]:
    """The object of a request; whole numbers become int (on the wire every number is a float)."""
    return {name: _from_value(value) for name, value in struct.fields.items()}


def _from_value(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return from_struct(value.struct_value)
    if kind == "list_value":
        return [_from_value(item) for item in value.list_value.values]
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    return None if kind in (None, "null_value") else getattr(value, kind)


def to_struct(value: dict[str, Any]) -> struct_pb2.Struct:
    """An object for an answer."""
    return json_format.ParseDict(value, struct_pb2.Struct())


def secret(value: Any) -> dict[str, Any]:
    """`value` as the engine must keep it: encrypted in the state, `[secret]` on the screen."""
    return value if _sig(value) == SECRET else {SIG: SECRET, "value": value}


def _sig(value: Any) -> Any:
    return value.get(SIG) if isinstance(value, dict) else None


def plain(value: Any) -> Any:
    """The value without secrets' and outputs' wrapping; whatever is not known yet is `UNKNOWN`."""
    sig = _sig(value)
    if sig in (SECRET, OUTPUT):
        return plain(value["value"]) if "value" in value else UNKNOWN
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return UNKNOWN if isinstance(value, str) and value in _UNKNOWNS else value


def _secret_texts(value: Any, *, inside: bool = False) -> Iterator[str]:
    """The texts in a value in wire form that are kept secret."""
    inside = inside or _sig(value) == SECRET
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _secret_texts(item, inside=inside)
    elif inside and isinstance(value, str) and value not in (SIG, SECRET):
        yield value


def has_secret(value: Any) -> bool:
    """Whether anything in a value in wire form is kept secret."""
    if _sig(value) == SECRET:
        return True
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any(has_secret(part) for part in parts)


def seal(state: dict[str, Any], inputs: dict[str, Any]) -> None:
    """Makes secret, in `state`, what a cloud made of secret inputs (`tagsAll` of `tags`)."""
    texts = {*_secret_texts(inputs)}
    for name in state.keys() - inputs.keys() if texts else ():
        if any(leaf in texts for _, leaf in leaves(plain(state[name]))):
            state[name] = secret(state[name])


def has_unknown(value: Any) -> bool:
    """Whether anything in a plain value is not known yet."""
    if isinstance(value, dict):
        return any(has_unknown(item) for item in value.values())
    if isinstance(value, list):
        return any(has_unknown(item) for item in value)
    return isinstance(value, str) and UNKNOWN in value


def at(value: Any, dotted: str) -> Any:
    """The value at a path like `vpcConfig.subnetIds` or `oidcs.0.issuer`; None where there is none."""
    for step in dotted.split("."):
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and step.isdigit() and int(step) < len(value):
            value = value[int(step)]
        else:
            return None
    return value


def leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every path to something that is neither a mapping nor a list."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, (*path, index))
    else:
        yield path, value


def path_text(path: Path) -> str:
    """A path as the engine writes it: `spec.containers[0].env`, `tags["a.b"]`."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.replace("_", "a").replace("-", "a").isalnum():
            text += f".{step}" if text else step
        else:
            text += f"[{json.dumps(step)}]"
    return text


def under(path: Path, dotted: str) -> bool:
    """Whether `path`, whatever its list indices, is `dotted` or lies below it."""
    names = [step for step in path if isinstance(step, str)]
    wanted = dotted.split(".")
    return names[: len(wanted)] == wanted


def changes(old: Any, new: Any, path: Path = ()) -> Iterator[tuple[Path, Change]]:
    """What differs between two plain values, as deep as it can be said. Keys that begin with `__` don't count.

    Two texts that are the same JSON are the same: policies come back from the cloud formatted otherwise.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if not key.startswith("__"):
                yield from changes(old.get(key), new.get(key), (*path, key))
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            was, now = (side[index] if index < len(side) else None for side in (old, new))
            yield from changes(was, now, (*path, index))
    elif old != new and not _same_json(old, new):
        yield path, "add" if old is None else "delete" if new is None else "update"


def _same_json(old: Any, new: Any) -> bool:
    if not (isinstance(old, str) and isinstance(new, str) and old[:1] in ("{", "[") and new[:1] == old[:1]):
        return False
    try:
        return json.loads(old) == json.loads(new)
    except json.JSONDecodeError:
        return False


def carried(state: Any, old: Any, new: Any) -> Any:
    """The state after an update: the new inputs, what the cloud had added to the old ones, and nothing else.

    Keys that only the cloud sets lie inside input objects too (`vpcConfig.clusterSecurityGroupId`): they are kept at
    each level. Keys that the program has taken away go.
    """
    if isinstance(state, dict) and isinstance(new, dict) and not _sig(state) and not _sig(new):
        before = old if isinstance(old, dict) else {}
        kept = {key: item for key, item in state.items() if key not in new and key not in before}
        return kept | {key: carried(state.get(key), before.get(key), item) for key, item in new.items()}
    if isinstance(state, list) and isinstance(new, list) and len(state) == len(new):
        before = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return [carried(*three) for three in zip(state, before, new, strict=True)]
    return new


def asked(state: Any, inputs: Any) -> Any:
    """`state` cut down, at each level, to the keys that the program sets: the inputs that a Read returns.

    The old inputs as they were would hide drift; keys that only the cloud sets (`metadata.uid`) would show as drift.
    """
    if isinstance(state, dict) and isinstance(inputs, dict):
        notes = {key: item for key, item in inputs.items() if key.startswith("__")}
        return {key: asked(state[key], item) for key, item in inputs.items() if key in state} | notes
    if isinstance(state, list) and isinstance(inputs, list) and len(state) == len(inputs):
        return [asked(*two) for two in zip(state, inputs, strict=True)]
    return state
