"""A file system that stops answering: a read-only view of a folder, by the kernel's own FUSE protocol.

`HangingMount` starts it as a process of its own, which a test can also stop and let go on. What hangs is chosen by the
kind of request and by name. Of somebody who waits and is killed the kernel tells by an interrupt, and leaves him in D
state until the request is answered, which is then done with EINTR. As root, with /dev/fuse; without libfuse. The
formats are those of linux/fuse.h, version 7.31, which newer kernels speak, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fnmatch
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

REQUEST = struct.Struct("<IIQQIIIHH")
ANSWER = struct.Struct("<IiQ")
ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
LOOKUP, FORGET, GETATTR, READLINK, OPEN, READ, STATFS, RELEASE = 1, 2, 3, 5, 14, 15, 17, 18
INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = 26, 27, 28, 29, 36, 38, 42
KINDS = {"look": (LOOKUP, GETATTR), "open": (OPEN,), "read": (READ,), "list": (OPENDIR, READDIR)}
WITHOUT_ANSWER = (FORGET, BATCH_FORGET)
BUFFER_BYTES = 1 << 20
DETACH = 2  # of umount2


@dataclass(frozen=True)
class Hang:
    """What is never answered, or late.

    Attributes:
        kind: of the request, a key of KINDS; empty, nothing hangs.
        name: a pattern of the path in the folder; the top one is empty.
        beyond: of reads, only those that would end beyond this byte.
        once: a path outside; matching requests are answered until something is there.
        killable: whether an interrupt ends the wait; else who waits stays in D state, whatever kills it.
        stops: whether the process stops itself, once, before it answers the first one, and then answers all.
    """

    kind: str = ""
    name: str = "*"
    beyond: int = 0
    once: str = ""
    killable: bool = True
    stops: bool = False


class FileSystem:
    """Answers the kernel's requests, one after the other."""

    def __init__(self, device: int, root: Path, hang: Hang):
        self._device = device
        self._paths = {0: root, 1: root}  # 0, requests that are about no file
        self._numbers = {root: 1}
        self._hang = hang
        self._hung: set[int] = set()

    def serve(self) -> None:
        """Answer until the mount is gone; say `hung` once something is not answered."""
        while True:
            try:
                request = os.read(self._device, BUFFER_BYTES)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.ENOENT):  # ENOENT: who asked was interrupted
                    continue
                return
            _, code, unique, node, *_ = REQUEST.unpack_from(request)
            body = request[REQUEST.size :]
            if code in WITHOUT_ANSWER:
                continue
            if code == INTERRUPT:
                (interrupted,) = struct.unpack_from("<Q", body)
                if interrupted in self._hung and self._hang.killable:
                    self._hung.remove(interrupted)
                    self._send(interrupted, -errno.EINTR)
                continue
            if self._hangs(code, node, body):
                print("hung", flush=True)
                if not self._hang.stops:
                    self._hung.add(unique)
                    continue
                os.kill(os.getpid(), signal.SIGSTOP)
                self._hang = Hang()
            try:
                number, data = 0, self._answer(code, node, body)
            except OSError as error:
                number, data = -(error.errno or errno.EIO), b""
            self._send(unique, number, data)

    def _send(self, unique: int, number: int, data: bytes = b"") -> None:
        with contextlib.suppress(FileNotFoundError):  # who asked is gone
            os.write(self._device, ANSWER.pack(ANSWER.size + len(data), number, unique) + data)

    def _path(self, code: int, node: int, body: bytes) -> Path:
        above = self._paths[node]
        return above / os.fsdecode(body.split(b"\0")[0]) if code == LOOKUP else above

    def _hangs(self, code: int, node: int, body: bytes) -> bool:
        if code not in KINDS.get(self._hang.kind, ()):
            return False
        path = str(self._path(code, node, body).relative_to(self._paths[1]))
        if not fnmatch.fnmatchcase("" if path == "." else path, self._hang.name):
            return False
        if code == READ:
            _, offset, size = struct.unpack_from("<QQI", body)
            if offset + size <= self._hang.beyond:
                return False
        return not self._hang.once or os.path.lexists(self._hang.once)

    def _answer(self, code: int, node: int, body: bytes) -> bytes:
        path = self._path(code, node, body)
        match code:
            case 26:
                _, _, ahead, _ = struct.unpack_from("<IIII", body)
                return struct.pack("<IIIIHHIIHHI7I", 7, 31, ahead, 0, 64, 48, BUFFER_BYTES // 2, 1, 0, 0, 0, *[0] * 7)
            case 1:
                status = path.lstat()
                number = self._numbers.setdefault(path, len(self._numbers) + 1)
                self._paths[number] = path
                return struct.pack("<QQQQII", number, 0, 0, 0, 0, 0) + self._attributes(number, status)
            case 3:
                return struct.pack("<QII", 0, 0, 0) + self._attributes(node, path.lstat())
            case 5:
                return os.fsencode(path.readlink())
            case 14 | 27:
                return struct.pack("<QII", 0, 0, 0)
            case 15:
                _, offset, size = struct.unpack_from("<QQI", body)
                with path.open("rb", buffering=0) as file:
                    return os.pread(file.fileno(), size, offset)
            case 28:
                _, offset, size = struct.unpack_from("<QQI", body)
                return self._entries(path, offset, size)
            case 17:
                found = os.statvfs(path)
                counts = (found.f_blocks, found.f_bfree, found.f_bavail, found.f_files, found.f_ffree)
                return struct.pack("<QQQQQIIII6I", *counts, found.f_bsize, 255, found.f_frsize, 0, *[0] * 6)
            case 18 | 29 | 38:
                return b""
            case _:  # FLUSH, GETXATTR, ACCESS, ...: the kernel then asks for it no more
                raise OSError(errno.ENOSYS, "")

    @staticmethod
    def _attributes(number: int, status: os.stat_result) -> bytes:
        times = [status.st_atime_ns, status.st_mtime_ns, status.st_ctime_ns]
        whole, rest = zip(*(divmod(time, 10**9) for time in times), strict=True)
        mode, owner = (status.st_mode, status.st_nlink), (status.st_uid, status.st_gid)
        return ATTRIBUTES.pack(
            number, status.st_size, status.st_blocks, *whole, *rest, *mode, *owner, 0, status.st_blksize, 0
        )

    @staticmethod
    def _entries(path: Path, offset: int, size: int) -> bytes:
        data = b""
        names = [".", "..", *sorted(inside.name for inside in path.iterdir())]
        for place, name in enumerate(names[offset:], offset + 1):
            kind, encoded = stat.S_IFMT((path / name).lstat().st_mode) >> 12, os.fsencode(name)
            entry = struct.pack("<QQII", place, place, len(encoded), kind) + encoded
            entry += b"\0" * (-len(entry) % 8)
            if len(data) + len(entry) > size:
                break
            data += entry
        return data


class HangingMount:
    """A folder as a file system that hangs, in a process of its own.

    Attributes:
        path: where it is mounted.
        process: that answers.
    """

    def __init__(self, folder: Path, path: Path, hang: Hang):
        path.mkdir()
        self.path = path
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [sys.executable, __file__, str(folder), str(path), json.dumps(asdict(hang))],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said()

    def said(self) -> str:
        """Wait for the next word: `mounted` or `hung`."""
        if self.process.stdout is None:
            raise AssertionError("it is a pipe")
        word = self.process.stdout.readline().strip()
        assert word in ("mounted", "hung"), "the file system ended"
        return word

    def close(self) -> None:
        """End it; who still waits for an answer gets an error."""
        self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.communicate()
        ctypes.CDLL(None).umount2(os.fsencode(self.path), DETACH)


def why_not() -> str | None:
    """Return why no such file system can be mounted here; None if it can."""
    if os.getuid():
        return "a file system that hangs: only root may mount one"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as error:
        return f"a file system that hangs: /dev/fuse: {error.strerror}"
    with tempfile.TemporaryDirectory() as folder:
        return mount(folder) or (
            "it could not be unmounted" if ctypes.CDLL(None).umount2(folder.encode(), DETACH) else None
        )


def mount(folder: str) -> str | None:
    """Mount a new FUSE file system without anybody who serves it; return why that failed."""
    device = os.open("/dev/fuse", os.O_RDWR)
    number = _mount(device, folder)
    os.close(device)
    return f"a file system that hangs: mount: {os.strerror(number)}" if number else None


def _mount(device: int, folder: str) -> int:
    system = ctypes.CDLL(None, use_errno=True)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    failed = system.mount(b"hanging", os.fsencode(folder), b"fuse", os.ST_NODEV | os.ST_NOSUID, options)
    return ctypes.get_errno() if failed else 0


@contextlib.contextmanager
def hanging(folder: Path, path: Path, **hang: Any) -> Iterator[HangingMount]:
    """Mount a folder as a file system that hangs as `Hang` says; where that cannot be, skip the test and say why."""
    if reason := why_not():
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    with contextlib.closing(HangingMount(folder, path, Hang(**hang))) as mounted:
        yield mounted


def main() -> None:
    """Serve: FOLDER PATH HANG."""
    folder, path, hang = sys.argv[1:]
    device = os.open("/dev/fuse", os.O_RDWR)
    if number := _mount(device, path):
        sys.exit(os.strerror(number))
    print("mounted", flush=True)
    FileSystem(device, Path(folder), Hang(**json.loads(hang))).serve()


if __name__ == "__main__":
    main()
