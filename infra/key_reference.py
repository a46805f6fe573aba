"""Writes the reference of all stack keys from the settings' own fields: `make docs`."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.settings import PROJECT, AwsSettings, Settings

_INTRO = f"""# Stack files

One file a team and environment: `Pulumi.<team>-<env>.yaml`. A new file here is a new environment, and the tests run it.
`make rehearse STACK=<team>-<env>` plans and deploys it without an account.

All keys, made from `infra/settings.py` by `make docs`; a test holds that this page is what that makes. A key that is
not here is refused, and so is a value that breaks a rule; warnings are shown by `pulumi preview`.

Structured keys are replaced whole by the stack file: nothing is merged with a default but what this table gives.
`pulumi config set --path '{PROJECT}:storage.capacityGib' 9600` stores a number as a number.
"""


def reference() -> str:
    """The page, as Markdown."""
    lines = [_INTRO, "## The provider's own keys", "", *_table(_rows(AwsSettings, "aws:"))]
    for field in Settings.model_fields.values():
        if field.exclude:
            continue
        key = f"{PROJECT}:{field.alias}"
        lines += [f"## `{key}`", ""]
        section = _section(field.annotation)
        entries = get_origin(field.annotation) is dict
        if section is None:
            lines += _table([(key, field.description or "", _values(field), _shown(field, _default(field)))])
        else:
            default = None if field.is_required() else field.default
            rows = _rows(section, f"{key}.{'<name>.' if entries else ''}", default)
            lines += [section.__doc__ or "", "", *_table(rows)]
    return "\n".join(lines).rstrip() + "\n"


def _table(rows: Any) -> list[str]:
    return [
        "| key | what | values | default |",
        "|---|---|---|---|",
        *(f"| `{key}` | {what} | {values} | {default} |" for key, what, values, default in rows),
        "",
    ]


def _rows(section: type[BaseModel], prefix: str, given: Any = None) -> Iterator[tuple[str, str, str, str]]:
    """The rows of a section's keys; `given` is what the section is where the stack file leaves it out."""
    for name, field in section.model_fields.items():
        key = f"{prefix}{field.alias}"
        inner = _section(field.annotation)
        default = getattr(given, name) if isinstance(given, BaseModel) else _default(field)
        if inner is None:
            yield key, field.description or "", _values(field), _shown(field, default)
        else:
            entries = get_origin(field.annotation) is dict
            yield from _rows(inner, f"{key}.{'<name>.' if entries else ''}", default)


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
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def _values(field: FieldInfo) -> str:
    extra = field.json_schema_extra
    if isinstance(extra, dict) and "values" in extra:
        return str(extra["values"])
    bounds = [
        f"{word} {getattr(item, name)}" for item in field.metadata for name, word in _BOUNDS if hasattr(item, name)
    ]
    return " ".join([_kind(field.annotation), *bounds])


_REQUIRED = object()
_BOUNDS = (("ge", "from"), ("le", "to"))


def _kind(annotation: Any) -> str:
    """A type in the words of a stack file."""
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{value}`" for value in args)
    if origin is Annotated:
        return _kind(args[0])
    if origin is list:
        return f"list of {_kind(args[0])}s"
    if origin is dict:
        return "mapping"
    if args:
        return _kind(args[0])
    return {str: "text", int: "whole number", bool: "`true`, `false`"}.get(annotation, "value")


def _section(annotation: Any) -> type[BaseModel] | None:
    """The section behind a type: itself, or what a mapping by name holds."""
    if get_origin(annotation) is Union:
        annotation = get_args(annotation)[0]
    if get_origin(annotation) is dict:
        annotation = get_args(annotation)[1]
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


if __name__ == "__main__":
    print(reference(), end="")
