"""What the fault and crash tests of preload share: processes under the shim faulty.c, and a comparer."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from preload import state
from preload.state import PAGE
from tests.workloads.support import WORKLOADS, index, is_marked, publish, safetensors, write

MIB = 1 << 20
SHIM = Path(__file__).with_name("faulty.c")
TIMEOUT = 60.0
QUICK = "import podkit.patience; podkit.patience.DELAYS = (0.01,) * 5\n"
"""Python code that shortens the pauses before another try."""

START = "import os, sys, time, signal\n{}\nfrom preload.program import main\nsys.exit(main(sys.argv[1:]))"


def compiled(folder: Path) -> Path:
    """Compile the shim; skip the test where nobody can, but fail it in CI."""
    if not shutil.which("cc"):
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)("there is no C compiler for faulty.c")
    library = folder / "faulty.so"
    command = ["cc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SHIM), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=TIMEOUT)
    return library


@dataclass(frozen=True)
class Call:
    """A call that the shim saw: what became of it, its name, thread, offset, bytes asked for and path."""

    what: str
    name: str
    thread: str
    offset: int
    bytes: int
    path: str

    def covers(self, offset: int) -> bool:
        """Say whether it is a read of a byte."""
        return "read" in self.name and self.offset <= offset < self.offset + self.bytes


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    code: int
    out: str
    said: str
    seconds: float
    calls: list[Call]
    termination: dict[str, Any]

    @property
    def message(self) -> str:
        """Return the closing message."""
        return self.termination["message"]

    @property
    def file(self) -> str | None:
        """Return the file that the result is about."""
        return self.termination["file"]

    def hit(self, what: str) -> list[Call]:
        """Return the calls to which something was done; a test without one proves nothing."""
        return [call for call in self.calls if call.what == what]


@dataclass
class Run:
    """A process at work."""

    process: subprocess.Popen[str]
    log: Path
    termination_log: Path
    ready: int
    began: float = field(default_factory=time.monotonic)

    def wait_until_hit(self) -> bool:
        """Wait for the first call to which the shim does something; False if the process ended before it."""
        return os.read(self.ready, 1) != b""

    def lives_for(self, seconds: float) -> bool:
        """Let it work, and say whether it still does."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.communicate(timeout=seconds)
            return False
        return True

    def close(self) -> None:
        """Kill it if it still runs, and give back what it holds here."""
        if self.ready >= 0:
            os.close(self.ready)
            self.ready = -1
            self.process.kill()
            self.process.communicate()

    def end(self, number: signal.Signals | None = None) -> Ended:
        """Wait for the end, after a signal if one is given."""
        if number:
            self.process.send_signal(number)
        try:
            out, said = self.process.communicate(timeout=TIMEOUT)
        finally:
            self.close()
        seconds = time.monotonic() - self.began
        calls = list(_calls(self.log.read_text(errors="replace"))) if self.log.exists() else []
        written = self.termination_log.read_bytes() if self.termination_log.exists() else b""
        return Ended(self.process.returncode, out, said, seconds, calls, json.loads(written) if written else {})


def _calls(text: str) -> Iterator[Call]:
    for line in text.splitlines():
        what, name, thread, offset, count, path = line.split(" ", 5)
        yield Call(what, name, thread, int(offset), int(count), path)


class Faulty:
    """Starts preload under the shim."""

    def __init__(self, library: Path):
        self.library = library
        self.python = sys.executable
        self.program = WORKLOADS
        self.more: dict[str, Any] = {}
        """Further arguments of Popen."""
        self._numbers = itertools.count()
        self._runs: list[Run] = []

    def close(self) -> None:
        """End what a failed test left at work."""
        for run in self._runs:
            run.close()

    def start(self, source: Path, destination: Path, *flags: str, before: str = QUICK, **faults: object) -> Run:
        """Start preload; each fault is a setting of tests/workloads/preload/faulty.c in lower case."""
        stem = destination.with_name(f"{destination.name}-run{next(self._numbers)}")
        log, termination_log = stem.with_suffix(".calls"), stem.with_suffix(".log")
        ready, tell = os.pipe()
        settings = {"prefix": source, "destination": destination, "log": log, "ready": tell} | faults
        environment = {f"FAULTY_{key.upper()}": _text(value) for key, value in settings.items()}
        arguments = [*map(os.fsencode, (source, destination)), *flags, "--termination-log", str(termination_log)]
        try:
            process = subprocess.Popen(
                [self.python, "-S", "-c", START.format(before), *arguments],
                env={
                    "LD_PRELOAD": str(self.library),
                    "PYTHONPATH": str(self.program),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    **environment,
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                pass_fds=[tell],
                **self.more,
            )
        finally:
            os.close(tell)
        self._runs.append(Run(process, log, termination_log, ready))
        return self._runs[-1]

    def run(self, source: Path, destination: Path, *flags: str, before: str = QUICK, **faults: object) -> Ended:
        """Run preload to its end; where it wrote a termination message, that must agree with the exit code."""
        ended = self.start(source, destination, *flags, before=before, **faults).end()
        assert ended.code < 0 or ended.termination.get("code") == ended.code, ended.said
        return ended


def _text(value: object) -> str:
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)


