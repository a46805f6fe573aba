"""Paths inside a model folder: what they are, written to JSON, and held to be relative."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable

from podkit import documents

STATE = b".faststart"
"""The folder at the top of a source or destination that is ours and never content."""

LOST_FOUND = b"lost+found"
"""The folder that mkfs makes at the top of ext2 to ext4, for root alone (e2fsprogs: mklost+found(8))."""

PATH_BYTES = 4095
"""The most bytes of a path that Linux takes (PATH_MAX of linux/limits.h, without the final zero)."""

WEIGHT_SUFFIXES = (b".safetensors", b".bin", b".pt", b".pth", b".gguf")
"""How weight files end; vLLM looks for these (model_executor/model_loader: default_loader.py, gguf_loader.py)."""


def to_json(path: bytes) -> str | dict[str, str]:
    """Return a path for JSON: a string, or `{"b64": ...}` if it is no UTF-8 (contracts.md, "Manifest")."""
    try:
        return path.decode()
    except UnicodeDecodeError:
        return {"b64": base64.b64encode(path).decode()}


def from_json(value: object) -> bytes:
    """Return the path that `to_json` wrote.

    Raises:
        ValueError: the value is neither of the two forms.
    """
    match value:
        case str():
            return value.encode()  # a half of a character is a ValueError, too
        case {"b64": str(text)}:
            try:
                return base64.b64decode(text, validate=True)
            except binascii.Error as error:
                raise ValueError(f"b64 cannot be decoded: {error}") from error
        case _:
            raise ValueError(f"a path is text or b64, not {documents.kind(value)}")


def is_content(path: bytes) -> bool:
    """Say whether a path is relative, in its simplest form, no longer than any can be, and not in our own folder."""
    parts = path.split(b"/")
    return b"\0" not in path and len(path) <= PATH_BYTES and parts[0] != STATE and not {b"", b".", b".."} & set(parts)


def is_weight(path: bytes) -> bool:
    """Say whether a file is a weight file, by its name."""
    return path.endswith(WEIGHT_SUFFIXES)


def parents(path: bytes) -> list[bytes]:
    """Return the folders above a relative path, the nearest first, without the top one."""
    above = []
    while b"/" in path:
        path = path.rpartition(b"/")[0]
        above.append(path)
    return above


def with_parents(folders: Iterable[bytes], files: Iterable[bytes]) -> set[bytes]:
    """Return the folders, and each folder that one of them or a file lies in, without the top one."""
    found = set(folders)
    for folder in list(found):
        found.update(parents(folder))
    for folder in {path.rpartition(b"/")[0] for path in files} - {b""}:
        found.update((folder, *parents(folder)))
    return found
