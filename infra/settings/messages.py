"""What pydantic finds in a section, in words for the person who wrote the stack file."""

import difflib
from collections.abc import Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from infra.settings.findings import Finding, one_of, shown
from infra.settings.sections.nodes import NodeGroupSettings

_PLACES = ("zone", "zones", "dataZone", "availabilityZone", "subnetId", "subnetIds")


def finding(detail: ErrorDetails, prefix: str, annotation: Any) -> Finding:
    """A mistake that pydantic found, in words for the person who wrote the stack file."""
    where = [part for part in detail["loc"] if part != "[key]"]
    context = detail.get("ctx", {})
    given = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            text = no_such_key(str(where[-1]), _keys(annotation, where[:-1]))
            if _section_at(annotation, where[:-1]) is NodeGroupSettings and where[-1] in _PLACES:
                text = "GPU nodes always stand in network.dataZone, where Lustre is; leave it out"
        case "missing":
            text = f"is missing: {_description(annotation, where)}"
        case "literal_error":
            text = f"{shown(given)} is not accepted; use {context['expected']}".replace("'", '"')
        case "string_type":
            quotes = "; put it in quotes" if isinstance(given, (int, float)) else ""
            text = f"a text is wanted, not {shown(given)}{quotes}"
        case "int_type" | "int_parsing" | "int_from_float":
            text = f"a whole number is wanted, not {shown(given)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            keys = _keys(annotation, where)
            text = f"a mapping is wanted, not {shown(given)}" + (f"; keys: {', '.join(keys)}" if keys else "")
        case "list_type":
            text = f"a list is wanted, not {shown(given)}"
        case "greater_than_equal":
            text = f"{given} is too small; use {context['ge']} or more"
        case "less_than_equal":
            text = f"{given} is too large; use {context['le']} or less"
        case "faststart":
            text = context["text"]
            where += [context["field"]] if context["field"] else []
        case _:
            text = f"{detail['msg']} (given: {shown(given)})"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return Finding(f"aws:{path[1:]}" if prefix == "aws" else f"{prefix}{path}", text)


def _section_at(annotation: Any, where: list[Any]) -> type[BaseModel] | None:
    """The section that stands at a path below `annotation`; None where the path ends in a plain value."""
    for part in [*where, None]:
        if get_origin(annotation) in (Annotated, Union, UnionType):
            annotation = get_args(annotation)[0]
        if part is None:
            break
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {field.alias: field.annotation for field in annotation.model_fields.values()}
            annotation = fields.get(part)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _keys(annotation: Any, where: list[Any]) -> list[str]:
    section = _section_at(annotation, where)
    return [str(field.alias) for field in section.model_fields.values()] if section else []


def _description(annotation: Any, where: list[Any]) -> str:
    section = _section_at(annotation, where[:-1])
    fields = section.model_fields.values() if section else ()
    return next((field.description or "" for field in fields if field.alias == where[-1]), "")


def no_such_key(key: str, known: Sequence[str]) -> str:
    """Says that a key is not accepted, with the nearest one and all that are."""
    near = difflib.get_close_matches(key, known, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no such key in this version{meant}; use {one_of(known)}"