# Trees


BIG = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


def big_model(root: Path, sizes: Sequence[int] = (17 * MIB + 777, 3 * MIB), seed: int = 1) -> Path:
    """Make a model with shards of these sizes, and some small files, an empty one too; random bytes."""
    chance = random.Random(seed)
    shards = [f"model-{n:05}-of-{len(sizes):05}.safetensors" for n in range(1, len(sizes) + 1)]
    for shard, size in zip(shards, sizes, strict=True):
        data = size - len(safetensors(bytes(size))) + size  # the header's length has the digits of size in it
        write(root, {shard: safetensors(chance.randbytes(data))})
        assert (root / shard).stat().st_size == size
    write(root, {f"sub/{n}/small-{n}.json": chance.randbytes(n * 2997) for n in range(6)})
    return write(root, {"config.json": b"{}", "model.safetensors.index.json": index(*shards), "empty/folder": None})


def publish_hashed(root: Path, block_bytes: int = 8 * MIB) -> Path:
    """Write the manifest of a tree with the hashes of all blocks; return the tree's top."""
    files = []
    for path in sorted(found for found in _walk(root) if found.is_file()):
        data = path.read_bytes()
        files.append(
            {
                "path": str(path.relative_to(root)),
                "size": len(data),
                "sha256": hashlib.sha256(data).hexdigest(),
                "block_bytes": block_bytes,
                "blocks": [
                    hashlib.sha256(data[at : at + block_bytes]).hexdigest() for at in range(0, len(data), block_bytes)
                ],
            }
        )
    publish(root, files=sorted(files, key=lambda file: os.fsencode(file["path"])))
    return root


def _walk(root: Path) -> Iterator[Path]:
    for path in root.iterdir():
        if path.name == ".faststart":
            continue
        yield path
        if path.is_dir() and not path.is_symlink():
            yield from _walk(path)


def _same(one: Path, other: Path) -> bool:
    """Compare two files byte by byte; filecmp would keep its answers by size and mtime."""
    if other.is_symlink() or not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with one.open("rb") as left, other.open("rb") as right:
        while data := left.read(MIB):
            if data != right.read(MIB):
                return False
    return True


def cut_files(source: Path, destination: Path) -> list[str]:
    """Return the files that lie under a final name and are not those of the source."""
    if not destination.exists():
        return []
    files = (path for path in _walk(destination) if path.is_symlink() or not path.is_dir())
    return [str(path) for path in files if not _same(source / path.relative_to(destination), path)]


def lost_bytes(source: Path, destination: Path) -> int:
    """Return the bytes of the source's files that are not, or not so, in a copy."""
    files = (path for path in _walk(source) if path.is_file())
    return sum(path.stat().st_size for path in files if not _same(path, destination / path.relative_to(source)))


def differences(source: Path, destination: Path) -> list[str]:
    """Return all in which a complete copy differs from its source."""
    wanted, found = ({path.relative_to(root) for path in _walk(root)} for root in (source, destination))
    wrong = [f"only on one side: {path}" for path in sorted(wanted ^ found)] + cut_files(source, destination)
    left = sorted((destination / ".faststart/work").glob("*.part"))
    return wrong + [f"left behind: {path}" for path in left] + ([] if is_marked(destination) else ["no marker"])


# Kills


@dataclass
class Torment:
    """What came of copies that were killed again and again."""

    copies: int = 0
    starts: int = 0
    hits: int = 0
    resets: int = 0
    resumed_copies: int = 0
    resumed_bytes: int = 0
    wrong: list[str] = field(default_factory=list)


RESETS = 0.3
"""So many of the kills are resets of the node."""

RATE = 60
"""MiB a second of the source in a copy that is to be killed."""

MODES: Sequence[Sequence[str]] = (
    ("--write", "direct"),
    ("--write", "buffered"),
    ("--write", "direct", "--verify", "sha256"),
    ("--write", "buffered", "--verify", "sha256"),
    ("--write", "buffered", "--cache", "drop"),
)


