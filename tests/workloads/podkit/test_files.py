"""Files that are replaced, folders that are removed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from podkit.files import remove, replace
from tests.workloads.support import tree, write


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[int]:
    fd = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield fd
    os.close(fd)


@pytest.mark.parametrize("sync", [False, True])
def test_a_file_is_replaced_and_nothing_else_is_left(tmp_path: Path, folder: int, sync: bool) -> None:
    write(tmp_path, {"a": b"old and long", "b.new": b"left by a crash"})
    replace(b"a", b"new", folder=folder, sync=sync)
    replace(os.fsencode(tmp_path / "b"), b"first", sync=sync)

    assert tree(tmp_path) == {b"a": b"new", b"b": b"first"}


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, folder: int) -> None:
    write(tmp_path, {"a": b"old", "away": b"somebody's"})
    (tmp_path / "a.new").symlink_to("away")
    with pytest.raises(OSError, match="symbolic link"):
        replace(b"a", b"new", folder=folder)

    assert tree(tmp_path) == {b"a": b"old", b"a.new": "link", b"away": b"somebody's"}


def test_a_folder_goes_with_all_in_it_and_what_its_links_lead_to_stays(tmp_path: Path, folder: int) -> None:
    write(tmp_path, {"r/1/2/x": b"", "r/y": b"", "away/z": b"z"})
    (tmp_path / "r/1/link").symlink_to("../../away")
    (tmp_path / "r/gone").symlink_to("nowhere")
    for name in ("r", b"r", "never there"):
        remove(name, folder)

    assert tree(tmp_path) == {b"away": "folder", b"away/z": b"z"}


def test_what_is_to_go_last_goes_last_and_a_check_ends_it_before(tmp_path: Path, folder: int) -> None:
    write(tmp_path, {"r/a/x": b"", "r/a/y": b"", "r/b": b""})
    left = iter(range(4))

    def check() -> None:
        if next(left, None) is None:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        remove("r", folder, last=("a", "x"), check=check)

    assert tree(tmp_path) == {b"r": "folder", b"r/a": "folder", b"r/a/x": b""}
