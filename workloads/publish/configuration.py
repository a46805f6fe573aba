"""What vLLM reads of a model's configuration first, held to be of the types that it takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NoReturn

from podkit import documents

CONFIG = b"config.json"
PARAMS = b"params.json"

BYTES = 16 << 20
"""The most bytes of a configuration: it has a few kilobytes, 6 MB with a name for each of 150,000 classes."""


def parse(content: bytes, *, numbers: bool = True, halves: bool = False) -> object:
    """Return what JSON says, as Python reads it from a file that it opens as UTF-8.

    Args:
        content: the JSON.
        numbers: whether NaN and Infinity, which JSON does not know, pass: in Python they do, in Rust they do not.
        halves: whether halves of characters pass: likewise.

    Raises:
        ValueError: it is none, or `documents.parse` refuses it, with the reason in words.
    """
    if content.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        raise ValueError("it begins with a byte order mark, which the library that reads it refuses")
    if not content.strip():
        raise ValueError("it is empty")
    if not content.strip(b"\0"):
        raise ValueError("it holds nothing but zeros")

    def refuse(name: str) -> NoReturn:
        raise ValueError(f"it holds {name}")

    try:
        return documents.parse(content, constant=float if numbers else refuse, halves=halves)
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} in line {error.lineno}, column {error.colno}") from error


def faults(path: bytes, data: bytes) -> Iterator[str]:
    """Yield what is wrong with a configuration, the worst first; where it cannot be read, that alone."""
    try:
        config = parse(data)
    except ValueError as error:
        yield f"is no JSON object: {error}"
        return
    if not isinstance(config, dict):
        yield f"is no JSON object: it is {documents.kind(config)}"
        return
    if path == CONFIG:
        yield from _odd_types(config)


def _odd_types(config: dict[str, Any]) -> Iterator[str]:
    """Yield which fields are no texts, lists or objects where vLLM and transformers use them as such.

    `architectures` is iterated over as names of classes, `model_type` is looked up among names, `quantization_config`
    is asked for its `quant_method` (vLLM: config/model.py; transformers: models/auto/configuration_auto.py).
    """
    match config.get("architectures"):
        case None:
            pass
        case list(names) if all(isinstance(name, str) for name in names):
            pass
        case other:
            told = "a list of more than texts" if isinstance(other, list) else documents.kind(other)
            yield f"has architectures that are {told}, and a list of texts is expected"
    quantization = config.get("quantization_config")
    method = quantization.get("quant_method") if isinstance(quantization, dict) else None
    for field, value, wanted in (
        ("model_type", config.get("model_type"), str),
        ("quantization_config", quantization, dict),
        ("quant_method of its quantization_config", method, str),
    ):
        if value is not None and not isinstance(value, wanted):
            what = "a text" if wanted is str else "an object"
            yield f"has a {field} that is {documents.kind(value)}, and {what} is expected"
