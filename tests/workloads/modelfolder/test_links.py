"""Links of a model folder are followed where they end inside it, and nowhere else, whatever moves meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from modelfolder import source as sources
from modelfolder.source import look, open_regular, open_source
from podkit.errors import FaststartError
from podkit.patience import Patience
from tests.workloads.publish.support import MODEL, publish
from tests.workloads.support import preload, tree, write
from tests.workloads.support import publish as seal

pytestmark = pytest.mark.inputs

SECRET = b'{"password": "hidden"}'


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path, {"secret.json": SECRET, "source2/config.json": SECRET, "out/deep/secret.json": SECRET})
    return write(tmp_path / "source", MODEL)


def link(path: str, target: str) -> Callable[[Path], None]:
    def make(source: Path) -> None:
        write(source, {str(Path(path).parent): None})
        (source / path).symlink_to(target.replace("TOP", str(source.parent)))

    return make


def chain(source: Path) -> None:
    (source / "first.json").symlink_to("second.json")
    (source / "second.json").symlink_to("../secret.json")


def through_a_folder(source: Path) -> None:
    (source / "sub").symlink_to("../out")
    (source / "chained.json").symlink_to("sub/deep/secret.json")


def out_and_in_again_and_out(source: Path) -> None:
    (source / "added.json").symlink_to("../source/../secret.json")


LEAVING: dict[str, Callable[[Path], None]] = {
    "beside the folder": link("extra.json", "../secret.json"),
    "an absolute one": link("extra.json", "TOP/secret.json"),
    "to a folder that begins with the same name": link("extra.json", "../source2/config.json"),
    "to the folder above": link("sub/up", "TOP"),
    "a folder": link("more", "../out"),
    "to the top of the file system": link("more", "/"),
    "by way of another link": chain,
    "by way of a folder": through_a_folder,
    "out and in again": out_and_in_again_and_out,
    "to proc": link("extra.json", "/proc/self/environ"),
}


@pytest.mark.parametrize("leaving", LEAVING)
def test_a_link_that_leaves_the_folder_is_7_and_nothing_of_its_end_arrives(source, tmp_path, leaving):
    LEAVING[leaving](source)
    for result in (
        preload(source, tmp_path / "copied"),
        preload(source, tmp_path / "copied", "--files", "all"),
        publish(source, tmp_path / "published"),
        publish("--in-place", source),
        publish("--check", source),
    ):
        assert result.code == 7
    assert not (source / ".faststart/manifest.json").exists()
    for target in ("copied", "published"):
        content = tree(tmp_path / target).values() if (tmp_path / target).exists() else ()
        assert not any(SECRET in data for data in content if isinstance(data, bytes))


@pytest.mark.parametrize("leaving", ["beside the folder", "an absolute one", "by way of another link"])
def test_a_sealed_file_that_became_such_a_link_is_7(source, tmp_path, leaving):
    write(source, {"extra.json": SECRET, "first.json": SECRET, "second.json": SECRET})
    seal(source)
    for name in ("extra.json", "first.json", "second.json"):
        (source / name).unlink()
    LEAVING[leaving](source)
    named = ["config.json", "first.json" if "another" in leaving else "extra.json"]
    assert preload(source, tmp_path / "copied", "--files", *named).code == 7


INSIDE: dict[str, Callable[[Path], None]] = {
    "a file": link("extra.json", "config.json"),
    "an absolute one": link("extra.json", "TOP/source/config.json"),
    "by way of the folder above": link("extra.json", "../source/config.json"),
    "a folder": link("more", "1_Pooling"),
    "up inside": link("sub/config.json", "../config.json"),
}


@pytest.mark.parametrize("inside", INSIDE)
@pytest.mark.parametrize("alias", [False, True], ids=["named itself", "named by a link"])
def test_a_link_that_stays_inside_becomes_what_it_leads_to(source, tmp_path, inside, alias):
    INSIDE[inside](source)
    (tmp_path / "alias").symlink_to("source")
    assert preload(tmp_path / "alias" if alias else source, tmp_path / "copied").code == 0
    assert "link" not in tree(tmp_path / "copied").values()


def snapshot(top: Path) -> Path:
    """Make what huggingface_hub's cache has: a snapshot of links to blobs beside it."""
    root = write(top / "models--org--tiny/snapshots/0123abcd", {"1_Pooling": None})
    for number, (path, content) in enumerate(MODEL.items()):
        if content is not None:
            write(top / "models--org--tiny/blobs", {str(number): content})
            up = "../" * (str(path).count("/") + 2)
            (root / os.fsdecode(path)).symlink_to(f"{up}blobs/{number}")
    return root


