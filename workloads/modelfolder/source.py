"""A model folder as it lies in a file system: which files to read, where they are, and what is no content."""

from __future__ import annotations

import errno
import functools
import os
import stat
import types
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple, TypeVar

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.manifest import Manifest, ManifestFile
from modelfolder.selection import Broken, LeftOut, select, unused_folder
from podkit import pool
from podkit.display import show
from podkit.errors import Exit, FaststartError, source_error
from podkit.patience import Patience

T = TypeVar("T")

INDEX_BYTES = 64 << 20
"""The most bytes of a weight index. 210,000 tensors, of 60 layers with 384 experts of three matrices in three tensors
each, have one of 21 MB."""

_MISSING = (errno.ENOENT, errno.ENOTDIR)
_BATCH = 64  # names that one thread looks at in a row
_FAILURES = 3  # places where a file system may fail, each after half a minute of tries, before the walk ends

_UNREADABLE = (Exit.DAMAGED, Exit.NOT_PERMITTED, Exit.CHANGED)
"""How a look at a file ends that no other file suffers from."""

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
        empty = set(self.manifest.folders) - {names.LOST_FOUND}
        return names.with_parents(empty, (file.path for file in self.files))

    @functools.cached_property
    def selection_digest(self) -> str:
        """Return `sha256:` and hex digits that stand for the manifest and the files that were asked for."""
        paths = [names.to_json(file.path) for file in self.files]
        return manifests.digest(manifests.canonical([self.manifest.digest, paths]))


def open_unlinked(path: bytes) -> BinaryIO:
    """Open a file that was regular at the last look; it does not block on one that has become a fifo since.

    Raises:
        OSError: it cannot be opened, or has become a link.
    """
    return open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def open_regular(real: bytes) -> BinaryIO:
    """Open a file of the source as `open_unlinked` does, and only where it was at the last look.

    Args:
        real: of a SourceFile.

    Raises:
        OSError: it cannot be opened, or has become a link, or a folder above it has.
    """
    stream = open_unlinked(real)
    try:
        _require_at(stream.fileno(), real)
    except BaseException:
        stream.close()
        raise
    return stream


def require_readable(path: bytes, size: int, most: int) -> None:
    """Hold that a file that is read whole is no larger than any of its kind.

    Args:
        path: its path in the model folder.
        size: its bytes.
        most: the most bytes that such a file may have.

    Raises:
        FaststartError: 4, it has more.
    """
    if size > most:
        message = (
            f"has {size} bytes, and of such a file at most {most} are read: it is damaged, or made to fill the memory;"
            " fetch it again, or leave it out with --files"
        )
        raise FaststartError(Exit.DAMAGED, message, path)


def open_source(real: bytes, *, direct: bool) -> tuple[int, bool]:
    """Open a file of the source as `open_uncached` does, and else as `open_regular` does.

    Raises:
        OSError: it cannot be opened, or has become a link, or a folder above it has.
    """
    fd, direct = open_uncached(real, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, direct=direct)
    try:
        _require_at(fd, real)
    except BaseException:
        os.close(fd)
        raise
    return fd, direct


def _require_at(fd: int, real: bytes) -> None:
    """Hold that no link led from a path to an open file: the kernel knows where that lies."""
    if os.readlink(b"/proc/self/fd/%d" % fd) != real:
        raise OSError(errno.ELOOP, "it was moved, or a folder above it has become a link")


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


def look(
    root: bytes,
    patterns: Sequence[str],
    patience: Patience,
    *,
    by_manifest: bool = True,
    besides: Collection[bytes] = frozenset(),
) -> Source:
    """Find out what a model folder holds: from its published manifest if it has one, else by a scan.

    What was not asked for is only listed: it may be missing, unreadable, or a link to nowhere.

    Args:
        root: the folder.
        patterns: which files are asked for; see `selection.select`.
        patience: asked before each step; repeats what fails for the moment.
        by_manifest: whether a published manifest is believed; else the folder is scanned.
        besides: files that are asked for, too, where there are such.

    Raises:
        FaststartError: 2 patterns that make no sense; 4 dangling link, link loop, or manifest and files disagree;
            6 missing, empty or no model; 7 not readable, or a link leaves the folder; 8 changed meanwhile; 9 I/O
            error; 143 SIGTERM.
    """
    found: list[Source] = []
    # In a thread, so that SIGTERM is noticed while a mount hangs.
    pool.each(
        [os.path.abspath(root)],
        lambda path: found.append(_look(path, patterns, patience, by_manifest, besides)),
        patience,
    )
    return found[0]


