"""The folder that is copied into: who may own it, what lies in it, and the few ways in which it is changed.

Below the top folder every change goes through folders that were opened without following links, so that nothing is
ever written outside, whatever lies in there.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.errors import Exit, FaststartError, destination_error
from modelfolder.manifest import Manifest
from modelfolder.patience import Patience
from modelfolder.source import SourceFile, open_regular
from preload import state
from preload.state import Record

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_APPENDED_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = b".part"
_LOCK_SECONDS = 0.1  # between two tries to get the lock


@contextlib.contextmanager
def writing(file: bytes) -> Iterator[None]:
    """Turn an OSError into a FaststartError 3, 7 or 9 that names the file."""
    try:
        yield
    except OSError as error:
        raise destination_error(error, file) from error


def require_acceptable(root: bytes, source: bytes) -> None:
    """Hold that a destination is new, empty or ours, and apart from the source. Touches nothing.

    Args:
        root: absolute path; need not exist.
        source: absolute path of the source, which exists.

    Raises:
        FaststartError: 10, it is not; 7 or 9, it cannot be looked at.
    """

    def refuse(message: str) -> FaststartError:
        return FaststartError(Exit.REFUSED, message + "; nothing was touched", root)

    with writing(root):
        if _is_below(root, source):
            raise refuse("the destination lies in the source folder")
        try:
            mode = os.lstat(root).st_mode
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            raise refuse("the destination would lie in a file") from error
        if stat.S_ISLNK(mode):
            raise refuse("the destination is a link; name the folder itself")
        if not stat.S_ISDIR(mode):
            raise refuse("the destination is not a folder")
        if _is_below(source, root):
            raise refuse("the source lies in the destination folder")
        content = os.listdir(root)
        if not content:
            return
        if names.STATE not in content:
            raise refuse("the destination is not empty and not ours: it has no .faststart folder")
        if not stat.S_ISDIR(os.lstat(os.path.join(root, names.STATE)).st_mode):
            raise refuse("the destination is not ours: its .faststart is not a folder")
        if os.path.lexists(os.path.join(root, manifests.PATH)):
            raise refuse("the destination is a published model")


def nearest_existing(path: bytes) -> bytes:
    """Return the path, or the nearest folder above it that exists."""
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


def _is_below(path: bytes, folder: bytes) -> bool:
    """Say whether a path is a folder or lies in it; a folder that is mounted in two places is one folder."""
    path = os.path.realpath(path)
    while True:
        if os.path.exists(path) and os.path.samefile(path, folder):
            return True
        if path == os.path.dirname(path):
            return False
        path = os.path.dirname(path)


@dataclass(frozen=True)
class Inventory:
    """What lies in a destination outside our own folder; `files` holds all that is no folder, links too."""

    files: dict[bytes, os.stat_result] = field(default_factory=dict)
    folders: set[bytes] = field(default_factory=set)

    def first_difference(self, manifest: Manifest) -> bytes | None:
        """Return a path that is missing, too much, or no regular file of its size; None if all is as listed."""
        wanted = {file.path: file.size for file in manifest.files}
        wrong = (wanted.keys() ^ self.files.keys()) | (manifest.all_folders ^ self.folders)
        for path in wanted.keys() & self.files.keys():
            status = self.files[path]
            if not stat.S_ISREG(status.st_mode) or status.st_size != wanted[path]:
                wrong.add(path)
        return min(wrong, default=None)


def take_inventory(root: bytes, patience: Patience) -> Inventory:
    """List what lies in a destination; nothing, if it does not exist.

    Raises:
        FaststartError: 7 or 9, it cannot be listed; 143, SIGTERM.
    """
    found = Inventory()
    stack = [b""] if os.path.isdir(root) else []
    while stack:
        folder = stack.pop()
        with writing(folder or root), os.scandir(os.path.join(root, folder)) as entries:
            for entry in entries:
                patience.check()
                path = os.path.join(folder, entry.name)
                if path == names.STATE:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.folders.add(path)
                    stack.append(path)
                else:
                    found.files[path] = entry.stat(follow_symlinks=False)
    return found


def read_marker(root: bytes) -> bytes:
    """Return the marker's bytes, none if there is no marker that can be read."""
    return _read(os.path.join(root, names.STATE, state.MARKER))


def read_journal(root: bytes) -> bytes:
    """Return the journal's bytes, none if there is no journal that can be read."""
    return _read(os.path.join(root, names.STATE, b"work/done.jsonl"))


def _read(path: bytes) -> bytes:
    try:
        with open_regular(path) as file:
            return file.read()
    except OSError:
        return b""


