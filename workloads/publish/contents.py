"""What the files of a model folder hold, as far as their headers tell, and what is wrong with each by itself."""

from __future__ import annotations

import enum
import fnmatch
import functools
import os
import posixpath
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from modelfolder import names, structure, unfinished
from modelfolder.safetensors import SUFFIX, Tensors, read_header, show, tensors_of
from modelfolder.selection import may_be_read, select
from modelfolder.source import INDEX_BYTES, Source, SourceFile, open_regular
from podkit import display, documents, pool
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from publish import configuration, pickles
from publish.configuration import CONFIG, PARAMS
from publish.pickles import Kind

INDEXES = {"safetensors": b"model.safetensors.index.json", "mistral": b"consolidated.safetensors.index.json"}
"""The indexes that vLLM reads, each for one format (model_loader/default_loader.py)."""

TOKENIZERS = (
    "tokenizer.json", "vocab.json", "vocab.txt", "*.model", "*.tiktoken", "tekken.json", "tokenizer.model.v*",
    "tokenizer.tok.json", "tokenization_*.py",
)  # fmt: skip
"""What a tokenizer is made from: by transformers, by a class of vLLM's own (tokenizers/), or by code in the folder."""

TOKENIZER = b"tokenizer.json"
_JSON_TOKENIZERS = (TOKENIZER, b"vocab.json", b"tekken.json")
_COSMOS = re.compile(rb"[tv][^/]*er/[^/.][^/]*\.safetensors", re.DOTALL)
_TORCH = (b".bin", b".pt", b".pth", b".ckpt")
_GGUF = b"GGUF"
_TAIL = 64  # bytes; JSON may end in blanks

MAX_JSON = 64 << 20
"""The most bytes of another small file that is read whole: Gemma's tokenizer.json has 33 MB."""

AGAIN = "fetch it again"

ChosenWeights = tuple[str, tuple[bytes, ...]]
"""Format and sorted files of a weight set."""


@dataclass(frozen=True)
class Finding:
    """Something that is wrong with a folder, or odd.

    Attributes:
        file: what it is about; None for the folder as a whole.
        message: what is wrong and what to do.
        code: what publishing refuses it with; None for a warning.
    """

    file: bytes | None
    message: str
    code: Exit | None

    def __str__(self) -> str:
        """Return it as one line for people."""
        about = f"{display.show(self.file)}: " if self.file is not None else ""
        return about + self.message


class Effect(enum.IntEnum):
    """What vLLM makes of a finding: it does not start, it may answer wrongly, or nothing."""

    STOPS = 0
    MISLEADS = 1
    NONE = 2


@dataclass(frozen=True)
class Contents:
    """What the files of a folder hold.

    Attributes:
        files: by their paths.
        header: returns the header of a safetensors file that is whole; keeps a few.
        read: returns the whole content of a file; keeps it.
        part: returns so many bytes of a file from some byte on.
        taken: the weights that vLLM loads.
        consolidated: what makes vLLM 0.12 and newer take Mistral's format, wherever it lies; sorted.
        unflipped: the weights that it would load without these.
        used: the files that vLLM may open.
        tensors: what each safetensors file holds that is whole.
        unusable: what is empty or a Git LFS pointer: no more is to be said of it.
        pickles: the Python pickles.
        found: what is wrong with files, and what vLLM makes of it.
    """

    files: Mapping[bytes, SourceFile]
    header: Callable[[bytes], dict[str, Any]]
    read: Callable[[bytes], bytes]
    part: Callable[[bytes, int, int], bytes]
    taken: ChosenWeights | None
    consolidated: tuple[bytes, ...]
    unflipped: ChosenWeights | None
    used: frozenset[bytes]
    tensors: dict[bytes, Tensors] = field(default_factory=dict)
    unusable: set[bytes] = field(default_factory=set)
    pickles: list[bytes] = field(default_factory=list)
    found: list[tuple[Effect, Finding]] = field(default_factory=list)

    @property
    def format(self) -> str | None:
        """Return the format that vLLM loads."""
        return self.taken[0] if self.taken else None

    @property
    def configuration(self) -> bytes:
        """Return the path of the configuration that vLLM reads; need not exist."""
        return configuration_of(self.files)

    def tensors_of(self, paths: Iterable[bytes]) -> list[Tensors] | None:
        """Return what some files hold; None, if one is no safetensors file or is damaged."""
        found = [self.tensors.get(path) for path in paths]
        return [one for one in found if one is not None] if None not in found else None

    def placed(self, path: bytes, tensor: str) -> tuple[str, list[int], int, int]:
        """Return type and shape of a tensor of a whole safetensors file, and where in the file it begins and ends."""
        header = self.header(path)
        data = self.files[path].size - max(
            one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"
        )
        start, end = header[tensor]["data_offsets"]
        return header[tensor]["dtype"], header[tensor]["shape"], data + start, data + end

    def json_object(self, path: bytes) -> dict[str, Any] | None:
        """Return what a file holds, if there is such a file and it holds a JSON object."""
        if path not in self.files:
            return None
        try:
            return documents.parse_object(self.read(path))
        except ValueError:
            return None


