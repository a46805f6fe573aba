"""Checks of a model's structure that read a few kilobytes a weight file: headers, indexes, Git LFS pointers.

They find a file that was cut, left out or never downloaded. They cannot find wrong bytes in a file of the right size.
"""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any

from modelfolder import names, numbered, unfinished
from modelfolder.safetensors import SUFFIX, read_header
from modelfolder.selection import may_be_read, read_index, select
from modelfolder.source import INDEX_BYTES, Source, SourceFile, open_regular, require_readable
from podkit import pool
from podkit.display import show
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

LFS_START = b"version https://git-lfs.github.com/spec/v1\n"
LFS_MAX_BYTES = 1024
"""A Git LFS pointer file is smaller than this (git-lfs, docs/spec.md)."""

INDEX_SUFFIXES = (b".safetensors.index.json", b".bin.index.json")

_LOOKED_FOR = {
    "safetensors": b"model.safetensors.index.json",
    "mistral": b"consolidated.safetensors.index.json",
    "bin": b"pytorch_model.bin.index.json",
}
"""The index that is looked for beside weights of each format, by vLLM or (bin) by transformers."""


def check(source: Source, patience: Patience) -> None:
    """Hold the files of a model folder against what they say about themselves and each other.

    Raises:
        FaststartError: 4 a Git LFS pointer in place of weights, a safetensors file that has a hole or whose size does
            not fit its header, a file with the mark of an unfinished download, a shard that an index names and the
            folder has not, or an index and numbered shards that disagree with each other or with their own count;
            7, 8, 9 not readable, gone, I/O error; 143 SIGTERM.
    """
    files = {file.path: file for file in source.files}
    there = files.keys() | {file.path for file in source.left_out}
    unfinished.require_finished(files.keys(), there)
    weights = [file for file in source.files if names.is_weight(file.path)]
    pool.each(weights, lambda file: _check_content(file, patience), patience)
    content = functools.cache(lambda path: read(files[path], patience, INDEX_BYTES))
    for path in counting_indexes(files):
        index = parse_index(files[path], content(path))
        require_shards(files[path], index, there)
        require_agreement(files[path], index, files)
    opened = _opened_without_index(files, content)
    for parts, message in lacking(there if opened else ()):
        if not opened.isdisjoint(parts.paths.values()):
            raise FaststartError(Exit.DAMAGED, message, parts.first)


def _opened_without_index(files: Mapping[bytes, SourceFile], content: Callable[[bytes], bytes]) -> set[bytes]:
    """Return the weights at the top that vLLM opens by their suffix alone."""
    weights = select({path: file.size for path, file in files.items()}, ["all"], content).weights
    if weights is None or _LOOKED_FOR.get(weights[0]) in files:
        return set()
    if weights[0] != "mistral" and any(posixpath.basename(path).startswith(b"consolidated") for path in files):
        return set()  # consolidated*.safetensors anywhere is what vLLM looks for then
    return {path for path in weights[1] if not path.endswith(b".pth")}


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


def read(file: SourceFile, patience: Patience, most: int) -> bytes:
    """Return the whole content of a file.

    Raises:
        FaststartError: 4, it has more bytes than `most`; 7, 8, 9 not readable, gone, I/O error; 143 SIGTERM.
    """
    require_readable(file.path, file.size, most)

    def content() -> bytes:
        with open_regular(file.real) as stream:
            return stream.read(file.size)

    return patience.read(file.path, content)


def parse_index(file: SourceFile, content: bytes) -> dict[str, Any]:
    """Return a weight index; its `weight_map` maps tensors to paths beside it.

    Raises:
        FaststartError: 4, it is none.
    """
    try:
        return read_index(content)
    except ValueError as error:
        raise _damaged(file, f"is no weight index ({error}): it has no readable weight_map") from error


def require_shards(file: SourceFile, index: dict[str, Any], paths: set[bytes]) -> None:
    """Hold that the weight files that an index names are among some paths.

    Raises:
        FaststartError: 4, they are not.
    """
    shards = _named(file.path, index)
    missing = sorted(shards - paths)
    if missing:
        shown = ", ".join(map(show, missing[:3])) + (", ..." if len(missing) > 3 else "")
        raise _damaged(file, f"names {len(missing)} of {len(shards)} weight files that are not there: {shown}")


def require_agreement(file: SourceFile, index: dict[str, Any], paths: Collection[bytes]) -> None:
    """Hold that an index, whose files are there, names all parts of each whole that it names a part of.

    vLLM opens what the index names (model_loader/weight_utils.py: filter_duplicate_safetensors_files), and misses the
    rest, or serves without it.

    Args:
        file: the index.
        index: its content.
        paths: of the folder.

    Raises:
        FaststartError: 4, it does not.
    """
    for message in numbered.disagreements(_named(file.path, index), paths):
        raise _damaged(file, f"{message}; index and weights are not of one state")


def lacking(paths: Iterable[bytes]) -> Iterator[tuple[numbered.Parts, str]]:
    """Find weights that are by their names parts of a whole of which others are missing, and tell what is missing.

    Args:
        paths: of the folder, without what indexes speak for.
    """
    for parts in numbered.gather(paths):
        if parts.lost > 0:
            are = "is" if parts.lost == 1 else "are"
            absent = ", ".join(map(show, parts.absent(3))) + (", ..." if parts.lost > 3 else "")
            yield parts, f"is one of {parts.count} parts, of which {parts.lost} {are} not there ({absent})"


def covered(path: bytes, index: dict[str, Any], paths: Iterable[bytes]) -> set[bytes]:
    """Return of which weights an index says whether they are opened: those of its format beside it and what it names.

    Args:
        path: of the index; one whose name vLLM and transformers do not look for says so of nothing else.
        index: its content.
        paths: of the folder.
    """
    named, (folder, name) = _named(path, index), posixpath.split(path)
    if name not in _LOOKED_FOR.values():
        return named
    folders = {folder, *map(posixpath.dirname, named)}
    stem, _, suffix = name.removesuffix(b".index.json").rpartition(b".")
    return named | {
        one
        for one in paths
        if one.endswith(b"." + suffix)
        and posixpath.dirname(one) in folders
        and posixpath.basename(one).startswith(b"consolidated") == (stem == b"consolidated")
    }


def counting_indexes(paths: Collection[bytes]) -> list[bytes]:
    """Return which paths are weight indexes that count.

    The index of a pytorch_model*.bin that was left out on purpose stays in many downloads; vLLM ignores it.
    """
    folders = {posixpath.dirname(path) for path in paths if path.endswith(SUFFIX)}
    safetensors, other = INDEX_SUFFIXES
    return [
        path
        for path in paths
        if path.endswith(safetensors) or (path.endswith(other) and posixpath.dirname(path) not in folders)
    ]


def _named(path: bytes, index: dict[str, Any]) -> set[bytes]:
    return {posixpath.join(posixpath.dirname(path), shard.encode()) for shard in index["weight_map"].values()}


def _check_content(file: SourceFile, patience: Patience) -> None:
    if file.size < LFS_MAX_BYTES:
        require_no_pointer(file, read(file, patience, LFS_MAX_BYTES))
    if file.path.endswith(SUFFIX):
        unfinished.require_no_hole(file, read_header(file, patience), patience)


def _damaged(file: SourceFile, message: str) -> FaststartError:
    return FaststartError(Exit.DAMAGED, message, file.path)
