"""A destination that several runs share: at once, one after the other, as a sidecar, and over a reset of the node."""

from __future__ import annotations

import errno
import itertools
import json
import mmap
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfolder.manifest import ManifestFile
from modelfolder.source import NOT_DIRECT, SourceFile, look
from podkit.patience import Patience
from preload import copier, state
from preload.destination import Part, locked
from preload.request import Verify
from preload.state import Identity, PartRecord, Past
from tests.workloads.support import (
    MODEL,
    SMALL_PIECES,
    Naps,
    Result,
    is_marked,
    marker,
    preload,
    start,
    tree,
    use_small_pieces,
    write,
)

PAGE = 4096
BIG = bytes(range(251)) * 200  # 50,200 bytes: twelve pages and a short one
TWO_WAYS = pytest.mark.parametrize("way", ["direct", "buffered"])


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", MODEL | {"big.bin": BIG})


def resumed(source: Path, destination: Path, *flags: str, sleep: Naps | None = None) -> Result:
    return preload(source, destination, "--files", "all", *flags, sleep=sleep)


# two at once

HANG_AFTER_THREE = f"""{SMALL_PIECES}
import itertools, preload.run
preload.run._SHARED_PROGRESS_SECONDS = 0.01
real, numbers = os.preadv, itertools.count()
def hanging(fd, buffers, at):
    if os.readlink(f"/proc/self/fd/{{fd}}").endswith("big.bin") and next(numbers) == 3:
        def said(name):
            path = sys.argv[2] + "/.faststart/work/" + name
            return open(path, "rb").read() if os.path.exists(path) else b'"copied":0,'
        while b'"copied":0,' in said("progress.json") or b",8192,12288]" not in said("journal.jsonl"):
            time.sleep(0.01)
        print("begun", flush=True)
        time.sleep(60)
    return real(fd, buffers, at)
os.preadv = hanging
"""


def hanging(source: Path, destination: Path, *flags: str, before: str = "") -> subprocess.Popen[str]:
    """Start a preload that hangs after three pieces of big.bin, and wait until it does."""
    process = start(source, destination, "--parallel", "1", *flags, before=before + HANG_AFTER_THREE)
    assert process.stdout
    assert process.stdout.readline() == "begun\n", process.communicate()
    return process


def test_who_waits_is_told_how_far_the_owner_is(source, destination, capsys):
    owner = hanging(source, destination, "--files", "all")
    try:
        result = resumed(source, destination, "--wait", "11")
    finally:
        owner.kill()
        owner.communicate()
    assert result.code == 5
    said = [line for line in capsys.readouterr().err.splitlines() if "waiting" in line]
    assert len(said) == 3, "at once, and every five seconds"
    for line in said:
        assert line.startswith("preload: another preload owns the destination; waiting up to 11 s: ")
        assert " of 63.40 kB copied, " in line
        assert ": 0 bytes of" not in line
        assert line.endswith(", 1 streams")


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b"\xff", b'{"copied":"x","total":1,"seconds":1,"streams":1}', None]
)
def test_progress_that_cannot_be_read_keeps_nobody_from_waiting(source, destination, text, capsys):
    write(destination, {".faststart/lock": b"", ".faststart/work": None})
    if text is not None:
        write(destination, {".faststart/work/progress.json": text})
    command = (
        "import fcntl, sys; f = open(sys.argv[1]); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", command, destination / ".faststart/lock"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == b"held\n"
        result = resumed(source, destination, "--wait", "1")
        other.kill()
    assert result.code == 5
    assert "waiting up to 1 s: no word yet of how far it is" in capsys.readouterr().err


@TWO_WAYS
def test_an_owner_that_was_killed_is_taken_over_at_once_and_its_work_is_kept(source, destination, monkeypatch, way):
    owner = hanging(source, destination, "--files", "all", "--write", way)
    owner.kill()
    owner.communicate()
    use_small_pieces(monkeypatch)
    naps = Naps()
    result = resumed(source, destination, "--write", way, sleep=naps)
    assert (result.code, naps.seconds) == (0, 0)
    assert result.termination["resumed_bytes"] >= 3 * PAGE
    assert tree(destination) == tree(source)


# --stay

UID = "8a7b6c5d-1111-2222-3333-444455556666"
POD = f"os.environ['FASTSTART_POD_UID'] = '{UID}'\n"
HANGING_SCAN = """
def hanging(*_):
    print("begun", flush=True)
    time.sleep(60)
os.scandir = hanging
"""


def wait_for(process: subprocess.Popen[str], words: str) -> list[str]:
    assert process.stderr
    said = []
    for line in process.stderr:
        said.append(line)
        if words in line:
            return said
    raise AssertionError(said)


def test_a_sidecar_stays_after_the_copy_until_sigterm_and_then_ends_with_0(source, destination, tmp_path):
    log = tmp_path / "termination-log"
    process = start(source, destination, "--stay", "--termination-log", log, before=POD)
    wait_for(process, "complete: ")
    wait_until(lambda: log.exists() and log.read_text().endswith("}"))
    assert process.poll() is None
    assert (destination / f".faststart/run/{UID}").exists()
    assert is_marked(destination)
    assert json.loads(log.read_text())["code"] == 0
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 0
    assert not (destination / f".faststart/run/{UID}").exists(), "who comes later finds no word of a pod that is gone"
    assert is_marked(destination)


def test_a_sidecar_says_that_it_runs_before_its_copy_and_after_an_older_marker_is_gone(source, destination):
    preload(source, destination)
    write(source, {"config.json": b"another"})
    process = hanging(source, destination, "--files", "all", "--stay", before=POD)
    try:
        assert (destination / f".faststart/run/{UID}").exists()
        assert not is_marked(destination)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=10)
    assert process.returncode == 143


