"""Writes the reference of all stack keys from the settings' own fields: `make docs`."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.settings import schema
from infra.settings.environment import SECTIONS
from infra.settings.findings import PROJECT, stack_key
from infra.settings.schema import Branches, Entries, Items, Key, Keys, Node, Value

_INTRO = f"""# Stack files

One file a team and environment: `Pulumi.<team>-<env>.yaml`. A new file here is a new environment, and the tests run it.
`make rehearse STACK=<team>-<env>` plans and deploys it without an account.

All keys, made from `infra/settings/` by `make docs`; a test holds that this page is what that makes. A key that is
not here is refused, and so is a value that breaks a rule; warnings are shown by `pulumi preview`.

Structured keys are replaced whole by the stack file: nothing is merged with a default but what this table gives.
`pulumi config set --path '{PROJECT}:storage.capacityGib' 9600` stores a number as a number.
"""


_REQUIRED = object()
_BOUNDS = (("ge", "from"), ("le", "to"))


class Row(NamedTuple):
    """A key of the reference: where it stands, what it is, what it takes, and what it is where it is left out."""

    key: str
    what: str
    values: str
    default: str


class Chapter(NamedTuple):
    """A section of the reference, with a row for each key."""

    heading: str
    text: str
    rows: list[Row]


def reference() -> str:
    """The page, as Markdown."""
    lines = [_INTRO]
    for heading, text, rows in chapters():
        lines += [f"## {heading}", "", *([text, ""] if text else [])]
        lines += ["| key | what | values | default |", "|---|---|---|---|"]
        lines += [f"| `{row.key}` | {row.what} | {row.values} | {row.default} |" for row in rows]
        lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def chapters() -> Iterator[Chapter]:
    """All keys that a stack file may have, by section."""
    for name, field in SECTIONS.items():
        node = schema.of_field(field)
        if name == "aws" and isinstance(node, Keys):
            yield Chapter("The provider's own keys", "", list(section_rows(node, "aws:")))
            continue
        sections = list(schema.sections_in(node))
        text = sections[0].section.__doc__ or "" if len(sections) == 1 else ""
        key = stack_key(str(field.alias))
        yield Chapter(f"`{key}`", text, list(_rows(key, Key(name, field, node), node, _default(field))))


def section_rows(
    keys: Keys, prefix: str, given: Any = None, *, skipped: frozenset[str] = frozenset(), form: str = ""
) -> Iterator[Row]:
    """The rows of a section's keys.

    Args:
        keys: The section's schema.
        prefix: What stands before each key.
        given: What the section is where the stack file leaves it out.
        skipped: Keys that have a row already.
        form: The form of a value that has these keys, in words, where it may have others.
    """
    for alias, key in keys.keys.items():
        if alias not in skipped:
            default = getattr(given, key.name) if isinstance(given, keys.section) else _default(key.field)
            for row in _rows(f"{prefix}{alias}", key, key.node, default):
                yield row._replace(what=f"{form}{row.what}")


def _rows(place: str, key: Key, node: Node, default: Any) -> Iterator[Row]:
    """The rows of what stands at a place: the key's own row, or those of the section there."""
    has_keys = any(schema.sections_in(node))
    match node:
        case Keys():
            yield from section_rows(node, f"{place}.", default)
        case Entries(value=inner) if has_keys:
            yield from _rows(f"{place}.<name>", key, inner, default)
        case Items(item=inner) if has_keys:
            yield from _rows(f"{place}[]", key, inner, default)
        case _:
            yield Row(place, key.field.description or "", _values(key.field, node), _shown(key.field, default))
    if isinstance(node, Branches) and has_keys:
        yield from _branch_rows(place, node, default, frozenset())


def _branch_rows(place: str, union: Branches, default: Any, skipped: frozenset[str], form: str = "") -> Iterator[Row]:
    """The rows of the keys that a value has in each of its forms."""
    key = union.discriminator
    if key:
        what = next(schema.sections_in(union)).keys[key].field.description or "Which of the forms below."
        yield Row(f"{place}.{key}", f"{form}{what}", _words(union.labels), "required")
        skipped |= {key}
    for branch in union.branches:
        named = f"{form}With `{key}` {_words(branch.labels)}: " if key else form
        match branch.node:
            case Keys():
                yield from section_rows(branch.node, f"{place}.", default, skipped=skipped, form=named)
            case Entries(value=Keys() as inner):
                yield from section_rows(inner, f"{place}.<name>.", form=named)
            case Items(item=Keys() as inner):
                yield from section_rows(inner, f"{place}[].", form=named)
            case Branches():
                yield from _branch_rows(place, branch.node, default, skipped, named)


def _default(field: FieldInfo) -> Any:
    return _REQUIRED if field.is_required() else field.default


def _shown(field: FieldInfo, default: Any) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "default" in extra:
        return str(extra["default"])
    if default is _REQUIRED:
        return "required"
    if default in (None, [], {}):
        return "-"
    if isinstance(default, BaseModel):
        return "see below"
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _values(field: FieldInfo, node: Node) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "values" in extra:
        return str(extra["values"])
    bounds = [
        f"{word} {getattr(item, name)}" for item in field.metadata for name, word in _BOUNDS if hasattr(item, name)
    ]
    return " ".join([_kind(node), *bounds])


def _kind(node: Node) -> str:
    """What stands at a place, in the words of a stack file."""
    match node:
        case Value(type=kind) if get_origin(kind) is Literal:
            return _words(get_args(kind))
        case Value(type=kind):
            return {str: "text", int: "whole number", bool: "`true`, `false`"}.get(kind, "value")
        case Items(item=item):
            return f"list of {_kind(item)}s"
        case Branches(discriminator=None):
            return ", ".join(dict.fromkeys(_kind(branch.node) for branch in node.branches))
        case Branches(discriminator=key):
            return f"mapping by `{key}`"
        case _:
            return "mapping"


def _words(values: Iterable[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values)


if __name__ == "__main__":
    print(reference(), end="")
