"""publish --remove: what is deleted, what is refused and left as it is, and that any end of it can be gone on from."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from modelfolder.manifest import digest
from podkit.display import size
from podkit.errors import FaststartError
from podkit.patience import Patience
from podkit.surroundings import Surroundings
from publish import removing, staging
from publish.options import Removal
from publish.report import PublishReport
from tests.workloads.publish.support import MODEL, publish, safetensors, start
from tests.workloads.support import publish as seal
from tests.workloads.support import tree, write

SMALL: dict[str | bytes, bytes | None] = {
    "config.json": MODEL["config.json"],
    "tokenizer.json": b"{}",
    "model.safetensors": safetensors(a=b"1"),
    "a/b/x.txt": b"x",
}
MANIFEST = ".faststart/manifest.json"


@pytest.fixture
def sealed(tmp_path: Path) -> Path:
    """A sealed folder; nothing else lies beside it."""
    folder = tmp_path / "models/tiny/r1"
    assert publish(write(tmp_path / "source", MODEL), folder).code == 0
    return folder


def everything(root: Path) -> dict[Path, bytes | str]:
    """Return each path below a folder with its content, links unfollowed; our own folders too."""
    found: dict[Path, bytes | str] = {}
    for path in root.rglob("*"):
        found[path] = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
    return found


def own_os(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Give what removes an `os` of its own, which may be altered."""
    system = SimpleNamespace(**vars(os))
    for module in (removing, removing.files):
        monkeypatch.setattr(module, "os", system)
    return system


# what is deleted


def test_a_sealed_folder_goes_and_nothing_else(sealed, tmp_path):
    publish(tmp_path / "source", sealed.parent / "r2")
    before = everything(sealed.parent / "r2")
    total = sum(len(data or b"") for data in MODEL.values())

    result = publish("--remove", sealed)

    assert result.code == 0
    assert [path.name for path in sealed.parent.iterdir()] == ["r2"]
    assert everything(sealed.parent / "r2") == before
    assert result.message["message"].startswith(f"removed {sealed}, 8 files, {size(total)}: sha256:")
    assert {key: result.message[key] for key in ("model", "revision", "bytes")} == {
        "model": "tiny",
        "revision": "r1",
        "bytes": total,
    }


def test_it_can_be_published_again(sealed, tmp_path):
    publish("--remove", sealed)
    assert publish(tmp_path / "source", sealed).code == 0
    assert publish("--check", sealed).code == 0


def test_its_name_is_gone_and_that_is_on_disk_before_the_first_file_is(sealed, monkeypatch):
    calls: list[str] = []
    system = own_os(monkeypatch)

    def note(name: str) -> None:
        real = getattr(os, name)

        def call(*arguments: Any, **more: Any) -> Any:
            done = real(*arguments, **more)
            calls.append(name)
            assert name != "unlink" or not sealed.exists()
            return done

        setattr(system, name, call)

    for name in ("rename", "fsync", "unlink", "rmdir"):
        note(name)
    assert publish("--remove", sealed).code == 0
    assert calls[:3] == ["rename", "fsync", "unlink"]
    assert calls.count("unlink") == len([*MODEL, MANIFEST])
    assert calls[-1] == "fsync"


def test_no_link_is_followed(sealed, tmp_path):
    outside = write(tmp_path / "outside", SMALL)
    before = everything(outside)
    (sealed / "folder").symlink_to(outside)
    (sealed / "file").symlink_to(outside / "config.json")
    (sealed / "1_Pooling/up").symlink_to("../../..")
    assert publish("--remove", sealed).code == 0
    assert everything(outside) == before
    assert list(sealed.parent.iterdir()) == []


def test_a_folder_with_the_digest_that_was_asked_for_goes_and_one_with_another_is_8(sealed):
    real, other = digest((sealed / MANIFEST).read_bytes()), "sha256:" + "0" * 64
    before = everything(sealed.parent)
    result = publish("--remove", sealed, "--manifest-digest", other)
    assert (result.code, f"digest {real}, asked for is {other}" in result.message["message"]) == (8, True)
    assert everything(sealed.parent) == before
    assert publish("--remove", sealed, "--manifest-digest", real).code == 0
    assert not sealed.exists()


# refused


@pytest.mark.parametrize(
    ("make", "code", "words"),
    [
        (lambda root: write(root, {"a": b"x"}), 10, "has no manifest"),
        (lambda root: root.mkdir(parents=True), 10, "has no manifest"),
        (lambda root: write(root, {".faststart/lock": b""}), 10, "has no manifest"),
        (lambda root: write(root.parent, {root.name: b"a file"}), 10, "has no manifest"),
        (lambda root: write(root, {MANIFEST: b"{}"}), 4, "is no manifest"),
    ],
    ids=["full", "empty", "copied", "file", "damaged"],
)
def test_what_publishing_did_not_seal_is_refused_and_left_as_it_is(destination, make, code, words):
    folder = destination / "r1"
    make(folder)
    before = everything(destination)
    result = publish("--remove", folder)
    assert (result.code, words in result.message["message"]) == (code, True), result.message
    assert everything(destination) == before


