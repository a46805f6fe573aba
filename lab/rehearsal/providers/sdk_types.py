"""Checks inputs against the types of the installed Pulumi SDKs.

Each Args class of an SDK says which properties exist on the wire, of what type, and which are required. So inputs can
be checked as deep as they go, exactly for the pinned versions and without any schema file: misspelled, missing and
mistyped properties, and members of enums. The engine itself checks none of that, and Python lets a wrong key in a
nested dictionary pass in silence.

    >>> problems("aws:ec2/vpc:Vpc", {"cidrBlok": "10.0.0.0/16"})
    ['cidrBlok: no such property of VpcArgs; did you mean cidrBlock?']
"""

import collections.abc
import difflib
import enum
import functools
import importlib
import inspect
import sys
import threading
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pulumi
from pulumi import _types
from pulumi.runtime.rpc import get_resource_module

from lab.rehearsal.providers.wire import RESOURCE, SIG, UNKNOWN, Path, path_text, plain

_importing = threading.Lock()  # the SDKs import their modules lazily; the server asks from several threads
_NUMBERS = (int, float)


@dataclass(frozen=True)
class Problem:
    """One mistake in the inputs of one resource."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{path_text(self.path)}: {self.reason}"


def problems(token: str, inputs: dict[str, Any]) -> list[str]:
    """Every mistake in `inputs` (wire names) of a resource or component, as `path: reason`.

    Args:
        token: The resource's type, for example `aws:fsx/lustreFileSystem:LustreFileSystem`.
        inputs: Its inputs in wire form; unknown values and resource references pass.

    Returns:
        One line a mistake. Empty for a type that no installed SDK knows, such as a Kubernetes custom resource.
    """
    return [str(problem) for problem in find(token, inputs)]


def find(token: str, inputs: dict[str, Any]) -> list[Problem]:
    """Like `problems`, with the path apart from the reason."""
    args = args_class(token)
    return list(_check(plain(inputs), args, ())) if args else []


def config_problems(package: str, config: dict[str, Any]) -> list[Problem]:
    """Every mistake in the decoded configuration of a provider (`pulumi:providers:NAME`)."""
    provider = importlib.import_module(f"pulumi_{package}").Provider
    return list(_check(plain(config), sys.modules[provider.__module__].ProviderArgs, ()))


def config_types(package: str) -> dict[str, Any]:
    """Wire name and type of each configuration value of a provider."""
    provider = importlib.import_module(f"pulumi_{package}").Provider
    return _types._types_from_py_properties(sys.modules[provider.__module__].ProviderArgs)  # noqa: SLF001


@functools.cache
def resource_class(token: str) -> type | None:
    """The SDK's class for a type token, None where no installed SDK has one."""
    package, module, _ = token.split(":")
    with _importing:
        try:
            importlib.import_module(f"pulumi_{package}")
        except ModuleNotFoundError:
            return None
        # a Module of the generated SDKs, which tells more than the base class that the function names
        found: Any = get_resource_module(package, module, "")
        if found is None or token not in found.mod_info["classes"]:
            return None
        return getattr(importlib.import_module(found.mod_info["fqn"]), found.mod_info["classes"][token])


@functools.cache
def args_class(token: str) -> type | None:
    """The class that lists the inputs of a type: `XArgs`, or `XInitArgs` where a nested type has that name."""
    cls = resource_class(token)
    if cls is None:
        return None
    module = sys.modules[cls.__module__]
    found = getattr(module, f"{cls.__name__}Args", None) or getattr(module, f"{cls.__name__}InitArgs", None)
    return found if found is not None and _types.is_input_type(found) else None


def input_names(token: str) -> dict[str, bool]:
    """Wire name of each input of a type, and whether it is required."""
    args = args_class(token)
    return {name: required for name, (_, required) in _fields(args).items()} if args else {}


def output_names(token: str) -> set[str]:
    """Wire names of all that a resource of this type gives out, its inputs among them."""
    cls = resource_class(token)
    return set(_types.resource_types(cls)) - {"urn", "id"} if cls else set()


