"""Pulumi's properties and Terraform's arguments: one made of the other, by the provider's schema alone.

pulumi-aws makes its names out of Terraform's by rule (pulumi-terraform-bridge, pkg/tfbridge/names.go): camelCase, a
list or set under its plural; a list that holds at most one element stands without the list around it. Blocks of a
schema say how many they hold. Lists among the attributes don't, so the value itself decides there.

Values of Pulumi are plain (no secrets' wrapping); what is not known yet is `pulumi.runtime.rpc.UNKNOWN` there, and
`protocol.UNKNOWN` here.
"""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pulumi.runtime import rpc

from lab.provider.protocol import UNKNOWN
from lab.provider.shape import Shape

Path = tuple[str | int, ...]
"""Names and indices, in Pulumi's or in Terraform's terms."""

_IRREGULAR_TYPES = {"aws:cloudwatch/logGroup:LogGroup": "aws_cloudwatch_log_group"}


@dataclass(frozen=True)
class Failure:
    """One thing that is wrong with the inputs of a resource.

    Attributes:
        path: where, in Pulumi's names; empty where the provider names no argument.
        reason: the provider's own sentence.
    """

    path: Path
    reason: str


@dataclass
class Reading:
    """What became of the properties of one resource.

    Attributes:
        arguments: every one that the schema has, with its value.
        unmapped: paths of properties for which the schema has no argument.
        failures: values that no argument of that type can have.
    """

    arguments: dict[str, Any] = field(default_factory=dict)
    unmapped: list[Path] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)


def resource_type(token: str, known: Collection[str]) -> str | None:
    """Terraform's name of a type of Pulumi (`aws:ec2/vpc:Vpc` is `aws_vpc`); None where the provider has no such type.

    Args:
        token: Pulumi's type.
        known: the provider's types.
    """
    module, _, name = token.split(":")[1].partition("/")
    names = (_IRREGULAR_TYPES.get(token, ""), f"aws_{module}_{snake(name)}", f"aws_{snake(name)}")
    return next((one for one in names if one in known), None)


def snake(name: str) -> str:
    """`cidrBlock` as `cidr_block`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def camel(name: str) -> str:
    """`cidr_block` as `cidrBlock`."""
    first, *others = name.split("_")
    return first + "".join(part.capitalize() for part in others)


def plural(name: str) -> str:
    """The name of several; what ends with a single s counts as one already."""
    if name.endswith("y") and name[-2] not in "aeiou":
        return f"{name[:-1]}ies"
    if name.endswith(("ss", "x", "ch", "sh")):
        return f"{name}es"
    return name if name.endswith("s") else f"{name}s"


def spellings(argument: str, shape: Shape) -> list[str]:
    """The names that Pulumi may give an argument, the likeliest first (a few lists, as `egress`, have no plural)."""
    one, many = camel(argument), plural(camel(argument))
    if shape.kind not in ("list", "set"):
        return [one]
    return [one, many] if shape.holds_one else [many, one]


def read(shape: Shape, properties: Mapping[str, Any]) -> Reading:
    """The arguments of a resource, or of the provider itself.

    Args:
        shape: of its type.
        properties: Pulumi's, plain; names that begin with `__` are the engine's notes.
    """
    reading = Reading()
    reading.arguments = _object(shape, properties, (), reading)
    return reading


def _object(shape: Shape, properties: Any, path: Path, reading: Reading) -> Any:
    if not isinstance(properties, Mapping):
        reading.failures.append(Failure(path, f"a mapping is needed, not {properties!r}"))
        return None
    arguments: dict[str, Any] = {}
    taken: set[str] = set()
    for argument, inner in shape.fields.items():
        name = next((name for name in spellings(argument, inner) if properties.get(name) is not None), None)
        taken |= {*spellings(argument, inner)}
        arguments[argument] = inner.absent if name is None else _value(inner, properties[name], (*path, name), reading)
    reading.unmapped += [(*path, name) for name in properties if name not in taken and not name.startswith("__")]
    return arguments


def _value(shape: Shape, value: Any, path: Path, reading: Reading) -> Any:
    if isinstance(value, str) and rpc.UNKNOWN in value:
        return UNKNOWN
    if shape.kind == "dynamic":
        return value
    if shape.kind == "object":
        return _object(shape, value, path, reading)
    if shape.inner is None:
        return _scalar(shape.kind, value, path, reading)
    if shape.kind == "map":
        if isinstance(value, dict):
            return {k: _value(shape.inner, one, (*path, k), reading) for k, one in value.items() if k[:2] != "__"}
        reading.failures.append(Failure(path, f"a mapping is needed, not {value!r}"))
        return None
    if not isinstance(value, list):
        return [_value(shape.inner, value, path, reading)]
    return [_value(shape.inner, one, (*path, index), reading) for index, one in enumerate(value)]


def _scalar(kind: str, value: Any, path: Path, reading: Reading) -> Any:
    """A value of the schema's type: in Pulumi numbers, truths and documents may come as another one."""
    if value is None:
        return None
    if kind == "string":
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, str) else json.dumps(value)  # true, 1, a policy given as a mapping
    if kind == "bool" and value in (True, False, "true", "false"):
        return value in (True, "true")
    if kind == "number" and isinstance(value, int | float | str):
        try:
            number = float(value)
        except ValueError:
            pass
        else:
            return int(number) if number.is_integer() else number
    reading.failures.append(Failure(path, f"a {kind} is needed, not {value!r}"))
    return None


