"""Memory is ours to bound: what a model holds, or a place sends, ends with words before it fills the node."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from modelfolder import manifest as manifests
from modelfolder import source as sources
from podkit import documents, heap, pool
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from podkit.program import Program
from podkit.report import Report
from preload import options as preload_options
from preload import program as preload_program
from preload import state
from publish import configuration, places
from publish import options as publish_options
from publish import program as publish_program
from tests.workloads.publish import support as published
from tests.workloads.publish.support import FIRST, MODEL, publish
from tests.workloads.publish.test_remote import Shelf
from tests.workloads.support import WORKLOADS, is_marked, preload, write

INDEX = "model.safetensors.index.json"
MANIFEST = ".faststart/manifest.json"
MIB = 1 << 20


def sparse(root: Path, name: str, size: int) -> None:
    """Make a file of so many zeros that takes no disk."""
    write(root, {name: b""})
    os.truncate(root / name, size)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", MODEL)


TASKS: dict[str, Callable[[Path, Path], object]] = {
    "preload": lambda root, to: preload(root, to).code,
    "publish": lambda root, to: publish(root, to).code,
    "in place": lambda root, _: publish("--in-place", root).code,
    "check": lambda root, _: publish("--check", root).code,
}


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", [INDEX, "config.json", MANIFEST, FIRST])
@pytest.mark.parametrize("size", [128 * MIB, 1 << 30, 1 << 40])
def test_a_small_file_of_any_size_is_refused_unread(source, tmp_path, task, name, size):
    sparse(source, name, size)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if (task, name) != ("preload", "config.json"):  # which preload does not open
        assert TASKS[task](source, tmp_path / "to") == 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 64 * 1024


@pytest.mark.parametrize(
    ("name", "size", "most"),
    [(INDEX, sources.INDEX_BYTES, "67108864"), ("config.json", configuration.BYTES, "16777216")],
)
def test_a_size_that_is_too_much_is_named_with_the_limit_and_what_to_do(source, tmp_path, name, size, most):
    sparse(source, name, size + 1)
    result = publish(source, tmp_path / "to")
    assert (result.code, result.message["file"]) == (4, name)
    assert f"has {size + 1} bytes" in result.message["message"]
    assert f"at most {most} are read" in result.message["message"]
    assert "fetch it again" in result.message["message"]


def test_an_index_that_is_too_large_and_that_nothing_needs_is_a_note(source, tmp_path):
    sparse(source, "pytorch_model.bin.index.json", 1 << 30)
    assert publish(source, tmp_path / "to").code == 0


@pytest.mark.parametrize(
    "text", [b"[]", b"{}", b"0", b'""', b"[[]]", b'{"":{}}'], ids=["lists", "objects", "numbers", "texts", "two", "in"]
)
@pytest.mark.parametrize("name", [INDEX, "config.json", MANIFEST, FIRST])
def test_json_of_more_values_than_any_has_is_refused_before_they_are_made(source, monkeypatch, name, text):
    monkeypatch.setattr(documents, "MAX_VALUES", 1000)
    data = b"[" + b",".join([text] * 1001) + b"]"
    if name == FIRST:
        data = len(data).to_bytes(8, "little") + data
    write(source, {name: data})
    made: list[object] = []
    monkeypatch.setattr(documents.json, "loads", lambda *_, **__: made.append(1))
    with pytest.raises(ValueError, match="1000 are read at most"):
        documents.parse(data[8:] if name == FIRST else data)
    assert not made
    monkeypatch.undo()
    assert publish("--check", source).code == 4


def test_a_legitimate_text_of_the_most_values_is_read():
    data = b"[" + b",".join([b"7"] * 999) + b"]"
    assert documents.values(data) == 1000
    assert documents.parse(data) == [7] * 999


@pytest.mark.parametrize("name", ["complete.json", "work/journal.jsonl", "work/progress.json"])
def test_what_a_destination_says_of_itself_counts_for_nothing_if_it_is_too_large(source, tmp_path, name):
    to = tmp_path / "to"
    assert preload(source, to).code == 0
    sparse(to, f".faststart/{name}", state.JOURNAL_BYTES + 1)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert preload(source, to).code == 0
    assert is_marked(to)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - used < 64 * 1024


def test_a_journal_of_blank_and_endless_lines_in_a_staging_folder_costs_a_new_fetch(tmp_path, monkeypatch):
    shelf, to = Shelf(), tmp_path / "m/r"
    monkeypatch.setattr("publish.publishing.open_s3", lambda *_: shelf)
    write(
        tmp_path / "m", {".r.staging/.faststart/fetched.jsonl": b"\n" * 9999 + b"[" * 999_999 + b"\n" + b"x" * 999_999}
    )
    assert publish("s3://bucket/tiny", to).code == 0


# Of a remote place


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    place = Shelf()
    monkeypatch.setattr("publish.publishing.open_s3", lambda *_: place)
    return place


@pytest.mark.parametrize("name", [INDEX, "config.json"])
def test_a_listed_size_that_no_small_file_has_is_refused_before_it_is_fetched(shelf, tmp_path, name, monkeypatch):
    monkeypatch.setattr(places, "largest", lambda path: 9 if path == name.encode() else 1 << 20)
    result = publish("s3://bucket/tiny", tmp_path / "to")
    assert (result.code, result.message["file"]) == (4, name)
    assert shelf.fetched == []


class Liar(Shelf):
    """Lists a size for a file, and sends another content."""

    def __init__(self, name: str, listed: int, sent: int, told: bool):
        super().__init__()
        self.liar, self.sent, self.told_as_it_comes, self.came = name.encode(), sent, told, 0
        self.files[self.liar] = self.files[self.liar][:listed].ljust(listed, b" ")

    def fetch(self, file, folder, progress):
        path = super().fetch(file, folder, lambda _: None)
        if file.path == self.liar:
            for _ in range(0, self.sent, 1000):
                if self.told_as_it_comes:
                    progress(1000)
                with Path(path).open("ab") as stream:
                    stream.write(bytes(1000))
                self.came += 1000
        return path


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("name", [INDEX, "config.json", "README.md", FIRST, "tokenizer.json", "1_Pooling/config.json"])
def test_what_really_comes_counts_and_not_what_was_listed(tmp_path, monkeypatch, name, told):
    shelf = Liar(name, len(MODEL[name] or b""), 10_000_000, told)
    monkeypatch.setattr("publish.publishing.open_s3", lambda *_: shelf)
    result = publish("s3://bucket/tiny", tmp_path / "m/to", "--max-bytes", "100000")
    assert (result.code, (tmp_path / "m/to").exists()) == (8, False)
    assert shelf.came < 200_000 or not told


# The heap


def text_of(call: Callable[[], object], most: int) -> FaststartError:
    with pytest.raises(FaststartError) as caught, heap.bounded(most):
        call()
    return caught.value


def data_used() -> int:
    return next(
        int(line.split()[1]) * 1024 for line in Path("/proc/self/status").read_text().splitlines() if "VmData" in line
    )


@pytest.mark.parametrize(
    "grow",
    [
        lambda: bytearray(1 << 30),
        lambda: [[] for _ in range(20_000_000)],
        lambda: "\U0001f600" * (1 << 28),
        lambda: json.loads("[" + "[]," * 5_000_000 + "[]]"),
        lambda: pool.each([1, 2, 3], lambda _: bytearray(1 << 30), Patience()),
        lambda: pool.each([1], lambda _: [bytes(9999) for _ in range(200_000)], Patience(), threads=1),
    ],
    ids=["bytes", "objects", "text", "json", "threads", "one thread"],
)
@pytest.mark.processes
def test_more_memory_than_is_allowed_ends_with_9_and_words_and_the_limit_goes_back(grow):
    before = resource.getrlimit(resource.RLIMIT_DATA)
    error = text_of(grow, data_used() + (96 << 20))
    assert error.code == Exit.IO_ERROR
    assert "RLIMIT_DATA" in error.message
    assert "of memory was needed" in error.message
    assert resource.getrlimit(resource.RLIMIT_DATA) == before


def test_a_lower_limit_that_is_there_stays():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    lower = data_used() + (512 << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (lower, before[1]))
    try:
        with heap.bounded(1 << 40):
            assert resource.getrlimit(resource.RLIMIT_DATA) == (lower, before[1])
        assert resource.getrlimit(resource.RLIMIT_DATA) == (lower, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def test_a_program_that_needs_too_much_tells_so_in_its_termination_message(tmp_path):
    def work(*_: object) -> None:
        pool.each([1], lambda _: bytearray(1 << 40), Patience())

    after: list[int] = []
    main = Program("tiny", len, Report, work, lambda *_: after.append(1), lambda _: 1 << 40).main
    assert main(["--termination-log", str(tmp_path / "log")]) == 9
    assert "of memory was needed" in json.loads((tmp_path / "log").read_bytes())["message"]
    assert after == [1]


MEASURE = """
import os, sys, threading, time
most = 0
def measure():
    global most
    while True:
        for line in open("/proc/self/status"):
            if line.startswith("VmData"):
                most = max(most, int(line.split()[1]) * 1024)
        time.sleep(0.002)