def test_a_link_to_a_sealed_folder_is_refused_and_both_stay(sealed):
    link = sealed.parent / "latest"
    link.symlink_to("r1")
    before = everything(sealed.parent)
    for named in (str(link), f"{link}/"):
        result = publish("--remove", named)
        assert (result.code, "is a link" in result.message["message"]) == (10, True)
    assert everything(sealed.parent) == before


def test_a_folder_that_was_sealed_in_place_is_somebody_s_own_and_refused(tmp_path):
    folder = write(tmp_path / "models/own", MODEL)
    publish("--in-place", folder)
    before = everything(tmp_path)
    result = publish("--remove", folder)
    assert (result.code, "sealed in place" in result.message["message"]) == (10, True)
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", ["models/nothing", "models/no/thing", "file/below"])
def test_what_is_not_there_is_6_and_nothing_is_made(tmp_path, name):
    write(tmp_path, {"models": None, "file": b""})
    before = everything(tmp_path)
    assert publish("--remove", tmp_path / name).code == 6
    assert everything(tmp_path) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--remove", "a", "--check", "b"], "give SOURCE and DEST"),
        (["--remove", "a", "b", "c"], "give SOURCE and DEST"),
        (["--remove", "/"], "top folder"),
        (["a", "b", "--manifest-digest", "sha256:0"], "is for --remove"),
    ],
)
def test_a_wrong_command_line_is_2_and_says_what_would_be_right(arguments, words):
    result = publish(*arguments)
    assert (result.code, words in result.message["message"]) == (2, True), result.message


@pytest.mark.parametrize("flags", [[], ["--staging", "elsewhere/r1"]], ids=["beside it", "elsewhere"])
def test_a_folder_that_a_publisher_works_on_is_5_at_once_and_stays(sealed, tmp_path, monkeypatch, flags):
    monkeypatch.chdir(tmp_path)
    lock = tmp_path / "elsewhere/.r1.lock" if flags else sealed.parent / ".r1.staging.lock"
    with staging.locked(str(lock), str(sealed), 0, Patience(), lambda _: None):
        before = everything(sealed)
        result = publish("--remove", sealed, *flags)
        assert (result.code, "after 0 s" in result.message["message"]) == (5, True)
        assert everything(sealed) == before
    assert publish("--remove", sealed, *flags).code == 0
    assert not lock.exists()


@pytest.mark.parametrize("change", [False, True], ids=["as it was", "something else since"])
def test_a_publisher_is_waited_for_if_that_is_asked_for_and_the_folder_is_looked_at_again(sealed, change):
    lock, waits = sealed.parent / ".r1.staging.lock", threading.Event()
    codes: list[int] = []

    def second() -> None:
        report = PublishReport()
        around = Surroundings(Patience(), lambda _: waits.set(), print, None, "/proc", "/sys")
        try:
            removing.remove(removal(sealed, wait=60), around, report)
        except FaststartError as error:
            report.fail(error)
        codes.append(report.code)

    thread = threading.Thread(target=second)
    with staging.locked(str(lock), str(sealed), 0, Patience(), lambda _: None):
        thread.start()
        assert waits.wait(10)
        assert sealed.exists()
        if change:
            (sealed / MANIFEST).unlink()
    thread.join()
    assert codes == [10 if change else 0]
    assert sealed.exists() == change


def removal(folder: Path, wait: float = 0) -> Removal:
    return Removal(str(folder), str(folder.parent / f".{folder.name}.staging"), None, wait)


# gone on with


def test_what_a_removal_left_is_removed_alone_and_with_a_folder_that_was_published_since(sealed, tmp_path):
    left = sealed.parent / ".r1.removed"
    sealed.rename(left)
    (left / "config.json").unlink()
    result = publish("--remove", sealed)
    assert (result.code, "interrupted" in result.message["message"]) == (0, True)
    assert list(sealed.parent.iterdir()) == []

    publish(tmp_path / "source", left)
    publish(tmp_path / "source", sealed)
    result = publish("--remove", sealed)
    assert (result.code, "8 files" in result.message["message"]) == (0, True)
    assert list(sealed.parent.iterdir()) == []


@pytest.mark.parametrize("own", [None, {}, {".faststart": None}], ids=["nothing", "empty", "the way to the manifest"])
def test_the_last_steps_of_a_removal_are_gone_on_with(tmp_path, own):
    if own is not None:
        write(tmp_path / ".r1.removed", own)
    assert publish("--remove", tmp_path / "r1").code == (6 if own is None else 0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "make",
    [
        lambda left: write(left, {"a": b"somebody's"}),
        lambda left: write(left, {".faststart/other": b"somebody's"}),
        lambda left: write(left.parent, {left.name: b"a file"}),
        lambda left: left.symlink_to("r1"),
    ],
    ids=["full", "other", "file", "link"],
)
def test_what_has_that_name_and_was_not_left_by_a_removal_is_refused_and_left_as_it_is(sealed, make):
    left = sealed.parent / ".r1.removed"
    make(left)
    before = everything(sealed.parent)
    result = publish("--remove", sealed)
    assert (result.code, result.message["file"]) == (10, str(left))
    assert everything(sealed.parent) == before


