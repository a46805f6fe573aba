"""A model folder as it lies in a file system: which files to read, where they are, and what is no content."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from typing import BinaryIO

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.errors import Exit, FaststartError, source_error
from modelfolder.manifest import Manifest
from modelfolder.patience import Patience

_MISSING = (errno.ENOENT, errno.ENOTDIR)

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
    """

    path: bytes
    real: bytes
    size: int
    mtime_ns: int
    mode: int

    def same(self, status: os.stat_result) -> bool:
        """Say whether the file is as it was at the first look: regular, of the same size and mtime."""
        return stat.S_ISREG(status.st_mode) and (status.st_size, status.st_mtime_ns) == (self.size, self.mtime_ns)


@dataclass(frozen=True)
class Source:
    """A model folder that was looked at.

    Attributes:
        root: its absolute path.
        skipped: path and kind of what is neither file, folder nor link; it is never opened.
    """

    root: bytes
    manifest: Manifest
    files: tuple[SourceFile, ...]
    skipped: tuple[tuple[bytes, str], ...] = ()


def open_regular(real: bytes) -> BinaryIO:
    """Open a file that was regular at the last look; it does not block on one that has become a fifo since.

    Raises:
        OSError: it cannot be opened, or has become a link.
    """
    return open(real, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK))


def look(root: bytes, patience: Patience) -> Source:
    """Find out what a model folder holds: from its published manifest if it has one, else by a scan.

    Args:
        root: the folder.
        patience: asked before each step; repeats what fails for the moment.

    Raises:
        FaststartError: 4 dangling link, link loop, or manifest and files disagree; 6 missing, empty or no model;
            7 not readable, or a link leaves the mount; 8 changed meanwhile; 9 I/O error; 143 SIGTERM.
    """
    root = os.path.abspath(root)
    status = _root_status(root, patience)
    published = _read_manifest(root, patience)
    if published:
        source = Source(root, published, _published_files(root, status.st_dev, published, patience))
    else:
        source = _scan(root, status, patience)
    _require_model(source.manifest, root)
    return source


def _root_status(root: bytes, patience: Patience) -> os.stat_result:
    try:
        status = patience.transient(lambda: os.stat(root))
    except OSError as error:
        if error.errno in _MISSING:
            raise FaststartError(Exit.NO_MODEL, "there is no such source folder", root) from error
        raise source_error(error, root) from error
    if not stat.S_ISDIR(status.st_mode):
        raise FaststartError(Exit.NO_MODEL, "the source is not a folder", root)
    return status


def _require_model(manifest: Manifest, root: bytes) -> None:
    paths = [file.path for file in manifest.files]
    tops = {path.partition(b"/")[0] for path in paths}
    if not paths:
        raise FaststartError(Exit.NO_MODEL, "the source folder is empty", root)
    if b"config.json" not in tops and {b"blobs", b"snapshots"} <= tops:
        message = "is a Hugging Face cache: name the folder snapshots/<commit> in it as the source"
        raise FaststartError(Exit.NO_MODEL, message, root)
    if not any(names.is_weight(path) or path.rpartition(b"/")[2] == b"config.json" for path in paths):
        message = "holds no model: neither a weight file nor a config.json"
        raise FaststartError(Exit.NO_MODEL, message, root)


def _read_manifest(root: bytes, patience: Patience) -> Manifest | None:
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
    found = []
    for listed in published.files:
        real = os.path.join(root, listed.path)
        try:
            status = patience.transient(lambda real=real: os.lstat(real))
        except OSError as error:
            if error.errno in _MISSING:
                message = "is in the manifest and not in the folder: the published model is damaged"
                raise FaststartError(Exit.DAMAGED, message, listed.path) from error
            raise source_error(error, listed.path) from error
        if stat.S_ISLNK(status.st_mode):
            real, status = _follow(real, listed.path, device, patience)
        if not stat.S_ISREG(status.st_mode):
            raise FaststartError(Exit.DAMAGED, "is in the manifest and is not a regular file", listed.path)
        if status.st_size != listed.size:
            message = f"has {status.st_size} bytes, the manifest says {listed.size}: the published model is damaged"
            raise FaststartError(Exit.DAMAGED, message, listed.path)
        found.append(_source_file(listed.path, real, status))
    return tuple(found)


def _source_file(path: bytes, real: bytes, status: os.stat_result) -> SourceFile:
    return SourceFile(path, real, status.st_size, status.st_mtime_ns, status.st_mode)


def _follow(real: bytes, path: bytes, device: int, patience: Patience) -> tuple[bytes, os.stat_result]:
    """Return where a link ends, and its status there.

    Raises:
        FaststartError: 4 it ends nowhere or in itself, 7 it ends on another mount or may not be read, 9 I/O error.
    """
    target = patience.read(path, lambda: os.readlink(real))
    try:
        end = patience.transient(lambda: os.path.realpath(real, strict=True))
        status = patience.transient(lambda: os.stat(end))
    except OSError as error:
        if error.errno in _MISSING:
            message = f"is a link to {names.show(target)}, which does not exist"
            raise FaststartError(Exit.DAMAGED, message, path) from error
        if error.errno == errno.ELOOP:
            raise FaststartError(Exit.DAMAGED, "is a link that leads back to itself", path) from error
        raise source_error(error, path) from error
    if status.st_dev != device:
        message = f"is a link to {names.show(end)}, outside the source's file system: only links inside are followed"
        raise FaststartError(Exit.NOT_PERMITTED, message, path)
    return end, status


def _scan(root: bytes, root_status: os.stat_result, patience: Patience) -> Source:
    """Walk the folder, following links that stay on its file system.

    Each folder on the stack carries the identities of those above it, so that a link to one of them is noticed.
    """
    files: list[SourceFile] = []
    folders: list[bytes] = []
    skipped: list[tuple[bytes, str]] = []
    device = root_status.st_dev
    stack = [(b"", root, frozenset([_identity(root_status)]))]
    while stack:
        folder, real_folder, above = stack.pop()
        for name in _list(folder, real_folder, patience):
            path, real = os.path.join(folder, name), os.path.join(real_folder, name)
            if path == names.STATE:
                continue
            status = patience.read(path, lambda real=real: os.lstat(real))
            if stat.S_ISLNK(status.st_mode):
                real, status = _follow(real, path, device, patience)
            if stat.S_ISDIR(status.st_mode):
                if _identity(status) in above:
                    raise FaststartError(Exit.DAMAGED, "is a link to a folder that it lies in", path)
                folders.append(path)
                stack.append((path, real, above | {_identity(status)}))
            elif stat.S_ISREG(status.st_mode):
                files.append(_source_file(path, real, status))
            else:
                skipped.append((path, _KINDS.get(stat.S_IFMT(status.st_mode), "no file")))
    files.sort(key=lambda file: file.path)
    used = {parent for path in [*folders, *(file.path for file in files)] for parent in names.parents(path)}
    empty = [path for path in folders if path not in used]
    manifest = manifests.scanned(root, [(file.path, file.size, file.mtime_ns) for file in files], empty)
    return Source(root, manifest, tuple(files), tuple(sorted(skipped)))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _list(folder: bytes, real: bytes, patience: Patience) -> list[bytes]:
    def read() -> list[bytes]:
        found = []
        with os.scandir(real) as entries:
            for entry in entries:
                patience.check()
                found.append(entry.name)
        return found

    return patience.read(folder or real, read)
