"""The folder in which a model is put together: what of it is whole, and how it gets its final name.

It lies on the destination's file system, so that the last step is one rename. What an earlier run left in it is gone on
with; nothing of it is believed by its name and size alone.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from modelfolder import names
from podkit import documents
from podkit.errors import Exit, FaststartError, writing
from podkit.files import replace
from podkit.locks import acquire
from podkit.patience import Patience
from preload.destination import take_inventory
from preload.state import Record
from publish.remote import RemoteFile

_FETCHED = "fetched.jsonl"
_FETCH = "fetch"
_LINE_BYTES = 64 << 10  # of the journal, that are read at once: a path has 4 KiB, an ETag or a hash less


def lock_of(staging: str) -> str:
    """Return the path of the lock that is held while a folder is put together in this staging folder, or removed."""
    above, name = os.path.split(staging)
    return os.path.join(above, f".{name.removeprefix('.')}.lock")


@contextlib.contextmanager
def locked(lock: str, about: str, wait: float, patience: Patience, waiting: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock file, made with its folder if need be, while the block runs; it is removed at the end.

    So is a folder of our own in which nothing else is then: that of a model which could not be sealed in place.

    Args:
        lock: path of the lock file.
        about: the model's folder, for messages.
        wait: seconds to wait for another publisher.
        patience: ends the wait when it is told to stop.
        waiting: told every moment, with the seconds waited, while there is another publisher.

    Raises:
        FaststartError: 5, another one is still there after the wait; 3, 7 or 9, it cannot be made; 143, SIGTERM.
    """
    folder, above = os.fsencode(about), os.path.dirname(lock)
    while True:
        with writing(os.fsencode(lock)):
            os.makedirs(above, exist_ok=True)
            try:
                fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            except FileNotFoundError:  # its last owner removed the folder
                continue
        with contextlib.ExitStack() as stack:
            stack.callback(os.close, fd)
            with writing(os.fsencode(lock)):
                acquire(fd, folder, "another publisher works on it", wait, patience, waiting)
            if not _is_at(fd, lock):  # its last owner removed it
                continue
            try:
                yield
            finally:
                with contextlib.suppress(OSError):
                    os.unlink(lock)
                    if os.path.basename(above) == os.fsdecode(names.STATE):
                        os.rmdir(above)
            return


def _is_at(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.lstat(path))
    except OSError:
        return False


