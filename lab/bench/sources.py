"""Where a run reads from: the same data set behind a throttle, on a cold disk, or in memory."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol

from lab.bench.datasets import contents

READ_AHEAD_KIB = 4096
MOUNT_SECONDS = 10
END_SECONDS = 2
"""For slowfs to end after the unmount; one that holds a hanging read does not."""

MOUNT_OPTIONS = "ro,max_threads=256,max_idle_threads=256"


class SourceError(Exception):
    """A source cannot be had; the text says why."""


class Source(Protocol):
    """A data set as one run gets to see it."""

    def opened(self, data: Path) -> contextlib.AbstractContextManager[Path]:
        """The folder to copy, ready for one run."""
        ...


class Warm:
    """The page cache as it is; for a data set that lies in memory, or was just read."""

    @contextlib.contextmanager
    def opened(self, data: Path) -> Iterator[Path]:
        """The data set itself."""
        warm(data)
        yield data


class Cold:
    """The local disk: no page of the data set is in memory."""

    @contextlib.contextmanager
    def opened(self, data: Path) -> Iterator[Path]:
        """The data set itself."""
        drop_pages(data)
        yield data


class Throttled:
    """slowfs in front of the data set, mounted anew for each run, so that it has no pages.

    The data set's own pages are in memory: the throttle is the limit, and not the disk behind it.
    """

    def __init__(self, slowfs: Path, mount: Path, settings: Mapping[str, str] | None = None) -> None:
        """Takes the slowfs binary, the folder to mount on, and slowfs' settings (its source lists them)."""
        self.slowfs, self.mount, self.settings = slowfs, mount, dict(settings or {})

    @contextlib.contextmanager
    def opened(self, data: Path) -> Iterator[Path]:
        """The mount."""
        warm(data)
        self.mount.mkdir(parents=True, exist_ok=True)
        if self.mount.is_mount():
            _unmount(self.mount, lazily=True)
        environ = {**os.environ, **self.settings, "SLOW_ROOT": str(data.absolute())}
        with tempfile.TemporaryFile() as words:
            command = [self.slowfs, "-f", "-o", MOUNT_OPTIONS, self.mount]
            server = subprocess.Popen(command, env=environ, stderr=words)
            try:
                if not self._mounted(server):
                    words.seek(0)
                    raise SourceError(f"slowfs did not mount: {words.read().decode(errors='replace').strip()}")
                _set_read_ahead(self.mount)
                yield self.mount
            finally:
                self._end(server)

    def _mounted(self, server: subprocess.Popen[bytes]) -> bool:
        give_up = time.monotonic() + MOUNT_SECONDS
        while not self.mount.is_mount():
            if server.poll() is not None or time.monotonic() > give_up:
                return False
            time.sleep(0.02)
        return True

    def _end(self, server: subprocess.Popen[bytes]) -> None:
        if self.mount.is_mount() and not _unmount(self.mount, lazily=False):
            _unmount(self.mount, lazily=True)
        try:
            server.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def drop_pages(data: Path) -> None:
    """Takes the files of a data set out of the page cache; they must be on disk."""
    for path, _ in contents(data):
        with (data / path).open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def warm(data: Path) -> None:
    """Brings the files of a data set into the page cache."""
    buffer = bytearray(4 << 20)
    for path, _ in contents(data):
        with (data / path).open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _unmount(mount: Path, *, lazily: bool) -> bool:
    command = ["fusermount3", "-u", *(["-z"] if lazily else []), mount]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def _set_read_ahead(mount: Path) -> None:
    device = mount.stat().st_dev
    setting = Path(f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb")
    try:
        setting.write_text(str(READ_AHEAD_KIB), encoding="ascii")
    except OSError as error:
        raise SourceError(f"the throttled source's read-ahead cannot be set, which needs root: {error}") from error