def _look(
    root: bytes, patterns: Sequence[str], patience: Patience, by_manifest: bool, besides: Collection[bytes]
) -> Source:
    bounds = _bounds(root, patience)
    published = read_manifest(root, patience) if by_manifest else None
    found: _Published | _Scan = _Published(bounds, published, patience) if published else _scan(bounds, patience)
    _require_model([*found.sizes, *found.broken], root)

    def content(path: bytes) -> bytes:
        file = found.file(path)
        require_readable(path, file.size, INDEX_BYTES)

        def read() -> bytes:
            with open_regular(file.real) as stream:
                return stream.read(file.size)

        return patience.read(path, read)

    def read(path: bytes) -> bytes:
        try:
            return content(path)
        except FaststartError as error:
            if error.code not in _UNREADABLE:
                raise
            return b""  # if it is chosen, whoever opens it next says so

    selection = select(found.sizes, patterns, read, found.broken)
    files = found.files(selection.paths | (besides & found.sizes.keys()))
    left_out = tuple(one for one in selection.left_out if one.path not in besides)
    folders = [path for path in found.folders if list(patterns) == ["all"] or not unused_folder(path)]
    looked = [(file.path, file.size, file.mtime_ns) for file in files]
    manifest = published or manifests.scanned(root, looked, folders)
    return Source(root, manifest, files, left_out, found.skipped, selection.notes)


@dataclass(frozen=True)
class _Bounds:
    """Where a source ends.

    Attributes:
        top: the folder itself, without links in its path.
        identity: that of the folder.
        inside: the folders in which a link may end: the top one, and the blobs of a Hugging Face cache.
    """

    top: bytes
    identity: tuple[int, int]
    inside: tuple[bytes, ...]

    def holds(self, path: bytes) -> bool:
        """Say whether a path without links lies inside."""
        return any(path == folder or path.startswith(folder.rstrip(b"/") + b"/") for folder in self.inside)


def _bounds(root: bytes, patience: Patience) -> _Bounds:
    try:
        status = patience.transient(lambda: os.stat(root), root)
        top = patience.transient(lambda: os.path.realpath(root, strict=True), root)
    except OSError as error:
        if error.errno in _MISSING:
            raise FaststartError(Exit.NO_MODEL, "there is no such source folder", root) from error
        raise source_error(error, root) from error
    if not stat.S_ISDIR(status.st_mode):
        raise FaststartError(Exit.NO_MODEL, "the source is not a folder", root)
    above, commit = os.path.split(top)
    blobs = os.path.join(os.path.dirname(above), b"blobs")
    cached = os.path.basename(above) == b"snapshots" and commit and os.path.realpath(blobs) == blobs
    return _Bounds(top, _identity(status), (top, blobs) if cached else (top,))


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
            with open_unlinked(os.path.join(root, manifests.PATH)) as file:
                size = os.fstat(file.fileno()).st_size
                if size > manifests.MAX_BYTES:
                    message = f"has {size} bytes, and no manifest has more than {manifests.MAX_BYTES}"
                    raise FaststartError(Exit.DAMAGED, message, manifests.PATH)
                return file.read(size)
        except (FileNotFoundError, NotADirectoryError):
            return None

    data = patience.read(manifests.PATH, read)
    return manifests.parse(data) if data is not None else None


class _Published:
    """A folder by its manifest: a file is looked at once it is asked for."""

    skipped: tuple[tuple[bytes, str], ...] = ()
    broken: Mapping[bytes, Broken] = types.MappingProxyType({})

    def __init__(self, bounds: _Bounds, manifest: Manifest, patience: Patience):
        self.sizes = {listed.path: listed.size for listed in manifest.files}
        self.folders = manifest.folders
        self._folders: dict[bytes, bytes] = {b"": bounds.top}
        self._listed = {listed.path: listed for listed in manifest.files}
        self._bounds = bounds
        self._patience = patience

    def files(self, paths: Collection[bytes]) -> tuple[SourceFile, ...]:
        found: dict[bytes, SourceFile] = {}

        def find(batch: Sequence[bytes]) -> None:
            for path in batch:
                found[path] = self.file(path)

        pool.each(_batches(sorted(paths)), find, self._patience)
        return tuple(found[path] for path in sorted(found))

    def file(self, path: bytes) -> SourceFile:
        listed = self._listed[path]
        try:
            real = os.path.join(self._folder(os.path.dirname(path), path), os.path.basename(path))
            status = self._patience.transient(lambda: os.lstat(real), path)
        except OSError as error:
            if error.errno in _MISSING:
                message = "is in the manifest and not in the folder: the published model is damaged"
                raise FaststartError(Exit.DAMAGED, message, path) from error
            raise source_error(error, path) from error
        if stat.S_ISLNK(status.st_mode):
            real, status = _follow(real, path, self._bounds, self._patience)
        if not stat.S_ISREG(status.st_mode):
            raise FaststartError(Exit.DAMAGED, "is in the manifest and is not a regular file", path)
        if status.st_size != listed.size:
            message = f"has {status.st_size} bytes, the manifest says {listed.size}: the published model is damaged"
            raise FaststartError(Exit.DAMAGED, message, path)
        return SourceFile(path, real, status.st_size, status.st_mtime_ns, status.st_mode, listed)

    def _folder(self, folder: bytes, path: bytes) -> bytes:
        """Return where the folder of a file is, with links resolved."""
        if folder not in self._folders:
            real = os.path.join(self._bounds.top, folder)
            end = self._patience.transient(lambda: os.path.realpath(real, strict=True), path)
            if not self._bounds.holds(end):
                raise _outside("lies behind a folder that is a link, at", end, path)
            self._folders[folder] = end
        return self._folders[folder]