class Staging:
    """A staging folder whose lock we hold.

    Attributes:
        root: its absolute path.
        whole: the files that are whole, as they were when they became so.
    """

    def __init__(self, root: str):
        self.root = root
        self.whole: dict[bytes, Record] = {}
        self._own = os.path.join(root, os.fsdecode(names.STATE))
        self._journal = os.path.join(self._own, _FETCHED)
        self._fetch = os.path.join(self._own, _FETCH)
        self._lock = threading.Lock()

    def open(self, files: Mapping[bytes, RemoteFile], folders: Iterable[bytes], patience: Patience) -> None:
        """Make the folder, or leave of it what is whole, and what was begun, of these files.

        Args:
            files: what the folder is to hold, by path.
            folders: the empty folders that it is to hold.
            patience: asked before each step.

        Raises:
            FaststartError: 3, 7 or 9, it cannot be made or read; 143, SIGTERM.
        """
        with writing(os.fsencode(self.root)):
            os.makedirs(self._fetch, exist_ok=True)
            found = take_inventory(os.fsencode(self.root), patience)
            self.whole = {
                path: record
                for path, (version, record) in self._read_journal().items()
                if path in files and files[path].version == version
                if path in found.files and Record.of(found.files[path]) == record
            }
            self._clear({self._key(file) for path, file in files.items() if path not in self.whole})
            for path in found.files.keys() - self.whole.keys():
                os.unlink(self.path(path))
            wanted = names.with_parents(folders, files)
            for path in sorted(found.folders - wanted, reverse=True):
                os.rmdir(self.path(path))
            for path in sorted(wanted):
                os.makedirs(self.path(path), mode=0o755, exist_ok=True)
            lines = [_line(files[path], record) for path, record in self.whole.items()]
            replace(os.fsencode(self._journal), b"".join(lines))

    def path(self, path: bytes) -> str:
        """Return where a file of the model lies."""
        return os.path.join(self.root, os.fsdecode(path))

    @contextlib.contextmanager
    def fetching(self, file: RemoteFile) -> Iterator[str]:
        """Give a folder for one file that is being fetched; it stays after an error, for the next try.

        Raises:
            FaststartError: 3, 7 or 9, it cannot be made.
        """
        folder = os.path.join(self._fetch, self._key(file))
        with writing(file.path):
            os.makedirs(folder, exist_ok=True)
        yield folder
        with writing(file.path):
            shutil.rmtree(folder)

    def place(self, file: RemoteFile, fetched: str) -> None:
        """Give a whole file its name; it is on disk before.

        Raises:
            FaststartError: 3, 7 or 9, that failed.
        """
        with writing(file.path):
            fd = os.open(fetched, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                os.fchmod(fd, 0o644)
                os.fsync(fd)
                os.rename(fetched, self.path(file.path))
                record = Record.of(os.fstat(fd))
            finally:
                os.close(fd)
            with self._lock, open(self._journal, "ab") as journal:
                self.whole[file.path] = record
                journal.write(_line(file, record))

    def _read_journal(self) -> dict[bytes, tuple[str, Record]]:
        """Return what the journal says, the last word of each file; a torn or strange line says nothing."""
        found: dict[bytes, tuple[str, Record]] = {}
        with contextlib.suppress(FileNotFoundError), open(self._journal, "rb") as journal:
            while line := journal.readline(_LINE_BYTES):
                with contextlib.suppress(ValueError, TypeError):
                    path, version, record = documents.parse(line)
                    found[names.from_json(path)] = (version, Record(*record))
        return found

    def _clear(self, begun: set[str]) -> None:
        """Leave of our own folder the journal and what was begun."""
        for folder, kept in ((self._own, {_FETCHED, _FETCH}), (self._fetch, begun)):
            for name in set(os.listdir(folder)) - kept:
                _remove(os.path.join(folder, name))

    @staticmethod
    def _key(file: RemoteFile) -> str:
        """Return a name that stands for a file and its version."""
        return hashlib.sha256(b"%s\0%s" % (file.path, file.version.encode())).hexdigest()[:32]


def _line(file: RemoteFile, record: Record) -> bytes:
    return json.dumps([names.to_json(file.path), file.version, list(record)]).encode() + b"\n"


def require_free(destination: str) -> None:
    """Hold that a destination does not exist, or is an empty folder. Touches nothing.

    Raises:
        FaststartError: 10, something else is there; 7 or 9, it cannot be looked at.
    """
    about = os.fsencode(destination)
    with writing(about):
        try:
            content = os.listdir(destination)
        except FileNotFoundError:
            return
        except NotADirectoryError as error:
            message = "the destination, or a folder above it, is a file; nothing was touched"
            raise FaststartError(Exit.REFUSED, message, about) from error
        if os.path.islink(destination):
            raise FaststartError(Exit.REFUSED, "the destination is a link; name the folder itself", about)
        if content:
            message = (
                f"the destination holds {len(content)} names and no manifest, so it was not published: seal it as it is"
                " with --in-place, or name a new folder; nothing was touched"
            )
            raise FaststartError(Exit.REFUSED, message, about)


def finish(staging: str, destination: str) -> None:
    """Give a sealed folder its final name, for good.

    Raises:
        FaststartError: 10, the destination is no longer free; 3, 7 or 9, that failed.
    """
    about = os.fsencode(destination)
    parent = os.path.dirname(destination)
    with writing(about):
        os.makedirs(parent, exist_ok=True)
        try:
            os.rename(staging, destination)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR):
                raise
            raise FaststartError(Exit.REFUSED, f"the destination is no longer free: {error.strerror}", about) from error
        for folder in (os.path.dirname(staging), parent):
            _sync(folder)


def clear(root: str) -> None:
    """Remove all that was needed to put a folder together.

    Raises:
        OSError: that failed.
    """
    own = os.path.join(root, os.fsdecode(names.STATE))
    for name in os.listdir(own):
        _remove(os.path.join(own, name))


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        os.unlink(path)


def sync_folders(root: str, folders: Iterable[bytes]) -> None:
    """Put the names in a folder and in the folders below it on disk.

    Raises:
        FaststartError: 9, that failed.
    """
    for path in [*folders, names.STATE, b""]:
        with writing(path or os.fsencode(root)):
            _sync(os.path.join(root, os.fsdecode(path)))


def _sync(folder: str) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
