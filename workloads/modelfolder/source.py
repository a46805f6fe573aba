"""A model folder as it lies in a file system: which files to read, where they are, and what is no content."""

from __future__ import annotations

import errno
import functools
import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, TypeVar

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.manifest import Manifest, ManifestFile
from modelfolder.selection import LeftOut, select
from podkit import pool
from podkit.display import show
from podkit.errors import Exit, FaststartError, source_error
from podkit.patience import Patience

T = TypeVar("T")

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_BATCH = 64  # names that one thread looks at in a row

_KINDS = {
    stat.S_IFIFO: "a fifo",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
}


@dataclass(frozen=True)
class SourceFile:
    """A regular file of the source.

    Attributes:
        path: its path in the model folder.
        real: where to open it: the same file, with links resolved.
        mode: its type and permission bits.
        listed: the same file in the manifest, with its block hashes if there are any.
    """

    path: bytes
    real: bytes
    size: int
    mtime_ns: int
    mode: int
    listed: ManifestFile

    def same(self, status: os.stat_result) -> bool:
        """Say whether the file is as it was at the first look: regular, of the same size and mtime."""
        return stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


@dataclass(frozen=True)
class Source:
    """A model folder that was looked at, and what of it was asked for.

    Attributes:
        root: its absolute path.
        manifest: the published one, of all files; or one made here, of those that were asked for.
        files: those that were asked for, in the order of their paths' bytes.
        left_out: those that were not, and why.
        skipped: path and kind of what is neither file, folder nor link; it is never opened.
        notes: what a person should know about the choice of files.
    """

    root: bytes
    manifest: Manifest
    files: tuple[SourceFile, ...]
    left_out: tuple[LeftOut, ...] = ()
    skipped: tuple[tuple[bytes, str], ...] = ()
    notes: tuple[str, ...] = ()

    @functools.cached_property
    def total_bytes(self) -> int:
        """Return the sum of the sizes of the files that were asked for."""
        return sum(file.size for file in self.files)

    @functools.cached_property
    def folders(self) -> set[bytes]:
        """Return each folder that a copy has: those with files that were asked for, and the empty ones."""
        return names.with_parents(self.manifest.folders, (file.path for file in self.files))

    @functools.cached_property
    def selection_digest(self) -> str:
        """Return `sha256:` and hex digits that stand for the manifest and the files that were asked for."""
        paths = [names.to_json(file.path) for file in self.files]
        return manifests.digest(manifests.canonical([self.manifest.digest, paths]))


