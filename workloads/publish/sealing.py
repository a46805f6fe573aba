"""Sealing: every block of every file is hashed on all processors, and the manifest says what the folder holds."""

from __future__ import annotations

import functools
import hashlib
import mmap
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from modelfolder import manifest as manifests
from modelfolder.source import Source, SourceFile, open_regular
from podkit import pool
from podkit.errors import Exit, FaststartError, source_error
from podkit.files import replace
from podkit.patience import Patience
from publish.verdict import Verdict

_READ = 1 << 20  # bytes: hashed while they are still in the processor's cache
_ITEM = 64 << 20  # bytes that one thread hashes in a row, at the least


@dataclass(frozen=True)
class Origin:
    """Where a model came from, for its manifest.

    Attributes:
        model: its name.
        revision: its revision.
        address: where it came from.
        digest: stands for what was there.
        chosen: the patterns by which its files were chosen.
        licence: what the place says; None if it says nothing.
        sha256: hex digits of the SHA-256 of files, where the place tells it.
    """

    model: str
    revision: str
    address: str
    digest: str
    chosen: tuple[str, ...]
    licence: str | None
    sha256: Mapping[bytes, str]


@dataclass(frozen=True)
class Hashes:
    """The block hashes of a file, and the SHA-256 of all of it where that was asked for."""

    block_bytes: int
    blocks: tuple[bytes, ...]
    sha256: str | None


class Hashing:
    """The hashes of some files. `run` may be called once.

    Args:
        files: the files.
        whole: paths of those whose own SHA-256 is wanted too; each of them is read by one thread, from its start.
        threads: how many files or parts of files are read at once.
        patience: repeats reads that fail for the moment.
        block_bytes: the size of the blocks of files, where it is not that of the rule.

    Attributes:
        done: bytes hashed so far.
    """

    def __init__(
        self,
        files: Sequence[SourceFile],
        whole: Collection[bytes],
        threads: int,
        patience: Patience,
        block_bytes: Mapping[bytes, int] | None = None,
    ):
        self.done = 0
        given = block_bytes or {}
        self._block_bytes = {file.path: given.get(file.path) or manifests.block_bytes(file.size) for file in files}
        self._files = files
        self._whole = whole
        self._threads = threads
        self._patience = patience
        self._lock = threading.Lock()
        self._local = threading.local()
        self._blocks: dict[bytes, dict[int, bytes]] = {file.path: {} for file in files}
        self._sha256: dict[bytes, str] = {}

    def run(self) -> dict[bytes, Hashes]:
        """Read all files once, and return their hashes by path.

        Raises:
            FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
        """
        pool.each(self._items(), self._hash, self._patience, self._threads)
        return {
            file.path: Hashes(
                self._block_bytes[file.path],
                tuple(hashed for _, hashed in sorted(self._blocks[file.path].items())),
                self._sha256.get(file.path),
            )
            for file in self._files
        }

    def _items(self) -> list[tuple[SourceFile, int, int]]:
        """Return what to hash, as file, first block and end; long items first, so that none is left at the end."""
        items = []
        for file in self._files:
            block = self._block_bytes[file.path]
            blocks = -(-file.size // block)
            step = max(1, blocks) if file.path in self._whole else max(1, _ITEM // block)
            items += [(file, first, min(first + step, blocks)) for first in range(0, max(1, blocks), step)]
        return sorted(items, key=lambda item: (item[1] - item[2], item[0].path, item[1]))

    def _hash(self, item: tuple[SourceFile, int, int]) -> None:
        file, first, end = item
        whole = hashlib.sha256() if file.path in self._whole else None
        step = self._block_bytes[file.path]
        try:
            with self._patience.ask(lambda: open_regular(file.real), file.path) as stream:
                self._require_same(file, os.fstat(stream.fileno()))
                for number in range(first, end):
                    block = hashlib.sha256()
                    block_end = min((number + 1) * step, file.size)
                    for at in range(number * step, block_end, _READ):
                        data = self._read(file, stream.fileno(), at, min(_READ, block_end - at))
                        block.update(data)
                        if whole:
                            whole.update(data)
                    self._blocks[file.path][number] = block.digest()
                    self._patience.check()
                self._require_same(file, os.fstat(stream.fileno()))
                os.posix_fadvise(stream.fileno(), first * step, (end - first) * step, os.POSIX_FADV_DONTNEED)
        except OSError as error:
            raise source_error(error, file.path) from error
        if whole:
            self._sha256[file.path] = whole.hexdigest()

    def _read(self, file: SourceFile, fd: int, at: int, length: int) -> memoryview:
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = memoryview(mmap.mmap(-1, _READ))
        done = 0
        while done < length:
            call = functools.partial(os.preadv, fd, [buffer[done:length]], at + done)
            count = self._patience.read(file.path, call, at + done)
            if not count:
                raise _changed(file)
            done += count
        with self._lock:
            self.done += length
        return buffer[:length]

    @staticmethod
    def _require_same(file: SourceFile, status: os.stat_result) -> None:
        if not file.same(status):
            raise _changed(file)


def _changed(file: SourceFile) -> FaststartError:
    return FaststartError(Exit.CHANGED, "has changed while it was hashed: something else writes there", file.path)


def wrong_sha256(hashes: Mapping[bytes, Hashes], wanted: Mapping[bytes, str]) -> list[bytes]:
    """Return the files whose SHA-256 is not the one that their place tells."""
    return [path for path, sha256 in sorted(wanted.items()) if hashes[path].sha256 != sha256]


def document(source: Source, verdict: Verdict, hashes: Mapping[bytes, Hashes], origin: Origin) -> dict[str, Any]:
    """Return the manifest of a folder (contracts.md, "Manifest").

    Args:
        source: the folder; its paths are UTF-8.
        verdict: what it holds.
        hashes: of each of its files.
        origin: where it came from.
    """
    weights = verdict.weights
    return {
        "schema": manifests.SCHEMA,
        "model": origin.model,
        "revision": origin.revision,
        "source": origin.address,
        "source_digest": origin.digest,
        "chosen": list(origin.chosen),
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "files": [
            {
                "path": file.path.decode(),
                "size": file.size,
                "sha256": hashes[file.path].sha256,
                "block_bytes": hashes[file.path].block_bytes,
                "blocks": [block.hex() for block in hashes[file.path].blocks],
            }
            for file in source.files
        ],
        "folders": [path.decode() for path in sorted(source.manifest.folders)],
        "total_bytes": source.total_bytes,
        "weights": weights
        and {
            "format": weights.format,
            "files": [path.decode() for path in weights.files],
            "tensor_bytes": weights.tensor_bytes,
            "dtypes": list(weights.dtypes),
        },
        "architecture": verdict.architecture,
        "licence": origin.licence or verdict.licence,
        "pickle": bool(verdict.pickles),
    }


def write_manifest(root: str, data: bytes) -> None:
    """Write the manifest into a folder, whole or not at all.

    Raises:
        OSError: that failed.
    """
    replace(os.path.join(os.fsencode(root), manifests.PATH), data, sync=True)
