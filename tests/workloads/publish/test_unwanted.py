"""What nobody asked for stops neither copy nor check nor publish, whatever is wrong with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.workloads.publish.support import MODEL, Published, publish
from tests.workloads.support import index, preload, safetensors, tree, write

pytestmark = pytest.mark.inputs

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n"


def dangling(path: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder, {str(Path(path).parent): None})
        (folder / path).symlink_to("nowhere")

    return make


def outside(path: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder.parent / "elsewhere", {"secret.json": b"{}"})
        write(folder, {str(Path(path).parent): None})
        (folder / path).symlink_to(folder.parent / "elsewhere")

    return make


def loop(path: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        write(folder, {str(Path(path).parent): None})
        (folder / path).symlink_to(folder)

    return make


def files(*paths: str, content: bytes = b"cut") -> Callable[[Path], None]:
    return lambda folder: (write(folder, dict.fromkeys(paths, content)), None)[1]


UNWANTED: dict[str, Callable[[Path], None]] = {
    "a link to nowhere in original/": dangling("original/consolidated.00.pth"),
    "a link to nowhere among the checkpoints": dangling("checkpoint-500/model.safetensors"),
    "a link to nowhere of another format": dangling("pytorch_model.bin"),
    "a link to nowhere, left by training": dangling("optimizer.pt"),
    "a link to nowhere, left by macOS": dangling("._model.safetensors"),
    "a folder of pictures that is a link to nowhere": dangling("figures"),
    "a hidden link to nowhere": dangling(".latest/config.json"),
    "a picture that leads out of the folder": outside("original/picture.png"),
    "a cache that leads out of the folder": outside(".cache"),
    "a loop in the cache": loop(".cache/huggingface/up"),
    "a loop in another layout": loop("original/up"),
    "weights of another format that are cut": files("original/model.safetensors", "onnx/model.onnx"),
    "a checkpoint that is cut": files("checkpoint-1/model.safetensors", "checkpoint-1/config.json"),
    "an index without shards in a folder below": files(
        "vision/model.safetensors.index.json", content=index("model-00001-of-00009.safetensors")
    ),
    "an index that is no JSON in a folder below": files("vision/model.safetensors.index.json", "vision/config.json"),
    "what a download left": files(
        ".cache/huggingface/download/x.incomplete", "._____temp/model.safetensors", ".msc", ".mv", "old.json.aria2"
    ),
    "what file systems left": files("lost+found/#12", ".snapshot/daily/model.safetensors", ".Trash-1000/files/x.bin"),
    "what desktops left": files("__MACOSX/._model.safetensors", "Thumbs.db", "@eaDir/model.safetensors", ".DS_Store"),
    "a name that no manifest can hold, in the cache": lambda folder: (
        write(folder, {b".cache/\xff.json": b"{}", b"original/\xfe": b""}),
        None,
    )[1],
    "torch's pickles that vLLM never opens": files("head.pt", "lora.pth", "mm_projector.bin", content=b"\x80\x04N."),
    "pickles that vLLM never opens": files("a.pkl", "b.joblib", "c.npz", "last.ckpt", content=b"\x80\x04N."),
    "pointers of pictures and papers": files("a.png", "paper.pdf", "b.svg", content=POINTER),
    "an empty folder of the file system": lambda folder: (write(folder, {"lost+found": None}), None)[1],
}

WAYS: dict[str, Callable[[Path, Path], Published]] = {
    "copy": lambda source, target: Published((done := preload(source, target)).code, done.termination),
    "check": lambda source, _: publish("--check", source),
    "publish": publish,
    "in place": lambda source, _: publish("--in-place", source),
}


def close(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let nobody list a folder, root neither."""
    closed, scan = os.fsencode(os.path.realpath(folder)), os.scandir

    def scandir(path):
        if not isinstance(path, int) and os.fsencode(path) == closed:
            raise PermissionError(13, "Permission denied")
        return scan(path)

    monkeypatch.setattr(os, "scandir", scandir)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", MODEL)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("what", UNWANTED)
def test_what_auto_leaves_out_stops_nothing(source, tmp_path, what, way):
    UNWANTED[what](source)
    result = WAYS[way](source, tmp_path / "target")
    assert result.code == 0, result.message["message"]
    if way in ("copy", "publish"):
        wanted = {os.fsencode(path) for path in MODEL} | {b"1_Pooling"}
        # Small files of unknown use are kept; nothing that was made here is needed.
        assert tree(tmp_path / "target").keys() - wanted <= {b"a.png", b"paper.pdf", b"vision", b"vision/config.json"}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("folder", ["lost+found", ".snapshot", ".Trash-0", "checkpoint-7", "original", ".cache/x"])
