"""What publishing needs of a place that models come from; `s3` and `hub` are two such places."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Protocol

from modelfolder import manifest, names
from modelfolder.selection import Broken, Selection, select, unused_folder
from podkit.errors import Exit, FaststartError


@dataclass(frozen=True)
class RemoteFile:
    """A file that a remote place offers.

    Attributes:
        path: its path in the model folder.
        size: in bytes.
        version: a text that another content would not have: an ETag, the id of a blob.
        sha256: hex digits of the SHA-256 of its content, where the place tells it.
        hold: raises FaststartError where the file cannot be had; called once it was chosen. None, where all can be.
    """

    path: bytes
    size: int
    version: str
    sha256: str | None = None
    hold: Callable[[], None] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Listing:
    """What a remote place offers at one moment.

    Attributes:
        address: where it is, as exactly as it can be said: a branch of a repository is the commit that it stands for.
        files: in the order of their paths' bytes.
        folders: the empty ones.
        licence: what the place says about it.
        lasting: whether the address stands for this content for ever, as a commit does.
    """

    address: str
    files: tuple[RemoteFile, ...]
    folders: tuple[bytes, ...] = ()
    licence: str | None = None
    lasting: bool = False

    @property
    def digest(self) -> str:
        """Return `sha256:` and hex digits that stand for the content of all files."""
        files = [[names.to_json(file.path), file.size, file.version] for file in self.files]
        return manifest.digest(manifest.canonical([files, [names.to_json(path) for path in self.folders]]))


class Remote(Protocol):
    """A place that models come from.

    Each method raises FaststartError: 2, the library that it needs is missing; 6, there is no such repository,
    revision, bucket or prefix; 7, no access; 8, it changed meanwhile; 3, 7 or 9, a local file cannot be written; 11,
    network, after several tries; 143, SIGTERM.
    """

    def listing(self) -> Listing:
        """Return what is there now."""
        ...

    def fetch(self, file: RemoteFile, folder: str, progress: Callable[[int], None]) -> str:
        """Bring a file whole; called from several threads, for another file each.

        Args:
            file: one of the listing.
            folder: exists, for this file alone, and may hold what an earlier try left of the same version.
            progress: told how many more bytes have come, and fewer than none where some have to come again.

        Returns:
            Where in the folder the file lies; its size is the listed one.
        """
        ...


MAX_FILES = 100_000
"""The most files that a place may list. The hub's own advice is fewer in a repository (huggingface.co/docs/hub,
"Repository limitations and recommendations"); a model has 15,000 at the very most. Each takes 1 kB of memory."""

NAME_BYTES = 255
"""The most bytes of a name on Lustre and on Linux' file systems (NAME_MAX of linux/limits.h)."""


def require_names_fit(paths: Iterable[bytes], folder: str) -> None:
    """Hold that files can have their names in a folder.

    Raises:
        FaststartError: 4, a file system takes no name or path as long as one of these.
    """
    above = len(os.fsencode(folder)) + 1
    for path in paths:
        name = max(map(len, path.split(b"/")))
        for what, length, most in (("name", name, NAME_BYTES), ("path", above + len(path), names.PATH_BYTES)):
            if length > most:
                message = (
                    f"has a {what} of {length} bytes, and file systems take {most}: rename it in the source, or leave"
                    " it out with --files"
                )
                raise FaststartError(Exit.DAMAGED, message, path)


def choose(
    listing: Listing, patterns: Sequence[str], read: Callable[[RemoteFile], bytes]
) -> tuple[dict[bytes, RemoteFile], Selection]:
    """Choose the files of a listing to fetch; what was not asked for may have any name, and be unreadable.

    Args:
        listing: what there is.
        patterns: which files are asked for; see `selection.select`.
        read: returns the content of a file.

    Returns:
        The chosen files in the order of their paths' bytes, and how they were chosen.

    Raises:
        FaststartError: 2, patterns that make no sense; 4, the name of a chosen file leaves the folder, is our own, or
            is that of another file or of a folder, too; whatever `read` raises.
    """
    files: dict[bytes, RemoteFile] = {}
    broken: dict[bytes, Broken] = {}

    def cannot_be(path: bytes, what: str) -> None:
        broken[path] = Broken(path, FaststartError(Exit.DAMAGED, f"is {what} ({listing.address})", path))

    for file in listing.files:
        if file.path in files:
            cannot_be(file.path, "named twice")
        elif not names.is_content(file.path):
            cannot_be(file.path, "no name for a file in a model folder")
        files[file.path] = file
    sizes = {path: file.size for path, file in files.items() if path not in broken}
    chosen = select(sizes, patterns, lambda path: read(files[path]) if path in sizes else b"", broken)
    wanted = {path: files[path] for path in sorted(chosen.paths)}
    for path in wanted.keys() & names.with_parents([], wanted):
        message = f"is both a file and a folder in {listing.address}: a file system can have only one of them"
        raise FaststartError(Exit.DAMAGED, message, path)
    return wanted, chosen


def wanted_folders(listing: Listing, wanted: AbstractSet[bytes]) -> list[bytes]:
    """Return the empty folders of a listing that can be made beside the chosen files, and are no leftovers."""
    return [
        path
        for path in listing.folders
        if names.is_content(path) and not unused_folder(path) and wanted.isdisjoint([path, *names.parents(path)])
    ]


def listed(files: Iterable[RemoteFile]) -> tuple[RemoteFile, ...]:
    """Return files in the order of a listing."""
    return tuple(sorted(files, key=lambda file: file.path))