def test_a_sidecar_that_finds_a_complete_copy_says_that_it_runs_and_keeps_the_marker(source, destination):
    preload(source, destination)
    before = marker(destination)
    process = start(source, destination, "--stay", before=POD)
    wait_for(process, "already complete")
    assert (destination / f".faststart/run/{UID}").exists()
    assert marker(destination) == before
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 0


def test_a_sidecar_whose_copy_is_refused_ends_at_once_and_never_says_that_it_runs(source, destination):
    write(source, {"model-00001-of-00002.safetensors": b"cut"})
    process = start(source, destination, "--stay", before=POD)
    process.communicate(timeout=10)
    assert process.returncode == 4
    assert not (destination / ".faststart/run").exists()


def test_what_a_sidecar_left_before_a_reset_of_its_node_is_gone_before_the_source_is_looked_at(source, destination):
    preload(source, destination)
    write(destination, {f".faststart/run/{UID}": b""})
    process = start(source, destination, "--stay", before=POD + HANGING_SCAN)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    assert not (destination / f".faststart/run/{UID}").exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143


def test_a_sidecar_whose_copy_fails_takes_back_that_it_runs(source, destination):
    write(source, {"config.json": b"another"})
    process = hanging(source, destination, "--files", "all", "--stay", before=POD)
    assert (destination / f".faststart/run/{UID}").exists()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert not (destination / f".faststart/run/{UID}").exists()


def test_a_plan_does_not_stay(source, destination):
    process = start(source, destination, "--stay", "--plan", before=POD)
    process.communicate(timeout=10)
    assert process.returncode == 0
    assert not destination.exists()


# a second run


def test_a_second_run_over_ten_thousand_files_in_one_folder_opens_none_of_them(tmp_path, destination, monkeypatch):
    source = write(tmp_path / "source", {"config.json": b"{}", "many": None})
    for number in range(10_000):
        fd = os.open(source / f"many/{number}.bin", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, b"%d" % number)
        os.close(fd)
    assert preload(source, destination).code == 0
    opened: list[bytes] = []
    real = os.open

    def noting(path, *rest, **more):
        opened.append(os.path.basename(os.fsencode(path)))  # noqa: PTH119 - bytes
        return real(path, *rest, **more)

    def never(*_):
        raise AssertionError("data was read")

    monkeypatch.setattr(os, "open", noting)
    monkeypatch.setattr(os, "preadv", never)
    result = preload(source, destination)
    assert result.message.startswith("already complete: 10001 files")
    assert [name for name in opened if name.endswith(b".bin")] == []
    assert len(opened) < 30


