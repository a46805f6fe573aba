"""Safetensors files by their headers: 8 bytes of length, JSON of that length, then the tensors' bytes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from modelfolder.source import SourceFile, open_regular
from podkit import lines
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

SUFFIX = b".safetensors"

MAX_HEADER = 100_000_000
"""The most bytes a header may have: the limit of the safetensors library."""

_MAX_NUMBER = 1 << 64
"""The safetensors library counts in 64 bits, and refuses what does not fit."""

_METADATA = "__metadata__"

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
    """Return a file's header, of which no more is known than that the file has the size that it describes.

    Raises:
        FaststartError: 4, the file is cut, too long, or has no readable header; 7, 8, 9 not readable, gone, I/O
            error; 143 SIGTERM.
    """

    def read() -> tuple[int, bytes]:
        with open_regular(file.real) as stream:
            length = int.from_bytes(stream.read(8), "little")
            return length, stream.read(length) if length <= min(file.size - 8, MAX_HEADER) else b""

    length, text = patience.read(file.path, read)
    if file.size < 8 or length > min(file.size - 8, MAX_HEADER):
        raise _damaged(file, f"is cut or no safetensors file: {file.size} bytes, a header of {length}")
    try:
        header = json.loads(text.decode())  # bytes might be UTF-16, too
        end = max((tensor["data_offsets"][1] for name, tensor in header.items() if name != _METADATA), default=0)
        described = 8 + length + end
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _damaged(file, "is no safetensors file: its header cannot be read") from error
    if described != file.size:
        raise _damaged(file, f"has {file.size} bytes, its header describes {described}: cut or badly written")
    return header


def read_tensors(file: SourceFile, patience: Patience) -> Tensors:
    """Return what a file holds, held to all that the safetensors library asks of it.

    Raises:
        FaststartError: as `read_header` does; 4 also where tensors overlap, leave a gap, or have another size than
            their type and shape say.
    """
    header = read_header(file, patience)
    metadata = header.pop(_METADATA, None)
    if metadata is not None and not (
        isinstance(metadata, dict) and all(isinstance(value, str) for value in metadata.values())
    ):
        raise _damaged(file, f"is badly written: {_METADATA} of its header does not map texts to texts")
    spans: list[tuple[int, int, str]] = []
    dtypes: set[str] = set()
    elements = 0
    for name, tensor in header.items():
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
    return Tensors(frozenset(header), elements, at, frozenset(dtypes))


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
