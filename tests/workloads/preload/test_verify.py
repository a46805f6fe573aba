"""--verify sha256 and --manifest-digest: what was published is what arrives, or nothing does."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

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
    tree,
    use_small_pieces,
    write,
)

TWO_WAYS = pytest.mark.parametrize("way", ["direct", "buffered"])


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use_small_pieces(monkeypatch)
    root = write(tmp_path / "source", MODEL | {"big.bin": BIG})
    publish(root, block_bytes=BLOCK)
    return root


def verified(source: Path, destination: Path, *flags: str) -> Result:
    return preload(source, destination, "--verify", "sha256", "--files", "all", *flags)


@TWO_WAYS
@pytest.mark.parametrize("streams", ["1", "7"])
@pytest.mark.parametrize("block", [4096, 8192, 3 * 4096, 8 << 20])
def test_good_data_passes_and_the_marker_says_how_far_it_was_verified(source, destination, way, streams, block):
    publish(source, block_bytes=block)
    result = verified(source, destination, "--write", way, "--parallel", streams)
    assert (result.code, result.termination["retries"], marker(destination)["verify"]) == (0, 0, "sha256")
    assert tree(destination) == tree(source)


@TWO_WAYS
@pytest.mark.parametrize(
    ("name", "at", "says"),
    [
        ("big.bin", 0, "block 0 (bytes 0 to 8192)"),
        ("big.bin", 3 * BLOCK + 8000, "block 3 (bytes 24576 to 32768)"),
        ("big.bin", len(BIG) - 1, f"block 6 (bytes 49152 to {len(BIG)})"),
        ("config.json", 5, "block 0 (bytes 0 to 23)"),
        (SHARDS[0], 10_000, "block 1 (bytes 8192 to "),
    ],
)
def test_a_flipped_byte_is_4_with_file_and_block_and_nothing_gets_the_final_name(
    source, destination, way, name, at, says
):
    flip(source / name, at)
    result = verified(source, destination, "--write", way)
    assert (result.code, result.file, result.termination["retries"]) == (4, name, 1)
    assert says in result.message
    assert not (destination / name).exists()
    assert not is_marked(destination)


def test_without_hashes_the_same_byte_is_not_found(source, destination):
    flip(source / "big.bin", 5)
    assert preload(source, destination, "--verify", "size").code == 0


@TWO_WAYS
def test_half_a_verified_copy_is_gone_on_with_block_by_block(source, destination, way):
    flip(source / "big.bin", len(BIG) - 1)
    first = verified(source, destination, "--write", way, "--parallel", "1")
    assert first.code == 4
    assert first.termination["copied_bytes"] >= len(BIG) // BLOCK * BLOCK
    (source / "big.bin").write_bytes(BIG)
    result = verified(source, destination, "--write", way)
    assert (result.code, result.termination["resumed_bytes"]) == (0, first.termination["copied_bytes"])
    assert tree(destination) == tree(source)


@pytest.mark.parametrize("level", ["none", "size"])
@pytest.mark.parametrize("state", ["complete", "half"])
def test_what_was_verified_less_is_not_believed_where_more_is_asked(source, destination, level, state):
    flip(source / "big.bin", 5)
    assert preload(source, destination, "--verify", level, "--files", "all").code == 0
    if state == "half":
        (destination / ".faststart/complete.json").unlink()
    result = verified(source, destination)
    others = result.termination["bytes"] - len(BIG)
    assert (result.code, result.file, result.termination["resumed_bytes"]) == (4, "big.bin", others)
    assert not is_marked(destination)
    (source / "big.bin").write_bytes(BIG)
    assert verified(source, destination).code == 0
    assert tree(destination) == tree(source)


def test_what_was_verified_more_is_enough_where_less_is_asked(source, destination):
    verified(source, destination)
    assert "already complete" in preload(source, destination, "--files", "all", "--verify", "size").message
    (destination / ".faststart/complete.json").unlink()
    again = preload(source, destination, "--files", "all", "--verify", "size")
    assert (again.code, again.termination["copied_bytes"]) == (0, 0)


def test_without_a_published_manifest_or_without_hashes_of_one_file_it_is_2(source, destination):
    document = publish(source)
    for item in document["files"]:
        if item["path"] == "tokenizer.json":
            item["blocks"] = item["block_bytes"] = None
    publish(source, files=document["files"])
    for file in ("tokenizer.json", "1_Pooling/config.json"):
        result = verified(source, destination)
        assert (result.code, result.file) == (2, file)
        assert "needs a published manifest with its block hashes" in result.message
        (source / ".faststart/manifest.json").unlink(missing_ok=True)
    assert not destination.exists()


def test_a_file_without_bytes_needs_no_hash(source, destination):
    write(source, {"nothing.txt": b""})
    publish(source)
    assert verified(source, destination).code == 0
    assert (destination / "nothing.txt").read_bytes() == b""


def test_the_right_manifest_digest_passes_and_another_or_none_is_8_and_touches_nothing(source, destination):
    data = (source / ".faststart/manifest.json").read_bytes()
    right = "sha256:" + hashlib.sha256(data).hexdigest()
    wrong = "sha256:" + "0" * 64
    result = preload(source, destination, "--manifest-digest", wrong)
    assert (result.code, result.message) == (8, f"--manifest-digest asks for {wrong}, the source has {right}")
    (source / ".faststart/manifest.json").unlink()
    result = preload(source, destination, "--manifest-digest", right)
    assert result.code == 8
    assert "the source has no published manifest" in result.message
    assert not destination.exists()
    write(source, {".faststart/manifest.json": data})
    assert preload(source, destination, "--manifest-digest", right).code == 0
    assert marker(destination)["manifest_digest"] == right


HASH = hashlib.sha256(b"{}").hexdigest()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"blocks": ["zz" * 32]}, "non-hexadecimal"),
        ({"blocks": [HASH[:-2]]}, "a block hash of config.json is no SHA-256"),
        ({"blocks": [HASH, HASH]}, "config.json has 2 block hashes for 2 bytes"),
        ({"blocks": []}, "config.json has 0 block hashes for 2 bytes"),
        ({"blocks": 3}, "is no manifest"),
        ({"blocks": [3]}, "is no manifest"),
        ({"blocks": [None]}, "is no manifest"),
        ({"blocks": HASH}, "is no manifest"),
        ({"block_bytes": 0}, "the block_bytes of config.json is 0"),
        ({"block_bytes": -4096}, "the block_bytes of config.json is -4096"),
        ({"block_bytes": 4095}, "the block_bytes of config.json is 4095"),
        ({"block_bytes": 4096.0}, "the block_bytes of config.json is 4096.0"),
        ({"block_bytes": True}, "the block_bytes of config.json is True"),
        ({"block_bytes": None}, "the block_bytes of config.json is None"),
    ],
    ids=str,
)
def test_hashes_in_a_manifest_that_make_no_sense_are_4_whatever_is_verified(tmp_path, changed: dict[str, Any], says):
    source = write(tmp_path / "source", {"config.json": b"{}"})
    item = publish(source)["files"][0] | changed
    publish(source, files=[item])
    for level in ("none", "sha256"):
        result = preload(source, tmp_path / "destination", "--verify", level)
        assert (result.code, result.file) == (4, ".faststart/manifest.json")
        assert says in result.message


def test_a_run_that_hashes_leaves_no_thread_behind(source, destination):
    before = set(threading.enumerate())
    assert verified(source, destination).code == 0
    left = set(threading.enumerate()) - before
    for thread in left:
        thread.join(10)
    assert not any(thread.is_alive() for thread in left)


def test_the_seconds_spent_on_hashes_are_told(source, destination):
    os.truncate(source / "big.bin", 20_000_000)
    publish(source)
    result = verified(source, destination)
    assert result.termination["verify_seconds"] > 0.001
    report = json.loads((destination / ".faststart/report.json").read_bytes())
    assert report["verify_seconds"] == result.termination["verify_seconds"]