def torment(
    faulty: Faulty,
    source: Path,
    destination: Path,
    hits: int,
    seed: int,
    each: Callable[[Torment], None] = lambda _: None,
    kills: int = 4,
    modes: Sequence[Sequence[str]] = MODES,
) -> Torment:
    """Copy with kills at random moments until so many of them have hit a running copy.

    A kill hits if the process was at work and the marker not there yet. Some are resets of the node: what nothing says
    is on disk loses a page. Ends early at the first difference, and after four starts a wanted hit.

    Args:
        source: published with hashes.
        destination: made anew for each copy.
        each: called after each copy.
        kills: the most of one copy.
        modes: flags, one after the other for each copy; now and then a start has those of another.
    """
    total = Torment()
    chance = random.Random(seed)
    for mode in itertools.islice(itertools.cycle(modes), seed % len(modes), None):
        if total.hits >= hits or total.wrong or total.starts > 10 + 4 * hits:
            return total
        shutil.rmtree(destination, ignore_errors=True)
        total.copies += 1
        _one_copy(faulty, source, destination, mode, total, chance, min(kills, hits - total.hits))
        each(total)
    return total


def _one_copy(
    faulty: Faulty,
    source: Path,
    destination: Path,
    mode: Sequence[str],
    total: Torment,
    chance: random.Random,
    kills: int,
) -> None:
    bytes_left = sum(path.stat().st_size for path in _walk(source) if path.is_file())
    seconds_left = bytes_left / MIB / RATE
    before, resets = QUICK, 0
    for _ in range(kills):
        total.starts += 1
        now = chance.choice(MODES) if chance.random() < 0.1 else mode
        streams = str(chance.choice((1, 2, 3, 8)))
        run = faulty.start(source, destination, "--parallel", streams, *now, before=before, rate=RATE, beyond=MIB)
        early = chance.random() < 0.15
        if not early:
            run.wait_until_hit()
        seconds = chance.uniform(0, 0.25 if early else max(0.05, seconds_left))
        seconds_left -= 0 if early else seconds
        ended = run.end(signal.SIGKILL if run.lives_for(seconds) else None)
        marked = is_marked(destination)
        if ended.code == -signal.SIGKILL and not marked:
            total.hits += 1
        elif ended.code not in (0, -signal.SIGKILL):
            total.wrong.append(f"exit {ended.code} after a kill: {ended.said}")
        if marked or not resets:
            total.wrong += differences(source, destination) if marked else cut_files(source, destination)
        if marked or total.wrong:
            break
        if chance.random() < RESETS:
            resets += 1
            before = QUICK + f"import preload.state; preload.state.boot_id = lambda *_: 'boot {resets}'\n"
            lose_pages(destination, chance)
    total.resets += resets
    total.starts += 1
    ended = faulty.run(source, destination, *mode, before=before)
    if ended.code:
        total.wrong.append(f"exit {ended.code} at the end: {ended.said}")
        return
    total.resumed_bytes += ended.termination["resumed_bytes"]
    total.resumed_copies += ended.termination["resumed_bytes"] > 0
    total.wrong += differences(source, destination)
    again = faulty.run(source, destination, *mode, before=before)
    if again.code or again.termination["copied_bytes"]:
        total.wrong.append(f"not found complete: {again.said}")


def lose_pages(destination: Path, chance: random.Random) -> None:
    """Do to a destination what a reset of the node may: zero a page of each file that nothing says is on disk."""
    work = destination / ".faststart/work"
    journal = work / "journal.jsonl"
    data = journal.read_bytes() if journal.exists() else b""
    try:
        head = json.loads(data.partition(b"\n")[0])
    except ValueError:
        head = {}
    identity = state.Identity("", head.get("selection_digest", ""), head.get("verify", "none"), "another boot")
    past = state.read_journal(data, identity)
    found = _walk(destination) if destination.exists() else ()
    for path in [path for path in found if path.is_file()]:
        if os.fsencode(path.relative_to(destination)) not in past.records:
            _lose_page(path, [], chance)
    for path in work.glob("[0-9]*.part"):
        part = past.parts.get(int(path.stem))
        _lose_page(path, part.merged() if part else [], chance)


def _lose_page(path: Path, on_disk: Sequence[tuple[int, int]], chance: random.Random) -> None:
    size = path.stat().st_size
    starts = [at for at in range(0, size, PAGE) if not any(a < at + PAGE and at < b for a, b in on_disk)]
    if not starts:
        return
    at = chance.choice(starts)
    with path.open("r+b") as file:
        file.seek(at)
        file.write(bytes(min(PAGE, size - at)))
