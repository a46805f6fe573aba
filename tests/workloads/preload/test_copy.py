"""What preload copies, and what it leaves alone when it is run again. On real files."""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import re
import socket
import stat
import tempfile
import types
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload import buffers, copier, mode
from tests.workloads.support import MODEL, SHARDS, is_marked, marker, preload, publish, safetensors, tree, write


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source")


def reads_of_content(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Note each file whose content is read for the copy."""
    seen: list[bytes] = []
    real = copier.open_source

    def noting(path: bytes, *, direct: bool):
        seen.append(os.path.basename(path))  # noqa: PTH119 - bytes
        return real(path, direct=direct)

    monkeypatch.setattr(copier, "open_source", noting)
    return seen


def test_a_model_arrives_whole_with_its_tree_its_empty_folders_and_a_marker(source, destination):
    result = preload(source, destination, "--write", "buffered")
    assert (result.code, tree(destination)) == (0, tree(source))
    total = sum(len(content) for content in MODEL.values() if content is not None)
    found = marker(destination)
    assert set(found) == {
        *("schema", "manifest_digest", "manifest_origin", "selection_digest", "files", "bytes", "verify"),
        *("boot_id", "synced", "preload_version", "finished"),
    }
    assert found["schema"] == "faststart.dev/complete/v1"
    assert found["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert (found["files"], found["bytes"], found["verify"], found["synced"]) == (6, total, "size", False)
    assert (found["manifest_origin"], found["manifest_digest"][:7]) == ("scanned", "sha256:")


def test_the_same_name_in_two_folders_stays_two_files(source, destination):
    preload(source, destination)
    assert (destination / "1_Pooling/config.json").read_bytes() == b"another config"
    assert (destination / "config.json").read_bytes() == MODEL["config.json"]


NAMES = [
    b"with space",
    b"it's",
    b'say "hi"',
    b"back\\slash",
    b"new\nline",
    b"-rf",
    b"tab\tx",
    b"star*",
    b"\xff\xfe",
    b"{}",
]


def test_any_byte_names_arrive_newline_and_non_utf8_too(source, destination):
    write(source, {name: name for name in NAMES})
    write(source, {b"\xfe\n/" + name: name for name in NAMES})
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)
    assert preload(source, destination).termination["copied_bytes"] == 0


file_names = st.binary(min_size=1, max_size=8).map(lambda name: name.replace(b"/", b"_").replace(b"\0", b"-"))
safe_names = file_names.filter(lambda name: name not in (b".", b"..", b".faststart"))
contents = st.binary(max_size=3000) | st.integers(0, 30_000).map(lambda size: bytes(range(251)) * (size // 251))
trees = st.recursive(contents, lambda inner: st.dictionaries(safe_names, inner, max_size=4), max_leaves=15)


def flat(content: bytes | dict, path: bytes = b"") -> dict[str | bytes, bytes | None]:
    if isinstance(content, bytes):
        return {path: content}
    found: dict[str | bytes, bytes | None] = {path: None} if path else {}
    for name, inner in content.items():
        found |= flat(inner, os.path.join(path, name))  # noqa: PTH118 - bytes
    return found


@settings(max_examples=20, deadline=None, database=None)
@given(st.dictionaries(safe_names, trees, max_size=5), st.sampled_from(["direct", "buffered"]))
def test_any_tree_of_names_and_sizes_comes_through_and_is_then_complete(files, way):
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(mode, "READ_BYTES_MAX", mode.PAGE):
        source = write(Path(folder) / "source", flat(files))
        if not (source / "config.json").exists():
            write(source, {"config.json": b"{}"})
        destination = Path(folder) / "destination"
        flags = ("--verify", "none", "--files", "all", "--write", way)
        assert preload(source, destination, *flags, "--parallel", "3").code == 0
        assert tree(destination) == tree(source)
        again = preload(source, destination, *flags)
        assert (again.code, again.termination["copied_bytes"]) == (0, 0)


def test_modes_become_0644_plus_the_x_bits_of_the_source_folders_0755_and_mtimes_stay(source, destination):
    for name, bits in {"config.json": 0o600, "tokenizer.json": 0o777, SHARDS[0]: 0o700, SHARDS[1]: 0o440}.items():
        (source / name).chmod(bits)
        os.utime(source / name, ns=(1, 1_577_836_800_123_456_789))
    (source / "1_Pooling").chmod(0o700)
    before = os.umask(0o077)
    try:
        preload(source, destination)
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((destination / n).stat().st_mode) for n in ("config.json", "tokenizer.json", *SHARDS)]
    assert modes == [0o644, 0o755, 0o744, 0o644]
    assert stat.S_IMODE((destination / "1_Pooling").stat().st_mode) == 0o755
    assert (destination / SHARDS[1]).stat().st_mtime_ns == 1_577_836_800_123_456_789


def test_a_sparse_file_arrives_dense(source, destination):
    os.truncate(write(source, {"sparse.bin": b""}) / "sparse.bin", 10_000_000)
    preload(source, destination)
    assert (destination / "sparse.bin").stat().st_blocks * 512 >= 10_000_000


def test_a_file_larger_than_a_buffer_arrives_whole(source, destination):
    write(source, {"big.bin": os.urandom(mode.READ_BYTES_MAX * 2 + 12_345)})
    preload(source, destination)
    assert (destination / "big.bin").read_bytes() == (source / "big.bin").read_bytes()


def test_a_hugging_face_snapshot_arrives_as_files(tmp_path, destination):
    cache = write(tmp_path / "models--o--m", {"blobs/aa": b"{}", "blobs/bb": safetensors(), "snapshots/r1": None})
    for name, blob in {"config.json": "aa", "model.safetensors": "bb"}.items():
        (cache / "snapshots/r1" / name).symlink_to(f"../../blobs/{blob}")
    assert preload(cache / "snapshots/r1", destination).code == 0
    assert tree(destination) == {b"config.json": b"{}", b"model.safetensors": safetensors()}


def test_links_to_files_and_folders_inside_the_source_become_what_they_lead_to(source, destination):
    write(source / "elsewhere", {"inner/a.txt": b"a"})
    (source / "folder-link").symlink_to(source / "elsewhere")
    (source / "file-link").symlink_to("config.json")
    preload(source, destination)
    assert (destination / "folder-link/inner/a.txt").read_bytes() == b"a"
    assert (destination / "file-link").read_bytes() == MODEL["config.json"]
    assert "link" not in tree(destination).values()


def test_a_fifo_and_a_socket_are_named_and_skipped_and_never_opened(source, destination, monkeypatch, capsys):
    os.mkfifo(source / "a-fifo")
    monkeypatch.chdir(source)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("a-socket")
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more))
    assert preload(source, destination).code == 0
    assert not [path for path in opened if str(path).endswith(("a-fifo'", "a-socket'"))]
    assert b"a-fifo" not in tree(destination)
    said = capsys.readouterr().err
    assert "a-fifo: is a fifo, skipped" in said
    assert "a-socket: is a socket, skipped" in said


def test_a_published_manifest_is_the_list_and_its_digest_and_names_are_recorded(source, destination):
    publish(source)
    write(source, {"not-in-the-manifest.txt": b"x"})
    result = preload(source, destination)
    assert result.code == 0
    assert tree(destination) == {
        path: data for path, data in tree(source).items() if path != b"not-in-the-manifest.txt"
    }
    assert not (destination / ".faststart/manifest.json").exists()
    assert (result.termination["model"], result.termination["revision"]) == ("tiny", "r1")
    assert marker(destination)["manifest_origin"] == "published"


def test_a_second_run_over_a_complete_copy_reads_no_data_and_changes_nothing(source, destination, monkeypatch):
    preload(source, destination)
    before = marker(destination), (destination / SHARDS[0]).stat()
    seen = reads_of_content(monkeypatch)
    result = preload(source, destination)
    assert (result.code, seen) == (0, [])
    assert "already complete" in result.message
    assert before == (marker(destination), (destination / SHARDS[0]).stat())


def spoil_missing_file(destination: Path) -> None:
    (destination / SHARDS[0]).unlink()


def spoil_short_file(destination: Path) -> None:
    os.truncate(destination / SHARDS[0], 10)


def spoil_extra_file(destination: Path) -> None:
    write(destination, {"model-00003-of-00003.safetensors": safetensors()})


def spoil_extra_folder(destination: Path) -> None:
    write(destination, {"original/deep/config.json": b"{}", "original/empty": None})


def spoil_missing_folder(destination: Path) -> None:
    (destination / "empty").rmdir()


def spoil_file_as_link(destination: Path) -> None:
    outside = destination.parent / "outside"
    outside.write_bytes(b"outside")
    (destination / SHARDS[0]).unlink()
    (destination / SHARDS[0]).symlink_to(outside)


def spoil_folder_as_link(destination: Path) -> None:
    outside = write(destination.parent / "outside", {"config.json": b"outside"})
    (destination / "1_Pooling/config.json").unlink()
    (destination / "1_Pooling").rmdir()
    (destination / "1_Pooling").symlink_to(outside)


def spoil_folder_as_file(destination: Path) -> None:
    (destination / "empty").rmdir()
    (destination / "empty").write_bytes(b"x")


def spoil_file_as_folder(destination: Path) -> None:
    (destination / SHARDS[0]).unlink()
    write(destination, {f"{SHARDS[0]}/x": b"y"})


SPOILERS = [
    *(spoil_missing_file, spoil_short_file, spoil_extra_file, spoil_extra_folder, spoil_missing_folder),
    *(spoil_file_as_link, spoil_folder_as_link, spoil_folder_as_file, spoil_file_as_folder),
]


@pytest.mark.parametrize("spoil", SPOILERS, ids=lambda spoil: spoil.__name__)
def test_an_owned_destination_is_put_right_whatever_lies_in_it_and_no_link_is_written_through(
    source, destination, spoil, monkeypatch
):
    preload(source, destination)
    spoil(destination)
    outside = destination.parent / "outside"
    before = tree(outside) if outside.is_dir() else outside.exists() and outside.read_bytes()
    seen = reads_of_content(monkeypatch)
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)
    assert before == (tree(outside) if outside.is_dir() else outside.exists() and outside.read_bytes())
    assert set(seen) <= {os.fsencode(SHARDS[0]), b"config.json"}


@pytest.mark.parametrize("text", [b"", b"{}", b"garbage\0\0", b"[1]", b'{"schema": "faststart.dev/complete/v1"}'])
def test_a_marker_that_cannot_be_read_counts_as_none(source, destination, text):
    preload(source, destination)
    write(destination, {".faststart/complete.json": text})
    assert preload(source, destination).code == 0
    assert marker(destination)["files"] == 6


@pytest.mark.parametrize("text", [b"", b"\0" * 500, b"{}\n{}\n", b'{"path":"config.json"', b"\xff\n[1]\n7\n"])
def test_a_journal_of_garbage_counts_as_none(source, destination, text):
    preload(source, destination)
    (destination / ".faststart/complete.json").unlink()
    write(destination, {".faststart/work/journal.jsonl": text})
    result = preload(source, destination)
    assert (result.code, result.termination["resumed_bytes"]) == (0, 0)
    assert tree(destination) == tree(source)


def test_of_half_a_copy_only_what_the_journal_cannot_prove_is_copied_again(source, destination, monkeypatch):
    preload(source, destination)
    (destination / ".faststart/complete.json").unlink()
    journal = destination / ".faststart/work/journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(line for line in lines if b"tokenizer" not in line) + lines[1][:-9])
    seen = reads_of_content(monkeypatch)
    result = preload(source, destination)
    assert (result.code, seen) == (0, [b"tokenizer.json"])
    assert result.termination["copied_bytes"] == 1400
    assert result.termination["resumed_bytes"] == result.termination["bytes"] - 1400


def test_a_foreign_file_of_the_right_name_size_and_mtime_is_not_trusted(source, destination):
    preload(source, destination)
    (destination / ".faststart/complete.json").unlink()
    file = destination / "tokenizer.json"
    status = file.stat()
    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of a file system may have coarse ticks
        file.write_bytes(b"x" * 1400)
        os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)


def boot(folder: Path, boot_id: str | None) -> str:
    """Make a stand-in proc in which the kernel was booted under this id."""
    write(folder, {} if boot_id is None else {"sys/kernel/random/boot_id": boot_id.encode() + b"\n"})
    return str(folder)


@pytest.mark.parametrize(("first", "second"), [("a", "b"), (None, None), ("a", None)])
def test_after_a_reboot_or_where_that_cannot_be_told_all_is_copied_again(source, destination, tmp_path, first, second):
    preload(source, destination, "--write", "buffered", proc=boot(tmp_path / "1", first))
    result = preload(source, destination, proc=boot(tmp_path / "2", second))
    assert result.termination["copied_bytes"] == result.termination["bytes"]


def test_a_copy_that_is_on_disk_says_so_and_holds_over_a_reboot(source, destination, tmp_path):
    preload(source, destination, "--write", "direct", proc=boot(tmp_path / "1", "a"))
    assert marker(destination)["synced"] is True
    result = preload(source, destination, proc=boot(tmp_path / "2", "b"))
    assert "already complete" in result.message


def test_a_marker_alone_that_says_synced_does_not_stand_for_files_that_were_not(source, destination, tmp_path):
    preload(source, destination, "--write", "buffered", proc=boot(tmp_path / "1", "a"))
    write(destination, {".faststart/complete.json": json.dumps(marker(destination) | {"synced": True}).encode()})
    result = preload(source, destination, proc=boot(tmp_path / "2", "b"))
    assert result.termination["copied_bytes"] == result.termination["bytes"]


def test_a_copy_that_was_verified_less_than_is_asked_is_made_anew_and_one_verified_more_is_enough(source, destination):
    preload(source, destination, "--verify", "none")
    result = preload(source, destination, "--verify", "size")
    assert (result.code, result.termination["resumed_bytes"], marker(destination)["verify"]) == (0, 0, "size")
    assert "already complete" in preload(source, destination, "--verify", "none").message


def test_another_model_replaces_the_one_that_was_there(source, destination, tmp_path):
    preload(source, destination)
    other = write(tmp_path / "other", {"config.json": MODEL["config.json"], "model.safetensors": safetensors()})
    assert preload(other, destination).code == 0
    assert tree(destination) == tree(other)


def test_a_file_that_was_changed_in_the_source_between_two_runs_is_copied_anew(source, destination):
    preload(source, destination)
    write(source, {"config.json": b'{"model_type": "other"}'})
    assert preload(source, destination).code == 0
    assert tree(destination) == tree(source)


def test_an_old_marker_goes_before_anything_that_may_fail(source, destination):
    preload(source, destination)
    os.truncate(source / SHARDS[0], 100)
    assert preload(source, destination).code == 4
    assert not is_marked(destination)


def test_plan_prints_what_would_be_copied_kept_left_out_and_removed_and_touches_nothing(source, destination, capsys):
    def planned() -> list[tuple[str, ...]]:
        lines = capsys.readouterr().out.splitlines()
        return [tuple(re.split(r"\s{2,}", re.sub(r"^(\w+)\s+", r"\1  ", line))) for line in lines]

    write(source, {"README.png": bytes(2_000_000)})
    assert preload(source, destination, "--plan").code == 0
    assert not destination.exists()
    assert ("copy", "1.40 kB", "tokenizer.json") in planned()
    preload(source, destination)
    write(destination, {"new\nline": b"x", "tokenizer.json": b"y"})
    before = tree(destination), marker(destination)
    result = preload(source, destination, "--plan")
    lines = planned()
    assert lines[:2] == [("copy", "1.40 kB", "tokenizer.json"), ("keep", "14 bytes", "1_Pooling/config.json")]
    assert lines[-2:] == [("leave", "2.00 MB", "README.png", "(picture)"), ("remove", "1 bytes", "new\\nline")]
    assert len(lines) == 1 + 5 + 1 + 1
    assert "1 files to copy, 1.40 kB with" in result.message
    assert "5 kept, 1 left out, 2.00 MB; 1 removed" in result.message
    assert before == (tree(destination), marker(destination))
    preload(source, destination)
    assert "nothing to do" in preload(source, destination, "--plan").message


@pytest.mark.parametrize("streams", [1, 2, 1024])
def test_any_number_of_workers_gives_the_same_tree(source, destination, streams):
    result = preload(source, destination, "--parallel", str(streams))
    assert tree(destination) == tree(source)
    assert result.termination["streams"] == min(streams, 6)


@pytest.mark.parametrize("advice", ["given", "refused", "unknown"])
def test_a_buffer_begins_on_a_page_whether_or_not_the_kernel_has_huge_pages_for_it(
    monkeypatch: pytest.MonkeyPatch, advice: str
) -> None:
    asked: list[int] = []

    class Memory(mmap.mmap):
        def madvise(self, option: int, *_: int) -> None:
            asked.append(option)
            if advice == "refused":
                raise OSError(22, "Invalid argument")

    known = {name: value for name, value in vars(mmap).items() if advice != "unknown" or name != "MADV_HUGEPAGE"}
    monkeypatch.setattr(buffers, "mmap", types.SimpleNamespace(**{**known, "mmap": Memory}))
    buffer = buffers.page_buffer(8 << 20)

    assert ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % mmap.PAGESIZE == 0
    assert (len(buffer), buffer.readonly) == (8 << 20, False)
    assert len(asked) == (advice != "unknown")
