"""What a stranger's folder, manifest, hub or bucket says reaches people as lines of ours, and not without end."""

from __future__ import annotations

import json
import struct
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lab.loopback.hub import hub_here
from podkit import lines
from podkit.console import Console
from podkit.errors import Exit, FaststartError
from podkit.program import Program
from podkit.report import Report
from tests.workloads.podkit.test_lines import FORGERIES
from tests.workloads.publish.support import FIRST, MODEL, publish
from tests.workloads.support import preload, write
from tests.workloads.support import publish as seal

pytestmark = pytest.mark.inputs

HOSTILE = [*FORGERIES.values(), "x" * 2_000_000, "\x1b[2K" * 100_000]
IDS = [*FORGERIES, "2 MB", "400 kB of escapes"]
SOME = {
    **{name: FORGERIES[name] for name in ("line feed", "clears the terminal", "line separator", "lone surrogate")},
    "200 kB": "x\x1b" * 100_000,
}
"""For what has many places: one of each kind."""


def safetensors(header: Any, size: int = 4) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def tensor(**changed: Any) -> dict[str, Any]:
    return {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]} | changed


def require_lines_of_ours(captured: Any, program: str) -> list[str]:
    """Hold that each line is printable, short, and one that the program began; return those of standard error."""
    said = captured.err.split("\n")
    for line in [*said, *captured.out.split("\n")]:
        assert line.isprintable()
        assert len(line.encode()) <= lines.LINE_BYTES
    assert said.pop() == ""
    assert [line for line in said if not line.startswith(f"{program}: ")] == []
    return said


PLACES: dict[str, Callable[[str], dict[str | bytes, bytes | None]]] = {
    "dtype": lambda text: {FIRST: safetensors({"a": tensor(dtype=text)})},
    "dtype of a wrong size": lambda text: {FIRST: safetensors({"a": tensor(dtype="F32"), text: tensor(dtype=text)})},
    "name of a tensor": lambda text: {FIRST: safetensors({text: tensor(shape=[5])})},
    "names of tensors": lambda text: {FIRST: safetensors({"a": tensor(), text: tensor()})},
    "shape": lambda text: {FIRST: safetensors({"a": tensor(shape=[1] * len(text))}, 4)},
    "shape of texts": lambda text: {FIRST: safetensors({"a": tensor(shape=[text])})},
    "metadata": lambda text: {FIRST: safetensors({"__metadata__": {text: [text]}, "a": tensor()})},
    "tensor of an index": lambda text: {
        "model.safetensors.index.json": json.dumps({"weight_map": {text: FIRST, "a": FIRST}}).encode()
    },
    "shard of an index": lambda text: {
        "model.safetensors.index.json": json.dumps({"weight_map": {"a": f"{text}.safetensors"}}).encode()
    },
    "total_size of an index": lambda text: {
        "model.safetensors.index.json": MODEL["model.safetensors.index.json"].replace(  # type: ignore[union-attr]
            b"11443", json.dumps(text).encode()
        )
    },
    "architecture": lambda text: {"config.json": json.dumps({"architectures": [text]}).encode()},
    "model_type": lambda text: {"config.json": json.dumps({"model_type": text}).encode()},
    "quantisation": lambda text: {
        "config.json": json.dumps({"model_type": "llama", "quantization_config": {"quant_method": text}}).encode()
    },
    "licence": lambda text: {"README.md": f"---\nlicense: {text}\n---\n".encode("utf-8", "surrogatepass")},
}


@pytest.mark.parametrize("text", SOME.values(), ids=SOME)
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_what_a_folder_holds_begins_no_line_of_check_and_none_is_long(tmp_path, capsys, place, text):
    write(tmp_path / "model", {**MODEL, **place(text)})
    ended = publish("--check", tmp_path / "model")

    assert ended.code in (0, 4)
    assert require_lines_of_ours(capsys.readouterr(), "publish")
    assert ended.message["message"].isprintable()


@pytest.mark.parametrize("text", ["\n", "\r", "\x1b[2K", "\x85", "\u202e", "\u2028"], ids=ascii)
@pytest.mark.parametrize("arguments", [["--check"], ["--plan"], []], ids=lambda one: " ".join(one) or "copy")
def test_a_name_begins_no_line(tmp_path, capsys, text, arguments):
    forged = f"x{text}preload: complete: 7 files, 16.1 GB copied in 1.0 s"
    name = forged.replace("/", "")
    write(
        tmp_path / "model",
        {**MODEL, f"{name}.bin": b"\x80\x02.", f"{name}/{name}.png": b"\x89PNG", f"{name}.json": b"{"},
    )
    if "--check" in arguments:
        publish("--check", tmp_path / "model")
    else:
        preload(tmp_path / "model", tmp_path / "copy", *arguments)

    require_lines_of_ours(capsys.readouterr(), "publish" if "--check" in arguments else "preload")


MANIFEST_VALUES: dict[str, Callable[[str], dict[str, Any]]] = {
    "schema": lambda text: {"schema": text},
    "newer schema": lambda text: {"schema": f"faststart.dev/manifest/v{'9' * 4000}", "x": text},
    "size": lambda text: {"files": [{"path": "a", "size": text, "block_bytes": None, "blocks": None}]},
    "block_bytes": lambda text: {"files": [{"path": "a", "size": 1, "block_bytes": [text] * 9, "blocks": []}]},
    "path": lambda text: {"files": [{"path": [text], "size": 1, "block_bytes": None, "blocks": None}]},
    "path outside": lambda text: {"files": [{"path": f"../{text}", "size": 1, "block_bytes": None, "blocks": None}]},
    "folder": lambda text: {"folders": [{text: text}]},
    "model": lambda text: {"model": text},
    "revision": lambda text: {"revision": text},
    "source": lambda text: {"source": text},
}


