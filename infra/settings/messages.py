"""What pydantic finds in a section, in words for the person who wrote the stack file."""

import difflib
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from infra.settings import schema
from infra.settings.findings import Finding, one_of, shown
from infra.settings.schema import Branches, Entries, Items, Keys, Node, Place, Value
from infra.settings.sections import Section


def findings(error: ValidationError, prefix: str, root: Node, value: Any) -> list[Finding]:
    """Words the mistakes of a section.

    Args:
        error: What pydantic raised.
        prefix: The section's key: `faststart:network`, or `aws` for the provider's own keys.
        root: The section's schema.
        value: The section as the stack file has it.

    Returns:
        A finding for each mistake, by its key.
    """
    details = error.errors(include_url=False)
    placed = [(detail, schema.find(root, detail["loc"], value)) for detail in details]
    # Where a value has none of a key's forms, pydantic tells so once for each form.
    return list(dict.fromkeys(_finding(detail, place, prefix) for detail, place in placed if place))


def no_such_key(key: str, known: Sequence[str]) -> str:
    """Says that a key is not accepted, with the nearest one and all that are."""
    near = difflib.get_close_matches(key, known, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no such key in this version{meant}; use {one_of(known)}"


def _finding(detail: ErrorDetails, place: Place, prefix: str) -> Finding:
    where, context = [*place.path], detail.get("ctx", {})
    if detail["type"] in ("union_tag_invalid", "union_tag_not_found") and isinstance(place.node, Branches):
        text = _no_such_form(detail["input"], place.node)
        where += [place.node.discriminator] if place.node.discriminator else []
    elif place.union and not _has_words_of_its_own(detail, place.union):
        text = f"{shown(detail['input'])} is not accepted; use {one_of(_accepted(place.union))}"
    elif detail["type"] == "faststart":
        text = context["text"]
        where += [context["field"]] if context["field"] else []
    else:
        text = _text(detail, place)
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return Finding(f"aws:{path[1:]}" if prefix == "aws" else f"{prefix}{path}", text)


def _text(detail: ErrorDetails, place: Place) -> str:
    context, given = detail.get("ctx", {}), detail["input"]
    match detail["type"], place.holder:
        case "extra_forbidden", Keys(section, keys):
            key = str(place.path[-1])
            misplaced = section.misplaced_keys if issubclass(section, Section) else {}
            return misplaced.get(key) or no_such_key(key, list(keys))
        case "missing", Keys(keys=keys):
            return f"is missing: {keys[str(place.path[-1])].field.description or ''}"
        case "literal_error", _:
            return f"{shown(given)} is not accepted; use {context['expected']}".replace("'", '"')
        case "string_type", _:
            quotes = "; put it in quotes" if isinstance(given, (int, float)) else ""
            return f"a text is wanted, not {shown(given)}{quotes}"
        case (("int_type" | "int_parsing" | "int_from_float"), _):
            return f"a whole number is wanted, not {shown(given)}"
        case (("model_type" | "model_attributes_type" | "dict_type"), _):
            return f"a mapping is wanted, not {shown(given)}{_keys_of(place.node)}"
        case "list_type", _:
            return f"a list is wanted, not {shown(given)}"
        case "greater_than_equal", _:
            return f"{given} is too small; use {context['ge']} or more"
        case "less_than_equal", _:
            return f"{given} is too large; use {context['le']} or less"
    return f"{detail['msg']} (given: {shown(given)})"


def _keys_of(node: Node | None) -> str:
    match node:
        case Keys(keys=keys):
            return f"; keys: {', '.join(keys)}"
        case Branches():
            return f"; use {one_of(_accepted(node))}"
    return ""


def _has_words_of_its_own(detail: ErrorDetails, union: Branches) -> bool:
    """Whether a mistake is of the only form that the value may have, and says more than that it has not this form."""
    shaped = isinstance(detail["input"], (Mapping, list))
    return len(union.fitting(detail["input"])) == 1 and (shaped or detail["type"] == "faststart")


def _no_such_form(given: Any, union: Branches) -> str:
    key = union.discriminator
    if key is None:
        return f"{shown(given)} is not accepted; use {one_of(_accepted(union))}"
    use = one_of([shown(label) for label in union.labels])
    return f"{shown(given[key])} is not accepted; use {use}" if key in given else f"is missing; use {use}"


def _accepted(node: Node) -> list[str]:
    """What may stand at a place, in words."""
    match node:
        case Value(type=kind) if get_origin(kind) is Literal:
            return [shown(word) for word in get_args(kind)]
        case Value(type=kind):
            return {str: ["a text"], int: ["a whole number"], bool: ["true", "false"]}.get(kind, ["a value"])
        case Items():
            return ["a list"]
        case Entries():
            return ["a mapping"]
        case Keys(keys=keys):
            return [f"a mapping with the keys {', '.join(keys)}"]
        case Branches(discriminator=None):
            return [word for branch in node.branches for word in _accepted(branch.node)]
        case Branches(discriminator=key):
            return [f"a mapping with {key}: {one_of([shown(label) for label in node.labels])}"]
