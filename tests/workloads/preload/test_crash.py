"""preload killed, stopped, hanging and started twice: in processes of its own."""

from __future__ import annotations

import fcntl
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.workloads.support import (
    MORTAL,
    SMALL_PIECES,
    Naps,
    is_marked,
    marker,
    preload,
    safetensors,
    start,
    tree,
    use_small_pieces,
    write,
)

pytestmark = pytest.mark.processes

# Each call that may change a destination or read a source.
DIE = f"""{SMALL_PIECES}{MORTAL}
preload.copier._TICK = 0.001
mortal(os, "preadv", lambda fd, buffers, at: (fd, [buffers[0][:4096]], at))
for name in ("pwrite", "write", "mkdir", "unlink", "rmdir", "rename", "utime", "fchmod"):
    mortal(os, name)
mortal(preload.space, "fallocate")
"""
COUNT = "import atexit; atexit.register(lambda: print(next(numbers)))"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files: dict[str | bytes, bytes | None] = {f"sub/{n}/{n}.bin": os.urandom(n * 17_123) for n in range(8)}
    return write(tmp_path / "source", files | {"config.json": b"{}", "model.safetensors": safetensors(), "empty": None})


@pytest.fixture(params=["direct", "buffered"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How to write; with pieces as small as DIE makes them."""
    use_small_pieces(monkeypatch)
    return request.param


def dying(source: Path, destination: Path, way: str, at: int) -> int:
    before = f"os.environ['KILL_AT'] = '{at}'\n{DIE}"
    process = start(source, destination, "--parallel", "3", "--write", way, before=before)
    process.communicate(timeout=30)
    return process.returncode


def assert_no_cut_file(source: Path, destination: Path) -> None:
    whole = tree(source)
    found = tree(destination) if destination.exists() else {}
    assert {path for path, data in found.items() if whole.get(path) != data} == set()


def number_of_calls(source: Path, destination: Path, way: str) -> int:
    counting = start(source, destination, "--parallel", "3", "--write", way, before=f"{DIE}\n{COUNT}")
    return int(counting.communicate(timeout=30)[0])


def test_killed_at_any_moment_it_leaves_no_cut_file_and_the_next_run_completes_the_same_tree(source, tmp_path, way):
    calls = number_of_calls(source, tmp_path / "count", way)
    chance = random.Random(5)
    hits = resumed = 0
    # How often the journal is written depends on the time, and so do the last few calls of a run.
    for point in chance.sample(range(1, calls * 9 // 10), 10):
        destination = tmp_path / f"destination-{point}"
        code = dying(source, destination, way, point)
        hits += code == -signal.SIGKILL
        assert_no_cut_file(source, destination)
        assert not is_marked(destination) or tree(destination) == tree(source)
        result = preload(source, destination, "--write", way)
        resumed += result.termination["resumed_bytes"] > 0
        assert (point, result.code) == (point, 0)
        assert tree(destination) == tree(source)
        assert not list((destination / ".faststart/work").glob("*.part"))
    assert hits >= 8
    assert resumed > 3


def test_killed_again_and_again_it_still_comes_to_the_same_tree(source, tmp_path, way):
    destination = tmp_path / "destination"
    write(tmp_path / "old", {"config.json": b"old", "old.bin": b"old", "old/folder": None})
    preload(tmp_path / "old", destination)
    chance = random.Random(6)
    codes = [dying(source, destination, way, chance.randint(5, 60)) for _ in range(6)]
    assert codes[0] == -signal.SIGKILL
    assert preload(source, destination, "--write", way).code == 0
    assert tree(destination) == tree(source)


SLOW_SCAN = """
real = os.scandir
class Slow:
    def __init__(self, path): self.entries = real(path)
    def __enter__(self): return self
    def __exit__(self, *_): self.entries.close()
    def __iter__(self):
        print("begun", flush=True)
        for entry in self.entries:
            for _ in range(400):
                time.sleep(0.05)
                yield entry
os.scandir = Slow
"""
SLOW_READ = """
real = os.preadv
def slow(fd, buffers, at):
    print("begun", flush=True)
    time.sleep(0.05)
    return real(fd, [buffers[0][:10]], at)
os.preadv = slow
"""
HANGING_READ = """
def hanging(*_):
    print("begun", flush=True)
    time.sleep(60)
os.preadv = hanging
"""
HANGING_DESTINATION = """
import preload.run
def hanging(*_):
    print("begun", flush=True)
    time.sleep(60)
preload.run.require_acceptable = hanging
"""
FAILING_READ = """
import errno
def failing(*_):
    print("begun", flush=True)
    raise OSError(errno.EIO, "Input/output error")
os.preadv = failing
"""


def stopped(process: subprocess.Popen[str]) -> tuple[int, str, float]:
    """Send SIGTERM to a process that has said that it is at work; return its exit code, last words and delay."""
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    return process.returncode, said, time.monotonic() - sent


@pytest.mark.parametrize(
    "before",
    [SLOW_SCAN, HANGING_DESTINATION, SLOW_READ, HANGING_READ, FAILING_READ],
    ids=["scan", "look at the destination", "copy", "hanging read", "pause before another try"],
)
def test_sigterm_ends_it_within_a_second_with_143_and_a_message_and_the_next_run_completes(source, tmp_path, before):
    destination, log = tmp_path / "destination", tmp_path / "termination-log"
    write(source, {"big.bin": bytes(100_000)})
    process = start(source, destination, "--termination-log", log, before=before)
    code, said, seconds = stopped(process)
    assert code == 143
    assert "exit 143: stopped by SIGTERM" in said
    assert '"code": 143' in log.read_text()
    assert seconds < 1.5, "one second, and a share for a busy machine"
    assert not is_marked(destination)
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)


def test_sigterm_during_the_scan_of_a_half_made_copy_throws_nothing_away(source, tmp_path):
    destination = tmp_path / "destination"
    preload(source, destination)
    (destination / ".faststart/complete.json").unlink()
    assert stopped(start(source, destination, before=SLOW_SCAN))[0] == 143
    assert preload(source, destination).termination["copied_bytes"] == 0


def test_sigterm_while_waiting_for_the_lock_ends_it(source, tmp_path):
    destination = write(tmp_path / "destination", {".faststart/lock": b""})
    with (destination / ".faststart/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        before = "import fcntl\nreal = fcntl.flock\nfcntl.flock = lambda *a: (print('begun', flush=True), real(*a))[1]"
        code, said, seconds = stopped(start(source, destination, "--wait", "60", before=before))
    assert code == 143
    assert "waiting up to 60 s" in said
    assert seconds < 1.5


def test_two_at_once_on_one_destination_copy_once_and_both_succeed(source, tmp_path):
    destination = tmp_path / "destination"
    slow = SLOW_READ.replace("[:10]", "[:100_000]").replace("0.05", "0.005")
    logs = [tmp_path / "log-1", tmp_path / "log-2"]
    both = [start(source, destination, "--wait", "30", "--termination-log", log, before=slow) for log in logs]
    ended = [process.communicate(timeout=30) for process in both]
    assert [process.returncode for process in both] == [0, 0], ended
    assert tree(destination) == tree(source)
    copied = sorted('"copied_bytes": 0,' in log.read_text() for log in logs)
    assert copied == [False, True]


def test_another_owner_past_the_wait_is_5_and_the_destination_stays_as_it_is(source, tmp_path):
    destination = tmp_path / "destination"
    preload(source, destination)
    before = tree(destination), marker(destination)
    write(source, {"config.json": b"changed"})
    with (destination / ".faststart/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        at_once = preload(source, destination, "--wait", "0")
        later = preload(source, destination, "--wait", "2.5", sleep=(naps := Naps()))
    assert (at_once.code, later.code, round(naps.seconds, 1)) == (5, 5, 2.5)
    assert "another preload owns the destination, still after 2.5 s" in later.message
    assert before == (tree(destination), marker(destination))
    assert preload(source, destination).code == 0
