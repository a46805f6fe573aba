"""Safetensors files by their headers: 8 bytes of length, JSON of that length, then the tensors' bytes."""

from __future__ import annotations

import contextlib
import math
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from modelfolder.source import SourceFile, open_regular
from podkit import documents, lines
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

SUFFIX = b".safetensors"

MAX_HEADER = 100_000_000
"""The most bytes a header may have: the limit of the safetensors library."""

_MAX_NUMBER = 1 << 64
"""The safetensors library counts in 64 bits, and refuses what does not fit."""

_LARGE_HEADER = 1 << 20  # bytes

_METADATA = "__metadata__"
_MAX_DEPTH = 127  # of objects and lists in each other: serde_json 1.0 has a limit of 128 (src/de.rs: remaining_depth)
_FIELDS = ("dtype", "shape", "data_offsets")

_large = threading.Lock()
"""Held while a large header is in memory, so that many threads do not have one each."""

_BITS = {
    **dict.fromkeys(("F4",), 4),
    **dict.fromkeys(("F6_E2M3", "F6_E3M2"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}
"""Bits of an element of each type that safetensors 0.8 knows (src/tensor.rs: Dtype)."""


@dataclass(frozen=True)
class Tensors:
    """What a safetensors file holds.

    Attributes:
        names: of its tensors.
        elements: numbers in all of them.
        tensor_bytes: bytes in all of them.
        dtypes: their types, such as BF16.
    """

    names: frozenset[str]
    elements: int
    tensor_bytes: int
    dtypes: frozenset[str]

    @property
    def unknown(self) -> frozenset[str]:
        """Return the types that safetensors 0.8 does not know, so that their size could not be checked."""
        return self.dtypes - _BITS.keys()


def read_header(file: SourceFile, patience: Patience) -> dict[str, Any]:
    """Return a file's header; all that is known of it is that it is JSON that the library takes, and that its end fits.

    Large headers are read one after the other, whatever the number of threads.

    Raises:
        FaststartError: 4, the file is cut, too long, or has no readable header; 7, 8, 9 not readable, gone, I/O
            error; 143 SIGTERM.
    """

    def read_length() -> int:
        with open_regular(file.real) as stream:
            return int.from_bytes(stream.read(8), "little")

    def read() -> bytes:
        with open_regular(file.real) as stream:
            stream.seek(8)
            return stream.read(length)

    length = patience.read(file.path, read_length)
    if file.size < 8 or length > min(file.size - 8, MAX_HEADER):
        raise _damaged(file, f"is cut or no safetensors file: {file.size} bytes, a header of {length}")
    with _large if length > _LARGE_HEADER else contextlib.nullcontext():
        return _parse(file, patience.read(file.path, read))


def _parse(file: SourceFile, text: bytes) -> dict[str, Any]:
    try:
        header = documents.parse_object(text, _finite, _finite)
        if not _is_plain(header, text):
            header = _strict(text)
        ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != _METADATA]
        if not _are_sizes(ends):
            raise ValueError("data_offsets in it are no sizes")  # noqa: TRY301
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise _damaged(file, f"is no safetensors file: its header cannot be read ({error})") from error
    described = 8 + len(text) + max(ends, default=0)
    if described != file.size:
        raise _damaged(file, f"has {file.size} bytes, its header describes {described}: cut or badly written")
    return header


def _is_plain(header: dict[str, Any], text: bytes) -> bool:
    """Say whether surely each tensor has three fields, and no name is there twice; most headers are so."""
    tensors = [tensor for name, tensor in header.items() if name != _METADATA]
    if not all(isinstance(tensor, dict) and len(tensor) == len(_FIELDS) for tensor in tensors):
        return False
    names = len(header) + len(_FIELDS) * len(tensors) + _length(header.get(_METADATA))
    return text.count(b":") == names  # one follows each name; one in a text makes them more, and costs time alone


def _length(metadata: object) -> int:
    return len(metadata) if isinstance(metadata, dict) else 0


def _strict(text: bytes) -> dict[str, Any]:
    """Return a header of which the library takes what is unusual, too.

    Raises:
        ValueError: it does not.
    """
    header = documents.parse_object(text, _finite, _finite, _Object)
    header.require_once((_METADATA,))
    for name, tensor in header.pairs or header.items():
        if name != _METADATA:
            _require_tensor(tensor)
    return header


class _Object(dict[str, Any]):
    """An object of a header; of fields of one name it has the last, as the library has of tensors (0.8, tried).

    Attributes:
        pairs: all names and values, if a name is there twice.
    """

    def __init__(self, pairs: list[tuple[str, Any]]):
        super().__init__(pairs)
        self.pairs = pairs if len(self) < len(pairs) else []

    def require_once(self, names: Sequence[str]) -> None:
        """Hold that some names, which the library takes once alone, are not there twice.

        Raises:
            ValueError: one is.
        """
        there = [name for name, _ in self.pairs]
        if twice := [name for name in names if there.count(name) > 1]:
            raise ValueError(f"{twice[0]} is there twice in one object")


def _require_tensor(tensor: object) -> None:
    """Hold that the library takes an object as that of a tensor, as far as that does not depend on its values.

    Raises:
        ValueError: it does not.
    """
    if not isinstance(tensor, _Object):
        raise ValueError(f"a tensor in it is {documents.kind(tensor)}")  # noqa: TRY004 - of a text, not of ours
    tensor.require_once(_FIELDS)
    for name in tensor.keys() - set(_FIELDS):
        _require_json(tensor[name])


def _require_json(value: object) -> None:
    """Hold that serde_json takes a value of a field that nobody reads.

    Raises:
        ValueError: it is nested deeper, or holds a number that is larger, than serde_json takes.
    """
    waiting = [(value, 3)]
    while waiting:
        found, depth = waiting.pop()
        match found:
            case list() | dict():
                if depth > _MAX_DEPTH:
                    raise ValueError("it is nested too deep")
                inside = found.values() if isinstance(found, dict) else found
                waiting += ((one, depth + 1) for one in inside)
            case int() if abs(found) > sys.float_info.max:
                raise ValueError("it holds a number that is too large")
            case _:
                pass


def _finite(text: str) -> float:
    """Return a number with a point or an exponent that the library takes: NaN, Infinity and 1e999 it does not."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text:.40} is no number there")
    return number


def tensors_of(file: SourceFile, header: dict[str, Any]) -> Tensors:
    """Return what a file holds, held to all that the safetensors library asks of it.

    Args:
        file: the file.
        header: its header, by `read_header`.

    Raises:
        FaststartError: 4, tensors overlap, leave a gap, or have another size than their type and shape say.
    """
    metadata = header.get(_METADATA)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise _damaged(file, f"is badly written: {_METADATA} of its header does not map texts to texts")
    spans: list[tuple[int, int, str]] = []
    dtypes: set[str] = set()
    elements = 0
    for name, tensor in header.items():
        if name == _METADATA:
            continue
        match tensor:
            case {"dtype": str(dtype), "shape": list(shape), "data_offsets": [start, end]} if _are_sizes(
                [*shape, start, end]
            ):
                number = _product(shape)
            case _:
                raise _damaged(file, f"is badly written: its header has no dtype, shape and offsets of {show(name)}")
        bits = _BITS.get(dtype)
        if number >= _MAX_NUMBER or (bits is not None and number * bits != (end - start) * 8):
            what = f"{show(name)} is {show(dtype)} of shape {lines.value(shape)}"
            message = f"{what}, its data_offsets give it {end - start} bytes"
            raise _damaged(file, f"is badly written or has a changed header: {message}")
        spans.append((start, end, name))
        dtypes.add(dtype)
        elements += number
    at = 0
    for start, end, name in sorted(spans):
        if start != at or end < start:
            message = f"{show(name)} has bytes {start} to {end}, where {at} was to come next"
            raise _damaged(file, f"has tensors that overlap or leave a gap: {message}")
        at = end
    return Tensors(frozenset(name for _, _, name in spans), elements, at, frozenset(dtypes))


def show(text: str) -> str:
    """Return a text from JSON, which may hold halves of characters, as printable text of at most 200 bytes."""
    return lines.name(text)


def _are_sizes(numbers: list[object]) -> bool:
    return all(type(number) is int and 0 <= number < _MAX_NUMBER for number in numbers)


def _product(shape: list[int]) -> int:
    """Return the number of elements; _MAX_NUMBER, if it is that or more on the way."""
    number = 1
    for size in shape:
        number *= size
        if number >= _MAX_NUMBER:
            return _MAX_NUMBER
    return number


def _damaged(file: SourceFile, message: str) -> FaststartError:
    return FaststartError(Exit.DAMAGED, message, file.path)