def written(
    shape: Shape, arguments: Mapping[str, Any], names: Collection[str] = (), like: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The properties of a resource: what `read` makes arguments of.

    Args:
        shape: of its type.
        arguments: a state, planned or real.
        names: the outputs that Pulumi's SDK has for the type; they decide where several spellings are possible.
        like: the inputs; they decide before the names.
    """
    properties: dict[str, Any] = {}
    inputs = like if isinstance(like, Mapping) else {}
    for argument, inner in shape.fields.items():
        value = arguments.get(argument)
        options = spellings(argument, inner)
        name = next((one for chosen in (inputs, names) for one in options if one in chosen), options[0])
        sample = inputs.get(name)
        if value is None or (value in ([], {}) and sample is None):
            continue
        is_single = inner.holds_one if sample is None else not isinstance(sample, list)
        if sample is None and name in names and inner.kind in ("list", "set"):
            is_single = inner.holds_one or not name.endswith("s")
        if is_single and isinstance(value, list):
            if value and inner.inner is not None:
                properties[name] = _written(inner.inner, value[0], sample)
        else:
            properties[name] = _written(inner, value, sample)
    return properties


def _written(shape: Shape, value: Any, like: Any) -> Any:
    if value is UNKNOWN:
        return rpc.UNKNOWN
    if shape.kind == "object" and isinstance(value, Mapping):
        return written(shape, value, like=like)
    if isinstance(value, list) and shape.inner is not None:
        samples = like if isinstance(like, list) and len(like) == len(value) else [None] * len(value)
        return [_written(shape.inner, *two) for two in zip(value, samples, strict=True)]
    if isinstance(value, Mapping) and shape.inner is not None:
        return {key: _written(shape.inner, one, None) for key, one in value.items()}
    return value


def property_path(shape: Shape, steps: Path, properties: Any) -> Path:
    """Where a path of Terraform lies among Pulumi's properties.

    Args:
        shape: of the type.
        steps: the path. Nothing below a set of several is named: its elements have no place there.
        properties: the inputs, which decide the spelling where several are possible.
    """
    return tuple(_names(shape, steps, properties))


def _names(shape: Shape, steps: Path, value: Any) -> Iterator[str | int]:
    if not steps:
        return
    step, rest = steps[0], steps[1:]
    if shape.kind == "object" and step in shape.fields:
        inner = shape.fields[str(step)]
        names = spellings(str(step), inner)
        value = value if isinstance(value, dict) else {}
        name = next((name for name in names if name in value), names[0])
        yield name
        yield from _names(inner, rest, value.get(name))
    elif shape.kind == "map" and shape.inner is not None:
        yield step
        yield from _names(shape.inner, rest, value.get(step) if isinstance(value, dict) else None)
    elif shape.inner is not None and (shape.holds_one or not isinstance(value, list)):
        yield from _names(shape.inner, rest, value[0] if isinstance(value, list) and value else value)
    elif shape.kind == "list" and shape.inner is not None:
        yield step
        inside = isinstance(step, int) and 0 <= step < len(value)
        yield from _names(shape.inner, rest, value[int(step)] if inside else None)