def test_a_folder_that_auto_leaves_out_need_not_be_readable(source, tmp_path, monkeypatch, folder, way):
    write(source, {folder: None})
    close(monkeypatch, source / folder)
    assert WAYS[way](source, tmp_path / "target").code == 0


@pytest.mark.parametrize(
    ("folder", "patterns", "code"),
    [
        ("lost+found", ["*"], 0),
        ("lost+found", ["all"], 0),
        ("lost+found", ["lost+found/*"], 7),
        ("parts", ["*.json", "*.safetensors"], 7),
        ("parts", ["config.json", "model*", "tok*", "generation*"], 0),
        ("parts", ["parts/"], 7),
        ("parts", ["all"], 7),
        ("parts", ["auto"], 7),
    ],
)
def test_a_folder_that_patterns_may_ask_for_must_be_readable(source, tmp_path, monkeypatch, folder, patterns, code):
    write(source, {folder: None})
    close(monkeypatch, source / folder)
    result = preload(source, tmp_path / "target", "--files", *patterns)
    assert (result.code, result.file) == (code, folder if code else None)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (dangling("chat_template.jinja"), 4),
        (dangling("added_tokens.json"), 4),
        (dangling("1_Pooling/vocab.txt"), 4),
        (outside("weights"), 7),
        (outside("tokenizer.json.d"), 7),
    ],
)
def test_what_is_asked_for_and_broken_is_refused_by_name(source, tmp_path, make, code, way):
    make(source)
    result = WAYS[way](source, tmp_path / "target")
    assert (result.code, bool(result.message["file"])) == (code, True)


@pytest.mark.parametrize("pattern", ["*.safetensors", "model*", "tokenizer.json"])
def test_what_patterns_leave_out_stops_nothing(source, tmp_path, pattern):
    (source / "more.bin").symlink_to("nowhere")
    (source / "up").symlink_to(source)
    assert preload(source, tmp_path / "target", "--files", "config.json", pattern).code == 0


@pytest.mark.parametrize(
    ("path", "patterns", "code"),
    [
        ("original/a.pth", ["all"], 4),
        ("original/a.pth", ["original/*", "config.json"], 4),
        ("original/a.pth", ["*"], 4),
        ("original/a.pth", ["*.json"], 0),
        (".cache/a", ["all"], 0),
        (".cache/a", ["*"], 0),
        (".cache/a", [".cache/*", "config.json"], 4),
        (".cache/a", [".cache/a", "config.json"], 4),
        ("x/._a", ["x/*", "config.json"], 0),
        ("a.incomplete", ["*"], 0),
        ("a.incomplete", ["a.incomplete", "config.json"], 4),
    ],
)
def test_a_link_to_nowhere_counts_where_it_was_asked_for_and_a_leftover_only_by_its_name(
    source, tmp_path, path, patterns, code
):
    dangling(path)(source)
    assert preload(source, tmp_path / "target", "--files", *patterns).code == code


def test_of_a_sealed_folder_only_the_files_that_were_asked_for_are_looked_at(source, tmp_path):
    assert publish("--in-place", source, "--files", "all").code == 0
    (source / "1_Pooling/config.json").unlink()
    named = [path for path, data in MODEL.items() if data is not None and not str(path).startswith("1_Pooling")]
    assert preload(source, tmp_path / "target", "--files", *map(str, named)).code == 0
    assert preload(source, tmp_path / "other").code == 4


def test_a_sealed_file_that_is_gone_or_changed_is_damage_whatever_chose_it(source):
    write(source, {"original/a.safetensors": safetensors()})
    assert publish("--in-place", source, "--files", "all").code == 0
    assert publish("--check", source).code == 0
    write(source, {"original/a.safetensors": safetensors(b"\x01\x02\x03\x05")})
    assert publish("--check", source).code == 4
    shutil.rmtree(source / "original")
    assert publish("--check", source).code == 4


@pytest.mark.parametrize("closed", [False, True])
def test_a_new_ext4_file_system_is_an_empty_destination(source, tmp_path, monkeypatch, closed):
    target = write(tmp_path / "target", {"lost+found": None})
    listdir = os.listdir

    def deny(path):
        if closed and not isinstance(path, int) and os.fsencode(path).endswith(b"lost+found"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", deny)
    assert preload(source, target).code == 0
    assert preload(source, target).termination["resumed_bytes"] == sum(
        len(data) for data in MODEL.values() if data is not None
    )
    assert (target / "lost+found").is_dir()


@pytest.mark.parametrize("content", ["lost+found/model.safetensors", "lost+found/a/b", "found/x", "lost+found2/x"])
def test_a_destination_with_something_found_again_is_refused(source, tmp_path, content):
    target = write(tmp_path / "target", {content: b"x"})
    assert preload(source, target).code == 10
