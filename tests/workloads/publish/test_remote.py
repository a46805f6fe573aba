"""publish from a remote place: what is fetched, what an earlier run left, what is refused. The place is a stand-in."""

from __future__ import annotations

import errno
import hashlib
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lab.loopback.hub import hub_here
from podkit.errors import Exit, FaststartError
from publish import publishing, staging
from publish.remote import Listing, RemoteFile, listed
from tests.workloads.publish.support import FIRST, MODEL, SECOND, manifest, publish
from tests.workloads.support import tree

ADDRESS = "s3://bucket/tiny"
CONTENT = {os.fsencode(path): data for path, data in MODEL.items() if data is not None}


class Shelf:
    """A remote place that holds files in memory.

    Attributes:
        files: content by path.
        fetched: the paths that were fetched into the staging folder, in order; not what was only read to choose.
        before: called with a path before it is fetched.
        told: how the SHA-256 of a content is told; None, it is not.
    """

    def __init__(self, files: dict[bytes, bytes] | None = None):
        self.files = dict(CONTENT if files is None else files)
        self.fetched: list[bytes] = []
        self.before: Callable[[bytes], object] = lambda _: None
        self.told: Callable[[bytes], str] | None = None
        self.lasting = False
        self.error: FaststartError | None = None
        self._lock = threading.Lock()

    def listing(self) -> Listing:
        if self.error:
            raise self.error
        files = [
            RemoteFile(path, len(data), hashlib.md5(data).hexdigest(), self.told and self.told(data))
            for path, data in self.files.items()
        ]
        return Listing(ADDRESS, listed(files), (), "mit", self.lasting)

    def fetch(self, file: RemoteFile, folder: str, progress: Callable[[int], None]) -> str:
        if ".staging" in folder:
            self.before(file.path)
            with self._lock:
                self.fetched.append(file.path)
        target = Path(folder) / "data"
        target.write_bytes(self.files[file.path])
        progress(file.size)
        return str(target)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    place = Shelf()
    monkeypatch.setattr(publishing, "open_s3", lambda *_: place)
    return place


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "models/tiny/r1"


def stage(destination: Path) -> Path:
    return destination.parent / f".{destination.name}.staging"


def test_all_that_was_chosen_is_fetched_once_and_sealed(shelf, destination):
    shelf.files |= {b"original/consolidated.00.pth": b"x" * 99}
    result = publish(ADDRESS, destination)
    assert result.code == 0
    assert {path: data for path, data in tree(destination).items() if data != "folder"} == CONTENT
    said = manifest(destination)
    assert (said["source"], said["licence"]) == (ADDRESS, "mit")
    assert sorted(set(shelf.fetched)) == sorted(CONTENT)
    assert result.message["copied_bytes"] == sum(map(len, CONTENT.values()))
    assert [path.name for path in destination.parent.iterdir()] == ["r1"]


def test_the_largest_files_come_first(shelf, destination):
    publish(ADDRESS, destination, "--parallel", "1", "--files", "all")
    assert shelf.fetched == sorted(CONTENT, key=lambda path: -len(CONTENT[path]))


@pytest.mark.parametrize("at", sorted(CONTENT), ids=os.fsdecode)
def test_after_an_error_at_any_file_the_next_run_fetches_what_is_missing_and_no_more(shelf, destination, at):
    def fail(path: bytes) -> None:
        if path == at:
            raise FaststartError(Exit.NETWORK, "the line is cut", path)

    shelf.before = fail
    first = publish(ADDRESS, destination, "--parallel", "1", "--files", "all")
    assert (first.code, first.message["file"]) == (11, os.fsdecode(at))
    assert not destination.exists()
    done, shelf.fetched = list(shelf.fetched), []
    shelf.before = lambda _: None
    second = publish(ADDRESS, destination, "--parallel", "1", "--files", "all")
    assert second.code == 0
    assert sorted(done + shelf.fetched) == sorted(CONTENT)
    assert second.message["resumed_bytes"] == sum(len(CONTENT[path]) for path in done)


def interrupted(shelf: Shelf, destination: Path) -> Path:
    """Fetch all but one file; return the staging folder."""

    def fail(path: bytes) -> None:
        if path == b"README.md":
            raise FaststartError(Exit.NETWORK, "the line is cut", path)

    shelf.before = fail
    assert publish(ADDRESS, destination, "--parallel", "1").code == 11
    shelf.before, shelf.fetched = lambda _: None, []
    return stage(destination)


