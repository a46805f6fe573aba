"""One run of one tool: what it took, and whether the copy is whole."""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent import futures
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lab.bench.datasets import STATE, DataSet, contents
from lab.bench.read_back import READERS
from lab.bench.sources import Source

MIB = 1 << 20
COMPARE_BYTES = 4 * MIB
SETTLE_SECONDS = 0.3
"""Between the preparation and the run: what the preparation set off ends in it."""

WATCH_SECONDS = (0.05, 0.2)
"""How soon memory is looked at for the first time, and how often then. (wait4's ru_maxrss has the parent's in it.)"""

LAST_WORDS = 300

MANY_FILES = 1000
"""A destination of more files is deleted after its row only. ext4 without a journal takes no inode that was freed
within the last minutes, and looks at each of them again for each new file (fs/ext4/ialloc.c, `recently_deleted`): a
copy of 20,000 files made right after the last one was deleted took up to three times the kernel's time."""

Clock = Callable[[], float]


class RunFailedError(Exception):
    """A tool failed, ran too long or left an incomplete copy; the text says which."""


@dataclass(frozen=True)
class Contestant:
    """A tool with its flags.

    Attributes:
        name: shown in tables.
        command: for the shell; $S is the source, $D the empty destination, $T an empty temporary folder.
        tools: the programs that it needs on PATH.
        pairs: how many runs, where that is fewer than the row's; `why_fewer` says why.
        leaves_out: copies only what a server needs.
        own_clock: reads the seconds from what the command prints; for a tool that times itself.
        whole: leaves a copy of the source, that can be compared with it.
    """

    name: str
    command: str
    tools: tuple[str, ...] = ()
    pairs: int | None = None
    why_fewer: str = ""
    leaves_out: bool = False
    own_clock: Callable[[str], float] | None = None
    whole: bool = True