def open_regular(real: bytes) -> BinaryIO:
    """Open a file that was regular at the last look; it does not block on one that has become a fifo since.

    Raises:
        OSError: it cannot be opened, or has become a link.
    """
    return open(real, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def open_source(real: bytes, *, direct: bool) -> tuple[int, bool]:
    """Open a file of the source as `open_uncached` does; it does not block on one that has become a fifo since.

    Raises:
        OSError: it cannot be opened, or has become a link.
    """
    return open_uncached(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, direct=direct)


NOT_DIRECT = (errno.EINVAL, errno.EOPNOTSUPP)
"""How file systems refuse O_DIRECT, when a file is opened or first when it is read or written so."""


def open_uncached(path: bytes, flags: int, *, direct: bool, folder: int | None = None) -> tuple[int, bool]:
    """Open a file around the page cache, if that is asked for and can be had.

    Args:
        path: of the file.
        flags: for open, without O_DIRECT.
        direct: whether to go around the page cache.
        folder: a descriptor that the path is relative to; None for the working folder.

    Returns:
        The descriptor, and whether it goes around the page cache.

    Raises:
        OSError: it cannot be opened.
    """
    if direct:
        try:
            return os.open(path, flags | os.O_DIRECT, 0o644, dir_fd=folder), True
        except OSError as error:
            if error.errno not in NOT_DIRECT:
                raise
    return os.open(path, flags, 0o644, dir_fd=folder), False


def look(root: bytes, patterns: Sequence[str], patience: Patience, *, by_manifest: bool = True) -> Source:
    """Find out what a model folder holds: from its published manifest if it has one, else by a scan.

    Args:
        root: the folder.
        patterns: which files are asked for; see `selection.select`.
        patience: asked before each step; repeats what fails for the moment.
        by_manifest: whether a published manifest is believed; else the folder is scanned.

    Raises:
        FaststartError: 2 patterns that make no sense; 4 dangling link, link loop, or manifest and files disagree;
            6 missing, empty or no model; 7 not readable, or a link leaves the mount; 8 changed meanwhile; 9 I/O
            error; 143 SIGTERM.
    """
    found: list[Source] = []
    # In a thread, so that SIGTERM is noticed while a mount hangs.
    pool.each(
        [os.path.abspath(root)], lambda path: found.append(_look(path, patterns, patience, by_manifest)), patience
    )
    return found[0]


def _look(root: bytes, patterns: Sequence[str], patience: Patience, by_manifest: bool) -> Source:
    status = _root_status(root, patience)
    published = read_manifest(root, patience) if by_manifest else None
    if published:
        files, folders, skipped = _published_files(root, status.st_dev, published, patience), published.folders, ()
    else:
        files, folders, skipped = _scan(root, status, patience)
    _require_model([file.path for file in files], root)
    real = {file.path: file.real for file in files}

    def read(path: bytes) -> bytes:
        def content() -> bytes:
            with open_regular(real[path]) as stream:
                return stream.read()

        return patience.read(path, content)

    selection = select({file.path: file.size for file in files}, patterns, read)
    files = tuple(file for file in files if file.path in selection.paths)
    looked = [(file.path, file.size, file.mtime_ns) for file in files]
    manifest = published or manifests.scanned(root, looked, folders)
    return Source(root, manifest, files, selection.left_out, skipped, selection.notes)


def _root_status(root: bytes, patience: Patience) -> os.stat_result:
    try:
        status = patience.transient(lambda: os.stat(root), root)
    except OSError as error:
        if error.errno in _MISSING:
            raise FaststartError(Exit.NO_MODEL, "there is no such source folder", root) from error
        raise source_error(error, root) from error
    if not stat.S_ISDIR(status.st_mode):
        raise FaststartError(Exit.NO_MODEL, "the source is not a folder", root)
    return status


def _require_model(paths: Sequence[bytes], root: bytes) -> None:
    tops = {path.partition(b"/")[0] for path in paths}
    if not paths:
        raise FaststartError(Exit.NO_MODEL, "the source folder is empty", root)
    if b"config.json" not in tops and {b"blobs", b"snapshots"} <= tops:
        message = "is a Hugging Face cache: name the folder snapshots/<commit> in it as the source"
        raise FaststartError(Exit.NO_MODEL, message, root)
    if not any(names.is_weight(path) or path.rpartition(b"/")[2] == b"config.json" for path in paths):
        message = "holds no model: neither a weight file nor a config.json"
        raise FaststartError(Exit.NO_MODEL, message, root)


def read_manifest(root: bytes, patience: Patience) -> Manifest | None:
    """Return the published manifest of a folder, None if it has none.

    Raises:
        FaststartError: 4, what is there is no manifest; 7 or 9, it cannot be read; 143, SIGTERM.
    """

    def read() -> bytes | None:
        try:
            with open_regular(os.path.join(root, manifests.PATH)) as file:
                size = os.fstat(file.fileno()).st_size
                if size > manifests.MAX_BYTES:
                    message = f"has {size} bytes, and no manifest has more than {manifests.MAX_BYTES}"
                    raise FaststartError(Exit.DAMAGED, message, manifests.PATH)
                return file.read()
        except (FileNotFoundError, NotADirectoryError):
            return None

    data = patience.read(manifests.PATH, read)
    return manifests.parse(data) if data is not None else None


def _published_files(root: bytes, device: int, published: Manifest, patience: Patience) -> tuple[SourceFile, ...]:
    found: dict[bytes, SourceFile] = {}

    def find(batch: Sequence[ManifestFile]) -> None:
        for listed in batch:
            found[listed.path] = _published_file(root, device, listed, patience)

    pool.each(_batches(published.files), find, patience)
    return tuple(found[path] for path in sorted(found))


def _published_file(root: bytes, device: int, listed: ManifestFile, patience: Patience) -> SourceFile:
    real = os.path.join(root, listed.path)
    try:
        status = patience.transient(lambda: os.lstat(real), listed.path)
    except OSError as error:
        if error.errno in _MISSING:
            message = "is in the manifest and not in the folder: the published model is damaged"
            raise FaststartError(Exit.DAMAGED, message, listed.path) from error
        raise source_error(error, listed.path) from error
    if stat.S_ISLNK(status.st_mode):
        real, status = _follow(real, listed.path, device, patience)
    elif status.st_dev != device and _is_behind_a_link(root, listed.path):
        message = (
            "lies outside the source's file system, behind a folder that is a link: only links inside are followed"
        )
        raise FaststartError(Exit.NOT_PERMITTED, message, listed.path)
    if not stat.S_ISREG(status.st_mode):
        raise FaststartError(Exit.DAMAGED, "is in the manifest and is not a regular file", listed.path)
    if status.st_size != listed.size:
        message = f"has {status.st_size} bytes, the manifest says {listed.size}: the published model is damaged"
        raise FaststartError(Exit.DAMAGED, message, listed.path)
    return SourceFile(listed.path, real, status.st_size, status.st_mtime_ns, status.st_mode, listed)


def _is_behind_a_link(root: bytes, path: bytes) -> bool:
    folder = os.path.dirname(path)
    return os.path.realpath(os.path.join(root, folder)) != os.path.normpath(
        os.path.join(os.path.realpath(root), folder)
    )


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + _BATCH] for at in range(0, len(items), _BATCH)]