@pytest.mark.parametrize("text", SOME.values(), ids=SOME)
@pytest.mark.parametrize("values", MANIFEST_VALUES.values(), ids=MANIFEST_VALUES)
def test_what_a_manifest_says_begins_no_line_and_stands_in_no_report_as_it_is(tmp_path, capsys, values, text):
    write(tmp_path / "model", {**MODEL})
    seal(tmp_path / "model", **values(text))
    ended = preload(tmp_path / "model", tmp_path / "copy")

    assert ended.code in (0, 4)
    require_lines_of_ours(capsys.readouterr(), "preload")
    told = [ended.termination]
    if (record := tmp_path / "copy/.faststart/report.json").exists():
        told.append(json.loads(record.read_bytes()))
    for fields in told:
        for value in filter(lambda value: isinstance(value, str), fields.values()):
            assert value.isprintable()
            assert len(value.encode()) <= lines.LINE_BYTES


@pytest.mark.parametrize("text", ["\x1b[2J", "\x9b2J", "\u202e", "\x07", "x" * 20_000], ids=lambda one: ascii(one[:9]))
@pytest.mark.parametrize("what", ["branch", "file"])
def test_what_a_hub_names_begins_no_line(tmp_path, capsys, text, what):
    with hub_here(tmp_path / "home") as hub:
        name = text[:200] if what == "file" else "config.json"
        hub.add("org/name", {f"{name}.json": b"{}"}, revision=f"b{text}" if what == "branch" else "main")
        ended = publish("hf://org/name@nothing", tmp_path / "model")

    assert ended.code == 6
    require_lines_of_ours(capsys.readouterr(), "publish")


@pytest.mark.parametrize("number", [lines.MANY + 5])
def test_of_many_findings_the_worst_are_told_and_how_many_more_there_are(tmp_path, capsys, number):
    odd = {f"{one:05}.bin": b"\x80\x02." for one in range(number)}
    write(tmp_path / "model", {**MODEL, **odd, "zzz.safetensors": b"damaged"})
    ended = publish("--check", tmp_path / "model", "--files", "all")

    told = capsys.readouterr().out.splitlines()
    assert ended.code == 4
    assert len(told) == lines.MANY + 1
    assert "zzz.safetensors" in told[0]
    assert told[-1].startswith("... and ")


def test_of_many_files_a_plan_tells_some_of_each_kind(tmp_path, capsys):
    write(tmp_path / "model", {**MODEL, **{f"pictures/{one}.png": b"" for one in range(lines.MANY + 7)}})
    preload(tmp_path / "model", tmp_path / "copy", "--plan")

    told = capsys.readouterr().out.splitlines()
    assert "... and 7 more left out" in told
    assert len(told) < lines.MANY + 20
    assert any(line.startswith("copy ") for line in told)


# Whatever a program is given to say


def ending(words: str) -> Callable[..., None]:
    def work(asked: Sequence[str], around: Any, report: Report) -> None:
        around.say(f"a note: {words}")
        around.print(f"a result: {words}")
        raise FaststartError(Exit.DAMAGED, f"{words}; fetch it again", words.encode("utf-8", "backslashreplace"))

    return work


@pytest.mark.parametrize("text", HOSTILE, ids=IDS)
def test_each_way_out_of_a_program_is_one_line_and_its_end_is_kept(tmp_path, capsys, text):
    log = tmp_path / "log"
    main = Program("tiny", lambda arguments: arguments, Report, ending(text)).main

    assert main(["--termination-log", str(log)]) == 4
    said = require_lines_of_ours(capsys.readouterr(), "tiny")
    assert len(said) == 2
    assert said[-1].endswith("; fetch it again")
    assert json.loads(log.read_bytes())["message"].endswith("; fetch it again")
    assert len(log.read_bytes()) <= 4096


def test_a_bar_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr("os.get_terminal_size", lambda _: type("", (), {"columns": 80}))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stderr, "fileno", lambda: 2, raising=False)
    draw = Console("tiny").bar
    assert draw
    draw("half\n\x1b[2Jtiny: sealed" + "x" * 1000)

    drawn = capsys.readouterr().err
    assert drawn.isprintable()
    assert len(drawn) == 79


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("text", FORGERIES.values(), ids=FORGERIES)
def test_a_crash_is_told_in_lines_of_which_none_moves_the_cursor(monkeypatch, capsys, where, text):
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    console = Console("tiny", ["PlAnTeDsEcReT"])

    def crash() -> None:
        raise OSError(f"{text} https://u:p@host PlAnTeDsEcReT")

    if where == "main":
        with pytest.raises(OSError, match="host"), console.crashing():
            crash()
        try:
            crash()
        except OSError as error:
            sys.excepthook(OSError, error, error.__traceback__)
    else:
        with console.crashing():
            thread = threading.Thread(target=crash)
            thread.start()
            thread.join()

    said = capsys.readouterr().err
    assert said.startswith("Traceback (most recent call last):\n")
    assert "https://***@host ***" in said
    assert "PlAnTeDsEcReT" not in said
    assert all(line.isprintable() for line in said.split("\n"))
