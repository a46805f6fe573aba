"""What publishing needs of a place that models come from; `s3` and `hub` are two such places."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from modelfolder import manifest, names
from podkit.errors import Exit, FaststartError


@dataclass(frozen=True)
class RemoteFile:
    """A file that a remote place offers.

    Attributes:
        path: its path in the model folder.
        size: in bytes.
        version: a text that another content would not have: an ETag, the id of a blob.
        sha256: hex digits of the SHA-256 of its content, where the place tells it.
    """

    path: bytes
    size: int
    version: str
    sha256: str | None = None


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
            progress: told how many more bytes have come.

        Returns:
            Where in the folder the file lies; its size is the listed one.
        """
        ...


NAME_BYTES = 255
"""The most bytes of a name on Lustre and on Linux' file systems (NAME_MAX of linux/limits.h)."""

_PATH_BYTES = 4095
"""The most bytes of a path that Linux takes (PATH_MAX of linux/limits.h, without the final zero)."""


def require_names_fit(paths: Iterable[bytes], folder: str) -> None:
    """Hold that files can have their names in a folder.

    Raises:
        FaststartError: 4, a file system takes no name or path as long as one of these.
    """
    above = len(os.fsencode(folder)) + 1
    for path in paths:
        name = max(map(len, path.split(b"/")))
        for what, length, most in (("name", name, NAME_BYTES), ("path", above + len(path), _PATH_BYTES)):
            if length > most:
                message = (
                    f"has a {what} of {length} bytes, and file systems take {most}: rename it in the source, or leave"
                    " it out with --files"
                )
                raise FaststartError(Exit.DAMAGED, message, path)


def listed(files: Iterable[RemoteFile], folders: Iterable[bytes], where: str) -> tuple[RemoteFile, ...]:
    """Return files in order, held to be what a model folder can have.

    Raises:
        FaststartError: 4, a name leaves the folder, is our own, or is that of a file and of a folder.
    """
    ordered = tuple(sorted(files, key=lambda file: file.path))
    paths = [file.path for file in ordered]
    for path in [*paths, *folders]:
        if not names.is_content(path):
            raise FaststartError(Exit.DAMAGED, f"is no name for a file in a model folder ({where})", path)
    inside = names.with_parents(folders, paths)
    for path, following in zip(paths, [*paths[1:], None], strict=True):
        if path == following or path in inside:
            what = "named twice" if path == following else "both a file and a folder"
            raise FaststartError(Exit.DAMAGED, f"is {what} in {where}: a file system can have only one of them", path)
    return ordered
