"""The walker finds the place of a mistake, whatever the schema: sections, entries, lists and forms, one in another."""

import copy
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Discriminator, Field, Tag, create_model

from infra.settings import schema
from infra.settings.environment import SECTIONS
from infra.settings.schema import Keys
from infra.settings.sections import Section
from infra.settings.values import Whole
from tests.infra.settings.forms import Block, Group, Spot, found

# Names of keys, entries and forms are taken from one list, so that any may look like any other.
NAMES = ["a", "b", "kind", "block", "my_key", "list[str]"]
KEYS = ["a", "b", "kind", "block", "my_key"]
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class Sample:
    """A type, with one good value of it."""

    type: Any
    value: Any


class Entries(dict[str, Any]):
    """A mapping by names of one's own, which in a value looks like a section."""


def section(fields: dict[str, Sample]) -> Sample:
    """A section with these fields, all required."""
    kinds: dict[str, Any] = {name: (field.type, ...) for name, field in fields.items()}
    model = create_model(f"Section{next(_NUMBERS)}", __base__=Section, **kinds)
    keys = {name: str(field.alias) for name, field in model.model_fields.items()}
    return Sample(model, {keys[name]: field.value for name, field in fields.items()})


def word(text: str) -> Sample:
    return Sample(Literal[text], text)


def by_function(value: Any) -> str:
    return "block" if isinstance(value, dict) else "kind"


def several(key: str, first: Sample, second: Sample, how: str) -> Sample:
    by_field: Any = Annotated[first.type | second.type, Field(discriminator=key)]
    by_annotation: Any = Annotated[first.type | second.type, Discriminator(key)]
    tagged: Any = Annotated[Literal["word"], Tag("kind")]
    kinds: dict[str, Any] = {
        "field": by_field,
        "annotation": by_annotation,
        "or none": by_field | None,
        "or a word": Literal["word"] | by_annotation,
        "or a number": Whole | by_annotation,
        "by shape": Literal["word"] | first.type | list[str],
        "by function": Annotated[tagged | Annotated[first.type, Tag("block")], Discriminator(by_function)],
    }
    return Sample(kinds[how], first.value)


HOW = ["field", "annotation", "or none", "or a word", "or a number", "by shape", "by function"]
LEAVES = st.sampled_from(
    [Sample(str, "text"), Sample(Whole, 1), Sample(Literal["x", "y"], "x"), Sample(str | None, "t")]
)


def fields(samples: st.SearchStrategy[Sample]) -> st.SearchStrategy[dict[str, Sample]]:
    return st.dictionaries(st.sampled_from(KEYS), samples, min_size=1, max_size=3)


@st.composite
def forms(draw: st.DrawFn, samples: st.SearchStrategy[Sample]) -> Sample:
    """A section that is one of two forms, or is one of two forms of one of two forms."""
    key, words = draw(st.sampled_from(KEYS)), draw(st.permutations(NAMES))
    inner = draw(fields(samples)) | {key: word(words[0])}
    if draw(st.booleans()):
        sub = draw(st.sampled_from([one for one in KEYS if one != key]))
        both = [section(inner | {sub: word(text)}) for text in words[2:4]]
        first = Sample(Annotated[both[0].type | both[1].type, Field(discriminator=sub)], both[0].value)
        how = draw(st.sampled_from([one for one in HOW if not one.startswith("by")]))
    else:
        first, how = section(inner), draw(st.sampled_from(HOW))
    return several(key, first, section(draw(fields(samples)) | {key: word(words[1])}), how)


def wider(samples: st.SearchStrategy[Sample]) -> st.SearchStrategy[Sample]:
    names = st.sampled_from(NAMES)
    return st.one_of(
        fields(samples).map(section),
        forms(samples),
        st.builds(lambda one, name: Sample(dict[str, one.type], Entries({name: one.value})), samples, names),
        st.builds(lambda one: Sample(list[one.type], [one.value, copy.deepcopy(one.value)]), samples),
    )


SECTION_SAMPLES = fields(st.recursive(LEAVES, wider, max_leaves=6)).map(section)


def places(value: Any, path: str = "x") -> Iterator[tuple[str, list[str | int]]]:
    """All that a value has keys or indices for: the path as a message has it, and its parts."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []
    for part, one in inner:
        below = f"{path}[{part}]" if isinstance(part, int) else f"{path}.{part}"
        yield below, [part]
        yield from ((name, [part, *parts]) for name, parts in places(one, below))


def holder(value: Any, parts: list[str | int]) -> Any:
    for part in parts[:-1]:
        value = value[part]
    return value


@given(SECTION_SAMPLES)
def test_a_wrong_value_is_told_once_by_its_path(sample: Sample) -> None:
    assert found(sample.type, sample.value) == []
    for path, parts in places(sample.value):
        value = copy.deepcopy(sample.value)
        holder(value, parts)[parts[-1]] = 1.5

        assert [key for key, _ in found(sample.type, value)] == [path]


@given(SECTION_SAMPLES)
def test_a_missing_key_is_told_by_its_path(sample: Sample) -> None:
    for path, parts in places(sample.value):
        value = copy.deepcopy(sample.value)
        mapping = holder(value, parts)
        if isinstance(mapping, dict):
            del mapping[parts[-1]]
            listed = found(sample.type, value)

            assert [key for key, _ in listed] == ([] if isinstance(mapping, Entries) else [path])
            assert all("is missing" in text for _, text in listed)


@given(SECTION_SAMPLES)
def test_a_wrong_key_is_told_by_its_path_with_the_keys_of_its_own_section(sample: Sample) -> None:
    for path, parts in [("x", []), *places(sample.value)]:
        value = copy.deepcopy(sample.value)
        mapping = holder(value, [*parts, ""])
        if isinstance(mapping, dict) and not isinstance(mapping, Entries):
            known = sorted(mapping)
            mapping["wrong_"] = 1
            ((key, text),) = found(sample.type, value)

            assert key == f"{path}.wrong_"
            said = text.removeprefix("no such key in this version; use ")
            assert sorted(said.replace(" or ", ", ").split(", ")) == known


def test_every_key_of_the_stack_file_is_in_the_schema() -> None:
    for name, field in SECTIONS.items():
        for keys in schema.sections_in(schema.of_field(field)):
            assert [key.field for key in keys.keys.values()] == list(keys.section.model_fields.values()), name


def test_a_key_that_the_schema_does_not_have_has_a_place() -> None:
    place = schema.find(schema.of_section(Group), ("bought", "block", "typo"), {"bought": {"kind": "block"}})

    assert place is not None
    assert (place.path, place.node) == (["bought", "typo"], None)
    assert isinstance(place.holder, Keys)
    assert place.holder.section is Block


@pytest.mark.parametrize("union", [Block | Spot, Block | dict[str, str], list[str] | Literal["all"] | list[int]])
def test_forms_of_one_shape_need_a_discriminator(union: Any) -> None:
    two = create_model("Two", __base__=Section, forms=(union, ...))

    with pytest.raises(TypeError, match="a discriminator must tell them apart"):
        schema.of_section(two)