def look_into(source: Source, patience: Patience) -> Contents:
    """Find out what the files of a folder hold that were asked for; reads a few kilobytes of each.

    Raises:
        FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
    """
    files = {file.path: file for file in source.files}
    sizes = {path: file.size for path, file in files.items()}
    read = functools.cache(lambda path: structure.read(files[path], patience, largest(path)))
    header = functools.lru_cache(maxsize=8)(lambda path: read_header(files[path], patience))

    def part(path: bytes, size: int, start: int) -> bytes:
        return read_part(files[path], size, patience, start)

    taken = unflipped = _opened(sizes, read)
    if taken is None:
        taken = unflipped = _opened_by_folder(files, read)
    consolidated = tuple(sorted(filter(_is_consolidated, files)))
    if consolidated:
        mistral = {*consolidated, INDEXES["mistral"]}
        taken = _opened({path: size for path, size in sizes.items() if path in mistral}, read)
    auto = select(sizes, ["auto"], read)
    used = auto.paths - set(auto.weights[1] if auto.weights else ()) | set(taken[1] if taken else ())
    contents = Contents(files, header, read, part, taken, consolidated, unflipped, used)
    # Its threads only append, and set keys of their own.
    pool.each(source.files, lambda file: _look_into(file, contents, patience), patience)
    for path, mark in unfinished.marks(files.keys() | {file.path for file in source.left_out}).items():
        if path in files:
            effect = Effect.MISLEADS if path in used else Effect.NONE
            code = Exit.DAMAGED if path in used else None
            contents.found.append((effect, Finding(path, unfinished.complaint(mark), code)))
    return contents


def configuration_of(paths: Collection[bytes]) -> bytes:
    """Return which of some paths is that of the configuration that vLLM reads; need not be one of them."""
    return PARAMS if PARAMS in paths and any(map(_is_consolidated, paths)) else CONFIG


def largest(path: bytes) -> int:
    """Return the most bytes that a file may have of those that are read whole."""
    if path.endswith(structure.INDEX_SUFFIXES):
        return INDEX_BYTES
    return configuration.BYTES if path in (CONFIG, PARAMS) else MAX_JSON


def is_tokenizer(path: bytes) -> bool:
    """Say whether a tokenizer is made from a file, by its name."""
    return b"/" not in path and any(fnmatch.fnmatchcase(os.fsdecode(path), pattern) for pattern in TOKENIZERS)


def read_part(file: SourceFile, size: int, patience: Patience, start: int = 0) -> bytes:
    """Return some bytes of a file.

    Raises:
        FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
    """

    def read() -> bytes:
        with open_regular(file.real) as stream:
            stream.seek(start)
            return stream.read(size)

    return patience.read(file.path, read, start)


