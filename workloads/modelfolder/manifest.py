"""The manifest of a model folder (contracts.md, "Manifest")."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from modelfolder import names
from podkit import documents
from podkit.display import show
from podkit.errors import Exit, FaststartError
from podkit.lines import name, value

SCHEMA = "faststart.dev/manifest/v1"
PATH = names.STATE + b"/manifest.json"

BLOCK_UNIT = 4096
"""Blocks are whole numbers of pages, so that they can be read without the page cache."""

BLOCK_BYTES = 8 << 20
"""The least block: what a reader asks for at a time. It is doubled until a file has at most MAX_BLOCKS."""

MAX_BLOCKS = 16_384

MAX_BYTES = 64 << 20
"""A larger manifest is refused unread. 800 GB of weights have about 7 MB of block hashes, 15,000 files 4 MB more."""

_MAX_SIZE = 1 << 63
"""Sizes of files are smaller (off_t)."""


@dataclass(frozen=True)
class ManifestFile:
    """One file of a model.

    Attributes:
        path: its path in the folder.
        size: in bytes.
        block_bytes: the size of each block but the last; 0 where no hashes are known.
        blocks: the SHA-256 of each block.
    """

    path: bytes
    size: int
    block_bytes: int = 0
    blocks: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What a folder holds.

    Attributes:
        origin: whether publishing wrote it, or it was made by looking at the folder.
        digest: `sha256:` and the hex digits of the canonical JSON.
        files: in the order of their paths' bytes.
        folders: the empty ones only; the others follow from the files.
        source: where it was published from.
        source_digest: stands for what was there.
        chosen: the patterns by which its files were chosen.
    """

    origin: Literal["published", "scanned"]
    digest: str
    model: str | None
    revision: str | None
    files: tuple[ManifestFile, ...]
    folders: tuple[bytes, ...]
    source: str | None = None
    source_digest: str | None = None
    chosen: tuple[str, ...] | None = None

    @property
    def total_bytes(self) -> int:
        """Return the sum of the file sizes."""
        return sum(file.size for file in self.files)

    @property
    def all_folders(self) -> set[bytes]:
        """Return each folder below the top one, empty or not."""
        return names.with_parents(self.folders, (file.path for file in self.files))


def canonical(document: object) -> bytes:
    """Return JSON with sorted keys, no blanks, in UTF-8, with a final newline."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def digest(data: bytes) -> str:
    """Return `sha256:` and the hex digits of the data's SHA-256."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def block_bytes(size: int) -> int:
    """Return how large the blocks of a file of so many bytes are."""
    found = BLOCK_BYTES
    while size > found * MAX_BLOCKS:
        found *= 2
    return found


def scanned(source: bytes, files: Sequence[tuple[bytes, int, int]], folders: Sequence[bytes]) -> Manifest:
    """Return the manifest of a folder that was only looked at.

    Its digest covers the source's path, and each file's path, size and mtime; what a look at the names cannot tell
    is null in it.

    Args:
        source: absolute path of the folder.
        files: path, size and mtime in nanoseconds of each file.
        folders: the empty folders.
    """
    files, folders = sorted(files), sorted(folders)
    document = {
        "schema": SCHEMA,
        "model": None,
        "revision": None,
        "source": names.to_json(source),
        "created": None,
        "files": [
            {
                "path": names.to_json(path),
                "size": size,
                "mtime_ns": mtime_ns,
                "sha256": None,
                "block_bytes": None,
                "blocks": None,
            }
            for path, size, mtime_ns in files
        ],
        "folders": [names.to_json(path) for path in folders],
        "total_bytes": sum(size for _, size, _ in files),
        "weights": None,
        "architecture": None,
        "licence": None,
        "pickle": None,
    }
    return Manifest(
        origin="scanned",
        digest=digest(canonical(document)),
        model=None,
        revision=None,
        files=tuple(ManifestFile(path, size) for path, size, _ in files),
        folders=tuple(folders),
    )