@pytest.mark.parametrize(("number", "code"), [(errno.EACCES, 7), (errno.EIO, 9)])
@pytest.mark.parametrize("step", ["rename", "unlink", "rmdir", "fsync"])
def test_an_error_of_the_file_system_is_no_traceback_and_the_next_run_finishes(sealed, monkeypatch, step, number, code):
    def fail(*arguments: Any, **more: Any) -> None:
        raise OSError(number, os.strerror(number))

    setattr(own_os(monkeypatch), step, fail)
    result = publish("--remove", sealed)
    monkeypatch.undo()
    assert (result.code, result.message["file"]) == (code, str(sealed))
    assert publish("--remove", sealed).code == 0
    assert list(sealed.parent.iterdir()) == []


class Stopping(Patience):
    """Is told to stop at a given check."""

    def __init__(self, at: int):
        super().__init__()
        self._left = at

    def check(self) -> None:
        self._left -= 1
        if self._left <= 0:
            self.stopped = True
        super().check()


NAMES = st.sampled_from(["a", "b", ".faststart", "manifest.json", "\udcff", "config.json"])


@settings(max_examples=40, deadline=None)
@given(st.sets(st.lists(NAMES, min_size=1, max_size=3).map("/".join), max_size=6), st.integers(1, 20))
def test_stopped_anywhere_a_folder_of_any_files_is_there_whole_or_gone_and_the_next_run_finishes(
    tmp_path_factory, paths, at
):
    root = tmp_path_factory.mktemp("tree")
    folder = write(root / "r1", SMALL)
    seal(folder)
    for path in paths:
        target = folder / path
        if not path.startswith(".faststart") and not target.is_dir() and not any(map(Path.is_file, target.parents)):
            write(folder, {path: b"late"})
    before = everything(folder)
    patience = Stopping(at)
    try:
        around = Surroundings(patience, lambda _: None, print, None, "/proc", "/sys")
        removing.remove(removal(folder), around, PublishReport())
    except FaststartError as error:
        assert (error.code, "finishes" in error.message) == (143, True)  # noqa: PT017 - it may also end well
        assert not folder.exists() or everything(folder) == before
        there = list(root.iterdir())
        assert publish("--remove", folder).code == (0 if there else 6)
    assert list(root.iterdir()) == []


MORTAL = """
import itertools
at, numbers = int(os.environ["KILL_AT"]), itertools.count(1)
def mortal(name):
    real = getattr(os, name)
    def call(*arguments, **more):
        if next(numbers) == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    setattr(os, name, call)
for name in ("rename", "unlink", "rmdir", "fsync"):
    mortal(name)
"""


@pytest.mark.processes
def test_killed_before_any_change_of_the_file_system_it_is_there_whole_or_gone_and_the_next_run_finishes(tmp_path):
    source, folder = write(tmp_path / "source", SMALL), tmp_path / "models/r1"
    at = 1
    while True:
        assert publish(source, folder, "--files", "all").code == 0
        before = everything(folder)
        process = start("--remove", folder, before=MORTAL, environment={"KILL_AT": str(at)})
        said = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == -signal.SIGKILL, said
        assert not folder.exists() or everything(folder) == before, at
        left = folder.exists() or (folder.parent / ".r1.removed").exists()
        assert publish("--remove", folder).code == (0 if left else 6), at
        assert [path for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [], at
        at += 1
    assert at > 15


HANG = """
import time
from publish import removing
def hanging(*_, **__):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.processes
@pytest.mark.parametrize("where", ["removing._sealed", "removing.files.remove"])
def test_sigterm_ends_it_within_a_second_with_143_and_the_next_run_finishes(sealed, where):
    process = start("--remove", sealed, before=f"{HANG}\n{where} = hanging\n")
    assert process.stdout
    assert process.stdout.readline() == "begun\n"
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 143, said
    assert "started again, it finishes" in said
    assert time.monotonic() - sent < 1.5, "one second, and a share for a busy machine"
    assert publish("--remove", sealed).code == 0
    assert list(sealed.parent.iterdir()) == []


@pytest.mark.processes
def test_sigterm_in_the_midst_of_the_deletion_leaves_what_the_next_run_finishes(sealed):
    before = """
import time
real = os.unlink
def slow(*arguments, **more):
    print("begun", flush=True)
    time.sleep(0.05)
    return real(*arguments, **more)
os.unlink = slow
"""
    process = start("--remove", sealed, before=before)
    assert process.stdout
    for _ in range(4):
        process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 143, said
    assert not sealed.exists()
    assert tree(sealed.parent / ".r1.removed")
    assert publish("--remove", sealed).code == 0
    assert list(sealed.parent.iterdir()) == []