def test_nothing_that_lies_in_the_staging_folder_is_believed_by_its_name_and_size(shelf, destination):
    staged = interrupted(shelf, destination)
    data = (staged / FIRST).read_bytes()
    status = (staged / FIRST).stat()
    (staged / FIRST).write_bytes(data[::-1])
    os.utime(staged / FIRST, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert publish(ADDRESS, destination).code == 0
    assert (destination / FIRST).read_bytes() == data
    assert FIRST.encode() in shelf.fetched


@pytest.mark.parametrize(
    "rubbish", [b"", b"\xff\x00{", b"[1, 2]\n", b'["config.json", "x", [1, 2, 3, 4]]\n', b"null\n"]
)
def test_a_torn_or_strange_journal_costs_a_new_fetch_and_never_a_traceback(shelf, destination, rubbish):
    staged = interrupted(shelf, destination)
    (staged / ".faststart/fetched.jsonl").write_bytes(rubbish)
    assert publish(ADDRESS, destination).code == 0
    assert sorted(set(shelf.fetched)) == sorted(CONTENT)


def test_what_does_not_belong_in_the_staging_folder_is_gone_in_the_end(shelf, destination):
    staged = interrupted(shelf, destination)
    (staged / "stray/inner").mkdir(parents=True)
    (staged / "stray/inner/file").write_bytes(b"x")
    (staged / "link").symlink_to("/")
    (staged / ".faststart/manifest.json").write_bytes(b"an old one")
    (staged / ".faststart/fetch/old/deep").mkdir(parents=True)
    assert publish(ADDRESS, destination).code == 0
    assert {path for path, data in tree(destination).items() if data != "folder"} == set(CONTENT)
    assert [path.name for path in (destination / ".faststart").iterdir()] == ["manifest.json"]


def test_a_file_that_changed_between_two_runs_is_fetched_anew_and_the_others_are_not(shelf, destination):
    interrupted(shelf, destination)
    shelf.files[b"tokenizer.json"] = b'{"version": "2.0"}'
    assert publish(ADDRESS, destination).code == 0
    assert (destination / "tokenizer.json").read_bytes() == b'{"version": "2.0"}'
    assert FIRST.encode() not in shelf.fetched


def test_a_place_that_changes_while_it_is_fetched_is_8_and_nothing_appears(shelf, destination):
    shelf.before = lambda path: path == FIRST.encode() and shelf.files.update({b"new.json": b"{}"})
    result = publish(ADDRESS, destination)
    assert result.code == 8
    assert not destination.exists()


def test_a_place_whose_address_lasts_is_asked_once(shelf, destination):
    shelf.lasting = True
    shelf.before = lambda path: path == FIRST.encode() and shelf.files.update({b"new.json": b"{}"})
    assert publish(ADDRESS, destination).code == 0


def test_a_sealed_model_stands_when_its_place_holds_something_else_or_cannot_be_asked(shelf, destination, capsys):
    publish(ADDRESS, destination)
    sealed = tree(destination)
    shelf.files[b"config.json"] += b" "
    result = publish(ADDRESS, destination)
    assert (result.code, tree(destination)) == (0, sealed)
    assert f"{ADDRESS} holds something else now, which another revision would publish" in result.message["message"]
    assert publish("s3://bucket/other", destination).code == 8
    for code in (Exit.NETWORK, Exit.NO_MODEL, Exit.NOT_PERMITTED):
        shelf.error = FaststartError(code, "nobody answers")
        assert publish(ADDRESS, destination).code == 0
        assert "what is sealed stands without it: nobody answers" in capsys.readouterr().err
    assert publish(f"{ADDRESS}/", destination).code == 0, "the slash means nothing"
    assert publish("s3://bucket/other", destination).code == int(Exit.NOT_PERMITTED)
    shelf.error = FaststartError(Exit.USAGE, "no library")
    assert publish(ADDRESS, destination).code == 2


def test_content_without_the_sha256_that_its_place_tells_is_4_and_fetched_anew_by_the_next_run(shelf, destination):
    shelf.told = lambda data: hashlib.sha256(data if data != CONTENT[SECOND.encode()] else b"").hexdigest()
    result = publish(ADDRESS, destination)
    assert (result.code, result.message["file"]) == (4, SECOND)
    assert not destination.exists()
    shelf.told, shelf.fetched = lambda data: hashlib.sha256(data).hexdigest(), []
    assert publish(ADDRESS, destination).code == 0
    assert SECOND.encode() in shelf.fetched
    assert FIRST.encode() not in shelf.fetched
    sha256 = {file["path"]: file["sha256"] for file in manifest(destination)["files"]}
    assert sha256[SECOND] == hashlib.sha256(CONTENT[SECOND.encode()]).hexdigest()


def test_a_disk_without_room_is_3_before_anything_is_fetched(shelf, destination, monkeypatch):
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((4096, 4096, 10, 1, 1, 10, 10, 10, 0, 255)))
    result = publish(ADDRESS, destination, "--files", "all")
    assert (result.code, "too little" in result.message["message"]) == (3, True)
    assert shelf.fetched == []


