"""Values of a resource before and after a change, as Terraform's core handles them."""

from collections.abc import Iterator
from typing import Any

from lab.provider.mapping import Path
from lab.provider.protocol import UNKNOWN
from lab.provider.shape import Shape

_NEUTRAL = {"string": "", "number": 0, "bool": False, "map": {}, "list": [], "set": []}


def proposed(shape: Shape, prior: Any, config: Any) -> Any:
    """What a resource would become if the provider changed nothing of it.

    Computed attributes that the configuration leaves out keep their values, inside blocks too (Terraform's
    internal/plans/objchange, ProposedNew).
    """
    if config is UNKNOWN or config is None:
        return config
    if shape.kind == "object":
        before = prior if isinstance(prior, dict) else {}
        return {
            name: proposed(inner, before.get(name), config[name])
            if inner.is_block
            else before.get(name)
            if inner.computed and config[name] is None
            else config[name]
            for name, inner in shape.fields.items()
        }
    assert shape.inner is not None
    if isinstance(config, dict):
        before = prior if isinstance(prior, dict) else {}
        return {key: proposed(shape.inner, before.get(key), one) for key, one in config.items()}
    left = list(prior) if isinstance(prior, list) else []
    if shape.kind == "list":
        left += [None] * (len(config) - len(left))
        return [proposed(shape.inner, *two) for two in zip(left, config, strict=False)]
    result = []
    for one in config:
        found = next((index for index, other in enumerate(left) if _fits(shape.inner, other, one)), None)
        result.append(proposed(shape.inner, None if found is None else left.pop(found), one))
    return result


def _fits(shape: Shape, prior: Any, config: Any) -> bool:
    """Whether an element of a set may be the same as one that is configured: it differs in computed values alone."""
    if shape.kind != "object" or not isinstance(prior, dict) or not isinstance(config, dict):
        return same(shape, prior, config)
    return all(
        (inner.computed and config[name] is None) or same(inner, prior.get(name), config[name])
        for name, inner in shape.fields.items()
    )


def settled(shape: Shape, planned: Any, known: Any) -> Any:
    """The state of a resource that exists.

    Args:
        shape: of its type.
        planned: what the provider planned for it, with the defaults that it adds.
        known: what is known of it; this holds where the two differ.

    Returns:
        A value without unknowns: what nobody knows has its type's neutral value.
    """
    if shape.kind == "object" and isinstance(planned, dict):
        after = known if isinstance(known, dict) else {}
        return {name: settled(inner, planned.get(name), after.get(name)) for name, inner in shape.fields.items()}
    if shape.inner is not None and isinstance(planned, list) and shape.kind == "list" and not _is_empty(known):
        before = planned if len(planned) == len(known) else [None] * len(known)
        return [settled(shape.inner, *two) for two in zip(before, known, strict=True)]
    if not _is_empty(known):
        return known
    if planned is UNKNOWN:
        return _NEUTRAL.get(shape.kind) if known is None else known
    if isinstance(planned, list) and shape.inner is not None:
        return [settled(shape.inner, one, None) for one in planned]
    if isinstance(planned, dict) and shape.inner is not None:
        return {key: settled(shape.inner, one, None) for key, one in planned.items()}
    return planned


def differences(shape: Shape, before: Any, after: Any, path: Path = ()) -> Iterator[Path]:
    """Where two values of a resource differ, as deep as it can be said: not inside sets of several."""
    if same(shape, before, after):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for name in {**before, **after}:
            inner = shape.fields.get(name) or shape.inner
            assert inner is not None
            yield from differences(inner, before.get(name), after.get(name), (*path, name))
    elif (
        shape.inner is not None
        and (shape.kind == "list" or shape.holds_one)
        and isinstance(before, list)
        and isinstance(after, list)
        and before
        and after
    ):
        for index in range(max(len(before), len(after))):
            was, now = (side[index] if index < len(side) else None for side in (before, after))
            yield from differences(shape.inner, was, now, (*path, index))
    else:
        yield path


def same(shape: Shape, one: Any, other: Any) -> bool:
    """Whether two values are the same to a person: none and empty are, and so are sets in any order."""
    if one is UNKNOWN or other is UNKNOWN:
        return one is other
    if _is_empty(one) and _is_empty(other):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        inners = {name: shape.fields.get(name) or shape.inner for name in {**one, **other}}
        return all(inner and same(inner, one.get(name), other.get(name)) for name, inner in inners.items())
    if isinstance(one, list) and isinstance(other, list) and shape.inner is not None:
        if len(one) != len(other):
            return False
        if shape.kind == "list":
            return all(same(shape.inner, *two) for two in zip(one, other, strict=True))
        left = list(other)
        for item in one:
            found = next((index for index, two in enumerate(left) if same(shape.inner, item, two)), None)
            if found is None:
                return False
            del left[found]
        return True
    return one == other


def _is_empty(value: Any) -> bool:
    return value is None or value in ("", [], {})


def is_zero(value: Any) -> bool:
    """Whether it is what a type has where nobody gives a value."""
    return _is_empty(value) or value is False or (value == 0 and not isinstance(value, bool))


def at(value: Any, path: Path) -> Any:
    """The value at a path; None where there is none."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return value if value is UNKNOWN else None
    return value
