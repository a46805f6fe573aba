"""publish from a folder and in place: what is sealed, what is recognised, what is refused and left as it is."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfolder import manifest as manifests
from modelfolder import structure
from modelfolder.source import look
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from publish import program, publishing, sealing, staging
from publish.sealing import Hashing
from tests.workloads.publish.support import FIRST, MODEL, SECOND, manifest, publish
from tests.workloads.support import preload, tree, write
from tests.workloads.support import publish as seal


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", MODEL)


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "models/tiny/r1"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# what is sealed


def test_a_folder_is_sealed_with_a_manifest_that_says_what_it_is(source, destination):
    assert publish(source, destination).code == 0
    said = manifest(destination)
    content = {os.fsencode(path): data for path, data in MODEL.items() if data is not None}
    assert tree(destination) == content | {b"1_Pooling": "folder"}
    assert {key: said[key] for key in ("schema", "model", "revision", "source", "chosen", "pickle", "folders")} == {
        "schema": "faststart.dev/manifest/v1",
        "model": "tiny",
        "revision": "r1",
        "source": f"path:{source}",
        "chosen": ["auto"],
        "pickle": False,
        "folders": [],
    }
    assert said["architecture"] == "LlamaForCausalLM"
    assert said["licence"] == "apache-2.0"
    assert said["total_bytes"] == sum(map(len, content.values()))
    assert said["weights"]["format"] == "safetensors"
    assert said["weights"]["files"] == [FIRST, SECOND]
    assert said["weights"]["tensor_bytes"] == 11_443
    assert said["weights"]["dtypes"] == ["U8"]
    assert [file["path"] for file in said["files"]] == sorted(path.decode() for path in content)
    for file in said["files"]:
        data = content[file["path"].encode()]
        assert (file["size"], file["block_bytes"]) == (len(data), 8 << 20)
        assert file["blocks"] == ([sha256(data)] if data else [])


def test_nothing_but_the_model_and_its_manifest_is_left(source, destination):
    publish(source, destination)
    assert [path.name for path in (destination / ".faststart").iterdir()] == ["manifest.json"]
    assert [path.name for path in destination.parent.iterdir()] == ["r1"]
    assert destination.parent.parent.stat().st_mode & 0o777 == 0o755
    assert {path.stat().st_mode & 0o777 for path in destination.rglob("*") if path.is_dir()} == {0o755}
    assert {path.stat().st_mode & 0o777 for path in destination.rglob("*") if path.is_file()} == {0o644}


def test_what_is_sealed_is_copied_by_preload_against_its_hashes_and_found_good(source, destination, tmp_path, capsys):
    publish(source, destination)
    assert preload(destination, tmp_path / "copy", "--verify", "sha256").code == 0
    assert tree(tmp_path / "copy") == tree(destination)
    assert publish("--check", destination).code == 0
    assert "sealed, sha256:" in capsys.readouterr().err


def test_a_snapshot_of_a_hugging_face_cache_is_sealed_as_plain_files(tmp_path, destination):
    blobs = write(tmp_path / "cache/blobs", {f"b{n}": data for n, data in enumerate(MODEL.values())})
    snapshot = tmp_path / "cache/snapshots/abc"
    for number, path in enumerate(MODEL):
        link = snapshot / os.fsdecode(path)
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / f"b{number}", link.parent))
    assert publish(snapshot, destination).code == 0
    assert not [path for path in destination.rglob("*") if path.is_symlink()]
    assert publish(tmp_path / "cache", tmp_path / "other").code == 6


def test_only_what_was_asked_for_is_sealed(source, destination):
    write(source, {"original/consolidated.00.pth": b"x" * 99, "picture.png": b"png"})
    assert publish(source, destination).code == 0
    assert not (destination / "original").exists()
    assert not (destination / "picture.png").exists()


def test_model_and_revision_can_be_named(source, tmp_path):
    publish(source, tmp_path / "x", "--model", "llama", "--revision", "2025")
    assert (manifest(tmp_path / "x")["model"], manifest(tmp_path / "x")["revision"]) == ("llama", "2025")


# recognised


def test_a_sealed_folder_is_recognised_and_stays_as_it_is(source, destination):
    publish(source, destination)
    before = (destination / ".faststart/manifest.json").read_bytes()
    again = publish(source, destination)
    assert again.code == 0
    assert again.message["message"].startswith("already sealed: 8 files")
    assert again.message["resumed_bytes"] == again.message["bytes"] == manifest(destination)["total_bytes"]
    assert (destination / ".faststart/manifest.json").read_bytes() == before


def test_a_sealed_folder_stands_when_its_source_is_gone(source, destination, tmp_path):
    publish(source, destination)
    source.rename(tmp_path / "away")
    assert publish(source, destination).code == 0
    assert publish(tmp_path / "another", destination).code == 6


@pytest.mark.parametrize("change", ["content", "one more", "one less"])
def test_a_sealed_folder_stands_when_its_source_holds_something_else(source, destination, change):
    publish(source, destination)
    before = tree(destination)
    match change:
        case "content":
            write(source, {"config.json": MODEL["config.json"]})
        case "one more":
            write(source, {"vocab.json": b"{}"})
        case _:
            (source / "README.md").unlink()
    result = publish(source, destination)
    assert (result.code, tree(destination)) == (0, before)
    assert f"path:{source} holds something else now, which another revision would publish" in result.message["message"]


def test_an_address_that_goes_on_with_an_at_is_another_one(source, destination, tmp_path):
    shutil.copytree(source, tmp_path / "model@1")
    shutil.copytree(source, tmp_path / "model")
    assert publish(tmp_path / "model@1", destination).code == 0
    write(tmp_path / "model", {"config.json": MODEL["config.json"]})
    assert publish(tmp_path / "model", destination).code == 8


@pytest.mark.parametrize("change", ["another folder", "other files"])
def test_a_folder_that_was_sealed_from_something_else_is_8_and_stays(source, destination, tmp_path, change):
    publish(source, destination)
    before = tree(destination)
    if change == "another folder":
        result = publish(write(tmp_path / "other", MODEL), destination)
    else:
        result = publish(source, destination, "--files", "all")
    assert result.code == 8
    assert "publish it under another revision" in result.message["message"]
    assert tree(destination) == before


def test_a_sealed_folder_that_lost_a_file_is_4(source, destination):
    publish(source, destination)
    (destination / SECOND).unlink()
    result = publish(source, destination)
    assert (result.code, result.message["file"]) == (4, SECOND)


# in place


def test_a_folder_is_sealed_where_it_is(source):
    before = tree(source)
    inodes = {path: path.stat().st_ino for path in source.rglob("*")}
    assert publish("--in-place", source).code == 0
    assert tree(source) == before
    assert {path: path.stat().st_ino for path in inodes} == inodes
    assert manifest(source)["total_bytes"] == sum(len(data or b"") for data in MODEL.values())
    assert [path.name for path in (source / ".faststart").iterdir()] == ["manifest.json"]
    assert publish("--in-place", source).message["message"].startswith("already sealed")


def test_a_folder_that_changed_after_it_was_sealed_in_place_is_8(source):
    publish("--in-place", source)
    write(source, {"config.json": MODEL["config.json"]})
    assert publish("--in-place", source).code == 8


def forge(source: Path, **changed: Any) -> None:
    """Seal a folder as its author could: with a manifest that fits it, some of whose keys may be given."""
    found = look(os.fsencode(source), ["auto"], Patience(), by_manifest=False).manifest
    own: dict[str, Any] = {
        "model": source.parent.name,
        "revision": source.name,
        "source": f"path:{source}",
        "source_digest": found.digest,
        "chosen": ["auto"],
    }
    own.update(changed)
    seal(source, **own)


FORGED: list[tuple[str, Callable[[Path], object], dict[str, Any], list[str], int]] = [
    ("a pickle", lambda root: write(root, {"sparse_linear.pt": b"\x80\2N."}), {}, [], 7),
    (
        "an old pickle that --check reports",
        lambda root: write(root, {"sparse_linear.pt": b"N."}),
        {"pickle": True},
        [],
        7,
    ),
    ("too many bytes", lambda root: None, {}, ["--max-bytes", "100"], 8),
    ("a cut shard", lambda root: os.truncate(root / SECOND, 100), {}, [], 4),
    ("no tokenizer", lambda root: (root / "tokenizer.json").unlink(), {}, [], 4),
    ("a pointer", lambda root: write(root, {FIRST: structure.LFS_START}), {}, [], 4),
    ("another revision", lambda root: None, {"revision": "r0"}, [], 8),
    ("another model", lambda root: None, {"model": "other"}, [], 8),
    ("no file", lambda root: None, {"files": [], "total_bytes": 0}, [], 6),
    ("folders that are not there", lambda root: None, {"folders": ["a"]}, [], 8),
]


@pytest.mark.parametrize(
    ("spoil", "changed", "more", "code"), [one[1:] for one in FORGED], ids=[one[0] for one in FORGED]
)
def test_a_seal_that_came_with_a_folder_is_not_believed(source, spoil, changed, more, code):
    spoil(source)
    forge(source, **changed)
    before = tree(source)
    assert publish("--in-place", source, *more).code == code
    assert tree(source) == before


@pytest.mark.parametrize(("place", "code"), [("one block", 8), ("size", 4), ("hash of another file", 8)])
def test_a_seal_that_does_not_fit_the_files_is_refused(source, place, code):
    assert publish("--in-place", source).code == 0
    document = manifest(source)
    first, *_, last = document["files"]
    match place:
        case "one block":
            last["blocks"][0] = last["blocks"][0][::-1]
        case "size":
            first["size"], last["size"] = first["size"] - 1, last["size"] + 1
        case _:
            first["blocks"] = last["blocks"]
    write(source, {".faststart/manifest.json": json.dumps(document).encode()})
    assert publish("--in-place", source).code == code


@pytest.mark.parametrize("name", ["elsewhere", "other/model/.faststart"])
def test_a_seal_is_not_written_through_a_link_into_another_folder(source, tmp_path, name):
    target = write(tmp_path / name, {"manifest.json": b"precious"})
    (source / ".faststart").symlink_to(target)
    result = publish("--in-place", source)
    assert (result.code, result.message["file"]) == (10, str(source / ".faststart"))
    assert tree(target) == {b"manifest.json": b"precious"}


def test_a_folder_that_is_refused_in_place_is_left_as_it_was(source):
    os.truncate(source / SECOND, 100)
    assert publish("--in-place", source).code == 4
    assert not (source / ".faststart").exists()


def test_in_place_of_what_is_no_folder_is_6(tmp_path):
    assert publish("--in-place", tmp_path / "nothing").code == 6


# refused


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda root: write(root, {"a": b"x"}), 10, "holds 1 names and no manifest"),
        (lambda root: write(root.parent, {root.name: b"a file"}), 10, "is a file"),
        (lambda root: (write(root.parent / "else"), root.symlink_to(root.parent / "else")), 10, "is a link"),
    ],
    ids=["full", "file", "link"],
)
def test_a_destination_that_is_something_else_is_refused_and_left_as_it_is(source, destination, make, code, words):
    make(destination)
    before = tree(destination.parent)
    result = publish(source, destination)
    assert (result.code, words in result.message["message"]) == (code, True), result.message
    assert tree(destination.parent) == before


def test_an_empty_folder_becomes_the_model(source, destination):
    destination.mkdir(parents=True)
    assert publish(source, destination).code == 0


def test_a_damaged_model_is_refused_and_nothing_appears(source, destination):
    index = json.loads(MODEL["model.safetensors.index.json"] or b"")
    index["weight_map"]["d"] = SECOND
    write(source, {"model.safetensors.index.json": json.dumps(index).encode()})
    result = publish(source, destination)
    assert result.code == 4
    assert not destination.exists()


@pytest.mark.parametrize("data", [b"\x80\x02}q\x00.", b"\x80\x04\x95\x05"])
def test_a_pickle_is_7_unless_it_is_allowed_and_then_the_manifest_says_so(source, destination, data):
    write(source, {"sparse_linear.pt": data})
    result = publish(source, destination)
    assert (result.code, result.message["file"]) == (7, "sparse_linear.pt")
    assert not destination.exists()
    assert publish(source, destination, "--allow-pickle").code == 0
    assert manifest(destination)["pickle"] is True


def test_a_name_that_is_no_utf8_is_refused(source, destination):
    (Path(os.fsdecode(os.fsencode(source) + b"/\xff.json"))).write_bytes(b"{}")
    result = publish(source, destination)
    assert (result.code, "UTF-8" in result.message["message"]) == (4, True)


def test_a_model_that_is_too_large_is_8(source, destination):
    assert publish(source, destination, "--max-bytes", "100").code == 8
    assert publish("--in-place", source, "--max-bytes", "100").code == 8


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give SOURCE and DEST"),
        (["one"], "give SOURCE and DEST"),
        (["a", "b", "--in-place", "c"], "give SOURCE and DEST"),
        (["a", "b", "--check", "c"], "give SOURCE and DEST"),
        (["ftp://a/b", "d"], "a source is s3://, hf:// or a folder"),
        (["a", "s3://b/c"], "a source is s3://, hf:// or a folder"),
        (["a", "a"], "use --in-place"),
        (["a", "/"], "top folder"),
        (["a", "b", "--parallel", "0"], "between 1 and"),
        (["a", "b", "--wait", "soon"], "number of seconds"),
        (["a", "b", "--nonsense"], "--nonsense"),
    ],
)
def test_a_wrong_command_line_is_2_and_says_what_would_be_right(arguments, words):
    result = publish(*arguments)
    assert (result.code, words in result.message["message"]) == (2, True), result.message


def test_a_staging_folder_on_another_file_system_is_2(source, tmp_path, monkeypatch):
    real = os.stat

    def elsewhere(path: Any, *arguments: Any, **more: Any) -> os.stat_result:
        found = real(path, *arguments, **more)
        if os.fsencode(path).endswith(b"/far"):
            return os.stat_result((*found[:2], found.st_dev + 1, *found[3:]))
        return found

    (tmp_path / "far").mkdir()
    monkeypatch.setattr(publishing.os, "stat", elsewhere)
    result = publish(source, tmp_path / "d", "--staging", tmp_path / "far/staging")
    assert (result.code, "--staging" in result.message["message"]) == (2, True)


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, 3), (errno.EROFS, 7), (errno.EIO, 9)])
def test_a_manifest_that_cannot_be_written_is_no_traceback_and_nothing_appears(
    source, destination, monkeypatch, number, code
):
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(sealing, "write_manifest", fail)
    assert publish(source, destination).code == code
    assert not destination.exists()
    monkeypatch.undo()
    assert publish(source, destination).code == 0


# two at once


def test_a_second_publisher_waits_and_then_finds_it_sealed(source, destination, capfd):
    results = []
    threads = [threading.Thread(target=lambda: results.append(quietly(source, destination))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == [0, 0]
    assert publish("--check", destination).code == 0


def quietly(source: Path, destination: Path) -> int:
    """Publish as `main` does, in a thread, where there are no signals."""
    options = publishing.Options(
        source=str(source),
        destination=str(destination),
        staging=str(destination.parent / f".{destination.name}.staging"),
        model="tiny",
        revision="r1",
        files=("auto",),
        allow_pickle=False,
        max_bytes=None,
        parallel=4,
        token_file=None,
        wait=60,
        tries=1,
    )
    around = publishing.Surroundings(Patience(), lambda _: None, print, None, "/proc", "/sys")
    publishing.publish(options, around, publishing.PublishReport())
    return 0


def test_another_publisher_past_the_wait_is_5(source, destination):
    lock = destination.parent / ".r1.staging.lock"
    with staging.locked(str(lock), str(destination), 0, Patience(), lambda _: None):
        result = publish(source, destination, "--wait", "0")
    assert result.code == 5
    assert "another publisher works on it" in result.message["message"]
    assert not lock.exists()


def test_a_lock_file_that_its_owner_removed_meanwhile_is_not_believed(tmp_path):
    lock, waits = tmp_path / "lock", threading.Event()
    inside: list[bool] = []

    def second() -> None:
        with staging.locked(str(lock), "x", 60, Patience(), lambda _: waits.set()):
            inside.append(lock.exists())

    thread = threading.Thread(target=second)
    with staging.locked(str(lock), "x", 0, Patience(), lambda _: None):
        thread.start()
        assert waits.wait(10)
    thread.join()
    assert inside == [True]


# --check


def test_a_check_finds_each_way_in_which_a_folder_is_not_what_was_sealed(source, destination, capsys):
    publish(source, destination)
    (destination / FIRST).write_bytes((MODEL[FIRST] or b"")[:-1] + b"x")
    (destination / "README.md").unlink()
    os.truncate(destination / "tokenizer.json", 10)
    write(destination, {"late.json": b"{}"})
    result = publish("--check", destination)
    said = capsys.readouterr().out
    assert result.code == 4
    assert "it is not what was sealed" in result.message["message"]
    assert f"wrong   {FIRST}: 1 of 1 blocks do not have their hash, the first at byte 0" in said
    assert "wrong   README.md: is in the manifest and not in the folder" in said
    assert "wrong   tokenizer.json: has 10 bytes, the manifest says" in said
    assert "warning late.json: is not in the manifest" in said


def test_a_check_of_a_folder_that_was_not_sealed_judges_it_and_changes_nothing(source, capsys):
    before = tree(source)
    result = publish("--check", source)
    assert (result.code, "not sealed; vLLM would load 2 safetensors files" in result.message["message"]) == (0, True)
    write(source, {".faststart/manifest.json": b"{"})
    assert publish("--check", source).code == 4
    assert "is no manifest" in capsys.readouterr().out
    assert tree(source) == before


def test_a_check_says_which_files_are_pickles(source, capsys):
    write(source, {"sparse_linear.pt": b"\x80\x02}q\x00."})
    assert publish("--check", source).code == 0
    assert "warning sparse_linear.pt: is a Python pickle" in capsys.readouterr().out


# the manifest


NAMES = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda name: name not in (".", "..", ".faststart") and len(name.encode()) < 200
)


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.lists(NAMES, min_size=1, max_size=3).map("/".join),
        st.binary(max_size=40_000),
        max_size=6,
    ),
    st.sampled_from([4096, 8192]),
)
def test_any_tree_of_files_round_trips_and_any_flipped_byte_is_found(tmp_path_factory, files, block):
    files = {path: data for path, data in files.items() if not any(other.startswith(path + "/") for other in files)}
    root = tmp_path_factory.mktemp("tree") / "model"
    write(root, {**files, "config.json": MODEL["config.json"], FIRST: MODEL[FIRST], "tokenizer.json": b"{}"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "BLOCK_BYTES", block)
        source = look(os.fsencode(root), ["all"], Patience())
        hashes = Hashing(source.files, (), 2, Patience()).run()
    for file in source.files:
        data = Path(os.fsdecode(file.real)).read_bytes()
        pieces = [data[at : at + block] for at in range(0, len(data), block)]
        assert list(hashes[file.path].blocks) == [hashlib.sha256(piece).digest() for piece in pieces]
        assert hashes[file.path].block_bytes == block
    for file in source.files:
        if not file.size:
            continue
        path = Path(os.fsdecode(file.real))
        data = bytearray(path.read_bytes())
        at = int.from_bytes(hashlib.sha256(file.path).digest()[:8], "big") % len(data)
        data[at] ^= 1
        path.write_bytes(data)
        changed = look(os.fsencode(root), ["all"], Patience())
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(manifests, "BLOCK_BYTES", block)
            found = Hashing(changed.files, (), 2, Patience()).run()
        pairs = zip(hashes[file.path].blocks, found[file.path].blocks, strict=True)
        assert [number for number, (old, new) in enumerate(pairs) if old != new] == [at // block]


def test_the_sha256_of_a_whole_file_is_made_in_the_same_read(tmp_path):
    data = os.urandom(3 * (8 << 20) + 17)
    root = write(tmp_path / "m", {"config.json": b"{}", "big.bin": data})
    source = look(os.fsencode(root), ["all"], Patience())
    hashing = Hashing(source.files, {b"big.bin"}, 4, Patience())
    found = hashing.run()
    assert found[b"big.bin"].sha256 == sha256(data)
    assert len(found[b"big.bin"].blocks) == 4
    assert found[b"config.json"].sha256 is None
    assert hashing.done == len(data) + 2


@given(st.integers(min_value=0, max_value=1 << 50))
def test_a_file_of_any_size_has_at_most_16384_blocks_of_whole_pages(size):
    block = manifests.block_bytes(size)
    assert -(-size // block) <= 16_384
    assert block % (8 << 20) == 0
    assert block == 8 << 20 or -(-size // (block // 2)) > 16_384


def test_a_file_that_changes_while_it_is_hashed_is_8(tmp_path, monkeypatch):
    root = write(tmp_path / "m", {"config.json": b"{}", "big.bin": bytes(99_999)})
    source = look(os.fsencode(root), ["all"], Patience())
    os.truncate(root / "big.bin", 5)
    with pytest.raises(Exception, match="has changed while it was hashed") as error:
        Hashing(source.files, (), 2, Patience()).run()
    assert error.value.code == 8  # pyright: ignore[reportAttributeAccessIssue]


# Tries


class Ends:
    """In place of publishing: ends with one code after the other, then well."""

    def __init__(self, *codes: Exit):
        self.codes = list(codes)
        self.tries = 0

    def __call__(self, *_: object) -> None:
        self.tries += 1
        if self.codes:
            raise FaststartError(self.codes.pop(0), "it did not work", b"a file")


def tried(monkeypatch, tmp_path, ends: Ends, tries: int) -> tuple[int, list[float]]:
    naps: list[float] = []
    monkeypatch.setattr(program, "publish", ends)
    code = program.main([str(tmp_path), str(tmp_path / "to"), "--tries", str(tries)], sleep=naps.append)
    return code, naps


@pytest.mark.parametrize("code", program.AGAIN)
def test_what_another_try_can_help_is_tried_again_after_growing_pauses(monkeypatch, tmp_path, capsys, code):
    ends = Ends(code, code, code)
    ended, naps = tried(monkeypatch, tmp_path, ends, 4)

    assert (ended, ends.tries) == (0, 4)
    assert sum(naps) == pytest.approx(sum(program.PAUSES))
    assert "a file: it did not work; try 2 of 4 begins in 10 s" in capsys.readouterr().err


@pytest.mark.parametrize("code", program.AGAIN)
def test_the_last_try_ends_with_its_own_code(monkeypatch, tmp_path, code):
    ends = Ends(Exit.BUSY, code)
    assert tried(monkeypatch, tmp_path, ends, 2)[0] == code


@pytest.mark.parametrize("code", set(Exit) - {*program.AGAIN, Exit.DONE})
def test_what_another_try_would_meet_again_is_tried_once(monkeypatch, tmp_path, code):
    ends = Ends(code)
    assert tried(monkeypatch, tmp_path, ends, 4) == (code, [])


def test_a_stop_ends_the_pause_between_two_tries(monkeypatch, tmp_path):
    ends = Ends(Exit.NETWORK)
    monkeypatch.setattr(program, "publish", ends)

    def stop(_: float) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    assert program.main([str(tmp_path), str(tmp_path / "to"), "--tries", "4"], sleep=stop) == Exit.TERMINATED
    assert ends.tries == 1


@pytest.mark.parametrize("number", ["0", "-1", "many", ""])
def test_a_number_of_tries_that_is_none_is_refused(tmp_path, number):
    assert publish(tmp_path, tmp_path / "to", "--tries", number).code == Exit.USAGE


@pytest.mark.parametrize("how", ["copied", "in place", "checked"])
def test_a_model_without_a_tokenizer_is_refused_unless_it_is_served_without(source, destination, how):
    (source / "tokenizer.json").unlink()
    asked = {"copied": (source, destination), "in place": ("--in-place", source), "checked": ("--check", source)}[how]
    result = publish(*asked)
    assert (result.code, "--tokenizer none" in result.message["message"]) == (4, True)
    assert publish(*asked, "--tokenizer", "required").code == 4
    assert publish(*asked, "--tokenizer", "none").code == 0
    assert publish(*asked, "--tokenizer", "maybe").code == 2


def test_a_tokenizer_that_is_there_is_held_to_its_format_also_where_none_is_required(source, destination):
    write(source, {"tokenizer.json": b'{"version": '})
    assert publish(source, destination, "--tokenizer", "none").code == 4
