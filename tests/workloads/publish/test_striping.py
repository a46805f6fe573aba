"""How files are spread over the servers of a Lustre file system: with lfs, without it, and with one that fails."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.loopback.hub import hub_here
from preload.localdisk import Disk
from publish import places, striping
from tests.workloads.publish.support import MODEL, publish


@pytest.fixture
def lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Puts a program called lfs on PATH, which keeps its arguments and then does what is told; returns where."""

    def put(script: str) -> Path:
        folder = tmp_path / "bin"
        folder.mkdir()
        told = tmp_path / "arguments"
        program = folder / "lfs"
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > '{told}'\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(folder))
        return told

    return put


def stripe(folder: Path) -> str:
    said: list[str] = []
    striping.stripe(str(folder), said.append)
    (line,) = said
    return line


def test_a_large_file_is_spread_over_all_servers_and_a_small_one_is_not(lfs: Callable[[str], Path], tmp_path: Path):
    told = lfs("")

    assert "striped over all servers" in stripe(tmp_path)
    command, *layout, folder = told.read_text().split("\n")[:-1]
    assert (command, folder) == ("setstripe", str(tmp_path))
    # lfs-setstripe(1): a component reaches up to -E (-1: the end) and has -c stripes (-1: all servers) of -S bytes.
    assert layout == ["-E", "64M", "-c", "1", "-E", "-1", "-c", "-1", "-S", "16M"]


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo 'error on ioctl: Inappropriate ioctl for device' >&2; exit 25", "Inappropriate ioctl for device"),
        ("exit 3", "exit 3"),
        ("while :; do :; done", "timed out"),
    ],
)
def test_lfs_that_fails_is_told_and_no_error(
    lfs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: str
):
    monkeypatch.setattr(striping, "_SECONDS", 0.3)
    lfs(script)
    line = stripe(tmp_path)

    assert "the file system's own striping" in line
    assert said in line


def test_without_lfs_it_is_told_that_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", str(tmp_path))

    assert "there is no lfs here" in stripe(tmp_path)


def test_on_lustre_the_staging_folder_is_striped_before_the_first_file_lies_in_it(
    lfs: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    found = 'PATH=/bin:/usr/bin; for folder; do :; done; find "$folder" -name \'*.safetensors\' | wc -l > "$0.files"'
    told, staging = lfs(found), tmp_path / "staging"
    kinds = {os.fsencode(staging): "lustre"}
    monkeypatch.setattr(
        places.localdisk, "disk_of", lambda folder, *_: Disk(folder, b"/", kinds.get(folder, "ext4"), ())
    )
    with hub_here(tmp_path / "home") as hub:
        hub.add("org/name", {str(path): data for path, data in MODEL.items() if data is not None})
        done = publish("hf://org/name", tmp_path / "model", "--staging", staging)

    assert done.code == 0
    assert told.read_text().split("\n")[-2] == str(staging)
    assert (tmp_path / "bin/lfs.files").read_text().split() == ["0"]
    assert list((tmp_path / "model").glob("*.safetensors"))
