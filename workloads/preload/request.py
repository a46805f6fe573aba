"""What is asked of the copy engine, whoever asks: the command line of preload, or publishing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

Write = Literal["auto", "direct", "buffered"]
Cache = Literal["auto", "keep", "drop"]
Verify = Literal["none", "size", "sha256"]

VERIFY_LEVELS: tuple[Verify, ...] = get_args(Verify)
"""From the weakest to the strongest."""


@dataclass(frozen=True, kw_only=True)
class CopyRequest:
    """A copy of a model folder.

    Attributes:
        source: path of the model folder.
        destination: path of the folder to copy into: new, empty or made by an earlier copy.
        files: which files, as `selection.select` takes them.
        verify: what the copy is held against: nothing, sizes and structure, or block hashes as well.
        streams: how many streams at the most.
        wait: seconds to wait for another owner of the destination.
        write: around the page cache, into it, or as memory allows.
        cache: what becomes of the copy's pages in the page cache; "keep" does not go with writes around it.
        max_bytes: the most that the model may have; None for any number.
        manifest_digest: that of the only published manifest that will do; None for any source.
        require_local_disk: whether the destination must lie on EC2 instance storage.
        pod_uid: names the file in `.faststart/run` that appears once no older marker can be mistaken for this copy's;
            None for no such file.
    """

    source: bytes
    destination: bytes
    files: tuple[str, ...]
    verify: Verify
    streams: int
    wait: float
    write: Write = "auto"
    cache: Cache = "auto"
    max_bytes: int | None = None
    manifest_digest: str | None = None
    require_local_disk: bool = False
    pod_uid: str | None = None
