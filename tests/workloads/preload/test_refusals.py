"""Each way in which preload ends without a copy: the exit code, the file that is named, what is left behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from podkit.patience import DELAYS, TRANSIENT
from preload import copier, program, space
from tests.workloads.support import (
    MODEL,
    SHARDS,
    WORKLOADS,
    Naps,
    index,
    is_marked,
    preload,
    publish,
    safetensors,
    tree,
    use_small_pieces,
    write,
)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source")


# 2: usage


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--write", "direct", "--cache", "keep"], "--write direct leaves no pages that --cache keep could keep"),
        (["--write", "fast"], "invalid choice: 'fast'"),
        (["--cache", "some"], "invalid choice: 'some'"),
        (["--verify", "md5"], "invalid choice: 'md5'"),
        (["--files", "auto", "*.txt"], "--files takes either auto, or all, or patterns"),
        (["--files", "*.nothing"], "--files *.nothing: names none of the 6 files"),
        (["--verify", "sha256"], "--verify sha256 needs a published manifest with its block hashes"),
        (["--manifest-digest", "sha256:0"], "'sha256:0' is not sha256: and 64 hex digits"),
        (["--manifest-digest", "a" * 64], "is not sha256: and 64 hex digits"),
        (["--stay"], "--stay: FASTSTART_POD_UID is '', not a pod's uid"),
        (["--parallel", "0"], "0 is not between 1 and 1024"),
        (["--parallel", "1025"], "1025 is not between 1 and 1024"),
        (["--parallel", "-3"], "'-3' is not a whole number"),
        (["--max-bytes", "4G"], "'4G' is not a whole number"),
        (["--wait", "-1"], "'-1' is not a number of seconds"),
        (["--wait", "nan"], "'nan' is not a number of seconds"),
        (["--wait", "soon"], "'soon' is not a number of seconds"),
        (["--wait", "inf"], "'inf' is not a number of seconds"),
        (["--verif", "none"], "unrecognized arguments"),
        (["another"], "unrecognized arguments"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_line_that_is_wrong_is_2_and_says_so_in_the_termination_log(
    source, destination, flags, message, monkeypatch
):
    monkeypatch.delenv("FASTSTART_POD_UID", raising=False)
    result = preload(source, destination, *flags)
    assert result.code == 2
    assert message in result.message
    assert not destination.exists()


@pytest.mark.parametrize("uid", ["../../x", "", "UPPER-CASE", "a" * 65, "12345678/9"])
def test_a_pod_uid_that_could_name_another_folder_is_2(source, destination, uid, monkeypatch):
    monkeypatch.setenv("FASTSTART_POD_UID", uid)
    assert preload(source, destination, "--stay").code == 2
    assert not destination.exists()


@pytest.mark.parametrize("arguments", [[], ["only-a-source"], ["a", "b", "--termination-log"]])
def test_a_command_line_without_its_arguments_is_2(arguments):
    assert program.main(arguments) == 2


# 3: no space


def test_no_space_is_found_before_the_first_byte_and_said_with_numbers(source, destination, monkeypatch):
    free = SimpleNamespace(f_bavail=2, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda _: free)
    result = preload(source, destination)
    assert result.code == 3
    assert result.message == "no space: 32.77 kB to copy, 8.19 kB free, 24.58 kB too little"
    assert tree(destination) == {}
    assert not is_marked(destination)


def test_space_of_files_that_will_be_removed_counts_as_free(source, destination, monkeypatch):
    preload(source, destination)
    (destination / ".faststart/work/journal.jsonl").unlink()
    (destination / ".faststart/complete.json").unlink()
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=512))
    assert preload(source, destination).code == 0


def test_space_of_parts_that_will_be_removed_counts_as_free(source, destination, monkeypatch):
    write(destination, {".faststart/work/7.part": bytes(100_000), ".faststart/work/journal.jsonl": b"of another copy"})
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=0, f_frsize=512))
    assert preload(source, destination).code == 0


@pytest.mark.parametrize(("module", "call"), [(space, "fallocate"), (os, "pwrite")])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("way", ["direct", "buffered"])
def test_a_disk_that_fills_up_during_the_copy_is_3_and_leaves_no_cut_file(
    source, destination, monkeypatch, module, call, number, way
):
    write(source, {f"{n}.bin": os.urandom(9999) for n in range(4)})
    use_small_pieces(monkeypatch)
    real = getattr(module, call)
    calls: list[int] = []

    def full_at_the_third(*arguments):
        calls.append(1)
        if len(calls) >= 3:
            raise OSError(number, os.strerror(number))
        return real(*arguments)

    monkeypatch.setattr(module, call, full_at_the_third)
    result = preload(source, destination, "--parallel", "1", "--write", way)
    assert result.code == 3
    assert "full" in result.message
    assert result.file
    assert_only_whole_files(source, destination)
    monkeypatch.undo()
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)
    assert not list((destination / ".faststart/work").glob("*.part"))


@pytest.mark.parametrize("data", ["fits", "does not fit either"])
def test_a_disk_on_which_not_even_the_journal_fits_is_3(source, destination, monkeypatch, data):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    real = os.pwrite
    calls = iter([real, real])

    def full_at_the_third(*arguments):
        return next(calls, full)(*arguments)

    if data != "fits":
        monkeypatch.setattr(os, "pwrite", full_at_the_third)
    monkeypatch.setattr(os, "write", full)
    assert preload(source, destination, "--parallel", "1").code == 3
    monkeypatch.undo()
    assert_only_whole_files(source, destination)


def assert_only_whole_files(source: Path, destination: Path) -> None:
    whole = tree(source)
    assert {path: data for path, data in tree(destination).items() if whole[path] != data} == {}
    assert not is_marked(destination)


def test_where_a_file_system_cannot_reserve_space_the_copy_goes_on(source, destination, monkeypatch):
    def unsupported(*_):
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(space, "fallocate", unsupported)
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)


# 4: damaged


def cut_shard(source: Path) -> None:
    os.truncate(source / SHARDS[0], 5000)


def zero_shard(source: Path) -> None:
    os.truncate(source / SHARDS[0], 0)


def missing_shard(source: Path) -> None:
    (source / SHARDS[0]).unlink()


def lfs_pointer(source: Path) -> None:
    write(source, {SHARDS[0]: b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"})


def dangling_link(source: Path) -> None:
    (source / "more.bin").symlink_to("nowhere")


def link_to_itself(source: Path) -> None:
    (source / "loop").symlink_to("loop")


def link_to_the_top(source: Path) -> None:
    (source / "1_Pooling/up").symlink_to("..")


def link_loop_of_two_folders(source: Path) -> None:
    write(source, {"a": None, "b": None})
    (source / "a/b").symlink_to("../b")
    (source / "b/a").symlink_to("../a")


def manifest_and_no_file(source: Path) -> None:
    publish(source)
    (source / "tokenizer.json").unlink()


def manifest_and_other_size(source: Path) -> None:
    publish(source)
    write(source, {"tokenizer.json": b"{}"})


def manifest_and_folder(source: Path) -> None:
    publish(source)
    (source / "tokenizer.json").unlink()
    (source / "tokenizer.json").mkdir()


def manifest_and_dangling_link(source: Path) -> None:
    publish(source)
    (source / "tokenizer.json").unlink()
    (source / "tokenizer.json").symlink_to("nowhere")


def newer_manifest(source: Path) -> None:
    publish(source, schema="faststart.dev/manifest/v2")


@pytest.mark.parametrize(
    ("damage", "file", "says"),
    [
        (cut_shard, SHARDS[0], "5000 bytes"),
        (zero_shard, SHARDS[0], "cut or no safetensors"),
        (missing_shard, "model.safetensors.index.json", SHARDS[0]),
        (lfs_pointer, SHARDS[0], "git lfs pull"),
        (dangling_link, "more.bin", "nowhere, which does not exist"),
        (link_to_itself, "loop", "leads back to itself"),
        (link_to_the_top, "1_Pooling/up", "a folder that it lies in"),
        (link_loop_of_two_folders, "/b/a", "a folder that it lies in"),
        (manifest_and_no_file, "tokenizer.json", "not in the folder"),
        (manifest_and_other_size, "tokenizer.json", "2 bytes, the manifest says 1400"),
        (manifest_and_folder, "tokenizer.json", "not a regular file"),
        (manifest_and_dangling_link, "tokenizer.json", "does not exist"),
        (newer_manifest, ".faststart/manifest.json", "use the program that fits it"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_damaged_source_is_4_names_the_file_and_copies_nothing(source, destination, damage, file, says):
    damage(source)
    result = preload(source, destination)
    assert result.code == 4
    assert result.file
    assert file in "/" + result.file
    assert says in result.message
    assert not destination.exists() or tree(destination) == {}


@pytest.mark.parametrize("verify", ["size", "sha256"])
def test_a_git_lfs_pointer_in_place_of_a_tokenizer_is_4_and_never_gets_its_name(source, destination, verify):
    write(source, {"tokenizer.json": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"})
    publish(source)
    result = preload(source, destination, "--verify", verify)
    assert (result.code, result.file) == (4, "tokenizer.json")
    assert "git lfs pull" in result.message
    assert not (destination / "tokenizer.json").exists()
    assert not is_marked(destination)


def test_patterns_may_leave_out_weights_that_an_index_names(source, destination):
    assert preload(source, destination, "--files", "*.json").code == 0
    assert sorted(path for path, data in tree(destination).items() if isinstance(data, bytes)) == [
        *(b"1_Pooling/config.json", b"config.json", b"model.safetensors.index.json", b"tokenizer.json"),
    ]


def test_without_verification_a_cut_shard_is_copied_as_it_is(source, destination):
    cut_shard(source)
    assert preload(source, destination, "--verify", "none").code == 0
    assert tree(destination) == tree(source)


def test_a_copy_that_something_else_changed_meanwhile_gets_no_marker(source, destination, monkeypatch):
    def spoil(self, tick):
        copied(self, tick)
        write(destination, {"intruder.safetensors": b""})

    copied = copier.Copy.run
    monkeypatch.setattr(copier.Copy, "run", spoil)
    result = preload(source, destination)
    assert (result.code, result.file) == (4, "intruder.safetensors")
    assert not is_marked(destination)


# 6: no model


def test_a_source_that_is_missing_empty_a_file_or_no_model_is_6_with_a_reason(tmp_path, destination):
    reasons = {
        "missing": "no such source folder",
        "a-file/below": "no such source folder",
        "a-file": "not a folder",
        "empty": "empty",
        "only-ours": "empty",
        "only-a-readme": "neither a weight file nor a config.json",
        "cache": "snapshots/<commit>",
    }
    write(tmp_path, {"a-file": b"", "empty": None, "only-ours/.faststart/x.bin": b"", "only-a-readme/README.md": b"#"})
    write(tmp_path / "cache", {"blobs/0": b"", "snapshots/r1/config.json": b"{}", "refs/main": b"r1"})
    for name, reason in reasons.items():
        result = preload(tmp_path / name, destination)
        assert (name, result.code) == (name, 6)
        assert reason in result.message
    assert not destination.exists()


# 7: not permitted


def test_a_link_to_another_mount_is_7(source, destination):
    (source / "version.txt").symlink_to("/proc/version")
    result = preload(source, destination)
    assert (result.code, result.file) == (7, "version.txt")
    assert "/proc/version, outside the source folder" in result.message


def test_a_published_file_behind_a_folder_that_leads_out_of_the_mount_is_7(source, destination):
    write(source, {"sub/version": b""})
    publish(source)
    shutil.rmtree(source / "sub")
    (source / "sub").symlink_to("/proc")
    result = preload(source, destination, "--files", "all")
    assert (result.code, result.file) == (7, "sub/version")
    assert "outside the source folder" in result.message


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that any user may reach; pytest's own are closed to others."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def preload_as_nobody(*arguments: Path) -> tuple[int, str]:
    """Run preload without root's rights: in a process that gives them up, if it has them."""
    code = """
import os, sys
from preload.program import main
main([])  # imports what the standard library imports late, from a folder that nobody else may read
if os.getuid() == 0:
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)
sys.exit(main(sys.argv[1:]))
"""
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code, *map(str, arguments)],
        env={"PYTHONPATH": str(WORKLOADS)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("closed", ["", "1_Pooling", "tokenizer.json", ".faststart"])
def test_a_source_that_may_not_be_read_is_7(open_folder, closed):
    source = write(open_folder / "source")
    (source / ".faststart").mkdir()
    destination = open_folder / "destination"
    destination.mkdir()
    destination.chmod(0o777)
    (source / closed).chmod(0)
    code, said = preload_as_nobody(source, destination)
    (source / closed).chmod(0o755)
    assert code == 7
    assert closed in said
    assert "cannot be read: Permission denied" in said
    assert not is_marked(destination)


def test_a_destination_that_may_not_be_written_is_7(open_folder):
    source = write(open_folder / "source")
    open_folder.chmod(0o555)
    code, said = preload_as_nobody(source, open_folder / "destination")
    open_folder.chmod(0o755)
    assert code == 7
    assert "cannot be written in the destination: Permission denied" in said


# 8: changed, or larger than expected


def test_a_model_larger_than_max_bytes_is_8(source, destination):
    total = sum(len(content) for content in MODEL.values() if content is not None)
    result = preload(source, destination, "--max-bytes", str(total - 1))
    assert result.code == 8
    assert (
        f"{total} bytes, --max-bytes allows {total - 1}; in the stack file sizeGib must be at least 1" in result.message
    )
    assert not destination.exists()
    assert preload(source, destination, "--max-bytes", str(total)).code == 0


def grow(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b"more")


def shrink(file: Path) -> None:
    os.truncate(file, 10)


def touch(file: Path) -> None:
    os.utime(file, ns=(1, 1))


def replace(file: Path) -> None:
    (file.parent / "new").write_bytes(b"x" * file.stat().st_size)
    (file.parent / "new").rename(file)


def remove(file: Path) -> None:
    file.unlink()


def turn_into_a_fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


CHANGES = [grow, shrink, touch, replace, remove, turn_into_a_fifo]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("moment", ["before its first byte", "after its first byte", "after its copy"])
@pytest.mark.parametrize("name", [SHARDS[0], "tokenizer.json"], ids=["large", "small"])
def test_a_source_that_changes_during_the_copy_is_8_and_gets_no_marker(
    source, destination, monkeypatch, change: Callable[[Path], None], moment, name
):
    use_small_pieces(monkeypatch)
    touched = source / name
    inode = touched.stat().st_ino
    done: list[int] = []

    def once(*, now: bool) -> None:
        if now and not done:
            done.append(1)
            change(touched)

    if moment == "before its first byte":
        real_open = copier.open_source
        monkeypatch.setattr(
            copier, "open_source", lambda real, **k: [once(now=real == os.fsencode(touched)), real_open(real, **k)][1]
        )
    elif moment == "after its first byte":
        real_read = os.preadv
        monkeypatch.setattr(os, "preadv", lambda fd, *a: [real_read(fd, *a), once(now=os.fstat(fd).st_ino == inode)][0])
    else:
        real_run = copier.Copy.run
        monkeypatch.setattr(copier.Copy, "run", lambda *a: [real_run(*a), once(now=True)][0])
    result = preload(source, destination, "--parallel", "1")
    assert done
    assert (result.code, result.file) == (8, name)
    assert moment == "after its copy" or not (destination / name).exists()
    assert not is_marked(destination)


def test_a_file_that_goes_away_during_the_scan_is_8(source, destination, monkeypatch):
    real = os.lstat

    def gone(path, **rest):
        if path == os.fsencode(source / "tokenizer.json"):
            raise FileNotFoundError(errno.ENOENT, "No such file")
        return real(path, **rest)

    monkeypatch.setattr(os, "lstat", gone)
    result = preload(source, destination)
    assert (result.code, result.file) == (8, "tokenizer.json")


# 9: I/O errors


def fail_on(monkeypatch: pytest.MonkeyPatch, call: str, numbers: list[int], *, only: str = "") -> list[int]:
    """Let a call of `os` fail with these errors, one after the other, and then work; return those still to come."""
    real = getattr(os, call)

    def failing(target, *rest, **more):
        if numbers and only in os.fsdecode(target if isinstance(target, bytes | str) else ""):
            number = numbers.pop(0)
            raise OSError(number, os.strerror(number))
        return real(target, *rest, **more)

    monkeypatch.setattr(os, call, failing)
    return numbers


@pytest.mark.parametrize("number", TRANSIENT, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["preadv", "lstat", "stat", "scandir"])
def test_an_error_that_passes_is_tried_again_after_a_growing_pause(source, destination, monkeypatch, call, number):
    left = fail_on(monkeypatch, call, [number, number], only="" if call == "preadv" else "source")
    naps = Naps()
    result = preload(source, destination, "--parallel", "1", sleep=naps)
    assert (result.code, left) == (0, [])
    assert result.termination["retries"] == 2
    assert naps.seconds == pytest.approx(DELAYS[0] + DELAYS[1])
    assert tree(destination) == tree(source)
    assert json.loads((destination / ".faststart/report.json").read_bytes())["retries"] == 2


@pytest.mark.parametrize("call", ["preadv", "lstat", "scandir"])
def test_an_error_that_stays_is_9_after_the_last_try_and_names_the_file(source, destination, monkeypatch, call):
    fail_on(monkeypatch, call, [errno.EIO] * 1000, only="" if call == "preadv" else "source/1_Pooling")
    naps = Naps()
    result = preload(source, destination, "--parallel", "1", sleep=naps)
    assert result.code == 9
    assert result.file
    assert "Input/output error" in result.message
    assert naps.seconds == pytest.approx(sum(DELAYS))
    assert not is_marked(destination)


def test_an_error_that_does_not_pass_by_itself_is_not_tried_again(source, destination, monkeypatch):
    fail_on(monkeypatch, "preadv", [errno.ENXIO])
    result = preload(source, destination)
    assert (result.code, result.termination["retries"]) == (9, 0)


def test_a_write_that_fails_is_9_at_once_and_names_the_file(source, destination, monkeypatch):
    fail_on(monkeypatch, "pwrite", [errno.EIO])
    result = preload(source, destination, "--parallel", "1")
    assert (result.code, result.file, result.termination["retries"]) == (9, "1_Pooling/config.json", 0)
    assert "writing to the destination failed" in result.message
    assert_only_whole_files(source, destination)


def test_the_first_error_stops_all_streams_in_the_middle_of_their_files(source, destination, monkeypatch):
    write(source, {"1.bin": bytes(1_000_000), "2.bin": bytes(1_000_000)})
    failed = threading.Event()
    real = os.pwrite

    def first_fails(fd, data, at):
        if not failed.is_set() and at > 0:
            failed.set()
            raise OSError(errno.EIO, "Input/output error")
        time.sleep(0.001)
        return real(fd, data, at)

    use_small_pieces(monkeypatch)
    monkeypatch.setattr(os, "pwrite", first_fails)
    result = preload(source, destination, "--parallel", "2", "--verify", "none", "--files", "all")
    assert result.code == 9
    assert result.file in ("1.bin", "2.bin", SHARDS[0])
    assert result.termination["copied_bytes"] < 200_000
    assert_only_whole_files(source, destination)


def test_a_link_that_takes_the_place_of_a_folder_during_the_copy_is_not_written_through(
    source, destination, monkeypatch
):
    outside = write(destination.parent / "outside", {})

    def swap(self, tick):
        (destination / "1_Pooling").rmdir()
        (destination / "1_Pooling").symlink_to(outside)
        real(self, tick)

    real = copier.Copy.run
    monkeypatch.setattr(copier.Copy, "run", swap)
    result = preload(source, destination)
    assert (result.code, result.file) == (9, "1_Pooling/config.json")
    assert tree(outside) == {}
    assert not is_marked(destination)


def test_a_bug_in_a_worker_ends_the_program_as_a_crash(source, destination, monkeypatch):
    def bug(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(os, "pwrite", bug)
    with pytest.raises(ZeroDivisionError):
        program.main([str(source), str(destination)])
    assert not is_marked(destination)


# 10: destination refused


def foreign_files(destination: Path) -> None:
    write(destination, {"model-00001-of-00003.safetensors": safetensors()})


def a_file(destination: Path) -> None:
    destination.write_bytes(b"x")


def a_link_to_a_folder(destination: Path) -> None:
    write(destination.parent / "real", {})
    destination.symlink_to("real")


def a_dangling_link(destination: Path) -> None:
    destination.symlink_to("nowhere")


def a_file_named_like_ours(destination: Path) -> None:
    write(destination, {".faststart": b"x"})


def a_link_named_like_ours(destination: Path) -> None:
    write(destination.parent / "real", {})
    write(destination, {})
    (destination / ".faststart").symlink_to("../real")


def a_published_model(destination: Path) -> None:
    publish(write(destination, {"config.json": b"{}", "old.bin": b"old"}))


@pytest.mark.parametrize(
    "make",
    [
        *(foreign_files, a_file, a_link_to_a_folder, a_dangling_link),
        *(a_file_named_like_ours, a_link_named_like_ours, a_published_model),
    ],
    ids=lambda make: make.__name__,
)
@pytest.mark.parametrize("flags", [[], ["--plan"]], ids=["", "plan"])
def test_a_destination_that_is_neither_empty_nor_ours_is_10_and_stays_untouched(source, destination, make, flags):
    make(destination)
    before = tree(destination.parent), sorted(destination.parent.rglob("*"))
    result = preload(source, destination, *flags)
    assert result.code == 10
    assert "nothing was touched" in result.message
    assert before == (tree(destination.parent), sorted(destination.parent.rglob("*")))


def test_source_and_destination_inside_each_other_are_10_also_through_links(source, tmp_path):
    (tmp_path / "alias").symlink_to("source")
    destinations = ["source", "source/below/it", "alias/below", "source/1_Pooling/..", "."]
    before = sorted(tmp_path.rglob("*"))
    for name in destinations:
        assert (name, preload(source, tmp_path / name).code) == (name, 10)
    assert preload(tmp_path / "alias/1_Pooling", source).code == 10
    assert before == sorted(tmp_path.rglob("*"))


def test_a_destination_below_a_file_is_10(source, tmp_path):
    write(tmp_path, {"file": b""})
    assert preload(source, tmp_path / "file/destination").code == 10


def test_an_index_may_name_shards_in_its_own_folder_only(tmp_path, destination):
    write(tmp_path / "source", {"a/m.safetensors.index.json": index("x.safetensors"), "x.safetensors": safetensors()})
    assert preload(tmp_path / "source", destination).code == 4
