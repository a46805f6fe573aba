"""Files in the destination that no record vouches for: held against the published hashes, copied if they are wrong."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfolder import structure
from modelfolder.source import NOT_DIRECT
from preload import copier, mode, recheck
from preload.destination import Destination
from tests.workloads.support import (
    BIG,
    BLOCK,
    MODEL,
    SHARDS,
    Result,
    flip,
    is_marked,
    marker,
    preload,
    publish,
    start,
    tree,
    use_small_pieces,
    write,
)

TOTAL = len(BIG) + sum(len(data) for data in MODEL.values() if data)
TWO_WAYS = pytest.mark.parametrize("way", ["direct", "buffered"])


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_small_pieces(monkeypatch)
    monkeypatch.setattr(recheck, "SMALL", 4096)
    monkeypatch.setattr(recheck, "TINY", 4096)
    monkeypatch.setattr(recheck, "STRETCH_BYTES", 2 * BLOCK)
    root = write(tmp_path / "source", MODEL | {"big.bin": BIG})
    publish(root, block_bytes=BLOCK)
    return root


class Boots:
    """Runs preload in one boot of the kernel after the other, on a copy that only the page cache may hold."""

    def __init__(self, folder: Path, source: Path, destination: Path):
        self.folder, self.source, self.destination = folder, source, destination
        self.number = 0
        assert self.next("--write", "buffered").termination["copied_bytes"] == TOTAL

    def next(self, *flags: str) -> Result:
        self.number += 1
        result = preload(self.source, self.destination, "--files", "all", *flags, proc=self.proc(self.number))
        assert (result.code, tree(self.destination)) == (0, tree(self.source)), result
        return result

    def proc(self, number: int) -> str:
        return str(write(self.folder / f"boot-{number}", {"sys/kernel/random/boot_id": b"%d\n" % number}))


@pytest.fixture
def boots(tmp_path: Path, source: Path, destination: Path) -> Boots:
    return Boots(tmp_path, source, destination)


Reads = Counter[int]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Reads:
    """Count the bytes that are read of each file, by its inode."""
    found: Reads = Counter()
    real = os.preadv

    def noting(fd, buffers, at):
        count = real(fd, buffers, at)
        found[os.fstat(fd).st_ino] += count
        return count

    monkeypatch.setattr(os, "preadv", noting)
    return found


# ---- what is whole stays


@TWO_WAYS
@pytest.mark.parametrize("threads", ["1", "7"])
@pytest.mark.parametrize("level", ["none", "size", "sha256"])
def test_after_a_reset_of_the_node_nothing_of_a_whole_copy_is_copied_again(boots, reads, way, threads, level):
    result = boots.next("--write", way, "--parallel", threads, "--verify", level)
    assert (result.termination["copied_bytes"], result.termination["resumed_bytes"]) == (0, TOTAL)
    assert reads[(boots.source / "big.bin").stat().st_ino] == 0
    assert reads[(boots.destination / "big.bin").stat().st_ino] == len(BIG)
    assert marker(boots.destination)["verify"] == level


@pytest.mark.parametrize("flags", [("--write", "direct"), ("--write", "buffered", "--cache", "drop")])
def test_what_is_written_to_disk_at_once_is_on_disk_after_the_check_and_holds_over_the_next_reset(boots, flags):
    boots.next(*flags)
    assert marker(boots.destination)["synced"] is True
    assert "already complete" in boots.next().message


def test_a_check_waits_for_no_disk_where_a_copy_would_not(boots, monkeypatch):
    def never(fd):
        raise AssertionError(f"{os.readlink(f'/proc/self/fd/{fd}')} was put on disk")  # noqa: PTH115 - a descriptor

    monkeypatch.setattr(os, "fsync", never)
    boots.next("--write", "buffered")
    assert marker(boots.destination)["synced"] is False
    assert boots.next("--write", "buffered").termination["copied_bytes"] == 0


def test_many_small_files_are_not_put_on_disk_one_by_one_and_are_checked_once_more_after_the_next_reset(
    boots, monkeypatch
):
    monkeypatch.setattr(mode, "SYNCED_SMALL_FILES", 1)
    boots.next("--write", "direct")
    assert marker(boots.destination)["synced"] is False
    result = boots.next()
    assert "already complete" not in result.message
    assert result.termination["copied_bytes"] == 0


@pytest.mark.parametrize("level", ["none", "size"])
@pytest.mark.parametrize("state", ["complete", "half"])
def test_what_was_verified_less_than_is_asked_is_checked_where_it_lies(source, destination, level, state):
    preload(source, destination, "--verify", level, "--files", "all")
    if state == "half":
        (destination / ".faststart/complete.json").unlink()
    result = preload(source, destination, "--verify", "sha256", "--files", "all")
    assert (result.code, result.termination["copied_bytes"], marker(destination)["verify"]) == (0, 0, "sha256")


@pytest.mark.parametrize(
    "journal",
    [b"", b'{"selection_digest":"of another"}\n', b"\xff" * 100, None],
    ids=["empty", "another's", "garbage", "gone"],
)
def test_without_a_journal_to_believe_the_files_are_checked_where_they_lie(source, destination, journal):
    preload(source, destination, "--files", "all")
    (destination / ".faststart/complete.json").unlink()
    path = destination / ".faststart/work/journal.jsonl"
    path.unlink() if journal is None else path.write_bytes(journal)
    result = preload(source, destination, "--files", "all")
    assert (result.code, result.termination["copied_bytes"]) == (0, 0)


def test_of_another_revision_the_files_that_are_the_same_are_not_copied(source, destination):
    preload(source, destination, "--files", "all")
    write(source, {"big.bin": BIG[::-1]})
    publish(source, block_bytes=BLOCK, revision="r2")
    result = preload(source, destination, "--files", "all")
    assert (result.code, result.termination["copied_bytes"]) == (0, len(BIG))
    assert tree(destination) == tree(source)


def test_a_file_that_is_whole_gets_its_mode_and_its_time_back(boots):
    file = boots.destination / "big.bin"
    file.chmod(0o600)
    os.utime(file, ns=(1, 1))
    assert boots.next().termination["copied_bytes"] == 0
    assert file.stat().st_mode & 0o7777 == 0o644
    assert file.stat().st_mtime_ns == (boots.source / "big.bin").stat().st_mtime_ns


def test_without_published_hashes_all_is_copied_again_after_a_reset(tmp_path, source, destination):
    (source / ".faststart/manifest.json").unlink()
    boots = Boots(tmp_path, source, destination)
    assert boots.next().termination["copied_bytes"] == TOTAL


# ---- what is not is copied


def torn(file: Path) -> None:
    os.truncate(file, 100)


def longer(file: Path) -> None:
    with file.open("ab") as out:
        out.write(b"x")


def lost_page(file: Path) -> None:
    with file.open("r+b") as out:
        out.seek(5 * 4096)
        out.write(bytes(4096))


def gone(file: Path) -> None:
    file.unlink()


def a_link(file: Path) -> None:
    outside = file.parent.parent / "outside"
    file.rename(outside)
    file.symlink_to(outside)


def a_second_name(file: Path) -> None:
    os.link(file, file.parent.parent / "outside")
    os.utime(file, ns=(1, 1))


def a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


DAMAGES = [
    lambda file: flip(file, 0),
    lambda file: flip(file, 3 * BLOCK + 17),
    lambda file: flip(file, len(BIG) - 1),
    *(torn, longer, lost_page, gone, a_link, a_second_name, a_fifo),
]


@TWO_WAYS
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_is_wrong_is_copied_and_no_other(boots, way, damage: Callable[[Path], None]):
    damage(boots.destination / "big.bin")
    result = boots.next("--write", way)
    assert (result.termination["copied_bytes"], result.termination["resumed_bytes"]) == (len(BIG), TOTAL - len(BIG))
    assert not (boots.destination / "big.bin").is_symlink()


def test_a_file_outside_that_has_a_name_in_the_destination_stays_as_it_is(boots, tmp_path):
    a_second_name(boots.destination / "big.bin")
    (boots.destination / "big.bin").chmod(0o600)
    boots.next()
    outside = (tmp_path / "outside").stat()
    assert (outside.st_nlink, outside.st_mtime_ns, outside.st_mode & 0o7777) == (1, 1, 0o600)


def test_the_first_wrong_block_ends_the_reading_of_a_file(boots, reads):
    file = boots.destination / "big.bin"
    inode = file.stat().st_ino
    flip(file, 1)
    boots.next("--parallel", "1", "--write", "buffered")
    assert reads[inode] == BLOCK


@pytest.mark.parametrize("number", [errno.EIO, errno.ENODATA])
def test_a_file_that_cannot_be_read_where_it_lies_is_copied(boots, monkeypatch, number):
    inode = (boots.destination / "big.bin").stat().st_ino
    real = os.preadv

    def failing(fd, buffers, at):
        if os.fstat(fd).st_ino == inode:
            raise OSError(number, os.strerror(number))
        return real(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", failing)
    assert boots.next().termination["copied_bytes"] == len(BIG)


def overwrite(file: Path) -> None:
    """Change a byte so that only the ctime tells."""
    status = file.stat()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of a file system may have coarse ticks
        flip(file, 9)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


MOMENTS = {
    "before it is read": (recheck.Recheck, "run"),
    "after it was read": (Destination, "keep"),
    "while it is put on disk": (os, "fsync"),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_file_that_something_else_writes_meanwhile_is_copied(boots, monkeypatch, moment):
    file = boots.destination / "big.bin"
    inode = file.stat().st_ino
    where, name = MOMENTS[moment]
    real = getattr(where, name)
    done: list[bool] = []

    def disturbed(*arguments, **more):
        about = arguments[0] if name == "fsync" else arguments[-1] if name == "run" else arguments[1]
        mine = os.fstat(about).st_ino == inode if name == "fsync" else getattr(about, "path", b"big.bin") == b"big.bin"
        if mine and not done:
            done.append(True)
            overwrite(file)
        return real(*arguments, **more)

    monkeypatch.setattr(where, name, disturbed)
    assert boots.next("--write", "direct").termination["copied_bytes"] == len(BIG)
    assert done


def test_a_file_that_something_else_writes_after_its_check_fails_the_run(boots, monkeypatch):
    real = copier.Copy.run

    def run(*arguments):
        real(*arguments)
        overwrite(boots.destination / "big.bin")

    monkeypatch.setattr(copier.Copy, "run", run)
    (boots.destination / "config.json").unlink()
    result = preload(boots.source, boots.destination, "--files", "all")
    assert (result.code, result.file) == (4, "big.bin")
    assert "something else writes there" in result.message
    assert not is_marked(boots.destination)


def test_what_disappears_meanwhile_is_no_error(boots, monkeypatch):
    write(boots.destination, {"old.bin": b"old", "old/folder/file": b"old"})
    real = Destination.prepare

    def prepare(*arguments):
        (boots.destination / "old.bin").unlink(missing_ok=True)
        shutil.rmtree(boots.destination / "old", ignore_errors=True)
        real(*arguments)

    monkeypatch.setattr(Destination, "prepare", prepare)
    assert boots.next().termination["copied_bytes"] == 0


def test_what_is_not_wanted_is_gone_before_the_check_and_what_is_wrong_right_after_it(boots, monkeypatch):
    """A full disk has room for nothing before that."""
    write(boots.destination, {"old.bin": b"old"})
    flip(boots.destination / "big.bin", 5)
    there: list[set[str]] = []
    for where in (recheck.Recheck, copier.Copy):

        def run(self, *arguments, real=where.run):
            there.append({name for name in ("old.bin", "big.bin") if (boots.destination / name).exists()})
            return real(self, *arguments)

        monkeypatch.setattr(where, "run", run)
    boots.next()
    assert there == [{"big.bin"}, set()]


def test_what_was_checked_before_a_kill_is_not_checked_again(boots, reads, monkeypatch):
    real = Destination.keep
    kept: list[bytes] = []

    def keep(destination, file, *rest, **more):
        if len(kept) == 4:
            raise KeyboardInterrupt
        kept.append(file.path)
        return real(destination, file, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Destination, "keep", keep)
        with pytest.raises(KeyboardInterrupt):
            preload(boots.source, boots.destination, "--files", "all", "--write", "buffered", proc=boots.proc(7))
    reads.clear()
    result = preload(boots.source, boots.destination, "--files", "all", "--write", "buffered", proc=boots.proc(7))
    assert (result.code, result.termination["copied_bytes"]) == (0, 0)
    again = {path for path in kept if reads[(boots.destination / os.fsdecode(path)).stat().st_ino]}
    assert (len(kept), again) == (4, set())


@pytest.mark.parametrize("number", NOT_DIRECT)
def test_a_file_system_that_opens_files_around_the_page_cache_and_does_not_read_them_so_is_read_through_it(
    boots, monkeypatch, number
):
    real = os.preadv
    refused: list[int] = []

    def picky(fd, buffers, at):
        inside = str(boots.destination) in os.readlink(f"/proc/self/fd/{fd}")  # noqa: PTH115 - a descriptor
        if inside and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            refused.append(fd)
            raise OSError(number, os.strerror(number))
        return real(fd, buffers, at)

    monkeypatch.setattr(os, "preadv", picky)
    assert boots.next("--write", "direct").termination["copied_bytes"] == 0
    assert refused


def test_a_pointer_of_git_lfs_is_found_though_it_has_the_published_hash(tmp_path, destination):
    pointer = structure.LFS_START + b"oid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
    source = write(tmp_path / "source", MODEL | {"tokenizer.json": pointer})
    publish(source)
    assert preload(source, destination, "--files", "all", "--verify", "none").code == 0
    result = preload(source, destination, "--files", "all", "--verify", "size")
    assert (result.code, result.file) == (4, "tokenizer.json")


def test_who_waits_hears_nothing_of_an_earlier_owner(boots, monkeypatch):
    progress = write(boots.destination, {".faststart/work/progress.json": b"{}"}) / ".faststart/work/progress.json"
    real, there = recheck.Recheck.run, list[bool]()
    monkeypatch.setattr(recheck.Recheck, "run", lambda check: (there.append(progress.exists()), real(check)))
    boots.next()
    assert there == [False]


FILES = sorted(name for name, data in (MODEL | {"big.bin": BIG}).items() if data)


@settings(deadline=None, max_examples=40)
@given(
    st.dictionaries(st.sampled_from(FILES), st.integers(0, 10**6)),
    st.sampled_from([4096, BLOCK, 8 << 20]),
    st.sampled_from(["direct", "buffered"]),
)
def test_whatever_bytes_are_wrong_their_files_are_copied_and_no_others(wrong, block_bytes, way):
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        use_small_pieces(patch)
        source = write(Path(name, "source"), MODEL | {"big.bin": BIG})
        publish(source, block_bytes=block_bytes)
        destination = Path(name, "destination")
        preload(source, destination, "--files", "all", "--verify", "none")
        for file, at in wrong.items():
            flip(destination / os.fsdecode(file), at % (destination / os.fsdecode(file)).stat().st_size)
        result = preload(source, destination, "--files", "all", "--verify", "sha256", "--write", way)
        assert (result.code, tree(destination)) == (0, tree(source))
        sizes = [(source / os.fsdecode(file)).stat().st_size for file in wrong]
        assert result.termination["copied_bytes"] == sum(sizes)


# ---- what people see


def test_it_says_what_it_does_and_what_came_of_it(boots, capsys):
    flip(boots.destination / SHARDS[0], 77)
    capsys.readouterr()
    result = boots.next()
    said = capsys.readouterr().err
    assert f"{len(FILES)} files, " in said
    assert "lie here and may be whole: held against their hashes" in said
    assert f"{len(FILES) - 1} of {len(FILES)} files are whole" in said
    assert result.termination["verify_seconds"] > 0


def test_plan_says_what_would_be_checked_and_touches_nothing(boots, capsys):
    (boots.destination / "config.json").unlink()
    before = tree(boots.destination), marker(boots.destination)
    capsys.readouterr()
    result = preload(boots.source, boots.destination, "--files", "all", "--plan", proc=boots.proc(7))
    lines = capsys.readouterr().out.splitlines()
    assert result.code == 0
    assert [line.split()[0] for line in lines] == ["copy", *["check"] * (len(FILES) - 1)]
    assert "1 files to copy, 23 bytes" in result.message
    assert f"{len(FILES) - 1} to check" in result.message
    assert before == (tree(boots.destination), marker(boots.destination))


SLOW_RECHECK = """
import preload.recheck, preload.state
preload.state.boot_id = lambda *_: "another"
real = os.preadv
def slow(fd, buffers, at):
    if "destination" in os.readlink(f"/proc/self/fd/{fd}"):
        print("begun", flush=True)
        time.sleep(0.2)
        return real(fd, [buffers[0][:10]], at)
    return real(fd, buffers, at)
os.preadv = slow
"""


def test_sigterm_ends_a_check_within_a_second_and_the_next_run_completes(boots):
    process = start(boots.source, boots.destination, "--files", "all", "--write", "buffered", before=SLOW_RECHECK)
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    process.terminate()
    said = process.communicate(timeout=10)[1]
    assert process.returncode == 143, said
    assert "stopped by SIGTERM" in said
    assert not is_marked(boots.destination)
    assert boots.next().termination["copied_bytes"] == 0