threading.Thread(target=measure, daemon=True).start()
from {package}.program import main, memory
from {package} import options
code = main(sys.argv[1:])
print("MEASURED", most, memory(options.parse(sys.argv[1:])), flush=True)
os._exit(code)
"""


def measured(package: str, *arguments: str | Path, before: str = "") -> tuple[int, int, int, str]:
    """Run a program in a process of its own; return its code, the most memory it had, its limit, and what it said."""
    process = subprocess.run(
        [sys.executable, "-c", before + MEASURE.format(package=package), *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    numbers = process.stdout.partition("MEASURED ")[2].split()
    return process.returncode, int(numbers[0]), int(numbers[1]), process.stdout + process.stderr


def large_model(root: Path, tensors: int, files: int) -> Path:
    """Make a model with an index and one header of so many tensors, and so many files beside."""
    weights = "model-00001-of-00001.safetensors"
    names = [f"model.layers.{n % 61}.mlp.experts.{n}.down_proj.weight" for n in range(tensors)]
    header = {name: {"dtype": "U8", "shape": [1], "data_offsets": [n, n + 1]} for n, name in enumerate(names)}
    text = json.dumps(header, separators=(",", ":")).encode()
    content: dict[str | bytes, bytes | None] = {f"more/{n // 100}/{n}.txt": b"x" for n in range(files)}
    content |= {"config.json": MODEL["config.json"], "tokenizer.json": b"{}"}
    content[weights] = len(text).to_bytes(8, "little") + text + bytes(tensors)
    content[INDEX] = json.dumps({"weight_map": dict.fromkeys(names, weights)}, indent=2).encode()
    write(root, content)
    return root


@pytest.mark.processes
def test_a_model_of_many_tensors_and_files_takes_a_fraction_of_the_limit_with_all_streams(tmp_path):
    """50,000 tensors in one file, and 2,000 files: a quarter of the largest known model, a seventh of its files."""
    root = large_model(tmp_path / "model", 50_000, 2_000)
    for package, arguments in (
        ("preload", (root, tmp_path / "to", "--write", "direct", "--parallel", "32")),
        ("publish", ("--check", root)),
    ):
        code, most, limit, said = measured(package, *arguments)
        assert code == 0, said
        assert most < limit // 3, (package, most, limit)


@pytest.mark.processes
@pytest.mark.parametrize("name", [INDEX, FIRST, "config.json", MANIFEST])
def test_sixty_megabytes_of_lists_take_a_fraction_of_what_they_would_become(source, name):
    data = b"[" + b"[]," * 20_000_000 + b"[]]"
    write(source, {name: len(data).to_bytes(8, "little") + data if name == FIRST else data})
    code, most, _, said = measured("publish", "--check", source)
    assert code == 4
    assert "Traceback" not in said
    assert most < 700 * MIB  # the thread stacks and the text; 1.5 GB without a limit


@pytest.mark.processes
@pytest.mark.parametrize("task", ["preload", "--check", "--in-place"])
def test_a_process_that_would_need_more_ends_with_9_and_words_and_leaves_no_traceback(tmp_path, task):
    root = large_model(tmp_path / "model", 100_000, 0)
    package, arguments = ("preload", (root, tmp_path / "to")) if task == "preload" else ("publish", (task, root))
    tight = "import resource\nresource.setrlimit(resource.RLIMIT_DATA, (72 << 20, -1))\n"
    code, _, _, said = measured(package, *arguments, before=tight)
    assert code == 9, said
    assert "Traceback" not in said
    assert "memory" in said


def test_more_streams_may_take_more():
    def of(*arguments: str) -> int:
        return preload_program.memory(preload_options.parse(["a", "b", *arguments]))

    assert of("--parallel", "1024") - of("--parallel", "32") == 992 * (heap.THREAD_BYTES + (8 << 20))
    assert of() < 4 << 30


def test_what_brings_a_model_with_libraries_may_take_more_than_what_reads_a_folder():
    def of(*arguments: str) -> int:
        return publish_program.memory(publish_options.parse(arguments))

    assert of("s3://bucket/x", "to") - of("/x", "to") == publish_program.LIBRARY_BYTES
    assert of("--check", "x") == of("--remove", "x") < of("/x", "to")


def test_a_manifest_of_the_largest_known_models_is_far_below_its_limit():
    blocks = -(-2_000_000_000_000 // manifests.BLOCK_BYTES) * 67
    files = 15_000 * 300
    assert blocks + files < manifests.MAX_BYTES // 2
    assert published.MODEL