@functools.cache
def _fields(args: type) -> dict[str, tuple[Any, bool]]:
    """Wire name → (type, whether it is required) of an Args class."""
    # Private, and the only place where an SDK says this; the pin of `pulumi` and our tests hold it.
    if _types.is_output_type(args):
        return {name: (typ, False) for name, typ in _types.output_type_types(args).items()}
    required = _types._required_property_names(args)  # noqa: SLF001
    types = _types._types_from_py_properties(args)  # noqa: SLF001
    return {name: (typ, name in required) for name, typ in types.items()}


def _check(value: Any, typ: Any, path: Path) -> Iterator[Problem]:
    """Compares one plain value with one type, and goes down into both."""
    typ = _types.unwrap_type(typ) if typ is not None else None
    if value is None or typ is None or typ is Any or (isinstance(value, str) and UNKNOWN in value):
        return
    origin, members = typing.get_origin(typ), typing.get_args(typ)
    if typing.get_origin(typ) in (typing.Union, getattr(sys.modules["types"], "UnionType", None)):
        yield from _check_union(value, members, path)
    elif origin in (list, collections.abc.Sequence):
        if isinstance(value, list):
            for index, item in enumerate(value):
                yield from _check(item, members[0], (*path, index))
        else:
            yield _wanted("a list", value, path)
    elif origin in (dict, collections.abc.Mapping):
        if isinstance(value, dict):
            for key, item in value.items():
                yield from _check(item, members[1], (*path, key))
        else:
            yield _wanted("a mapping", value, path)
    elif inspect.isclass(typ):
        yield from _check_class(value, typ, path)


def _check_union(value: Any, members: tuple[Any, ...], path: Path) -> Iterator[Problem]:
    """A value must fit one of the members; the complaint is that of the nearest one."""
    kinds = [
        member
        for member in members
        if member is not type(None)
        and not typing.is_typeddict(member)
        and member is not pulumi.Output
        and typing.get_origin(member) not in (pulumi.Output, collections.abc.Awaitable)
        and not isinstance(member, typing.ForwardRef)
    ]
    objects = [kind for kind in kinds if inspect.isclass(kind) and _types.is_input_type(kind)]
    if isinstance(value, dict) and len(objects) == 1:
        kinds = objects  # `Input[XArgs]` carries a plain dict beside XArgs: the latter knows the keys
    tried = [list(_check(value, kind, path)) for kind in kinds]
    if tried:
        yield from min(tried, key=len)


def _check_class(value: Any, typ: type, path: Path) -> Iterator[Problem]:
    if _types.is_input_type(typ) or _types.is_output_type(typ):
        if not isinstance(value, dict):
            yield _wanted("an object", value, path)
            return
        known = _fields(typ)
        for key, item in value.items():
            if key in known:
                yield from _check(item, known[key][0], (*path, key))
            elif not key.startswith("__"):
                near = difflib.get_close_matches(key, known, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                yield Problem((*path, key), f"no such property of {typ.__name__}{hint}")
        for key, (_, required) in known.items():
            if required and value.get(key) is None:
                yield Problem((*path, key), f"required by {typ.__name__}, and missing")
    elif issubclass(typ, enum.Enum):
        accepted = [member.value for member in typ]
        if value not in accepted:
            yield Problem(path, f"{value!r} is not one of {', '.join(map(str, accepted))}")
    elif issubclass(typ, pulumi.Resource):
        if not (isinstance(value, dict) and value.get(SIG) == RESOURCE):
            yield _wanted(f"a resource ({typ.__name__})", value, path)
    elif typ is bool:
        if not isinstance(value, bool):
            yield _wanted("true or false", value, path)
    elif typ in _NUMBERS:
        if isinstance(value, bool) or not isinstance(value, _NUMBERS):
            yield _wanted("a number", value, path)
        elif typ is int and value != int(value):
            yield _wanted("a whole number", value, path)
    elif typ is str and not isinstance(value, str):
        yield _wanted("a string", value, path)


def _wanted(kind: str, value: Any, path: Path) -> Problem:
    shown = repr(value)
    return Problem(path, f"{kind} is wanted, not {shown[:60]}{'...' if len(shown) > 60 else ''}")
