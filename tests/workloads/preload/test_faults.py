"""preload under faults of the system below it, seen from outside: the shim faulty.c stands for the mount.

What a fault in Python's own calls leads to is in test_refusals.py; here nothing of the program is replaced but
the length of its pauses.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.workloads.preload.faulty import (
    BIG,
    MIB,
    RATE,
    Faulty,
    big_model,
    cut_files,
    differences,
    publish_hashed,
)
from tests.workloads.support import MODEL, SHARDS, is_marked, marker, tree, write

pytestmark = pytest.mark.processes

TRANSIENT = ["EIO", "ESTALE", "ETIMEDOUT", "ENOTCONN", "ESHUTDOWN"]
TRIES = 6
DIRECT, BUFFERED, HASHED = ("--write", "direct"), ("--write", "buffered"), ("--verify", "sha256")
TWO_WAYS = [
    pytest.param((*DIRECT, *HASHED), id="direct, sha256"),
    pytest.param(BUFFERED, id="buffered"),
]
WAYS = [
    pytest.param(DIRECT, id="direct"),
    pytest.param(BUFFERED, id="buffered"),
    pytest.param((*DIRECT, *HASHED), id="direct, sha256"),
    pytest.param((*BUFFERED, *HASHED), id="buffered, sha256"),
]
COPY: dict[str, Any] = {"beyond": MIB}
"""Only reads beyond the first MiB: those of the copy, not those of a header."""

STOP_SECONDS = 1.5
"""One second, and a share for a busy machine."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published model of 20 MiB that no test changes."""
    return publish_hashed(big_model(tmp_path_factory.mktemp("shared") / "source"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same without a manifest."""
    return big_model(tmp_path_factory.mktemp("plain") / "source")


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Path]:
    """A model of 20 MiB without a manifest that a test may change."""
    yield big_model(tmp_path / "source")
    shutil.rmtree(tmp_path / "source")


@pytest.fixture
def small(tmp_path: Path) -> Path:
    return write(tmp_path / "source")


@pytest.fixture
def destination(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "destination"
    shutil.rmtree(tmp_path / "destination", ignore_errors=True)


# Errors of the source: which are tried again, how often, and what is said of the others

PLACES: dict[str, tuple[dict[str, Any], tuple[str, ...], str]] = {
    "look at the top folder": ({"calls": "stat", "name": ""}, (), ""),
    "list a folder": ({"calls": "list", "name": "1_Pooling"}, (), "1_Pooling"),
    "go on with a list": ({"calls": "readdir", "name": "1_Pooling", "skip": 1}, (), "1_Pooling"),
    "look at a file": ({"calls": "stat", "name": "1_Pooling/config.json"}, (), "1_Pooling/config.json"),
    "open for the header": ({"calls": "open", "name": SHARDS[0]}, (), SHARDS[0]),
    "read the header": ({"calls": "read", "name": SHARDS[0]}, (), SHARDS[0]),
    "read the index": ({"calls": "read", "name": "*.index.json"}, (), "model.safetensors.index.json"),
    "open for the copy": ({"calls": "open", "name": "tokenizer.json"}, ("--verify", "none"), "tokenizer.json"),
    "look at the open file": ({"calls": "fstat", "name": "tokenizer.json"}, ("--verify", "none"), "tokenizer.json"),
    "read for the copy": ({"calls": "read", "name": "tokenizer.json"}, ("--verify", "none"), "tokenizer.json"),
}


MANY = [(place, TRANSIENT[number % len(TRANSIENT)]) for number, place in enumerate(PLACES)]
ALL = [("read for the copy", error) for error in TRANSIENT]


@pytest.mark.parametrize(("place", "error"), sorted({*MANY, *ALL}))
def test_an_error_that_passes_is_tried_again_wherever_it_comes(faulty, small, destination, place, error):
    faults, flags, _ = PLACES[place]
    ended = faulty.run(small, destination, *flags, **faults, error=error, times=2)
    assert (ended.code, len(ended.hit("error")), ended.termination["retries"]) == (0, 2, 2), ended.said
    assert differences(small, destination) == []


@pytest.mark.parametrize("place", PLACES)
def test_an_error_that_stays_is_9_after_six_tries_and_names_the_file(faulty, small, destination, place):
    faults, flags, name = PLACES[place]
    ended = faulty.run(small, destination, *flags, **faults, error="ESTALE")
    assert ended.code == 9, ended.said
    assert len(ended.hit("error")) == TRIES
    assert ended.file == name or (not name and ended.file == str(small))
    assert "Stale file handle" in ended.message
    assert "exit 9: " in ended.said
    assert not is_marked(destination)
    assert cut_files(small, destination) == []


@pytest.mark.parametrize("place", [place for place in PLACES if place != "look at the top folder"])
def test_a_right_that_is_lost_on_the_way_is_7_at_once_and_names_the_file(faulty, small, destination, place):
    faults, flags, name = PLACES[place]
    ended = faulty.run(small, destination, *flags, **faults, error="EACCES")
    assert (ended.code, ended.file, ended.termination["retries"]) == (7, name, 0), ended.said
    assert "Permission denied" in ended.message
    assert not is_marked(destination)


@pytest.mark.parametrize("calls", ["open", "read"])
def test_the_published_manifest_is_tried_again_too(faulty, shared, destination, calls):
    name = ".faststart/manifest.json"
    ended = faulty.run(shared, destination, calls=calls, name=name, error="EIO", times=2)
    assert (ended.code, len(ended.hit("error"))) == (0, 2), ended.said
    ended = faulty.run(shared, destination, calls=calls, name=name, error="EIO")
    assert (ended.code, ended.file, len(ended.hit("error"))) == (9, name, TRIES)


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_burst_of_errors_over_all_streams_of_a_copy_passes(faulty, shared, destination, way):
    ended = faulty.run(shared, destination, "--parallel", "4", *way, **COPY, error="EIO", times=4)
    assert (ended.code, len(ended.hit("error")), ended.termination["retries"]) == (0, 4, 4), ended.said
    assert differences(shared, destination) == []


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_file_that_cannot_be_read_is_9_with_no_cut_file_and_the_next_run_completes(faulty, shared, destination, way):
    flags = ("--parallel", "4", *way)
    ended = faulty.run(shared, destination, *flags, **COPY, name=BIG[1], error="EIO")
    assert (ended.code, ended.file) == (9, BIG[1]), ended.said
    assert TRIES <= len(ended.hit("error")) <= 4 * TRIES
    assert not is_marked(destination)
    assert cut_files(shared, destination) == []
    assert faulty.run(shared, destination, *flags).code == 0
    assert differences(shared, destination) == []


# Short reads


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("bytes_at_most", [1, 1000, 4095, 4097])
def test_a_small_file_that_comes_in_short_reads_arrives_whole(faulty, small, destination, bytes_at_most, way):
    publish_hashed(small)
    ended = faulty.run(small, destination, *way, short=bytes_at_most)
    assert ended.code == 0, ended.said
    assert ended.hit("short")
    assert differences(small, destination) == []


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("bytes_at_most", [65_536, 100_001, MIB - 1])
def test_a_large_file_that_comes_in_short_reads_arrives_whole(faulty, shared, destination, bytes_at_most, way):
    ended = faulty.run(shared, destination, "--parallel", "4", *way, short=bytes_at_most)
    assert ended.code == 0, ended.said
    assert ended.hit("short")
    assert differences(shared, destination) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_single_short_read_of_odd_length_in_the_middle_of_a_file_does_no_harm(faulty, shared, destination, way):
    ended = faulty.run(shared, destination, *way, **COPY, name=BIG[0], short=5001, times=1)
    assert (ended.code, len(ended.hit("short"))) == (0, 1), ended.said
    assert differences(shared, destination) == []


# Slow and stuck streams


@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_read_that_is_stuck_for_half_a_minute_does_not_make_the_copy_take_it(faulty, shared, destination, way):
    at = 9 * MIB
    ended = faulty.run(shared, destination, "--parallel", "4", *way, name=BIG[0], stuck=at, sleep=30, times=1)
    assert ended.code == 0, ended.said
    assert len(ended.hit("sleep")) == 1
    assert len({call.thread for call in ended.calls if call.covers(at)}) > 1, "another stream has read it"
    assert differences(shared, destination) == []
    assert ended.seconds < 15


@pytest.mark.parametrize(("where", "way"), [("the last byte", DIRECT), ("a file of one piece", BUFFERED)])
def test_no_place_of_a_stuck_read_holds_a_copy_up(faulty, shared, destination, way, where):
    name, at = (BIG[0], 17 * MIB + 776) if where == "the last byte" else ("sub/3/small-3.json", 3000)
    ended = faulty.run(shared, destination, "--parallel", "4", *way, name=name, stuck=at, sleep=30, times=1)
    assert ended.code == 0, ended.said
    assert len(ended.hit("sleep")) == 1
    assert differences(shared, destination) == []
    assert ended.seconds < 15


LATE_AND_WRONG = """
# The first read of the copy waits until another stream has read the same, and then brings rubbish. A later read, of
# other bytes, waits until that has happened: only then does the copy end.
import threading
real, lock, overtaken, back, places = os.preadv, threading.Lock(), threading.Event(), threading.Event(), []
def preadv(fd, buffers, at):
    place = (os.readlink(f"/proc/self/fd/{fd}"), at)
    if os.fstat(fd).st_size < 1 << 20:
        return real(fd, buffers, at)
    now = time.monotonic()
    with lock:
        is_first = not places
        if is_first or len(places) == 2 and now > places[1] + 0.1:
            places.extend([place] if places else [place, now])
    if is_first:
        overtaken.wait(20)
        time.sleep(0.2)
        threading.Timer(0.4, back.set).start()
        print("late", flush=True)
        return len(buffers[0])
    if place == places[0]:
        overtaken.set()
    elif place in places:
        back.wait(20)
    else:
        time.sleep(0.05)
    return real(fd, buffers, at)
os.preadv = preadv
"""


@pytest.mark.parametrize("way", TWO_WAYS)
def test_what_a_stuck_read_brings_at_last_is_dropped_after_another_stream_was_faster(faulty, shared, destination, way):
    ended = faulty.run(shared, destination, "--parallel", "3", *way, before=LATE_AND_WRONG)
    assert (ended.code, ended.out) == (0, "late\n"), ended.said
    assert differences(shared, destination) == []
    assert ended.seconds < 15


@pytest.mark.parametrize("way", TWO_WAYS)
def test_one_slow_stream_costs_a_few_of_its_reads_and_not_its_share_of_the_files(faulty, shared, destination, way):
    flags = ("--parallel", "4", *way)
    ended = faulty.run(shared, destination, *flags, **COPY, streams=1, sleep=3)
    slow = ended.hit("sleep")
    assert ended.code == 0, ended.said
    assert slow
    assert sum(call.bytes for call in slow) <= 9 * MIB, "no more than a piece"
    assert differences(shared, destination) == []
    assert ended.seconds < 12


def test_one_file_is_read_by_many_streams_at_once(faulty, shared, destination):
    ended = faulty.run(shared, destination, "--parallel", "3", **COPY, name=BIG[0], sleep=0.3)
    assert ended.code == 0, ended.said
    slow = ended.hit("sleep")
    assert len({call.thread for call in slow}) == 3
    assert ended.termination["seconds"] < 0.3 * len(slow), "one after the other would have taken longer"


# A source that changes


@pytest.mark.parametrize("read", ["first", "later", "last"])
@pytest.mark.parametrize(("change", "way"), [("shrink", DIRECT), ("grow", BUFFERED), ("touch", DIRECT)])
def test_a_file_that_changes_at_a_read_of_its_copy_is_8_names_it_and_gets_no_final_name(
    faulty, own, destination, change, read, way
):
    name = BIG[0]
    flags = ("--parallel", "2", *way)
    at = {"first": (MIB, 1), "later": (MIB, 3), "last": (17 * MIB, 1)}[read]
    ended = faulty.run(own, destination, *flags, name=name, change=f"{change}@{at[1]}", beyond=at[0])
    assert len(ended.hit("change")) == 1
    assert (ended.code, ended.file) == (8, name), ended.said
    assert "has changed in the source" in ended.message
    assert not (destination / name).exists()
    assert not is_marked(destination)
    assert cut_files(own, destination) == []
    assert faulty.run(own, destination, *flags, "--verify", "none").code == 0
    assert differences(own, destination) == []


def test_a_published_file_that_changes_is_8_too(faulty, own, destination):
    publish_hashed(own)
    ended = faulty.run(own, destination, "--verify", "sha256", **COPY, name=BIG[1], change="touch@1")
    assert (ended.code, ended.file) == (8, BIG[1]), ended.said
    assert not is_marked(destination)


# Wrong bytes


@pytest.mark.parametrize("way", WAYS[2:])
@pytest.mark.parametrize("at", [3, 8 * MIB, 17 * MIB + 776], ids=["first block", "second block", "last block"])
def test_a_block_that_was_read_wrong_once_is_read_again_and_arrives_right(faulty, shared, destination, at, way):
    ended = faulty.run(shared, destination, *way, name=BIG[0], flip=at, times=1, beyond=MIB)
    assert len(ended.hit("flip")) == 1, "the header is read with a call of its own"
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []
    assert marker(destination)["verify"] == "sha256"


@pytest.mark.parametrize("way", WAYS[2:])
def test_a_block_that_is_read_wrong_twice_is_4_and_names_file_and_block(faulty, shared, destination, way):
    ended = faulty.run(shared, destination, *way, name=BIG[0], flip=9 * MIB)
    assert (ended.code, ended.file) == (4, BIG[0]), ended.said
    assert re.search(r"block \d", ended.message)
    assert len(ended.hit("flip")) == 2
    assert not (destination / BIG[0]).exists()
    assert not is_marked(destination)
    assert cut_files(shared, destination) == []


def test_a_published_file_with_a_wrong_byte_is_4_with_sha256_and_is_named(faulty, small, destination):
    publish_hashed(small)
    file = small / "tokenizer.json"
    data, status = bytearray(file.read_bytes()), file.stat()
    data[700] ^= 1
    file.write_bytes(data)
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    ended = faulty.run(small, destination, "--verify", "sha256")
    assert (ended.code, ended.file) == (4, "tokenizer.json"), ended.said
    assert not (destination / "tokenizer.json").exists()


@pytest.mark.parametrize("whole", [False, True], ids=["half a copy", "a whole copy"])
def test_bytes_copied_without_hashes_are_not_taken_for_hashed_ones(faulty, shared, destination, whole):
    faults = COPY | {"name": BIG[0], "flip": MIB + 5, "rate": RATE}
    first = faulty.run(shared, destination, "--parallel", "1", **faults, **({} if whole else {"kill": 4}))
    assert first.code == (0 if whole else -signal.SIGKILL)
    assert first.hit("flip")
    ended = faulty.run(shared, destination, "--verify", "sha256")
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []
    assert marker(destination)["verify"] == "sha256"


# A destination that fails


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("limit", ["full", "reserved"])
def test_a_disk_that_fills_up_half_way_is_3_with_no_cut_file_and_the_next_run_completes(
    faulty, shared, destination, limit, way
):
    ended = faulty.run(shared, destination, "--parallel", "4", *way, **{limit: 9 * MIB})
    assert ended.hit("full")
    assert ended.code == 3, ended.said
    assert ended.file
    assert "full" in ended.message
    assert not is_marked(destination)
    assert cut_files(shared, destination) == []
    assert faulty.run(shared, destination, *way).code == 0
    assert differences(shared, destination) == []


@pytest.mark.parametrize("name", [".faststart/work/[!0-9]*", ".faststart/complete.json*"], ids=["journal", "marker"])
def test_no_space_for_our_own_files_is_3_and_leaves_no_marker(faulty, shared, destination, name):
    ended = faulty.run(shared, destination, destination_name=name, full=0)
    assert ended.hit("full")
    assert ended.code == 3, ended.said
    assert not is_marked(destination)
    assert cut_files(shared, destination) == []
    assert faulty.run(shared, destination).code == 0
    assert differences(shared, destination) == []


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize(("error", "code"), [("EIO", 9), ("EDQUOT", 3), ("EROFS", 7)])
def test_a_write_that_fails_is_not_tried_again_and_names_the_file(faulty, shared, destination, error, code, way):
    ended = faulty.run(shared, destination, *way, destination_name="*.part", full=9 * MIB, full_error=error)
    assert ended.hit("full")
    assert (ended.code, ended.termination["retries"]) == (code, 0), ended.said
    assert ended.file in {str(path.relative_to(shared)) for path in shared.rglob("*") if path.is_file()}
    assert not is_marked(destination)
    assert cut_files(shared, destination) == []


@pytest.mark.parametrize(("way", "count"), [(BUFFERED, 4097), (BUFFERED, 1 << 16), (DIRECT, 1 << 16)])
def test_writes_that_take_less_than_they_were_given_do_no_harm(faulty, shared, destination, way, count):
    ended = faulty.run(shared, destination, *way, destination_name="*.part", short_write=count)
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []


@pytest.mark.parametrize(("how", "error"), [("open", "EINVAL"), ("open", "EOPNOTSUPP"), ("read", "EOPNOTSUPP")])
@pytest.mark.parametrize("way", TWO_WAYS)
def test_a_source_that_knows_no_direct_reads_is_copied_all_the_same(faulty, shared, destination, how, error, way):
    ended = faulty.run(shared, destination, *way, no_direct=how, no_direct_error=error)
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []


# Names, kinds and sizes, through the command line


SIZES = [0, 1, 511, 512, 4095, 4096, 4097, MIB - 1, MIB, MIB + 1, 4 * MIB, 8 * MIB - 1, 8 * MIB, 8 * MIB + 1]


@pytest.mark.parametrize("way", WAYS)
def test_files_of_every_size_around_pages_and_pieces_arrive_whole(faulty, tmp_path, destination, way):
    block = os.urandom(8 * MIB + 1)
    files: dict[str | bytes, bytes | None] = {f"{size}.json": block[:size] for size in SIZES}
    source = write(tmp_path / "source", files | {"config.json": b"{}"})
    assert faulty.run(publish_hashed(source), destination, *way).code == 0
    assert differences(source, destination) == []


HOSTILE: dict[str | bytes, bytes | None] = {
    b"new\nline": b"1",
    b"-rf": b"2",
    b"--": b"3",
    b"\xff\xfe/\x80": b"4",
    b'it\'s "a" `b` $(c) *': b"5",
    b"n" * 255: b"6",
    b"deep" * 60 + b"/" + b"deep" * 60 + b"/leaf": b"7",
    b"sub/.faststart/complete.json": b"8",
    b"sub/0.part": b"9",
    b"e1/e2/e3": None,
}


@pytest.mark.parametrize("way", [DIRECT, BUFFERED], ids=["direct", "buffered"])
def test_a_hostile_tree_arrives_whole_from_and_to_folders_with_hostile_names(faulty, tmp_path, way):
    folder = tmp_path / os.fsdecode(b"\xff \n'")
    source, destination = folder / "snapshots" / os.fsdecode(b"-s\xfe"), folder / "d\ne"
    write(source, MODEL | HOSTILE)
    write(folder / "blobs", {"aa": b"blob" * 5000})
    (source / "model-a.bin").symlink_to("../../blobs/aa")
    (source / "private.json").write_bytes(b"private")
    (source / "private.json").chmod(0o600)
    os.truncate(write(source, {"sparse.dat": b""}) / "sparse.dat", 3 * MIB + 5)
    os.mkfifo(source / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{os.open(source, os.O_RDONLY)}/socket")
    if os.getuid() == 0:
        os.mknod(source / "zero.bin", stat.S_IFCHR | 0o600, os.makedev(1, 5))
    ended = faulty.run(source, destination, "--files", "all", *way)
    assert ended.code == 0, ended.said
    for special in (b"fifo", b"socket", b"zero.bin"):
        (source / os.fsdecode(special)).unlink(missing_ok=True)
    assert tree(destination) == tree(source) | {b"model-a.bin": b"blob" * 5000}
    assert stat.S_IMODE((destination / "private.json").stat().st_mode) == 0o644
    assert "fifo: is a fifo, skipped" in ended.said
    assert "socket: is a socket, skipped" in ended.said
    assert os.getuid() or "zero.bin: is a character device, skipped" in ended.said
    again = faulty.run(source, destination, "--files", "all", *way)
    assert (again.code, again.termination["copied_bytes"]) == (0, 0)


def test_a_file_whose_name_is_no_text_is_named_on_one_line_when_it_fails(faulty, small, destination):
    name = b"\xff\n-x"
    write(small, {name: b"x" * 5000})
    ended = faulty.run(small, destination, "--files", "all", calls="read", name=name, error="EIO")
    assert (ended.code, ended.file) == (9, "\\xff\\n-x")
    assert any(line.startswith("preload: exit 9: \\xff\\n-x: ") for line in ended.said.splitlines())


# A destination that holds what we did not write


def killed(faulty: Faulty, source: Path, destination: Path, *flags: str, reads: int = 6) -> None:
    """Leave a copy half made: some pieces are there, and no marker."""
    ended = faulty.run(source, destination, "--parallel", "2", *flags, **COPY, kill=reads, rate=RATE)
    assert ended.code == -signal.SIGKILL
    assert not is_marked(destination)
    assert cut_files(source, destination) == []


def forge(source: Path, destination: Path, name: str) -> None:
    """Put wrong bytes under a final name, with the size and mtime of the right ones."""
    status = (source / name).stat()
    file = write(destination, {name: bytes(status.st_size)}) / name
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("way", TWO_WAYS)
@pytest.mark.parametrize("moment", ["before", "between", "before, and a kill"])
def test_foreign_files_of_the_right_names_sizes_and_mtimes_are_never_trusted(faulty, shared, destination, moment, way):
    write(destination, {".faststart": None})
    if moment == "between":
        killed(faulty, shared, destination, *way)
    for name in (BIG[0], BIG[1], "config.json", "sub/3/small-3.json"):
        forge(shared, destination, name)
    if moment == "before, and a kill":
        killed(faulty, shared, destination, *way, reads=2)
        killed(faulty, shared, destination, *way, reads=4)
    ended = faulty.run(shared, destination, *way)
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []


def lose_parts(work: Path) -> None:
    for part in work.glob("*.part"):
        part.unlink()


def empty_parts(work: Path) -> None:
    for part in work.glob("*.part"):
        os.truncate(part, 0)


def replace_parts(work: Path) -> None:
    for part in work.glob("*.part"):
        (work / "new").write_bytes(bytes(part.stat().st_size))
        (work / "new").rename(part)


def swap_parts(work: Path) -> None:
    parts = sorted(work.glob("*.part"))
    for part, other in zip(parts, reversed(parts), strict=True):
        part.rename(work / f"{other.name}.swapped")
    for part in parts:
        (work / f"{part.name}.swapped").rename(part)


def turn_parts_into_folders(work: Path) -> None:
    for part in work.glob("*.part"):
        part.unlink()
        write(part, {"inner": b"x"})


def turn_parts_into_fifos(work: Path) -> None:
    for part in work.glob("*.part"):
        part.unlink()
        os.mkfifo(part)


def add_foreign_parts(work: Path) -> None:
    for name in [*(f"{number}.part" for number in range(100, 110)), "x.part", "other"]:
        write(work, {name: b"foreign"})


@pytest.mark.parametrize(
    "spoil",
    [
        *(lose_parts, empty_parts, replace_parts, swap_parts),
        *(turn_parts_into_folders, turn_parts_into_fifos, add_foreign_parts),
    ],
    ids=lambda spoil: spoil.__name__,
)
def test_parts_that_something_else_changed_between_two_runs_do_no_harm(
    faulty, shared, destination, spoil: Callable[[Path], None]
):
    killed(faulty, shared, destination)
    spoil(destination / ".faststart/work")
    ended = faulty.run(shared, destination)
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []


LINKS = [
    *(".faststart/work", ".faststart/lock", ".faststart/complete.json", ".faststart/report.json"),
    *(".faststart/complete.json.new", ".faststart/report.json.new", "journal", "parts", "sub", "config.json"),
]


@pytest.mark.parametrize("link", LINKS)
def test_no_link_inside_a_destination_is_followed(faulty, shared, destination, tmp_path, link):
    killed(faulty, shared, destination)
    outside = write(tmp_path / "outside", {"file": b"outside", "folder/file": b"outside", "folder/0.part": b"outside"})
    before = tree(outside), (outside / "file").stat().st_mtime_ns, (outside / "folder").stat().st_mtime_ns
    work = destination / ".faststart/work"
    paths = [destination / link]
    if link in ("journal", "parts"):
        paths = [path for path in work.iterdir() if (path.suffix == ".part") == (link == "parts")]
        assert paths
    for path in paths:
        is_folder = path.is_dir()
        (shutil.rmtree if is_folder else Path.unlink)(path) if path.exists() else None
        path.symlink_to(outside / ("folder" if is_folder else "file"))
    ended = faulty.run(shared, destination)
    assert ended.code in (0, 9, 10), ended.said
    assert before == (tree(outside), (outside / "file").stat().st_mtime_ns, (outside / "folder").stat().st_mtime_ns)
    if ended.code == 0:
        assert differences(shared, destination) == []
    assert is_marked(destination) == (ended.code == 0) or link == ".faststart/complete.json"


def journals(destination: Path) -> list[Path]:
    found = [path for path in (destination / ".faststart/work").iterdir() if path.suffix != ".part" and path.is_file()]
    assert found
    return found


def torn(cut: int) -> Callable[[bytes], bytes]:
    def tear(data: bytes) -> bytes:
        return data[:-cut]

    tear.__name__ = f"{cut} bytes short"
    return tear


def with_zeros_at_its_end(data: bytes) -> bytes:
    return data[: -len(data) // 3] + bytes(len(data) // 3)


def all_zeros(data: bytes) -> bytes:
    return bytes(len(data))


def garbage(data: bytes) -> bytes:
    return b"\xff\x00{]\n" * (len(data) // 5)


def without_its_head(data: bytes) -> bytes:
    return data.partition(b"\n")[2]


def with_garbage_between_lines(data: bytes) -> bytes:
    return data.replace(b"\n", b"\n\x00\xff[[[[\n7\nnull\n")


def as_one_line(data: bytes) -> bytes:
    return data.replace(b"\n", b" ")


def twice(data: bytes) -> bytes:
    return data + data


def deeply_nested(data: bytes) -> bytes:
    return data + b"[" * 200_000 + b"\n"


@pytest.mark.parametrize(
    "damage",
    [
        *map(torn, (1, 2, 3, 5, 9, 30)),
        *(with_zeros_at_its_end, all_zeros, garbage, without_its_head),
        *(with_garbage_between_lines, as_one_line, twice, deeply_nested),
    ],
    ids=lambda damage: damage.__name__,
)
def test_a_damaged_journal_costs_time_and_never_a_byte_even_if_killed_once_more(
    faulty, shared, destination, damage: Callable[[bytes], bytes]
):
    killed(faulty, shared, destination)
    for journal in journals(destination):
        journal.write_bytes(damage(journal.read_bytes()))
    killed(faulty, shared, destination, reads=3)
    for journal in journals(destination):
        journal.write_bytes(damage(journal.read_bytes()))
    ended = faulty.run(shared, destination)
    assert ended.code == 0, ended.said
    assert differences(shared, destination) == []


@pytest.mark.parametrize("damage", [torn(1), torn(10), all_zeros, garbage], ids=lambda damage: damage.__name__)
def test_a_damaged_marker_counts_as_none_and_costs_no_copy(faulty, shared, destination, damage):
    assert faulty.run(shared, destination).code == 0
    file = destination / ".faststart/complete.json"
    file.write_bytes(damage(file.read_bytes().rstrip(b"\n")))
    ended = faulty.run(shared, destination)
    assert (ended.code, ended.termination["copied_bytes"]) == (0, 0), ended.said
    assert differences(shared, destination) == []


def test_what_was_copied_before_a_kill_is_not_read_again(faulty, shared, destination):
    killed(faulty, shared, destination)
    ended = faulty.run(shared, destination, **COPY)
    total = ended.termination["bytes"]
    assert ended.termination["resumed_bytes"] > 4 * MIB
    assert ended.termination["resumed_bytes"] + ended.termination["copied_bytes"] == total
    assert sum(call.bytes for call in ended.calls if "read" in call.name) < total - 4 * MIB
    assert differences(shared, destination) == []


def test_one_that_waits_goes_on_at_once_with_the_copy_of_one_that_was_killed(faulty, shared, destination):
    first = faulty.start(shared, destination, "--parallel", "2", **COPY, skip=6, sleep=30)
    assert first.wait_until_hit()
    second = faulty.start(shared, destination, "--wait", "30")
    said = second.process.stderr
    assert said
    assert any("another preload owns the destination" in line for line in iter(said.readline, ""))
    assert first.end(signal.SIGKILL).code == -signal.SIGKILL
    ended = second.end()
    assert ended.code == 0, ended.said
    assert ended.termination["resumed_bytes"] > 0
    assert differences(shared, destination) == []
    assert ended.seconds < 15


@pytest.mark.parametrize("same", ["path", "sizes and mtimes"])
def test_half_a_copy_of_another_model_is_not_built_upon(faulty, own, destination, tmp_path, same):
    killed(faulty, own, destination)
    other = own
    if same == "path":
        big_model(own, seed=2)
    else:
        other = big_model(tmp_path / "other", seed=2)
        for path in own.rglob("*"):
            status = path.stat()
            os.utime(other / path.relative_to(own), ns=(status.st_atime_ns, status.st_mtime_ns))
    assert faulty.run(other, destination).code == 0
    assert differences(other, destination) == []


# SIGTERM

PHASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "list": ({"calls": "list,readdir", "sleep": 0.3}, ()),
    "scan": ({"calls": "stat", "sleep": 0.3}, ()),
    "headers": ({"calls": "open", "sleep": 0.3}, ()),
    "copy": ({**COPY, "rate": 2}, ()),
    "copy, one stream": ({**COPY, "rate": 2}, ("--parallel", "1", *BUFFERED)),
    "copy, sha256": ({**COPY, "rate": 2}, ("--parallel", "4", *HASHED)),
    "stuck list": ({"calls": "list", "sleep": 30}, ()),
    "stuck look at a file": ({"calls": "stat", "name": "sub/*", "sleep": 30}, ()),
    "stuck header": ({"calls": "read", "name": BIG[0], "sleep": 30}, ()),
    "stuck reads": ({**COPY, "sleep": 30}, ()),
    "a single stuck read": ({**COPY, "stuck": 9 * MIB, "sleep": 30, "times": 1}, ("--parallel", "1")),
    "pause of the scan": ({"calls": "stat", "error": "EIO"}, ()),
    "pause of the headers": ({"calls": "open", "error": "EIO", "name": BIG[0]}, ()),
    "pause of the copy": ({**COPY, "error": "EIO"}, ()),
}


@pytest.mark.parametrize("phase", PHASES)
def test_sigterm_in_any_phase_ends_it_within_a_second_with_143_and_the_next_run_completes(
    faulty, shared, plain, destination, phase
):
    faults, flags = PHASES[phase]
    source = shared if "sha256" in flags else plain
    run = faulty.start(source, destination, *flags, before="", **faults)
    assert run.wait_until_hit()
    sent = time.monotonic()
    ended = run.end(signal.SIGTERM)
    assert time.monotonic() - sent < STOP_SECONDS
    assert ended.code == 143, ended.said
    assert ended.termination["code"] == 143
    assert "exit 143: stopped by SIGTERM" in ended.said
    assert not is_marked(destination)
    assert cut_files(source, destination) == []
    assert faulty.run(source, destination).code == 0
    assert differences(source, destination) == []


def test_sigterm_in_the_look_at_a_destination_keeps_what_was_copied(faulty, shared, destination):
    killed(faulty, shared, destination)
    run = faulty.start(shared, destination, prefix=destination, calls="list", sleep=0.3)
    assert run.wait_until_hit()
    sent = time.monotonic()
    assert run.end(signal.SIGTERM).code == 143
    assert time.monotonic() - sent < STOP_SECONDS
    assert faulty.run(shared, destination).termination["resumed_bytes"] > 4 * MIB
    assert differences(shared, destination) == []


def test_sigterm_in_the_scan_of_half_a_copy_keeps_what_was_copied(faulty, shared, destination):
    killed(faulty, shared, destination)
    run = faulty.start(shared, destination, calls="stat,list", sleep=0.3, skip=3)
    assert run.wait_until_hit()
    assert run.end(signal.SIGTERM).code == 143
    ended = faulty.run(shared, destination)
    assert ended.termination["resumed_bytes"] > 4 * MIB
    assert differences(shared, destination) == []


def test_sigterm_in_the_middle_of_a_copy_keeps_what_was_copied(faulty, shared, destination):
    run = faulty.start(shared, destination, "--parallel", "2", **COPY, skip=8, sleep=30)
    assert run.wait_until_hit()
    assert run.end(signal.SIGTERM).code == 143
    ended = faulty.run(shared, destination)
    assert ended.termination["resumed_bytes"] > 4 * MIB
    assert differences(shared, destination) == []


def test_a_second_sigterm_changes_nothing(faulty, shared, destination):
    run = faulty.start(shared, destination, **COPY, sleep=30)
    assert run.wait_until_hit()
    run.process.send_signal(signal.SIGTERM)
    ended = run.end(signal.SIGTERM)
    assert ended.code == 143, ended.said
    assert cut_files(shared, destination) == []
