"""A provider's schema of a resource as one tree of shapes, for attributes and nested blocks alike."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

_NESTINGS = {1: "object", 2: "list", 3: "set", 4: "map", 5: "object"}  # Schema.NestedBlock.NestingMode


@dataclass(frozen=True)
class Shape:
    """What a value looks like.

    Attributes:
        kind: `string`, `number`, `bool`, `dynamic`, `list`, `set`, `map` or `object`.
        inner: the elements' shape, of a list, set or map.
        fields: of an object, by name.
        is_block: a nested block: where there is none, the list is empty and not null.
        holds_one: a list or set of at most one element. Only blocks say so.
        computed: the provider gives it a value where the configuration has none.
        configurable: the configuration may have it.
    """

    kind: str
    inner: "Shape | None" = None
    fields: Mapping[str, "Shape"] = field(default_factory=dict)
    is_block: bool = False
    holds_one: bool = False
    computed: bool = False
    configurable: bool = True

    @property
    def absent(self) -> Any:
        """The value where there is none."""
        return None if not self.is_block or self.kind == "object" else {} if self.kind == "map" else []


def of_block(block: Any) -> Shape:
    """The shape of a message `Schema.Block`."""
    fields = {
        one.name: replace(
            _of_type(json.loads(one.type)), computed=one.computed, configurable=one.optional or one.required
        )
        for one in block.attributes
    }
    for nested in block.block_types:
        inner = of_block(nested.block)
        kind = _NESTINGS[nested.nesting]
        fields[nested.type_name] = (
            replace(inner, is_block=True)
            if kind == "object"
            else Shape(kind, inner, is_block=True, holds_one=nested.max_items == 1)
        )
    return Shape("object", fields=fields)


def _of_type(found: Any) -> Shape:
    """The shape of an attribute's type, as Terraform writes it: `"string"`, `["list", "string"]`."""
    if isinstance(found, str):
        return Shape(found)
    kind, inner = found[0], found[1]
    if kind == "object":
        return Shape(kind, fields={name: _of_type(one) for name, one in inner.items()})
    return Shape(kind, _of_type(inner))