def _opened(sizes: Mapping[bytes, int], read: Callable[[bytes], bytes]) -> ChosenWeights | None:
    """Return the weights that vLLM finds among some files; it does not look for *.pth."""
    chosen = select(sizes, ["all"], read).weights
    files = tuple(path for path in chosen[1] if not path.endswith(b".pth")) if chosen else ()
    return (chosen[0], files) if chosen and files else None


def _opened_by_folder(files: Mapping[bytes, SourceFile], read: Callable[[bytes], bytes]) -> ChosenWeights | None:
    """Return the weights of Cosmos 3, which vLLM looks for in folders (models/cosmos3.py: allow_patterns_overrides)."""
    found = tuple(sorted(filter(_COSMOS.fullmatch, files)))
    if not found or CONFIG not in files or files[CONFIG].size > configuration.BYTES:
        return None
    try:
        config = documents.parse_object(read(CONFIG))
    except ValueError:
        return None
    match config:
        case {"architectures": [str(name), *_]} if name.startswith("Cosmos3"):
            return "safetensors", found
        case _:
            return None


def _is_consolidated(path: bytes) -> bool:
    name = posixpath.basename(path)
    return name.startswith(b"consolidated") and name.endswith(SUFFIX)


def _look_into(file: SourceFile, contents: Contents, patience: Patience) -> None:
    path = file.path

    def note(message: str, code: Exit | None = Exit.DAMAGED, *, needed: bool = True) -> None:
        effect = Effect.NONE
        if code is not None and needed and path in contents.used:
            # Weights beside the set are parts that some models load.
            beside = names.is_weight(path) and not (contents.taken and path in contents.taken[1])
            effect = Effect.MISLEADS if beside else Effect.STOPS
        contents.found.append((effect, Finding(path, message, code)))

    try:
        path.decode()
    except UnicodeDecodeError:
        note("has a name that is no UTF-8, which no manifest can hold: rename it", None)
    start = read_part(file, pickles.START, patience)
    if complaint := _absence(file, start):
        contents.unusable.add(path)
        read = (contents.configuration, INDEXES.get(contents.format or ""))
        needed = names.is_weight(path) or is_tokenizer(path) or path in read
        note(complaint, Exit.DAMAGED if may_be_read(path) else None, needed=needed)
        return
    if path.endswith(SUFFIX):
        try:
            header = read_header(file, patience)
            contents.tensors[path] = tensors_of(file, header)
        except FaststartError as error:
            if error.code != Exit.DAMAGED:
                raise
            note(f"{error.message}; {AGAIN}")
            return
        try:
            unfinished.require_no_hole(file, header, patience)
        except FaststartError as error:
            if error.code != Exit.DAMAGED:
                raise
            note(error.message)
        if unknown := contents.tensors[path].unknown:
            types = ", ".join(map(show, sorted(unknown)[:3])) + (", ..." if len(unknown) > 3 else "")
            note(
                f"has tensors of a type that safetensors 0.8 does not know, so that vLLM may not load it: {types}", None
            )
    if path.endswith(b".gguf") and not start.startswith(_GGUF):
        note(f"is no GGUF file: it does not begin with GGUF; {AGAIN}")
    if path in _JSON_TOKENIZERS and file.size > MAX_JSON:
        end = read_part(file, _TAIL, patience, max(0, file.size - _TAIL))
        if not (start.lstrip().startswith(b"{") and end.rstrip().endswith(b"}")):
            note(f"is cut or no JSON: it does not go from {{ to }}; {AGAIN}")
    kind = pickles.kind(file, start, patience)
    if kind != Kind.OTHER:
        contents.pickles.append(path)
    if kind == Kind.CUT and path.endswith(_TORCH):
        note(f"is cut: a zip archive, which torch writes, without a readable end; {AGAIN}")


def _absence(file: SourceFile, start: bytes) -> str | None:
    """Return what is wrong, if a file is empty that must not be, or a Git LFS pointer."""
    if structure.is_pointer(file, start):
        return structure.POINTER
    return f"is empty; {AGAIN}" if not file.size and (names.is_weight(file.path) or is_tokenizer(file.path)) else None