@dataclass(frozen=True)
class Measured:
    """What a run took.

    Attributes:
        wall: seconds until the tool ended.
        on_disk: seconds until the destination's file system had everything on disk.
        total: seconds of what the row is about: `on_disk`, or the copy and the read that followed at once.
        user: CPU seconds of the tool's processes in user space.
        system: their CPU seconds in the kernel. What other processes and the kernel's writeback spend is in neither.
        peak_mib: the largest sum of resident memory of the tool's processes that was seen.
        copied: bytes in the destination.
        report: what preload's report.json says of how it went.
    """

    wall: float
    on_disk: float
    total: float
    user: float
    system: float
    peak_mib: float
    copied: int
    report: dict[str, Any]

    def document(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


class Bench:
    """Where runs take place."""

    def __init__(
        self,
        work: Path,
        environ: Mapping[str, str],
        *,
        clock: Clock = time.monotonic,
        settle_seconds: float = SETTLE_SECONDS,
        limit_seconds: float = 600,
    ) -> None:
        """Takes a folder of our own: the destination is made in it, and removed."""
        self.work, self.environ = work, dict(environ)
        self.clock, self.settle_seconds, self.limit_seconds = clock, settle_seconds, limit_seconds

    def run(
        self, contestant: Contestant, data_set: DataSet, data: Path, source: Source, after: str, *, compare: bool
    ) -> Measured:
        """Lets a tool copy a data set once.

        Args:
            contestant: the tool.
            data_set: what is copied.
            data: where it lies.
            source: how the tool gets to see it.
            after: "disk", or the name of the read that follows at once (read_back.READERS).
            compare: compare the copy with the source byte by byte, too.

        Raises:
            RunFailedError: the tool failed, or its copy is not whole.
            SourceError: the source cannot be had.
        """
        destination = self.work / "destination"
        with self._prepared(destination) as scratch, source.opened(data) as opened:
            time.sleep(self.settle_seconds)
            command = Command(contestant.command, self._environ(opened, destination, scratch), scratch)
            began = self.clock()
            command.run(self.limit_seconds)
            wall = self.clock() - began
            if after == "disk":
                sync(destination)
                on_disk = total = self.clock() - began
            else:
                READERS[after](destination)
                total = self.clock() - began
                sync(destination)
                on_disk = self.clock() - began
            command.check()
            if contestant.own_clock:
                own = contestant.own_clock(command.output)
                on_disk = total = own + on_disk - wall
                wall = own
            copied = dict(contents(destination))
            if contestant.whole:
                require_whole(copied, data_set, dict(contents(data)), leaves_out=contestant.leaves_out)
            if contestant.whole and compare:
                require_same(destination, data)
            usage = command.usage
            report = _report(destination)
        return Measured(
            wall, on_disk, total, usage.ru_utime, usage.ru_stime, command.peak_bytes / MIB, sum(copied.values()), report
        )

    def _environ(self, source: Path, destination: Path, scratch: Path) -> dict[str, str]:
        temporary = scratch / "temporary"
        temporary.mkdir()
        return {**self.environ, "S": str(source.absolute()), "D": str(destination.absolute()), "T": str(temporary)}

    def clear(self) -> None:
        """Deletes what was kept of the runs so far."""
        for kept in self.work.glob("kept-*"):
            shutil.rmtree(kept)

    @contextlib.contextmanager
    def _prepared(self, destination: Path) -> Iterator[Path]:
        """Empties the destination, and makes a folder for the run's other files; nothing waits to be written."""
        _remove(destination)
        destination.mkdir(parents=True)
        os.sync()
        try:
            with tempfile.TemporaryDirectory(dir=self.work) as scratch:
                yield Path(scratch).absolute()
        finally:
            if sum(1 for _ in contents(destination)) > MANY_FILES:
                destination.rename(Path(tempfile.mkdtemp(prefix="kept-", dir=self.work), destination.name))
            _remove(destination)


class Command:
    """A shell command in a session of its own, with its CPU time and memory.

    Attributes:
        output: what it printed.
        usage: the resources that its processes used (`resource.struct_rusage`).
        peak_bytes: the largest sum of their resident memory that was seen.
    """

    def __init__(self, text: str, environ: Mapping[str, str], folder: Path) -> None:
        """Takes the command, its environment and a folder for what it prints."""
        self.text, self.environ = text, environ
        self.output = ""
        self.usage: Any = None
        self.peak_bytes = 0
        self._files = folder / "stdout", folder / "stderr"
        self._code: int | None = None
        self._over_limit: float | None = None
        self._ended = threading.Event()
        self._watcher: futures.Future[None] | None = None

    def run(self, limit_seconds: float) -> None:
        """Runs it to its end, or kills it; returns at once then, so that the caller's clock is right."""
        with self._files[0].open("wb") as output, self._files[1].open("wb") as errors:
            process = subprocess.Popen(
                ["sh", "-c", self.text],
                env=self.environ, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True,
            )  # fmt: skip
        pool = futures.ThreadPoolExecutor(1)
        self._watcher = pool.submit(self._watch, process.pid, limit_seconds)
        pool.shutdown(wait=False)
        try:
            _, status, self.usage = os.wait4(process.pid, 0)
            self._code = process.returncode = os.waitstatus_to_exitcode(status)
        finally:
            self._ended.set()
            if self._code is None:
                _kill(process.pid)
                process.wait()

    def check(self) -> None:
        """Gathers what is known of a run that ended.

        Raises:
            RunFailedError: it ended with another exit code than 0, or not in time.
        """
        assert self._watcher is not None
        self._watcher.result()
        self.output, errors = (file.read_text(encoding="utf-8", errors="replace") for file in self._files)
        if self._over_limit is not None:
            raise RunFailedError(f"was not done after {self._over_limit:.0f} s")
        if self._code:
            said = " ".join((errors.strip() or self.output).split()) or "it said nothing"
            raise RunFailedError(f"ended with exit code {self._code}: {said[-LAST_WORDS:]}")

    def _watch(self, session: int, limit_seconds: float) -> None:
        first, then = WATCH_SECONDS
        give_up = time.monotonic() + limit_seconds
        while not self._ended.wait(then if self.peak_bytes else first):
            self.peak_bytes = max(self.peak_bytes, resident_bytes(session))
            if time.monotonic() > give_up:
                self._over_limit = limit_seconds
                _kill(session)


# ---- is the copy whole


def require_whole(copied: Mapping[str, int], data_set: DataSet, wanted: Mapping[str, int], *, leaves_out: bool) -> None:
    """Holds that a copy has every file in its size; a copy that lost its folders has the names.

    Raises:
        RunFailedError: it has not.
    """
    if leaves_out:
        wanted = {path: size for path, size in wanted.items() if data_set.needed(path)}
        wrong = {path for path, size in wanted.items() if copied.get(path) != size}
        if wrong:
            raise RunFailedError(f"{len(wrong)} of {len(wanted)} needed files are not there, such as {min(wrong)}")
        return
    got, expected = _by_name(copied), _by_name(wanted)
    if got != expected:
        lost, foreign = (expected - got).total(), (got - expected).total()
        raise RunFailedError(
            f"the copy is not whole: {len(copied)} files with {sum(copied.values())} bytes, "
            f"the source has {len(wanted)} with {sum(wanted.values())}; {lost} lost or cut, {foreign} foreign"
        )


def require_same(destination: Path, data: Path) -> None:
    """Holds that every file of a copy has the bytes of the source's file of that path, or of that name.

    Raises:
        RunFailedError: one has not.
    """
    by_name = {Path(path).name: path for path, _ in contents(data)}
    for path, _ in contents(destination):
        original = data / path
        if not original.exists():
            original = data / by_name[Path(path).name]
        if not _same(destination / path, original):
            raise RunFailedError(f"{path} has other bytes than in the source")


def _by_name(files: Mapping[str, int]) -> Counter[tuple[str, int]]:
    return Counter((Path(path).name, size) for path, size in files.items())


def _same(one: Path, other: Path) -> bool:
    first, second = bytearray(COMPARE_BYTES), bytearray(COMPARE_BYTES)
    with one.open("rb", buffering=0) as a, other.open("rb", buffering=0) as b:
        while True:
            count = a.readinto(first)
            if count != b.readinto(second) or memoryview(first)[:count] != memoryview(second)[:count]:
                return False
            if not count:
                return True


# ---- small things


def sync(path: Path) -> None:
    """Writes all of a file system to disk: the one that holds this path."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if _LIBC.syncfs(descriptor):
            raise OSError(ctypes.get_errno(), "syncfs", str(path))
    finally:
        os.close(descriptor)


_LIBC = ctypes.CDLL(None, use_errno=True)


def _report(destination: Path) -> dict[str, Any]:
    try:
        found = json.loads((destination / STATE / "report.json").read_bytes())
    except (OSError, ValueError):
        return {}
    wanted = ("write", "streams", "phases", "gb_per_s", "copied_bytes", "verify_seconds", "preload_version")
    return {key: found[key] for key in wanted if key in found}


def resident_bytes(session: int) -> int:
    """Resident memory of all processes of a session; what has ended meanwhile counts nothing."""
    pages = 0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, IndexError):
            stat = (process / "stat").read_text(encoding="utf-8", errors="replace")
            fields = stat.rpartition(")")[2].split()
            pages += int(fields[21]) if int(fields[3]) == session else 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _kill(session: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(session, signal.SIGKILL)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