def write_in_place(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.write(b"x")


def replace(file: Path) -> None:
    other = file.with_name("other")
    other.write_bytes(b"x" * file.stat().st_size)
    other.rename(file)


@pytest.mark.parametrize("change", [write_in_place, replace], ids=lambda change: change.__name__)
def test_a_file_that_was_changed_after_completion_is_copied_again_though_size_and_mtime_are_the_same(
    source, destination, change: Callable[[Path], None]
):
    preload(source, destination)
    file = destination / "tokenizer.json"
    before = file.stat()
    while file.stat().st_ctime_ns == before.st_ctime_ns:  # the clock of a file system may have coarse ticks
        change(file)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    result = preload(source, destination)
    assert (result.code, result.termination["copied_bytes"]) == (0, 1400)
    assert tree(destination) == tree(source)


# half a copy: the journal's lines for pieces

KEPT = [(0, 3 * PAGE), (5 * PAGE, 6 * PAGE), (12 * PAGE, len(BIG))]
MISSING = [(3 * PAGE, 5 * PAGE), (6 * PAGE, 12 * PAGE)]


class Half:
    """A destination in which some pages of big.bin were written, and garbage stands for the rest."""

    def __init__(self, source: Path, destination: Path, *, name: bytes = b"big.bin", verify: Verify = "size"):
        found = look(os.fsencode(source), ["all"], Patience())
        self.number = [file.path for file in found.files].index(name)
        self.identity = Identity.of(found, verify, state.boot_id())
        self.part = destination / f".faststart/work/{self.number}.part"
        self.journal = destination / ".faststart/work/journal.jsonl"
        data = bytearray(b"\xee" * len(BIG))
        for start_at, end in KEPT:
            data[start_at:end] = BIG[start_at:end]
        write(destination, {f".faststart/work/{self.number}.part": bytes(data)})
        self.write()

    @property
    def past(self) -> Past:
        return Past(parts={self.number: PartRecord(self.part.stat().st_ino, list(KEPT))})

    def write(self, **changed: str) -> None:
        identity = Identity(**{**self.identity.__dict__, **changed})
        self.journal.write_bytes(state.journal_start(identity, self.past))


@pytest.fixture
def reads(source: Path, monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Note each page of big.bin that is read, in small pieces."""
    use_small_pieces(monkeypatch)
    pages: set[int] = set()
    inode = (source / "big.bin").stat().st_ino
    real = os.preadv

    def noting(fd, buffers, at):
        count = real(fd, buffers, at)
        if os.fstat(fd).st_ino == inode:
            pages.update(range(at // PAGE, -(-(at + count) // PAGE)))
        return count

    monkeypatch.setattr(os, "preadv", noting)
    return pages


def pages_of(intervals: list[tuple[int, int]]) -> set[int]:
    return {page for start_at, end in intervals for page in range(start_at // PAGE, -(-end // PAGE))}


@TWO_WAYS
@pytest.mark.parametrize("streams", ["1", "5"])
def test_of_half_a_file_only_what_is_missing_is_read(source, destination, reads, way, streams):
    Half(source, destination)
    result = resumed(source, destination, "--write", way, "--parallel", streams)
    assert (result.code, reads) == (0, pages_of(MISSING))
    assert result.termination["resumed_bytes"] == sum(end - start_at for start_at, end in KEPT)
    assert tree(destination) == tree(source)


def test_a_part_that_is_whole_and_has_no_name_yet_gets_it_unread(source, destination, reads):
    half = Half(source, destination)
    half.part.write_bytes(BIG)
    half.journal.write_bytes(half.journal.read_bytes() + state.piece_line(half.number, 0, len(BIG)))
    assert resumed(source, destination).code == 0
    assert (reads, tree(destination)) == (set(), tree(source))


HANGING_RENAME = (
    SMALL_PIECES
    + """
real = os.rename
def rename(part, *rest, **more):
    if part.endswith(b".part"):
        print("begun", flush=True)
        time.sleep(60)
    return real(part, *rest, **more)
os.rename = rename
"""
)


def test_sigterm_is_heeded_while_a_part_that_only_lacks_its_name_gets_it(source, destination):
    half = Half(source, destination)
    half.part.write_bytes(BIG)
    half.journal.write_bytes(half.journal.read_bytes() + state.piece_line(half.number, 0, len(BIG)))
    process = start(source, destination, "--files", "all", "--parallel", "1", before=HANGING_RENAME)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    process.terminate()
    process.communicate(timeout=10)
    assert process.returncode == 143
    assert resumed(source, destination).code == 0
    assert tree(destination) == tree(source)


@TWO_WAYS
@pytest.mark.parametrize("level", ["none", "size"])
@pytest.mark.parametrize("kept", ["half", "whole"])
def test_a_part_made_with_little_memory_is_gone_on_with_where_its_file_counts_as_small(
    source, destination, monkeypatch, way, level, kept
):
    with monkeypatch.context() as little:
        use_small_pieces(little)
        half = Half(source, destination)
    if kept == "whole":
        half.part.write_bytes(BIG)
        half.journal.write_bytes(half.journal.read_bytes() + state.piece_line(half.number, 0, len(BIG)))
    result = resumed(source, destination, "--write", way, "--verify", level)
    assert (result.code, tree(destination)) == (0, tree(source))
    assert result.termination["resumed_bytes"] >= sum(end - start_at for start_at, end in KEPT)


@TWO_WAYS
def test_a_part_whose_last_page_was_filled_up_by_a_direct_write_is_gone_on_with(source, destination, reads, way):
    half = Half(source, destination)
    with half.part.open("ab") as file:
        file.write(bytes(-len(BIG) % PAGE))
    result = resumed(source, destination, "--write", way)
    assert tree(destination) == tree(source)
    assert (result.code, reads) == (0, pages_of(MISSING))


GARBAGE = {
    "torn at the end": lambda data: data[:-5],
    "without its last newline": lambda data: data[:-1],
    "zeros": lambda data: data + bytes(4096),
    "no utf-8": lambda data: data.replace(b"]\n", b"]\n\xff\xfe\n"),
    "other json": lambda data: data.replace(b"]\n", b']\n[]\n[1]\n7\n"x"\nnull\n{}\n[1,2,3,4]\n[1.5,2.5,3]\n'),
    "unknown parts": lambda data: data + b"[99,1]\n[99,0,4096]\n[-7,1]\n[-7,0,4096]\n[3000,0,4096]\n",
    "pieces without sense": lambda data: (
        data + b"[%d,5,5]\n[%d,9,3]\n[%d,-9,3]\n" % ((int(data.split(b"[")[1][0:1]),) * 3)
    ),
}


@pytest.mark.parametrize("damage", GARBAGE.values(), ids=GARBAGE.keys())
def test_lines_that_are_torn_or_garbage_count_for_nothing_and_the_others_do(source, destination, reads, damage):
    half = Half(source, destination)
    half.journal.write_bytes(damage(half.journal.read_bytes()))
    assert resumed(source, destination, "--write", "buffered").code == 0
    assert tree(destination) == tree(source)
    lost = pages_of(KEPT[-1:]) if damage is GARBAGE["torn at the end"] else set()
    assert reads == pages_of(MISSING) | lost


def wrong_inode(half: Half) -> None:
    data = half.part.read_bytes()
    other = half.part.with_name("other")
    other.write_bytes(data.replace(BIG[:PAGE], bytes(PAGE)))
    other.rename(half.part)


def wrong_size(half: Half) -> None:
    os.truncate(half.part, PAGE)


def no_part(half: Half) -> None:
    half.part.unlink()


def a_link(half: Half) -> None:
    half.part.rename(half.part.with_name("elsewhere"))
    half.part.symlink_to("elsewhere")


def another_boot(half: Half) -> None:
    half.write(boot="another")


def another_selection(half: Half) -> None:
    half.write(selection_digest="sha256:" + "0" * 64)


def a_weaker_check(half: Half) -> None:
    half.write(verify="none")


DOUBTS = [wrong_inode, wrong_size, no_part, a_link, another_boot, another_selection, a_weaker_check]


@pytest.mark.parametrize("doubt", DOUBTS, ids=lambda doubt: doubt.__name__)
def test_a_part_that_may_not_be_the_one_of_the_journal_is_copied_anew(source, destination, reads, doubt):
    half = Half(source, destination)
    doubt(half)
    result = resumed(source, destination)
    assert (result.code, result.termination["resumed_bytes"]) == (0, 0)
    assert reads == pages_of([(0, len(BIG))])
    assert tree(destination) == tree(source)


# a reset of the node


def believed_after_a_reset(half: Half) -> Past:
    identity = Identity(**{**half.identity.__dict__, "boot": "another"})
    return state.read_journal(half.journal.read_bytes(), identity)


def test_pieces_are_believed_after_a_reset_once_their_part_was_put_on_disk_and_not_before(
    source, destination, reads, monkeypatch
):
    """A part of an earlier run that no stream has opened yet holds bytes that only the page cache may have."""
    write(source, {"first.bin": bytes(200_000)})
    half = Half(source, destination)
    synced: set[int] = set()
    looked: list[bool] = []
    real_read, real_sync = os.preadv, os.fsync

    def slow(fd, buffers, at):
        count = real_read(fd, buffers, at)
        if not looked and os.fstat(fd).st_size == 200_000:
            wait_until(lambda: b"[-2," in half.journal.read_bytes())
            parts = believed_after_a_reset(half).parts
            looked.append(all(part.inode in synced for part in parts.values() if part.pieces))
        return count

    def noting(fd):
        synced.add(os.fstat(fd).st_ino)
        real_sync(fd)

    monkeypatch.setattr(os, "preadv", slow)
    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(copier, "SYNC_SECONDS", 0.01)
    assert resumed(source, destination, "--write", "direct", "--parallel", "1").code == 0
    assert looked == [True]


def test_a_reset_soon_after_a_restart_costs_nothing_of_what_direct_writes_had_done(source, destination, monkeypatch):
    """The new journal takes the place of the old one only when it says itself what is on disk."""
    half = Half(source, destination)
    order: list[str] = []
    real_rename, real_sync = os.rename, os.fsync

    def renaming(name, *rest, **more):
        if name == b"journal.jsonl.new":
            order.append("journal")
            new = half.journal.with_name("journal.jsonl.new").read_bytes()
            identity = Identity(**{**half.identity.__dict__, "boot": "another"})
            assert state.read_journal(new, identity).parts[half.number].merged() == sorted(KEPT)
        return real_rename(name, *rest, **more)

    def syncing(fd):
        if os.fstat(fd).st_ino == half.part.stat().st_ino:
            order.append("part")
        real_sync(fd)

    monkeypatch.setattr(os, "rename", renaming)
    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(copier.Copy, "run", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "reset")))
    assert resumed(source, destination, "--write", "direct").code == 9
    assert order == ["part", "journal"]


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 20)), max_size=12), st.integers(1, 100))
def test_written_and_missing_bytes_are_all_bytes_and_neither_is_said_in_more_pieces_than_needed(pieces, more):
    part = PartRecord(1, [(start_at, start_at + length) for start_at, length in pieces])
    size = max((end for _, end in part.pieces), default=0) + more - 1
    written = {byte for start_at, end in part.pieces for byte in range(start_at, end)}
    for intervals, expected in ((part.merged(), written), (part.missing(size), set(range(size)) - written)):
        assert [byte for start_at, end in intervals for byte in range(start_at, end)] == sorted(expected)
        assert all(before[1] < after[0] for before, after in itertools.pairwise(intervals))


def test_lines_after_the_last_mark_that_is_on_disk_are_not_believed_after_a_reset(source, destination):
    half = Half(source, destination)
    extra = state.piece_line(half.number, 3 * PAGE, 5 * PAGE)
    kept = sorted(KEPT)
    for lines, expected in {
        b"": {},
        state.mark_line(1): {},
        state.synced_line(1): {},
        state.mark_line(1) + extra: {},
        state.mark_line(1) + extra + state.synced_line(1): {half.number: kept},
        state.mark_line(1) + extra + state.synced_line(1) + state.mark_line(2): {half.number: kept},
        state.mark_line(1) + extra + state.synced_line(2): {},
        state.mark_line(1) + extra + state.mark_line(2) + state.synced_line(2): {
            half.number: sorted([*KEPT, (3 * PAGE, 5 * PAGE)])
        },
    }.items():
        half.write()
        half.journal.write_bytes(half.journal.read_bytes() + lines)
        found = believed_after_a_reset(half).parts
        assert {number: sorted(part.pieces) for number, part in found.items()} == expected, lines


# direct writes


@pytest.mark.parametrize("number", NOT_DIRECT)
def test_a_file_system_that_takes_no_direct_writes_after_all_gets_the_right_size(tmp_path, monkeypatch, number):
    """The last page was filled up by a direct write before the file system refused the next one."""
    real = write(tmp_path, {"x": bytes(2 * PAGE + 100)}) / "x"
    status = real.stat()
    file = SourceFile(
        b"x", os.fsencode(real), status.st_size, status.st_mtime_ns, status.st_mode, ManifestFile(b"x", 0)
    )
    calls: list[int] = []
    pwrite = os.pwrite

    def refusing(fd, data, at):
        calls.append(at)
        if len(calls) == 2:
            raise OSError(number, os.strerror(number))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refusing)
    buffer = memoryview(mmap.mmap(-1, 4 * PAGE))
    identity = Identity("sha256:0", "sha256:0", "size", None)
    root = os.fsencode(tmp_path / "destination")
    with (
        locked(root, 0, Patience(), lambda _: None) as destination,
        destination.journal(identity, Past(), Patience(), sync=False) as journal,
    ):
        part = Part(destination, 0, file, direct=True, resumed=False)
        part.open(journal)
        part.write(buffer, 2 * PAGE, 100)
        part.write(buffer, 0, 2 * PAGE)
        part.finish(sync=False, drop=False)
    assert calls == [2 * PAGE, 0, 0]
    assert (tmp_path / "destination/x").stat().st_size == file.size