def _follow(real: bytes, path: bytes, device: int, patience: Patience) -> tuple[bytes, os.stat_result]:
    """Return where a link ends, and its status there.

    Raises:
        FaststartError: 4 it ends nowhere or in itself, 7 it ends on another mount or may not be read, 9 I/O error.
    """
    target = patience.read(path, lambda: os.readlink(real))
    try:
        end = patience.transient(lambda: os.path.realpath(real, strict=True), path)
        status = patience.transient(lambda: os.stat(end), path)
    except OSError as error:
        if error.errno in _MISSING:
            message = f"is a link to {show(target)}, which does not exist"
            raise FaststartError(Exit.DAMAGED, message, path) from error
        if error.errno == errno.ELOOP:
            raise FaststartError(Exit.DAMAGED, "is a link that leads back to itself", path) from error
        raise source_error(error, path) from error
    if status.st_dev != device:
        message = f"is a link to {show(end)}, outside the source's file system: only links inside are followed"
        raise FaststartError(Exit.NOT_PERMITTED, message, path)
    return end, status


class _Folder(NamedTuple):
    """A folder of the source, or some of the names in one.

    Attributes:
        above: the identities of the folder and of those above it: a link to one of them is a loop.
        inside: the names to look at; None for all.
    """

    path: bytes
    real: bytes
    above: frozenset[tuple[int, int]]
    inside: Sequence[bytes] | None


def _scan(
    root: bytes, root_status: os.stat_result, patience: Patience
) -> tuple[tuple[SourceFile, ...], list[bytes], tuple[tuple[bytes, str], ...]]:
    """Walk the folder, following links that stay on its file system; return files, empty folders and what is neither.

    Lists are shared by threads: each only appends to them, which is atomic.
    """
    files: list[SourceFile] = []
    folders: list[bytes] = []
    skipped: list[tuple[bytes, str]] = []
    device = root_status.st_dev

    def visit(folder: _Folder) -> list[_Folder]:
        inside = folder.inside
        if inside is None:
            first, *rest = _batches(_list(folder.path, folder.real, patience)) or [()]
            if rest:
                return [folder._replace(inside=batch) for batch in (first, *rest)]
            inside = first
        below = []
        for name in inside:
            path, real = os.path.join(folder.path, name), os.path.join(folder.real, name)
            if path == names.STATE:
                continue
            status = patience.read(path, functools.partial(os.lstat, real))
            if stat.S_ISLNK(status.st_mode):
                real, status = _follow(real, path, device, patience)
            if stat.S_ISREG(status.st_mode):
                listed = ManifestFile(path, status.st_size)
                files.append(SourceFile(path, real, status.st_size, status.st_mtime_ns, status.st_mode, listed))
            elif stat.S_ISDIR(status.st_mode):
                if _identity(status) in folder.above:
                    raise FaststartError(Exit.DAMAGED, "is a link to a folder that it lies in", path)
                folders.append(path)
                below.append(_Folder(path, real, folder.above | {_identity(status)}, None))
            else:
                skipped.append((path, _KINDS.get(stat.S_IFMT(status.st_mode), "no file")))
        return below

    pool.crawl([_Folder(b"", root, frozenset([_identity(root_status)]), None)], visit, patience)
    files.sort(key=lambda file: file.path)
    used = {os.path.dirname(path) for path in [*folders, *(file.path for file in files)]}
    return tuple(files), [path for path in folders if path not in used], tuple(sorted(skipped))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _list(folder: bytes, real: bytes, patience: Patience) -> list[bytes]:
    def read() -> list[bytes]:
        found = []
        with os.scandir(real) as entries:
            for entry in entries:
                patience.check()
                patience.answered()
                found.append(entry.name)
        return found

    return patience.read(folder or real, read)
