"""Downloads that are not finished: control files beside a file, and holes where a safetensors file has tensors."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfolder import structure, unfinished
from modelfolder.source import look
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from publish.verdict import judge
from tests.workloads.publish.test_verdict import FIRST, MODEL, SECOND, holding
from tests.workloads.support import write

PAGE = 4096
MARKS = [
    ".aria2", ".aria2__temp", ".st", ".part", ".partial", ".crdownload", ".download", ".filepart", ".!qB", ".!ut",
    ".lftp-pget-status", ".part.minio", "_.gstmp", ".xltd.cfg", ".fdmdownload",
]  # fmt: skip


def both(root: Path, *patterns: str) -> list[FaststartError | None]:
    """Return what the copy's check and publish's judge refuse a folder with."""
    source = look(os.fsencode(root), patterns or ["auto"], Patience())
    found: list[FaststartError | None] = []
    try:
        structure.check(source, Patience())
        found.append(None)
    except FaststartError as error:
        found.append(error)
    bad = [one for one in judge(source, Patience()).findings if one.code is not None]
    found.append(FaststartError(bad[0].code or Exit.USAGE, bad[0].message, bad[0].file) if bad else None)
    return found


@pytest.mark.parametrize("file", [SECOND, "tokenizer.json"])
@pytest.mark.parametrize("mark", MARKS)
def test_a_file_with_the_mark_of_a_downloader_beside_it_is_damage(tmp_path, mark, file):
    for error in both(write(tmp_path, {**MODEL, file + mark: b"state"})):
        assert error
        assert (error.code, error.file) == (Exit.DAMAGED, file.encode())
        assert mark in error.message


@pytest.mark.parametrize(
    "name",
    [
        "model.safetensors.aria2",
        ".cache/huggingface/download/x.incomplete",
        FIRST + ".incomplete",
        FIRST + ".md5",
        FIRST + ".bak",
        FIRST + ".metadata",
        FIRST + ".lock",
        ".aria2",
        "sub/" + FIRST + ".aria2",
        "original/consolidated.00.pth.part",
    ],
)
def test_a_mark_without_its_file_and_what_only_looks_like_one_refuse_nothing(tmp_path, name):
    assert both(write(tmp_path, {**MODEL, name: b"state"})) == [None, None]


def test_the_mark_of_a_file_that_is_left_out_refuses_nothing(tmp_path):
    files = {**MODEL, "original/consolidated.00.pth": b"x", "original/consolidated.00.pth.aria2": b"state"}
    assert both(write(tmp_path / "auto", files)) == [None, None]
    write(tmp_path / "chosen", {**MODEL, SECOND + ".aria2": b"state"})
    assert both(tmp_path / "chosen", "*.json", FIRST)[0] is None


def test_a_mark_that_is_left_out_counts_all_the_same(tmp_path):
    write(tmp_path, {**MODEL, SECOND + ".aria2": b"state"})
    assert all(both(tmp_path, "*.json", "*.safetensors"))


def with_hole(path: Path, data: bytes, start: int, end: int) -> None:
    """Write a file and leave out what lies between two offsets."""
    with path.open("wb") as file:
        file.write(data[:start])
        file.seek(end)
        file.write(data[end:])
        file.truncate(len(data))


CONTENT = holding({"a": bytes(range(256)) * 128, "b": b"\1" * 3 * PAGE, "c": b"\2" * 40_000})


@pytest.mark.parametrize(
    ("start", "end"),
    [
        (PAGE, 2 * PAGE),
        (5 * PAGE, 9 * PAGE),
        (8 * PAGE, len(CONTENT)),
        (len(CONTENT) // PAGE * PAGE - PAGE, len(CONTENT)),
        (300, len(CONTENT)),
        (9 * PAGE, 11 * PAGE),
    ],
    ids=["second page", "middle", "second half", "last pages", "all but the header", "one whole tensor"],
)
def test_a_hole_where_tensors_are_is_damage(tmp_path, start, end):
    write(
        tmp_path,
        {key: value for key, value in MODEL.items() if key not in (FIRST, SECOND, "model.safetensors.index.json")},
    )
    with_hole(tmp_path / "model.safetensors", CONTENT, start, end)
    for error in both(tmp_path):
        assert error
        assert (error.code, error.file) == (Exit.DAMAGED, b"model.safetensors")
        assert "a hole at byte" in error.message
        assert "cp --sparse=never" in error.message
    shutil.copyfile(tmp_path / "model.safetensors", tmp_path / "whole")
    (tmp_path / "model.safetensors").write_bytes((tmp_path / "whole").read_bytes())
    (tmp_path / "whole").unlink()
    assert both(tmp_path) == [None, None]


def test_space_that_was_reserved_and_never_written_is_a_hole(tmp_path):
    write(tmp_path, {**MODEL, FIRST: None})
    (tmp_path / FIRST).rmdir()
    content = holding({"embed": b"\1" * 50_000})
    with (tmp_path / FIRST).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, len(content))
        file.write(content[:30_000])
    assert all(both(tmp_path))


@given(st.integers(1, 200_000), st.binary(max_size=3))
@settings(max_examples=30)
def test_zeros_that_were_written_are_no_hole(size, tail):
    with tempfile.TemporaryDirectory() as root:
        files = {
            key: value for key, value in MODEL.items() if key not in (FIRST, SECOND, "model.safetensors.index.json")
        }
        write(Path(root), {**files, "model.safetensors": holding({"a": bytes(size), "b": tail + b"\0"})})
        assert both(Path(root)) == [None, None]


@pytest.mark.parametrize("kind", [b"zfs", b"lustre", b"nfs4", b"fuse.s3fs", b"ceph"])
def test_a_file_system_that_makes_holes_by_itself_is_believed(kind):
    assert unfinished._MAKES_HOLES.fullmatch(kind)


@pytest.mark.parametrize("kind", [b"ext4", b"xfs", b"tmpfs", b"overlay", b"btrfs"])
def test_a_hole_on_any_other_file_system_was_made_by_who_wrote_the_file(kind):
    assert not unfinished._MAKES_HOLES.fullmatch(kind)


@given(st.lists(st.sampled_from([b"a.bin", b"a.bin.st", b"a.bin.st.st", b"b/a.bin", b"b/a.bin.PART", b".part"])))
def test_a_mark_is_always_one_of_the_paths_and_belongs_to_another(paths):
    for path, mark in unfinished.marks(set(paths)).items():
        assert {path, mark} <= set(paths)
        assert mark.startswith(path)
        assert mark != path
