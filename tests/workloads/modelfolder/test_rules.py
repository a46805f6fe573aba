"""The rules for model folders that copying and publishing share."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelfolder import manifest as manifests
from modelfolder import names, structure
from modelfolder.source import look
from podkit.display import show
from podkit.errors import FaststartError
from podkit.patience import Patience
from tests.workloads.support import index, publish, safetensors, write


def failure(call, *arguments) -> FaststartError:
    with pytest.raises(FaststartError) as caught:
        call(*arguments)
    return caught.value


def seen(root: Path):
    return look(os.fsencode(root), ["all"], Patience())


def check(root: Path, files: dict) -> None:
    structure.check(seen(write(root, files)), Patience())


def test_canonical_json_has_sorted_keys_no_blanks_utf8_and_a_final_newline():
    assert manifests.canonical({"b": [1, None], "a": "é"}) == '{"a":"é","b":[1,null]}\n'.encode()


@given(st.binary(min_size=1))
def test_any_path_comes_back_from_json_and_is_shown_as_one_printable_line(path):
    assert names.from_json(json.loads(json.dumps(names.to_json(path)))) == path
    assert show(path).isprintable()


@pytest.mark.parametrize("value", [None, 3, {}, {"b64": "?"}, ["a"]])
def test_a_path_that_is_neither_text_nor_b64_is_refused(value):
    with pytest.raises(ValueError, match="b64"):
        names.from_json(value)


def test_the_digest_of_a_published_manifest_is_that_of_its_bytes(tmp_path):
    document = publish(write(tmp_path, {"config.json": b"{}"}))
    expected = "sha256:" + hashlib.sha256(json.dumps(document).encode()).hexdigest()
    found = seen(tmp_path).manifest
    assert (found.origin, found.digest, found.model, found.revision) == ("published", expected, "tiny", "r1")


def test_a_scanned_manifest_changes_with_size_time_and_folders_and_with_nothing_else(tmp_path):
    write(tmp_path, {"config.json": b"{}", "e": None, ".faststart/report.json": b"1"})
    os.utime(tmp_path / "config.json", ns=(1, 1))
    first = seen(tmp_path).manifest
    assert first.origin == "scanned"
    write(tmp_path, {".faststart/report.json": b"22"})
    assert seen(tmp_path).manifest.digest == first.digest
    os.utime(tmp_path / "config.json", ns=(1, 2))
    second = seen(tmp_path).manifest
    (tmp_path / "e").rmdir()
    assert len({first.digest, second.digest, seen(tmp_path).manifest.digest}) == 3


def listed(path: str, size: Any) -> dict[str, Any]:
    return {"path": path, "size": size, "sha256": None, "block_bytes": None, "blocks": None}


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"schema": "faststart.dev/manifest/v2"}, "use the program that fits it"),
        ({"schema": "something"}, "schema is 'something'"),
        ({"schema": None}, "is no manifest"),
        ({"model": 3}, "model is not text"),
        ({"total_bytes": 1}, "not the sum of the sizes"),
        ({"files": None}, "is no manifest"),
        ({"files": [{"path": "a"}]}, "'size' is missing"),
        ({"files": [{"path": "a", "size": 2}]}, "'block_bytes' is missing"),
        ({"files": [listed("a", -1)]}, "the size of a is -1"),
        ({"files": [listed("a", True)]}, "the size of a is True"),
        ({"files": [listed("../a", 2)]}, "no path inside a model folder"),
        ({"files": [listed("/a", 2)]}, "no path inside a model folder"),
        ({"files": [listed("", 2)]}, "no path inside a model folder"),
        ({"files": [listed("a//b", 2)]}, "no path inside a model folder"),
        ({"files": [listed("a\0", 2)]}, "no path inside a model folder"),
        ({"files": [listed("\ud800", 2)]}, "surrogates not allowed"),
        ({"files": [listed(".faststart/x", 2)]}, "no path inside a model folder"),
        ({"files": [listed("a", 1), listed("a", 1)]}, "listed twice"),
        ({"files": [listed("a", 1), listed("a/b", 1)]}, "both a file and a folder"),
        ({"folders": ["config.json"], "total_bytes": 2}, "both a file and a folder"),
        ({"folders": [5]}, "a path is text or b64"),
    ],
    ids=str,
)
def test_a_manifest_that_contradicts_itself_or_is_newer_is_refused_with_4(tmp_path, changed, says):
    publish(write(tmp_path, {"config.json": b"{}"}), **changed)
    error = failure(seen, tmp_path)
    assert error.code == 4
    assert says in error.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}", b"\xff", b"[" * 100_000, b'"x"'])
def test_a_manifest_that_is_no_manifest_is_refused_with_4(tmp_path, data):
    write(tmp_path, {"config.json": b"{}", ".faststart/manifest.json": data})
    error = failure(seen, tmp_path)
    assert (error.code, error.file) == (4, b".faststart/manifest.json")


def test_a_manifest_of_absurd_size_is_refused_unread(tmp_path):
    write(tmp_path, {"config.json": b"{}", ".faststart/manifest.json": b""})
    os.truncate(tmp_path / ".faststart/manifest.json", manifests.MAX_BYTES + 1)
    assert failure(seen, tmp_path).code == 4


def test_unknown_keys_of_a_manifest_are_ignored(tmp_path):
    publish(write(tmp_path, {"config.json": b"{}"}), novelty=[1])
    assert seen(tmp_path).manifest.total_bytes == 2


def test_empty_folders_are_those_without_files_even_where_only_special_files_lie_in_them(tmp_path):
    write(tmp_path, {"config.json": b"{}", "a/b": None, "c/d": b"", "e": None})
    os.mkfifo(tmp_path / "e/fifo")
    found = seen(tmp_path)
    assert found.manifest.folders == (b"a/b", b"e")
    assert found.manifest.all_folders == {b"a", b"a/b", b"c", b"e"}
    assert found.skipped == ((b"e/fifo", "a fifo"),)


def test_a_whole_model_passes(tmp_path):
    check(tmp_path, {"x.safetensors": safetensors(), "sub/y.safetensors": safetensors(b"")})


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"1234567",
        safetensors()[:-1],
        safetensors() + b"x",
        bytes(200),
        b"\xff" * 200,
        (2).to_bytes(8, "little") + b"[]",
        (9).to_bytes(8, "little") + b'{"a": {}}',
        (2).to_bytes(8, "little") + b"\xff\xff",
    ],
    ids=["empty", "seven", "cut", "longer", "zeros", "ones", "list", "no offsets", "no text"],
)
def test_a_safetensors_file_that_does_not_fit_its_header_is_damaged(tmp_path, data):
    error = failure(check, tmp_path, {"sub/x.safetensors": data})
    assert (error.code, error.file) == (4, b"sub/x.safetensors")


def test_a_shard_that_only_the_index_knows_is_named(tmp_path):
    files = {
        "sub/a.safetensors": safetensors(),
        "sub/m.safetensors.index.json": index("a.safetensors", "b.safetensors"),
    }
    error = failure(check, tmp_path, files)
    assert (error.code, error.file) == (4, b"sub/m.safetensors.index.json")
    assert "1 of 2" in error.message
    assert "b.safetensors" in error.message


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"weight_map": {"a": 1}}', b'{"weight_map": []}'])
def test_an_index_that_cannot_be_read_is_damaged(tmp_path, data):
    files = {"config.json": b"{}", "model.safetensors.index.json": data}
    assert failure(check, tmp_path, files).code == 4


def test_the_index_of_bin_files_counts_only_where_no_safetensors_replace_them(tmp_path):
    files = {"config.json": b"{}", "pytorch_model.bin.index.json": index("pytorch_model-1.bin")}
    assert failure(check, tmp_path / "a", files).code == 4
    check(tmp_path / "b", files | {"model.safetensors": safetensors()})


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_git_lfs_pointer_in_place_of_weights_is_damaged_and_the_message_tells_what_to_do(tmp_path, name):
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
    error = failure(check, tmp_path, {"config.json": b"{}", name: pointer})
    assert (error.code, error.file) == (4, name.encode())
    assert "git lfs pull" in error.message