def test_a_snapshot_of_a_hugging_face_cache_is_copied_sealed_and_checked(tmp_path):
    root = snapshot(tmp_path)
    assert preload(root, tmp_path / "copied").code == 0
    assert publish("--check", root).code == 0
    assert publish("--in-place", root).code == 0
    assert preload(root, tmp_path / "again", "--verify", "sha256").code == 0
    assert tree(tmp_path / "copied").keys() == tree(tmp_path / "again").keys()


@pytest.mark.parametrize(
    "target", ["../../../secret.json", "../../refs/main", "../../../models--org--other/blobs/1", "../other/config.json"]
)
def test_a_snapshot_may_lead_to_its_own_blobs_alone(tmp_path, target):
    root = snapshot(tmp_path)
    (root / "extra.json").symlink_to(target)
    write(root, {})
    end = Path(os.path.normpath(root / target))
    write(end.parent, {end.name: SECRET})
    assert preload(root, tmp_path / "copied").code == 7


def test_blobs_that_are_a_link_are_not_those_of_a_cache(tmp_path):
    root = snapshot(tmp_path)
    cache = root.parent.parent
    (cache / "blobs").rename(tmp_path / "elsewhere")
    (cache / "blobs").symlink_to(tmp_path / "elsewhere")
    assert preload(root, tmp_path / "copied").code == 7


MOVES: dict[str, Callable[[Path, Path], None]] = {
    "the folder became a link": lambda folder, other: (folder.rename(f"{folder}-old"), folder.symlink_to(other), None)[
        2
    ],
    "the folder above became a link": lambda folder, other: (
        folder.parent.rename(f"{folder.parent}-old"),
        folder.parent.symlink_to(other.parent),
        None,
    )[2],
    "the file became a link": lambda folder, other: (
        (folder / "a.json").unlink(),
        (folder / "a.json").symlink_to(other / "a.json"),
        None,
    )[2],
}


@pytest.mark.parametrize("move", MOVES)
def test_a_file_behind_a_folder_that_became_a_link_since_the_look_is_8_and_not_read(source, tmp_path, move):
    write(source, {"deep/sub/a.json": b"{}"})
    write(tmp_path, {"away/sub/a.json": b"[]"})
    seen = look(os.fsencode(source), ["auto"], Patience())
    file = next(file for file in seen.files if file.path == b"deep/sub/a.json")
    MOVES[move](source / "deep/sub", tmp_path / "away/sub")
    for opening in (lambda: open_regular(file.real), lambda: open_source(file.real, direct=False)):
        with pytest.raises(FaststartError) as caught:
            Patience(lambda _: None).read(file.path, opening)
        assert caught.value.code == 8


def test_a_folder_that_becomes_a_link_during_the_copy_gives_nothing_of_its_end(source, tmp_path, monkeypatch):
    write(source, {"sub/a.json": b"{}"})
    write(tmp_path, {"away/a.json": SECRET})
    real = sources.pool.crawl

    def crawl(*arguments, **more):
        real(*arguments, **more)
        if (source / "sub").is_dir() and not (source / "sub").is_symlink():
            (source / "sub").rename(tmp_path / "old")
            (source / "sub").symlink_to(tmp_path / "away")

    monkeypatch.setattr(sources.pool, "crawl", crawl)
    result = preload(source, tmp_path / "copied")
    assert (result.code, result.file) == (8, "sub/a.json")
    assert SECRET not in tree(tmp_path / "copied").values()
