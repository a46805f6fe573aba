"""The schema of the stack file as a tree, read from pydantic's models: messages and the key reference walk it.

pydantic tells the place of a mistake by a `loc`, which holds more than the stack file does: where a value may have one
of several forms, the form that pydantic tried. `find` leaves that out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin

from pydantic import BaseModel, Discriminator, Tag, TypeAdapter
from pydantic.fields import FieldInfo


@dataclass(frozen=True)
class Value:
    """A value without keys: a text, a number, a switch, a word of several; `type` is its bare Python type."""

    type: Any


@dataclass(frozen=True)
class Key:
    """A key of a section: pydantic's field, its name in Python, and what stands behind it."""

    name: str
    field: FieldInfo
    node: "Node"


@dataclass(frozen=True)
class Keys:
    """A mapping with fixed keys: a section, and its keys as the stack file spells them."""

    section: type[BaseModel]
    keys: Mapping[str, Key]


@dataclass(frozen=True)
class Entries:
    """A mapping by names that the stack file gives, with the same behind each."""

    value: "Node"


@dataclass(frozen=True)
class Items:
    """A list."""

    item: "Node"


@dataclass(frozen=True)
class Branch:
    """One form of a value.

    Attributes:
        labels: What `loc` can hold for it: the discriminator's values, its tag, or pydantic's name of it.
        node: What stands there in this form.
    """

    labels: Sequence[Any]
    node: "Node"


@dataclass(frozen=True)
class Branches:
    """A value in one of several forms.

    Attributes:
        branches: The forms.
        discriminator: The key whose value decides the form; None where a function or the value's shape does.
        tried: Whether pydantic tries all forms, and reports the mistakes of each.
    """

    branches: Sequence[Branch]
    discriminator: str | None = None
    tried: bool = False

    @property
    def labels(self) -> list[Any]:
        """The labels of all forms."""
        return [label for branch in self.branches for label in branch.labels]

    def fitting(self, value: Any) -> list[Branch]:
        """The forms that are of the value's shape."""
        return [branch for branch in self.branches if _shape(value) in _shapes(branch.node)]


Node: TypeAlias = Value | Keys | Entries | Items | Branches


@dataclass(frozen=True, kw_only=True)
class Place:
    """What a `loc` means.

    Attributes:
        path: Keys, names and list indices, as in the stack file.
        node: What the schema has there; None for a key that it does not have.
        holder: What has the last key of the path.
        union: Where `loc` ends in a form of a value: the value's forms.
    """

    path: list[str | int]
    node: Node | None
    holder: Node | None
    union: Branches | None


def of_section(section: type[BaseModel]) -> Keys:
    """The schema of a section."""
    fields = section.model_fields.items()
    return Keys(section, {field.alias or name: Key(name, field, of_field(field)) for name, field in fields})


def of_field(field: FieldInfo) -> Node:
    """The schema of what stands behind a field's key.

    Raises:
        TypeError: Mistakes in a union could not be told from each other: two of its forms have the same shape, and no
            discriminator decides.
    """
    return _node(field.annotation, [field, *field.metadata])


def find(root: Node, loc: Sequence[str | int], value: Any) -> Place | None:
    """Finds the place of a mistake.

    Args:
        root: The schema of what pydantic was given.
        loc: The place as pydantic tells it.
        value: What pydantic was given.

    Returns:
        The place; None where pydantic tried a form that the value does not have, beside one of its shape.
    """
    path: list[str | int] = []
    node, holder, union = root, None, None
    for part in loc:
        if part == "[key]" and isinstance(holder, Entries):  # pydantic's mark for the name itself
            continue
        if isinstance(node, Branches):
            branch = next((one for one in node.branches if part in one.labels), None)
            if node.tried and (fitting := node.fitting(value)) and branch not in fitting:
                return None
            node, union = branch and branch.node, node
        else:
            node, holder, union = _below(node, part), node, None
            path.append(part)
            value = _value_below(value, part)
    return Place(path=path, node=node, holder=holder, union=union)


