"""The folder that is copied into: who may own it, what lies in it, and the few ways in which it is changed.

Below the top folder every change goes through folders that were opened without following links, so that nothing is
ever written outside, whatever lies in there.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.source import NOT_DIRECT, Source, SourceFile, open_uncached, open_unlinked
from podkit import pool
from podkit.errors import Exit, FaststartError, writing
from podkit.files import remove, replace
from podkit.locks import acquire
from podkit.patience import Patience
from preload import space, state
from preload.state import PAGE, Identity, Past, Record

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD_FILE = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
_APPENDED_FILE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_PART = b".part"
_RUN = b"run"
_JOURNAL = b"journal.jsonl"
_PROGRESS = b"progress.json"
_FOLDERS_KEPT_OPEN = 128


def require_acceptable(root: bytes, source: bytes | None) -> None:
    """Hold that a destination is new, empty or ours, and apart from the source. Touches nothing.

    Args:
        root: absolute path; need not exist.
        source: absolute path of the source, which exists; None where it cannot be looked at, and nothing is copied.

    Raises:
        FaststartError: 10, it is not; 7 or 9, it cannot be looked at.
    """

    def refuse(message: str) -> FaststartError:
        return FaststartError(Exit.REFUSED, message + "; nothing was touched", root)

    with writing(root):
        if source is not None and _is_below(root, source):
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
        if source is not None and _is_below(source, root):
            raise refuse("the source lies in the destination folder")
        content = [name for name in os.listdir(root) if not _is_lost_found(root, name)]
        if not content:
            return
        if names.STATE not in content:
            raise refuse("the destination is not empty and not ours: it has no .faststart folder")
        if not stat.S_ISDIR(os.lstat(os.path.join(root, names.STATE)).st_mode):
            raise refuse("the destination is not ours: its .faststart is not a folder")
        if os.path.lexists(os.path.join(root, manifests.PATH)):
            raise refuse("the destination is a published model")


def _is_lost_found(root: bytes, path: bytes) -> bool:
    """Say whether a path is a file system's own folder for what it finds again, in which there is nothing to see."""
    real = os.path.join(root, path)
    if path != names.LOST_FOUND or not stat.S_ISDIR(os.lstat(real).st_mode):
        return False
    try:
        return not os.listdir(real)
    except PermissionError:
        return True


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

    def first_difference(self, source: Source, records: Mapping[bytes, Record]) -> bytes | None:
        """Return a path that is wrong; None if all is as asked for.

        Wrong is what is missing, too much, no regular file of its size, or not as its record says, if it has one.
        """
        wanted = {file.path: file.size for file in source.files}
        wrong = (wanted.keys() ^ self.files.keys()) | (source.folders ^ self.folders)
        for path in wanted.keys() & self.files.keys():
            status = self.files[path]
            found = Record.of(status)
            if not stat.S_ISREG(status.st_mode) or found.size != wanted[path] or records.get(path, found) != found:
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
                if path == names.STATE or _is_lost_found(root, path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    found.folders.add(path)
                    stack.append(path)
                else:
                    found.files[path] = entry.stat(follow_symlinks=False)
    return found


def read_marker(root: bytes) -> bytes:
    """Return the marker's bytes, none if there is no marker that can be read and has the size of one."""
    return _read(os.path.join(root, names.STATE, state.MARKER), state.MARKER_BYTES)


def read_journal(root: bytes) -> bytes:
    """Return the journal's bytes, none if there is no journal that can be read and has the size of one."""
    return _read(os.path.join(root, names.STATE, b"work", _JOURNAL), state.JOURNAL_BYTES)


def read_progress(root: bytes) -> bytes:
    """Return what the owner of a destination says about its copy, nothing if it says nothing."""
    return _read(os.path.join(root, names.STATE, b"work", _PROGRESS), state.MARKER_BYTES)


def remove_run(root: bytes, pod_uid: str) -> None:
    """Take back what `Destination.write_run` wrote, if it is there: the pod ends."""
    with contextlib.suppress(OSError):
        os.unlink(os.path.join(root, names.STATE, _RUN, os.fsencode(pod_uid)))


def parts_bytes(root: bytes) -> int:
    """Return how much disk unfinished files in a destination take, whatever they are."""
    with contextlib.suppress(OSError):
        return sum(512 * status.st_blocks for status in _inside(os.path.join(root, names.STATE, b"work")))
    return 0


def _inside(folder: bytes) -> Iterator[os.stat_result]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _inside(entry.path)
            else:
                yield entry.stat(follow_symlinks=False)


def part_status(root: bytes, number: int) -> os.stat_result | None:
    """Return the status of a part, None if there is no such part."""
    try:
        status = os.lstat(os.path.join(root, names.STATE, b"work", _part_name(number)))
    except OSError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def _part_name(number: int) -> bytes:
    return b"%d%s" % (number, _PART)


def _read(path: bytes, most: int) -> bytes:
    """Return the content of a file; none if it cannot be read, or has more bytes than such a file may have."""
    try:
        with open_unlinked(path) as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(size) if size <= most else b""
    except OSError:
        return b""


@contextlib.contextmanager
def locked(root: bytes, wait: float, patience: Patience, waiting: Callable[[float], None]) -> Iterator[Destination]:
    """Make the destination if need be, and hold its lock until the block ends, at the latest until the process does.

    Where a thread may still write, the lock is left to the process: nobody may take over before its last write.

    Args:
        root: absolute path, found acceptable.
        wait: seconds to wait for another owner.
        patience: ends the wait when it is told to stop.
        waiting: told every moment, with the seconds waited, while there is another owner.

    Raises:
        FaststartError: 5, another owner is still there after the wait; 3, 7 or 9, it cannot be made; 143, SIGTERM.
    """
    with contextlib.ExitStack() as stack:

        def opened(fd: int) -> int:
            stack.callback(os.close, fd)
            return fd

        with writing(root):
            _make_root(root)
            top = opened(os.open(root, _FOLDER))
            own = opened(_make_folder(top, names.STATE))
            lock = opened(os.open(b"lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=own))
        with writing(root):
            acquire(lock, root, "another preload owns the destination", wait, patience, waiting)
            work = opened(_make_folder(own, b"work"))
        destination = Destination(root, top, own, work)
        stack.callback(destination.close)
        try:
            yield destination
        finally:
            if destination.in_use:
                stack.pop_all()


def _make_folder(parent: int, name: bytes) -> int:
    """Open a folder; make it if need be, for all to read whatever the umask."""
    made = True
    try:
        os.mkdir(name, 0o755, dir_fd=parent)
    except FileExistsError:
        made = False
    folder = os.open(name, _FOLDER, dir_fd=parent)
    if made:
        os.fchmod(folder, 0o755)
    return folder


def _make_root(root: bytes) -> None:
    with contextlib.suppress(FileExistsError):
        os.makedirs(os.path.dirname(root), exist_ok=True)
        os.mkdir(root)
        os.chmod(root, 0o755)  # noqa: S103 - the server reads it as another user


class Journal:
    """The journal of a copy in progress. Lines wait for `flush`: what a crash before it costs is copied again."""

    def __init__(self, fd: int):
        self._fd = fd
        self._lines: list[bytes] = []
        self._lock = threading.Lock()
        self._marks = 0

    def sync(self, parts: Iterable[Part]) -> None:
        """Put the parts on disk, and note that all that is in the journal now is on disk.

        Raises:
            OSError: that failed.
        """
        self._marks += 1
        self.add(state.mark_line(self._marks))
        for part in parts:
            part.sync()
        self.add(state.synced_line(self._marks))
        self.flush()
        with self._lock:
            fd = os.dup(self._fd) if self._fd >= 0 else -1
        _fsync_and_close(fd)

    def add(self, line: bytes) -> None:
        """Take a line."""
        with self._lock:
            self._lines.append(line)

    def flush(self) -> None:
        """Write the lines that wait.

        Raises:
            OSError: that failed.
        """
        with self._lock:
            lines, self._lines = self._lines, []
            if lines and self._fd >= 0:
                os.write(self._fd, b"".join(lines))

    def close(self) -> None:
        """Write what can be written of the lines that wait; a thread that comes later writes nothing."""
        with contextlib.suppress(OSError):
            self.flush()
        with self._lock:
            os.close(self._fd)
            self._fd = -1


class Part:
    """A large file in the making, in our own folder; it gets its final name when it is whole.

    Its space is reserved, and the journal knows it. Each method raises OSError if what it does fails.
    """

    def __init__(self, destination: Destination, number: int, file: SourceFile, *, direct: bool, resumed: bool):
        self._destination = destination
        self._name = _part_name(number)
        self._number = number
        self._file = file
        self._resumed = resumed
        self._direct = direct
        self._fd = -1
        self._lock = threading.Lock()

    def open(self, journal: Journal) -> None:
        """Make the part with all its space, or open the one that is there; done once, whoever comes first."""
        with self._lock:
            if self._fd >= 0:
                return
            flags = _OLD_FILE if self._resumed else _NEW_FILE
            work = self._destination.work
            fd, self._direct = open_uncached(self._name, flags, direct=self._direct, folder=work)
            try:
                if not self._resumed:
                    _allocate(fd, self._file.size)
                    journal.add(state.part_line(self._number, os.fstat(fd).st_ino))
            except BaseException:
                os.close(fd)
                raise
            self._fd = fd

    def write(self, buffer: memoryview, at: int, length: int) -> None:
        """Write the first bytes of a buffer at an offset; with O_DIRECT the last ones of a file fill their page."""
        done = 0
        while done < length:
            direct = self._direct  # another stream may turn it off meanwhile
            end = -(-length // PAGE) * PAGE if direct else length
            try:
                done += os.pwrite(self._fd, buffer[done:end], at + done)
            except OSError as error:
                if error.errno not in NOT_DIRECT or not direct:
                    raise
                # A file system that takes O_DIRECT and not these offsets or lengths.
                fcntl.fcntl(self._fd, fcntl.F_SETFL, 0)
                self._direct = False

    def finish(self, *, sync: bool, drop: bool) -> bytes:
        """Give the whole file its mode, its mtime and its name; return its line for the journal."""
        if os.fstat(self._fd).st_size != self._file.size:
            os.ftruncate(self._fd, self._file.size)
        work = self._destination.work
        line = self._destination.name(self._fd, work, self._name, self._file, sync=sync, drop=drop)
        self.close()
        return line

    def sync(self) -> None:
        """Put on disk what was written so far."""
        with self._lock:
            fd = os.dup(self._fd) if self._fd >= 0 else -1
        _fsync_and_close(fd)

    def close(self) -> None:
        """Close the part's file, if it is open."""
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1


def _fsync_and_close(fd: int) -> None:
    if fd >= 0:
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _allocate(fd: int, size: int) -> None:
    """Reserve the space of a whole file, where the file system can."""
    try:
        if size:
            space.fallocate(fd, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise


def _finish(fd: int, file: SourceFile, *, sync: bool, drop: bool) -> Record:
    """Give a whole file its mode and its mtime, if it lacks them; put it on disk and drop its pages, if asked to.

    Returns:
        What it was before it was put on disk, which takes long: a later write makes it another.
    """
    status, mode = os.fstat(fd), 0o644 | file.mode & 0o111
    if stat.S_IMODE(status.st_mode) != mode:
        os.fchmod(fd, mode)
    if status.st_mtime_ns != file.mtime_ns:
        os.utime(fd, ns=(file.mtime_ns, file.mtime_ns))
    record = Record.of(os.fstat(fd))
    if sync or drop:
        os.fsync(fd)
    if drop:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return record


class Destination:
    """A destination whose lock we hold. Made by `locked`.

    Attributes:
        root: its absolute path.
        work: a descriptor of the folder that holds the parts.
        in_use: whether a thread may still write here after all else has ended.
    """

    def __init__(self, root: bytes, top: int, own: int, work: int):
        self.root = root
        self.work = work
        self.in_use = False
        self._top = top
        self._own = own
        self._folders: dict[bytes, int] = {}
        self._streams: dict[int, int] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the folders that were kept open."""
        for fd in [*self._folders.values(), *self._streams.values()]:
            os.close(fd)
        self._folders.clear()
        self._streams.clear()

    def place(self, folder: int, file: SourceFile, data: memoryview, *, sync: bool, drop: bool) -> bytes:
        """Write a small file whole and give it its name; return its line for the journal.

        Args:
            folder: of this stream, see `stream_folder`.
            file: the file.
            data: its content.
            sync: whether it is on disk at the end.
            drop: whether its pages are dropped from the page cache.

        Raises:
            OSError: that failed.
        """
        fd = os.open(_PART, _NEW_FILE, 0o644, dir_fd=folder)
        try:
            done = 0
            while done < len(data):
                done += os.pwrite(fd, data[done:], done)
            return self.name(fd, folder, _PART, file, sync=sync, drop=drop)
        finally:
            os.close(fd)

    def stream_folder(self, stream: int) -> int:
        """Return a descriptor of a folder for one stream's small files.

        In one folder for all, streams wait for each other with each file: three to seven times slower on ext4.

        Raises:
            OSError: it cannot be made.
        """
        name = b"stream-%d" % stream
        with self._lock:
            if stream not in self._streams:
                self._streams[stream] = _make_folder(self.work, name)
            return self._streams[stream]

    def name(self, fd: int, folder: int, part: bytes, file: SourceFile, *, sync: bool, drop: bool) -> bytes:
        """Give a whole file its mode, its mtime and its name; return its line for the journal.

        Raises:
            OSError: that failed.
        """
        _finish(fd, file, sync=sync, drop=drop)
        with self._parent(file.path) as (parent, name):
            os.rename(part, name, src_dir_fd=folder, dst_dir_fd=parent)
        return state.whole_line(file.path, Record.of(os.fstat(fd)), synced=sync)

    @contextlib.contextmanager
    def opened(self, path: bytes, record: Record, *, direct: bool) -> Iterator[tuple[int, bool]]:
        """Open a file that lies here, to read it: its descriptor, and whether that goes around the page cache.

        Args:
            path: of the file.
            record: what the file must be.
            direct: whether to go around the page cache, where that can be had.

        Raises:
            OSError: it cannot be opened, is a link, or not what it must be (ESTALE).
        """
        with self._parent(path) as (parent, name):
            fd, direct = open_uncached(name, _READ_FILE, direct=direct, folder=parent)
        try:
            if Record.of(os.fstat(fd)) != record:
                raise OSError(errno.ESTALE, "has changed meanwhile")
            yield fd, direct
        finally:
            os.close(fd)

    def keep(self, file: SourceFile, record: Record, *, sync: bool, drop: bool) -> Record:
        """Give a file that lies here, and was found to be whole, its mode and mtime; return its record.

        Args:
            file: the file.
            record: what it was when it was found whole.
            sync: whether it is on disk at the end.
            drop: whether its pages are dropped from the page cache.

        Raises:
            OSError: that failed, or the file is another by now.
        """
        with self.opened(file.path, record, direct=False) as (fd, _):
            kept = _finish(fd, file, sync=sync, drop=drop)
            if Record.of(os.fstat(fd)) != kept:
                raise OSError(errno.ESTALE, "has changed meanwhile")
            return kept

    def remove_marker(self) -> None:
        """Let the destination no longer count as complete. Goes before any change of it.

        Raises:
            FaststartError: 7 or 9, it cannot be removed.
        """
        with writing(self.root), contextlib.suppress(FileNotFoundError):
            os.unlink(state.MARKER, dir_fd=self._own)

    def prepare(
        self, source: Source, found: Inventory, past: Past, patience: Patience, spared: Collection[bytes] = ()
    ) -> None:
        """Leave only our own folder, the files and parts that the past vouches for, and the folders of the source.

        Args:
            source: what will lie here.
            found: what does.
            past: what of it is good.
            patience: tells when to stop.
            spared: files that stay, too.

        Raises:
            FaststartError: 3, 7 or 9, the destination cannot be changed; 143, SIGTERM.
        """
        parts = {_part_name(number) for number in past.parts}
        with writing(self.root):
            for name in map(os.fsencode, os.listdir(self.work)):
                if name not in (_JOURNAL, *parts):
                    remove(name, self.work)
        for path in found.files.keys() - past.records.keys() - set(spared):
            patience.check()
            with writing(path), contextlib.suppress(FileNotFoundError), self._parent(path) as (parent, name):
                os.unlink(name, dir_fd=parent)
        # In the order of their bytes a folder comes before all that lies in it.
        for path in sorted(found.folders - source.folders, reverse=True):
            patience.check()
            with writing(path), contextlib.suppress(FileNotFoundError), self._parent(path) as (parent, name):
                self._forget(path)
                os.rmdir(name, dir_fd=parent)
        for path in sorted(source.folders):
            patience.check()
            with writing(path), self._parent(path) as (parent, name):
                folder = _make_folder(parent, name)
                try:
                    if os.fstat(folder).st_mode & 0o777 != 0o755:
                        os.fchmod(folder, 0o755)
                finally:
                    os.close(folder)

    @contextlib.contextmanager
    def journal(self, identity: Identity, past: Past, patience: Patience, *, sync: bool) -> Iterator[Journal]:
        """Begin a journal with what is known already; the old one stays until the new one is whole.

        Args:
            identity: what the copy is about.
            past: what is known already.
            patience: tells when to stop, while parts are put on disk.
            sync: whether that is on disk before the old journal goes, and the new one says so.

        Raises:
            OSError: it cannot be written.
            FaststartError: 143, SIGTERM.
        """
        start = state.journal_start(identity, past)
        if sync:
            pool.each(past.parts, self._sync_part, patience)
            start += state.mark_line(0) + state.synced_line(0)
        replace(_JOURNAL, start, folder=self.work, sync=sync)
        if sync:
            os.fsync(self.work)
        journal = Journal(os.open(_JOURNAL, _APPENDED_FILE, 0o644, dir_fd=self.work))
        try:
            yield journal
            journal.flush()
        finally:
            journal.close()

    def _sync_part(self, number: int) -> None:
        _fsync_and_close(os.open(_part_name(number), _OLD_FILE, dir_fd=self.work))

    def sync_folders(self, source: Source) -> None:
        """Let all names survive a crash of the node: the files' own and those in the journal's folder.

        Raises:
            FaststartError: 9, that failed.
        """
        for path in sorted(source.folders):
            with writing(path), self._parent(os.path.join(path, b"x")) as (folder, _):
                os.fsync(folder)
        with writing(self.root):
            _fsync_and_close(os.open(_JOURNAL, _APPENDED_FILE, dir_fd=self.work))
            for folder in (self._top, self.work):
                os.fsync(folder)

    def write_marker(self, data: bytes, *, sync: bool) -> None:
        """Say that the destination is complete, and clear our own folder of what was needed for that.

        Raises:
            FaststartError: 3, 7 or 9, it cannot be written.
        """
        with writing(self.root):
            for name in map(os.fsencode, os.listdir(self.work)):
                if name != _JOURNAL:
                    remove(name, self.work)
            replace(state.MARKER, data, folder=self._own, sync=sync)
            if sync:
                os.fsync(self._own)

    def write_run(self, pod_uid: str) -> None:
        """Say that this pod's copy is under way or done, and that no older marker stands for it.

        Raises:
            FaststartError: 3, 7 or 9, it cannot be written.
        """
        with writing(self.root):
            folder = _make_folder(self._own, _RUN)
            try:
                os.close(os.open(os.fsencode(pod_uid), _NEW_FILE, 0o644, dir_fd=folder))
            finally:
                os.close(folder)

    def write_progress(self, data: bytes) -> None:
        """Let those who wait for the destination know how far the copy is.

        Raises:
            OSError: it cannot be written.
        """
        replace(_PROGRESS, data, folder=self.work)

    def write_report(self, data: bytes) -> None:
        """Write report.json.

        Raises:
            OSError: it cannot be written.
        """
        replace(b"report.json", data, folder=self._own)

    @contextlib.contextmanager
    def _parent(self, path: bytes) -> Iterator[tuple[int, bytes]]:
        """Open the folder that a path lies in; fails on a link on the way.

        Some folders stay open until the end: a folder that we hold is the one that was checked, whatever its path
        has become since.
        """
        folder, _, name = path.rpartition(b"/")
        if not folder:
            yield self._top, name
            return
        with self._lock:
            kept = self._folders.get(folder)
        if kept is not None:
            yield kept, name
            return
        fd = self._walk(folder)
        with self._lock:
            keep = len(self._folders) < _FOLDERS_KEPT_OPEN and folder not in self._folders
            if keep:
                self._folders[folder] = fd
        try:
            yield fd, name
        finally:
            if not keep:
                os.close(fd)

    def _walk(self, folder: bytes) -> int:
        fd = os.dup(self._top)
        try:
            for part in folder.split(b"/"):
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
        except BaseException:
            os.close(fd)
            raise
        return fd

    def _forget(self, folder: bytes) -> None:
        fd = self._folders.pop(folder, None)
        if fd is not None:
            os.close(fd)