@contextlib.contextmanager
def locked(root: bytes, wait: float, patience: Patience, say: Callable[[str], None]) -> Iterator[Destination]:
    """Make the destination if need be, and hold its lock. The lock ends with the process, however that ends.

    Args:
        root: absolute path, found acceptable.
        wait: seconds to wait for another owner.
        patience: ends the wait when it is told to stop.
        say: told that there is another owner.

    Raises:
        FaststartError: 5, another owner is still there after the wait; 3, 7 or 9, it cannot be made; 143, SIGTERM.
    """
    with contextlib.ExitStack() as stack:

        def opened(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        with writing(root):
            os.makedirs(root, 0o755, exist_ok=True)
            top = opened(os.open(root, _FOLDER))
            own = opened(_make_folder(top, names.STATE))
            lock = opened(os.open(b"lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=own))
        _acquire(lock, root, wait, patience, say)
        with writing(root):
            work = opened(_make_folder(own, b"work"))
            journal = opened(os.open(b"done.jsonl", _APPENDED_FILE, 0o644, dir_fd=work))
        yield Destination(root, top, own, work, journal)


def _acquire(lock: int, root: bytes, wait: float, patience: Patience, say: Callable[[str], None]) -> None:
    waited = 0.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if waited >= wait:
                message = f"another preload owns the destination, still after {wait:g} s; give it time with --wait"
                raise FaststartError(Exit.BUSY, message, root) from error
        else:
            return
        if not waited:
            say(f"another preload owns the destination; waiting up to {wait:g} s")
        patience.pause(_LOCK_SECONDS)
        waited += _LOCK_SECONDS


def _make_folder(parent: int, name: bytes) -> int:
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o755, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


class Destination:
    """A destination whose lock we hold. Made by `locked`."""

    def __init__(self, root: bytes, top: int, own: int, work: int, journal: int):
        self.root = root
        self._top = top
        self._own = own
        self._work = work
        self._journal = journal

    def remove_marker(self) -> None:
        """Let the destination no longer count as complete. Goes before any change of it.

        Raises:
            FaststartError: 7 or 9, it cannot be removed.
        """
        with writing(self.root), contextlib.suppress(FileNotFoundError):
            os.unlink(state.MARKER, dir_fd=self._own)

    def prepare(
        self,
        manifest: Manifest,
        found: Inventory,
        kept: Mapping[bytes, Record],
        boot: str | None,
        patience: Patience,
    ) -> None:
        """Leave only our own folder, the kept files and the folders that the manifest needs.

        Raises:
            FaststartError: 3, 7 or 9, the destination cannot be changed; 143, SIGTERM.
        """
        folders = manifest.all_folders
        with writing(self.root):
            for name in map(os.fsencode, os.listdir(self._work)):
                if name.endswith(_PART):
                    os.unlink(name, dir_fd=self._work)
        for path in found.files.keys() - kept.keys():
            patience.check()
            with writing(path), self._parent(path) as (parent, name):
                os.unlink(name, dir_fd=parent)
        # In the order of their bytes a folder comes before all that lies in it.
        for path in sorted(found.folders - folders, reverse=True):
            patience.check()
            with writing(path), self._parent(path) as (parent, name):
                os.rmdir(name, dir_fd=parent)
        for path in sorted(folders):
            patience.check()
            with writing(path), self._parent(path) as (parent, name):
                folder = _make_folder(parent, name)
                try:
                    if stat.S_IMODE(os.fstat(folder).st_mode) & 0o777 != 0o755:
                        os.fchmod(folder, 0o755)
                finally:
                    os.close(folder)
        with writing(self.root):
            os.ftruncate(self._journal, 0)
            with open(self._journal, "wb", closefd=False) as journal:
                journal.write(state.journal_start(manifest, boot, kept))

    @contextlib.contextmanager
    def part(self, number: int, file: SourceFile) -> Iterator[int]:
        """Open a file under a name without meaning; it gets its final name when the block ends well, else it goes.

        Raises:
            OSError: it cannot be made, or not be given its name.
        """
        part = b"%d%s" % (number, _PART)
        fd = os.open(part, _NEW_FILE, 0o644, dir_fd=self._work)
        try:
            yield fd
            os.fchmod(fd, 0o644 | file.mode & 0o111)
            os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
            with self._parent(file.path) as (parent, name):
                os.rename(part, name, src_dir_fd=self._work, dst_dir_fd=parent)
                record = Record.of(os.stat(name, dir_fd=parent, follow_symlinks=False))
            os.write(self._journal, state.journal_line(file.path, record))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(part, dir_fd=self._work)
            raise
        finally:
            os.close(fd)

    def write_marker(self, data: bytes) -> None:
        """Say that the destination is complete.

        Raises:
            FaststartError: 3, 7 or 9, it cannot be written.
        """
        with writing(self.root):
            self._replace(state.MARKER, data)

    def write_report(self, data: bytes) -> None:
        """Write report.json.

        Raises:
            OSError: it cannot be written.
        """
        self._replace(b"report.json", data)

    def _replace(self, name: bytes, data: bytes) -> None:
        new = name + b".new"
        with open(os.open(new, _NEW_FILE, 0o644, dir_fd=self._own), "wb") as file:
            file.write(data)
        os.rename(new, name, src_dir_fd=self._own, dst_dir_fd=self._own)

    @contextlib.contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the folder that a path lies in; fails on a link on the way."""
        folder, _, name = path.rpartition(b"/")
        fd = os.dup(self._top)
        try:
            for part in folder.split(b"/") if folder else ():
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            yield fd, name
        finally:
            os.close(fd)


def write_all(fd: int, data: bytes | memoryview, at: int) -> None:
    """Write all of the data at an offset.

    Raises:
        OSError: that failed.
    """
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, at)
        view, at = view[written:], at + written
