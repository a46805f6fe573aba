"""Checks of a model's structure that read a few kilobytes a weight file: headers, indexes, Git LFS pointers.

They find a file that was cut, left out or never downloaded. They cannot find wrong bytes in a file of the right size.
"""

from __future__ import annotations

import json
import os
import posixpath
from typing import Any

from modelfolder import names, pool
from modelfolder.errors import Exit, FaststartError
from modelfolder.patience import Patience
from modelfolder.source import Source, SourceFile, open_regular

MAX_HEADER = 100_000_000
"""The most bytes a safetensors header may have: the limit of the safetensors library."""

LFS_START = b"version https://git-lfs.github.com/spec/v1\n"
LFS_MAX_BYTES = 1024
"""A Git LFS pointer file is smaller than this (git-lfs, docs/spec.md)."""

_SAFETENSORS = b".safetensors"
_INDEXES = (b".safetensors.index.json", b".bin.index.json")


def check(source: Source, patience: Patience) -> None:
    """Hold the files of a model folder against what they say about themselves and each other.

    Raises:
        FaststartError: 4 a Git LFS pointer in place of weights, a safetensors file whose size does not fit its
            header, a shard that an index names and the folder has not; 7, 8, 9 not readable, gone, I/O error;
            143 SIGTERM.
    """
    weights = [file for file in source.files if names.is_weight(file.path)]
    pool.each(weights, lambda file: _check_content(file, patience), patience)
    paths = {file.path for file in source.files}
    there = paths | {file.path for file in source.left_out}
    folders_with_safetensors = {posixpath.dirname(path) for path in paths if path.endswith(_SAFETENSORS)}
    for file in source.files:
        if not file.path.endswith(_INDEXES):
            continue
        # The index of a pytorch_model*.bin that was left out on purpose stays in many downloads; vLLM ignores it.
        if file.path.endswith(_INDEXES[0]) or posixpath.dirname(file.path) not in folders_with_safetensors:
            _check_index(file, there, patience)


def require_no_pointer(file: SourceFile, start: bytes | memoryview) -> None:
    """Hold that a file is not a Git LFS pointer.

    Args:
        file: the file.
        start: its first bytes, all of them if it is smaller than LFS_MAX_BYTES.

    Raises:
        FaststartError: 4, it is one.
    """
    if file.size < LFS_MAX_BYTES and bytes(start[: len(LFS_START)]) == LFS_START:
        message = "is a Git LFS pointer, not the file itself: run `git lfs pull` where it was cloned, and copy again"
        raise FaststartError(Exit.DAMAGED, message, file.path)


def _check_content(file: SourceFile, patience: Patience) -> None:
    if file.size < LFS_MAX_BYTES:
        require_no_pointer(file, _read(file, patience))
    if file.path.endswith(_SAFETENSORS):
        _check_header(file, patience)


def _read(file: SourceFile, patience: Patience) -> bytes:
    def read() -> bytes:
        with open_regular(file.real) as stream:
            return stream.read()

    return patience.read(file.path, read)


def _check_header(file: SourceFile, patience: Patience) -> None:
    """Compare a file's size with its header: 8 bytes of length, JSON of that length, then the tensors' bytes."""

    def read() -> tuple[int, bytes]:
        with open_regular(file.real) as stream:
            length = int.from_bytes(stream.read(8), "little")
            return length, stream.read(length) if length <= min(file.size - 8, MAX_HEADER) else b""

    length, text = patience.read(file.path, read)
    if file.size < 8 or length > min(file.size - 8, MAX_HEADER):
        raise _damaged(file, f"is cut or no safetensors file: {file.size} bytes, a header of {length}")
    try:
        header = json.loads(text)
        end = max((tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"), default=0)
        described = 8 + length + end
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError) as error:
        raise _damaged(file, "is no safetensors file: its header cannot be read") from error
    if described != file.size:
        raise _damaged(file, f"has {file.size} bytes, its header describes {described}: cut or badly written")


def _check_index(file: SourceFile, paths: set[bytes], patience: Patience) -> None:
    try:
        index: dict[str, Any] = json.loads(_read(file, patience))
        shards = {shard.encode() for shard in index["weight_map"].values()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(file, "is no weight index: it has no readable weight_map") from error
    folder = posixpath.dirname(file.path)
    missing = sorted(shard for shard in shards if os.path.join(folder, shard) not in paths)
    if missing:
        shown = ", ".join(shard.decode() for shard in missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise _damaged(file, f"names {len(missing)} of {len(shards)} weight files that are not there: {shown}")


def _damaged(file: SourceFile, message: str) -> FaststartError:
    return FaststartError(Exit.DAMAGED, message, file.path)