def sections_in(node: Node) -> Iterator[Keys]:
    """The sections that stand at a place, or at each name or index there."""
    match node:
        case Keys():
            yield node
        case Entries(value=inner) | Items(item=inner):
            yield from sections_in(inner)
        case Branches():
            for branch in node.branches:
                yield from sections_in(branch.node)


def _node(annotation: Any, metadata: Sequence[Any] = ()) -> Node:
    annotation, metadata = _bare(annotation, metadata)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return _branches(arguments, metadata)
    if origin is dict:
        return Entries(_node(arguments[1]))
    if origin is list:
        return Items(_node(arguments[0]))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return of_section(annotation)
    return Value(annotation)


def _bare(annotation: Any, metadata: Sequence[Any] = ()) -> tuple[Any, Sequence[Any]]:
    """A type without what `Annotated` and `None` add to it, and all that `Annotated` added."""
    while True:
        arguments = get_args(annotation)
        present = [one for one in arguments if one is not NoneType]
        if get_origin(annotation) is Annotated:
            annotation, metadata = arguments[0], [*metadata, *arguments[1:]]
        elif get_origin(annotation) in (Union, UnionType) and len(present) == 1:
            annotation = present[0]
        else:
            return annotation, metadata


def _branches(annotations: Sequence[Any], metadata: Sequence[Any]) -> Branches:
    annotations = [one for one in annotations if one is not NoneType]
    given = [one.discriminator for one in metadata if isinstance(one, (FieldInfo, Discriminator))]
    discriminator = next((one for one in given if one is not None), None)
    if isinstance(discriminator, Discriminator):
        discriminator = discriminator.discriminator
    if isinstance(discriminator, str):
        return Branches(
            [Branch(list(_field_of(one, discriminator)[1]), _node(one)) for one in annotations],
            discriminator=_field_of(annotations[0], discriminator)[0],
        )
    if discriminator:
        return Branches([Branch(_tags(one), _node(one)) for one in annotations])
    union = Branches([Branch([TypeAdapter(one).validator.title], _node(one)) for one in annotations], tried=True)
    for shape in ("mapping", "list"):
        if sum(shape in _shapes(branch.node) for branch in union.branches) > 1:
            raise TypeError(f"{_one_line(annotations)} are each a {shape}; a discriminator must tell them apart")
    return union


def _field_of(annotation: Any, name: str) -> tuple[str, list[Any]]:
    """The key of a section's field, or of a union's sections, and the values that its `Literal` takes."""
    annotation, _ = _bare(annotation)
    if get_origin(annotation) in (Union, UnionType):
        found = [_field_of(one, name) for one in get_args(annotation)]
        return found[0][0], list(dict.fromkeys(value for _, values in found for value in values))
    field = annotation.model_fields[name]
    return field.alias or name, list(get_args(_bare(field.annotation)[0]))


def _tags(annotation: Any) -> list[str]:
    return [one.tag for one in _bare(annotation)[1] if isinstance(one, Tag)]


def _one_line(annotations: Sequence[Any]) -> str:
    return " and ".join(getattr(one, "__name__", str(one)) for one in annotations)


def _below(node: Node | None, part: str | int) -> Node | None:
    match node:
        case Keys():
            return node.keys[str(part)].node if part in node.keys else None
        case Entries():
            return node.value
        case Items():
            return node.item
    return None


def _value_below(value: Any, part: str | int) -> Any:
    try:
        return value[part]
    except (LookupError, TypeError):
        return None


def _shape(value: Any) -> str:
    return "mapping" if isinstance(value, Mapping) else "list" if isinstance(value, list) else "value"


def _shapes(node: Node) -> set[str]:
    match node:
        case Branches():
            return {shape for branch in node.branches for shape in _shapes(branch.node)}
        case Keys() | Entries():
            return {"mapping"}
        case Items():
            return {"list"}
        case Value():
            return {"value"}
