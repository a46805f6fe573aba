"""Checks of a model's structure that read a few kilobytes a weight file: headers, indexes, Git LFS pointers.

They find a file that was cut, left out or never downloaded. They cannot find wrong bytes in a file of the right size.
"""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Collection
from typing import Any

from modelfolder import names
from modelfolder.safetensors import SUFFIX, read_header
from modelfolder.selection import may_be_read
from modelfolder.source import Source, SourceFile, open_regular
from podkit import pool
from podkit.display import show
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

LFS_START = b"version https://git-lfs.github.com/spec/v1\n"
LFS_MAX_BYTES = 1024
"""A Git LFS pointer file is smaller than this (git-lfs, docs/spec.md)."""

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
    files = {file.path: file for file in source.files}
    there = files.keys() | {file.path for file in source.left_out}
    for path in counting_indexes(files):
        require_shards(files[path], parse_index(files[path], read(files[path], patience)), there)


POINTER = "is a Git LFS pointer, not the file itself: run `git lfs pull` where it was cloned, and copy again"


def is_pointer(file: SourceFile, start: bytes | memoryview) -> bool:
    """Say whether a file is a Git LFS pointer, by its first bytes; see `require_no_pointer`."""
    return file.size < LFS_MAX_BYTES and bytes(start[: len(LFS_START)]) == LFS_START


def require_no_pointer(file: SourceFile, start: bytes | memoryview) -> None:
    """Hold that a file that a server may read is not a Git LFS pointer.

    Args:
        file: the file.
        start: its first bytes, all of them if it is smaller than LFS_MAX_BYTES.

    Raises:
        FaststartError: 4, it is one.
    """
    if is_pointer(file, start) and may_be_read(file.path):
        raise FaststartError(Exit.DAMAGED, POINTER, file.path)


def read(file: SourceFile, patience: Patience) -> bytes:
    """Return the whole content of a file.

    Raises:
        FaststartError: 7, 8, 9 not readable, gone, I/O error; 143 SIGTERM.
    """

    def content() -> bytes:
        with open_regular(file.real) as stream:
            return stream.read()

    return patience.read(file.path, content)


def parse_index(file: SourceFile, content: bytes) -> dict[str, Any]:
    """Return a weight index; its `weight_map` maps tensors to paths beside it.

    Raises:
        FaststartError: 4, it is none.
    """
    try:
        index: dict[str, Any] = json.loads(content)
        for shard in index["weight_map"].values():
            shard.encode()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _damaged(file, "is no weight index: it has no readable weight_map") from error
    return index


def require_shards(file: SourceFile, index: dict[str, Any], paths: set[bytes]) -> None:
    """Hold that the weight files that an index names are among some paths.

    Raises:
        FaststartError: 4, they are not.
    """
    folder = posixpath.dirname(file.path)
    shards = {shard.encode() for shard in index["weight_map"].values()}
    missing = sorted(shard for shard in shards if os.path.join(folder, shard) not in paths)
    if missing:
        shown = ", ".join(map(show, missing[:3])) + (", ..." if len(missing) > 3 else "")
        raise _damaged(file, f"names {len(missing)} of {len(shards)} weight files that are not there: {shown}")


def counting_indexes(paths: Collection[bytes]) -> list[bytes]:
    """Return which paths are weight indexes that count.

    The index of a pytorch_model*.bin that was left out on purpose stays in many downloads; vLLM ignores it.
    """
    folders = {posixpath.dirname(path) for path in paths if path.endswith(SUFFIX)}
    safetensors, other = _INDEXES
    return [
        path
        for path in paths
        if path.endswith(safetensors) or (path.endswith(other) and posixpath.dirname(path) not in folders)
    ]


def _check_content(file: SourceFile, patience: Patience) -> None:
    if file.size < LFS_MAX_BYTES:
        require_no_pointer(file, read(file, patience))
    if file.path.endswith(SUFFIX):
        read_header(file, patience)


def _damaged(file: SourceFile, message: str) -> FaststartError:
    return FaststartError(Exit.DAMAGED, message, file.path)