def _batches(items: Sequence[T]) -> list[Sequence[T]]:
    return [items[at : at + _BATCH] for at in range(0, len(items), _BATCH)]


def _follow(real: bytes, path: bytes, bounds: _Bounds, patience: Patience) -> tuple[bytes, os.stat_result]:
    """Return where a link ends, and its status there.

    Raises:
        FaststartError: 4 it ends nowhere or in itself, 7 it ends outside the source or may not be read, 9 I/O error.
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
    if not bounds.holds(end):
        raise _outside("is a link to", end, path)
    return end, status


def _outside(what: str, end: bytes, path: bytes) -> FaststartError:
    message = (
        f"{what} {show(end)}, outside the source folder: only links inside are followed; put the file itself there"
    )
    return FaststartError(Exit.NOT_PERMITTED, message, path)


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

    def below(self, path: bytes, real: bytes, identity: tuple[int, int]) -> _Folder:
        """Return a folder in this one.

        Raises:
            FaststartError: 4, it is this one, or one above.
        """
        if identity in self.above:
            raise FaststartError(Exit.DAMAGED, "is a link to a folder that it lies in", path)
        return _Folder(path, real, self.above | {identity}, None)


@dataclass(frozen=True)
class _Scan:
    """What a walk through the folder found.

    Attributes:
        found: the regular files.
        folders: the empty ones.
        skipped: what is neither file, folder nor link, and its kind.
        broken: what cannot be had.
    """

    found: Mapping[bytes, SourceFile]
    folders: Sequence[bytes]
    skipped: tuple[tuple[bytes, str], ...]
    broken: Mapping[bytes, Broken]

    @functools.cached_property
    def sizes(self) -> Mapping[bytes, int]:
        return {path: file.size for path, file in self.found.items()}

    def file(self, path: bytes) -> SourceFile:
        if path in self.broken:
            raise self.broken[path].error
        return self.found[path]

    def files(self, paths: Collection[bytes]) -> tuple[SourceFile, ...]:
        return tuple(self.found[path] for path in sorted(paths))


def _scan(bounds: _Bounds, patience: Patience) -> _Scan:
    """Walk the folder, following the links that stay inside.

    Lists are shared by threads: each only appends to them, which is atomic.
    """
    files: list[SourceFile] = []
    folders: list[bytes] = []
    skipped: list[tuple[bytes, str]] = []
    broken: list[Broken] = []

    def visit(folder: _Folder) -> list[_Folder]:
        inside = folder.inside
        if inside is None:
            try:
                first, *rest = _batches(_list(folder.path, folder.real, patience)) or [()]
            except FaststartError as error:
                note(error, folder.path, folder=True)
                return []
            if rest:
                return [folder._replace(inside=batch) for batch in (first, *rest)]
            inside = first
        below = []
        for name in inside:
            path, real = os.path.join(folder.path, name), os.path.join(folder.real, name)
            if path == names.STATE:
                continue
            try:
                status = patience.read(path, functools.partial(os.lstat, real))
                if stat.S_ISLNK(status.st_mode):
                    real, status = _follow(real, path, bounds, patience)
                if stat.S_ISREG(status.st_mode):
                    listed = ManifestFile(path, status.st_size)
                    files.append(SourceFile(path, real, status.st_size, status.st_mtime_ns, status.st_mode, listed))
                elif stat.S_ISDIR(status.st_mode):
                    below.append(folder.below(path, real, _identity(status)))
                    folders.append(path)
                else:
                    skipped.append((path, _KINDS.get(stat.S_IFMT(status.st_mode), "no file")))
            except FaststartError as error:
                note(error, path)
        return below

    def note(error: FaststartError, path: bytes, *, folder: bool = False) -> None:
        failures = sum(what.error.code == Exit.IO_ERROR for what in broken)
        if not path or error.code == Exit.TERMINATED or (error.code == Exit.IO_ERROR and failures == _FAILURES):
            raise error
        broken.append(Broken(path, error, folder))

    pool.crawl([_Folder(b"", bounds.top, frozenset([bounds.identity]), None)], visit, patience)
    found = {file.path: file for file in sorted(files, key=lambda file: file.path)}
    lost = {what.path: what for what in sorted(broken, key=lambda what: what.path)}
    used = {os.path.dirname(path) for path in [*folders, *found]} | {os.path.dirname(path) for path in lost}
    empty = [path for path in folders if path not in used and path not in lost]
    return _Scan(found, empty, tuple(sorted(skipped)), lost)


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


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