@pytest.mark.parametrize("mark", [".aria2", ".part", ".crdownload", ".!qB", ".st"])
def test_a_file_with_the_mark_of_an_unfinished_download_is_4_before_anything_is_fetched(shelf, destination, mark):
    shelf.files[SECOND.encode() + mark.encode()] = b"state"
    result = publish(ADDRESS, destination)
    assert (result.code, result.message["file"]) == (4, SECOND)
    assert shelf.fetched == []


def test_a_model_that_is_too_large_is_8_before_anything_is_fetched(shelf, destination):
    assert publish(ADDRESS, destination, "--max-bytes", "100", "--files", "all").code == 8
    assert shelf.fetched == []


@pytest.mark.parametrize(
    ("call", "number", "code"),
    [("rename", errno.ENOSPC, 3), ("fsync", errno.EIO, 9), ("makedirs", errno.EACCES, 7), ("fchmod", errno.EDQUOT, 3)],
)
def test_a_disk_that_fails_is_no_traceback_and_the_next_run_completes(
    shelf, destination, monkeypatch, call, number, code
):
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(staging.os, call, fail)
    assert publish(ADDRESS, destination).code == code
    assert not destination.exists()
    monkeypatch.undo()
    monkeypatch.setattr(publishing, "open_s3", lambda *_: shelf)
    assert publish(ADDRESS, destination).code == 0


@pytest.mark.parametrize(
    "files",
    [
        {b"../evil": b"x"},
        {b"/etc/passwd": b"x"},
        {b"./config.json": b"x"},
        {b"a//b": b"x"},
        {b"a": b"x", b"a/b": b"x"},
        {b"a/../../b": b"x"},
    ],
    ids=lambda files: str(list(files)),
)
def test_names_that_leave_the_folder_or_collide_are_4_and_nothing_is_fetched(shelf, destination, files):
    shelf.files |= files
    assert publish(ADDRESS, destination, "--files", "all").code == 4
    assert shelf.fetched == []
    assert not destination.exists()


def test_a_model_sealed_from_a_branch_stands_when_that_moves_and_is_8_when_another_commit_or_repository_is_asked_for(
    tmp_path, destination
):
    files = {str(path): data for path, data in MODEL.items() if data is not None}
    with hub_here(tmp_path / "home") as hub:
        first = hub.add("org/tiny", files)
        hub.add("org/other", {**files, "README.md": b"# Other"})
        assert publish("hf://org/tiny@main", destination).code == 0
        sealed = tree(destination)
        second = hub.add("org/tiny", {**files, "README.md": b"# Newer"})
        for address in ("hf://org/tiny@main", "hf://org/tiny"):
            result = publish(address, destination)
            assert result.code == 0
            assert (
                f"main of hf://org/tiny is another commit now; what is sealed stands: hf://org/tiny@{first}"
                in (result.message["message"])
            )
        assert publish(f"hf://org/tiny@{first}", destination).code == 0
        assert publish(f"hf://org/tiny@{second}", destination).code == 8
        assert publish("hf://org/other@main", destination).code == 8

    assert tree(destination) == sealed


LONG = b"n" * 256


@pytest.mark.parametrize(
    "path",
    [
        LONG,
        LONG + b".safetensors",
        LONG + b"/config.json",
        b"a/" + LONG + b"/b.json",
        "ü".encode() * 128,
        "日本".encode() * 43,
        b"/".join([b"n" * 255] * 16),
    ],
    ids=lambda path: str(len(path)),
)
def test_a_name_that_no_file_system_takes_is_4_before_anything_is_fetched(shelf, destination, path):
    shelf.files[path] = b"1"
    ended = publish(ADDRESS, destination, "--files", "all")
    assert ended.code == 4
    first, _, rest = ended.message["file"].partition(" ... ")  # of 1 KiB at the most, without its middle
    assert path.decode().startswith(first)
    assert path.decode().endswith(rest.rpartition(" ... ")[2])
    assert "bytes, and file systems take " in ended.message["message"]
    assert (shelf.fetched, stage(destination).exists(), destination.exists()) == ([], False, False)


@pytest.mark.parametrize("path", [LONG + b".png", LONG + b"/x.md", b"original/" + LONG, b"images/" + LONG + b".pdf"])
def test_a_name_that_no_file_system_takes_and_that_is_left_out_is_no_matter(shelf, destination, path):
    shelf.files[path] = b"1"
    chosen = [os.fsdecode(name) for name in CONTENT]
    assert publish(ADDRESS, destination, "--files", *chosen).code == 0


@pytest.mark.parametrize("path", [b"n" * 255, b"d" * 255 + b"/" + b"n" * 255, "ü".encode() * 127, b"a/" * 99 + b"x"])
def test_a_name_as_long_as_a_file_system_takes_is_published(shelf, destination, path):
    shelf.files[path] = b"1"
    assert publish(ADDRESS, destination, "--files", "all").code == 0
    assert tree(destination)[path] == b"1"