def parse(data: bytes) -> Manifest:
    """Return a published manifest.

    Args:
        data: the bytes of manifest.json; its digest is that of these bytes.

    Raises:
        FaststartError: 4, it is no manifest, contradicts itself, or has a newer schema than this program knows.
    """
    try:
        document = documents.parse_object(data)
        _require_schema(document)
        found = Manifest(
            origin="published",
            digest=digest(data),
            model=_text(document, "model"),
            revision=_text(document, "revision"),
            files=tuple(_file(item) for item in _list(document["files"], "files")),
            folders=tuple(_content(item) for item in _list(document["folders"], "folders")),
            source=_text(document, "source"),
            source_digest=_text(document, "source_digest") if document.get("source_digest") is not None else None,
            chosen=_texts(document["chosen"], "chosen") if "chosen" in document else None,
        )
        _require_consistent(document, found)
    except KeyError as error:
        raise FaststartError(Exit.DAMAGED, f"is no manifest: {error} is missing", PATH) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise FaststartError(Exit.DAMAGED, f"is no manifest: {error}", PATH) from error
    return found


def _require_schema(document: dict[str, Any]) -> None:
    schema = _text(document, "schema")
    known = re.fullmatch(r"faststart\.dev/manifest/v(\d+)", schema)
    if not known:
        raise ValueError(f"schema is {value(schema)}")
    if known[1] != "1":
        raise ValueError(
            f"schema {name(schema)} is not {SCHEMA}, which this program reads: use the program that fits it"
        )


def _require_consistent(document: dict[str, Any], found: Manifest) -> None:
    paths = [file.path for file in found.files]
    if type(document["total_bytes"]) is not int or document["total_bytes"] != found.total_bytes:
        raise ValueError("total_bytes is not the sum of the sizes")
    if len(set(paths)) < len(paths):
        raise ValueError("a path is listed twice")
    if found.all_folders & set(paths):
        raise ValueError("a path is both a file and a folder")


def _text(document: dict[str, Any], key: str) -> str:
    return _require_text(document[key], key)


def _require_text(found: object, what: str) -> str:
    if not isinstance(found, str):
        raise TypeError(f"{what} is not text, but {documents.kind(found)}")
    return found


def _list(found: object, what: str) -> list[Any]:
    if not isinstance(found, list):
        raise TypeError(f"{what} is not a list, but {documents.kind(found)}")
    return found


def _texts(found: object, what: str) -> tuple[str, ...]:
    return tuple(_require_text(item, f"an item of {what}") for item in _list(found, what))


def _content(found: object) -> bytes:
    path = names.from_json(found)
    if not names.is_content(path):
        raise ValueError(f"{show(path)!r} is no path inside a model folder")
    return path


def _file(item: object) -> ManifestFile:
    if not isinstance(item, dict):
        raise TypeError(f"an item of files is not an object, but {documents.kind(item)}")
    path, size = _content(item["path"]), item["size"]
    if type(size) is not int or not 0 <= size < _MAX_SIZE:
        raise ValueError(f"the size of {show(path)} is {value(size)}")
    block_bytes, blocks = item["block_bytes"], item["blocks"]
    if blocks is None:
        return ManifestFile(path, size)
    if type(block_bytes) is not int or not 0 < block_bytes < _MAX_SIZE or block_bytes % BLOCK_UNIT:
        raise ValueError(f"the block_bytes of {show(path)} is {value(block_bytes)}")
    hashes = tuple(map(bytes.fromhex, _texts(blocks, "blocks")))
    if any(len(block) != hashlib.sha256().digest_size for block in hashes):
        raise ValueError(f"a block hash of {show(path)} is no SHA-256")
    if len(hashes) != -(-size // block_bytes):
        raise ValueError(f"{show(path)} has {len(hashes)} block hashes for {size} bytes")
    return ManifestFile(path, size, block_bytes, hashes)
