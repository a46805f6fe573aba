"""Odd values where JSON of a model, or of ours, has others: exit 4 before anything large is moved, and no traceback."""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelfolder import manifest as manifests
from modelfolder import structure
from modelfolder.source import look
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience
from preload import state
from preload.run import _Waiting
from preload.state import Identity
from publish import configuration, publishing, sealing
from publish.sealing import Hashing, Origin
from publish.verdict import judge
from tests.workloads.publish.support import MODEL, manifest, publish
from tests.workloads.publish.test_remote import Shelf
from tests.workloads.support import preload, write

pytestmark = pytest.mark.inputs

RAW = "@raw@"
"""Stands for a text that no value can be written as."""

ODD: dict[str, Any] = {
    "half": "\ud800", "other half": "a\udfffb", "null": None, "true": True, "zero": 0, "minus": -1, "fraction": 1.5,
    "nan": float("nan"), "infinity": float("inf"), "huge": 10**400, "2^64": 2**64, "list": [], "object": {},
    "lists": [[], [1], ["a"]], "objects": {"a": {"b": []}}, "empty": "", "long": "x" * 5000, "nul": "\0",
    "escapes": "\x1b[31m\u2028\n", "deep": json.loads("[" * 400 + "]" * 400),
}  # fmt: skip

TEXTS: dict[str, bytes] = {
    "more digits than Python takes": b"9" * 5000,
    "deeper than Python goes": b"[" * 50_000 + b"]" * 50_000,
    "1e999": b"1e999",
    "-0": b"-0",
    "no JSON": b"nope",
    "half in a name": b'{"\\ud800": 1}',
    "twice": b'{"a": 1, "a": []}',
}


def every_other(fields: Sequence[str], names: Iterable[str]) -> list[tuple[str, str]]:
    """Pair fields with values, each field with half of them and each value with half of the fields."""
    return [
        (field, name) for row, field in enumerate(fields) for column, name in enumerate(names) if (row + column) % 2
    ]


def places(value: object) -> Iterator[tuple[Any, Any]]:
    """Yield each container in a value with each of its keys."""
    for key in list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield value, key
        yield from places(value[key])  # pyright: ignore[reportIndexIssue]


def changed(document: Any, chosen: int, odd: Any, how: str) -> bytes:
    """Return a document with an odd value in one of its places, under a name more, or for a name."""
    document = copy.deepcopy(document)
    found = list(places(document))
    holder, key = found[chosen % len(found)]
    raw = TEXTS.get(odd) if isinstance(odd, str) else None
    value = RAW if raw is not None else odd
    if how == "name" and isinstance(holder, dict):
        holder["\ud800" if raw is not None else str(value)[:9]] = holder.pop(key)
    elif how == "more" and isinstance(holder, dict):
        holder["more"] = value
    else:
        holder[key] = value
    text = json.dumps(document).encode()
    return text.replace(json.dumps(RAW).encode(), raw, 1) if raw is not None else text


ODDITIES = st.tuples(
    st.integers(0, 10_000),
    st.sampled_from([*ODD.values(), *TEXTS]),
    st.sampled_from(["value", "value", "value", "name", "more"]),
)


def header_of(data: bytes) -> tuple[dict[str, Any], bytes]:
    length = int.from_bytes(data[:8], "little")
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def with_header(text: bytes, data: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text + data


FIRST = next(str(name) for name in MODEL if str(name).endswith("00001-of-00002.safetensors"))
INDEX = "model.safetensors.index.json"
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "auto_map": {"AutoConfig": "configuration_x.X"},
    "torch_dtype": "bfloat16",
}


def seal(root: Path) -> bytes:
    """Judge, hash and describe a folder, as publishing does; return the manifest."""
    patience = Patience()
    source = look(os.fsencode(root), ["auto"], patience, by_manifest=False)
    structure.check(source, patience)
    verdict = judge(source, patience)
    hashes = Hashing(source.files, (), 1, patience).run()
    origin = Origin("tiny", "r1", "path:/x", "sha256:0", ("auto",), None, {})
    return manifests.canonical(sealing.document(source, verdict, hashes, origin))


def allowed(call: Callable[[], object]) -> None:
    """Call; it may end well, or in a way that is foreseen, which can be told in one piece of UTF-8."""
    ends: list[FaststartError] = []
    try:
        call()
    except FaststartError as error:
        ends.append(error)
    assert {error.code for error in ends} <= {Exit.DAMAGED, Exit.NO_MODEL, Exit.USAGE}
    assert all(error.message.encode() for error in ends)


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    place = Shelf()
    monkeypatch.setattr(publishing, "open_s3", lambda *_: place)
    return place


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    return tmp_path / "models/tiny/r1"


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield write(Path(name) / "model", MODEL)


def with_file(folder: Path, name: str, data: bytes, call: Callable[[Path], object]) -> None:
    before = MODEL.get(name)
    write(folder, {name: data})
    try:
        allowed(lambda: call(folder))
    finally:
        if isinstance(before, bytes):
            write(folder, {name: before})
        else:
            (folder / name).unlink()


RULES = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)


@RULES
@given(ODDITIES)
def test_no_value_in_a_configuration_leads_to_a_traceback(folder, odd):
    with_file(folder, "config.json", changed(CONFIG, *odd), seal)


@RULES
@given(ODDITIES)
def test_no_value_in_an_index_leads_to_a_traceback(folder, odd):
    data = MODEL[INDEX]
    assert isinstance(data, bytes)
    with_file(folder, INDEX, changed(json.loads(data), *odd), seal)


@RULES
@given(ODDITIES)
def test_no_value_in_a_header_leads_to_a_traceback(folder, odd):
    data = MODEL[FIRST]
    assert isinstance(data, bytes)
    header, tensors = header_of(data)
    with_file(folder, FIRST, with_header(changed(header, *odd), tensors), seal)


@RULES
@given(ODDITIES)
def test_no_value_in_a_manifest_leads_to_a_traceback(odd):
    text = changed(MANIFEST, *odd)

    def read() -> None:
        found = manifests.parse(text)
        texts = [found.model, found.revision, found.source, *(found.chosen or ())]
        assert all(isinstance(text, str) for text in texts)
        assert manifests.canonical([found.total_bytes, found.source_digest, len(found.all_folders)])

    allowed(read)


MANIFEST: dict[str, Any] = {
    "schema": "faststart.dev/manifest/v1", "model": "tiny", "revision": "r1", "source": "hf://a/b",
    "source_digest": "sha256:" + "0" * 64, "chosen": ["auto"], "created": "2026-11-30T00:00:00Z",
    "files": [{"path": "config.json", "size": 2, "sha256": None, "block_bytes": 8 << 20, "blocks": ["0" * 64]}],
    "folders": ["empty"], "total_bytes": 2, "architecture": None, "licence": None, "pickle": False,
    "weights": {"format": "safetensors", "files": [], "tensor_bytes": 0, "dtypes": []},
}  # fmt: skip

IDENTITY = Identity("sha256:1", "sha256:2", "size", "boot")
MARKER = {"schema": state.MARKER_SCHEMA, "selection_digest": "sha256:2", "verify": "size", "boot_id": "boot",
          "synced": True, "files": 1, "bytes": 2}  # fmt: skip
HEAD = {"selection_digest": "sha256:2", "verify": "size", "boot_id": "boot"}
LINES: list[Any] = [
    {"path": "a", "size": 1, "mtime_ns": 2, "ctime_ns": 3, "inode": 4, "synced": True}, [0, 7], [0, 0, 4096], [-1, 1],
    [-2, 1], {"path": {"b64": "YQ=="}, "size": 1, "mtime_ns": 2, "ctime_ns": 3, "inode": 4, "synced": False},
]  # fmt: skip


@RULES
@given(ODDITIES)
def test_no_value_in_a_marker_leads_to_a_traceback_nor_is_it_believed_for_a_text(odd):
    state.marker_covers(changed(MARKER, *odd), IDENTITY)


@RULES
@given(st.integers(0, len(LINES)), ODDITIES, st.sampled_from(["boot", "another"]))
def test_no_value_in_a_journal_leads_to_a_traceback(at, odd, boot):
    lines = [json.dumps(line).encode().replace(b" ", b"") for line in [HEAD, *LINES]]
    lines[at] = changed([HEAD, *LINES][at], *odd)
    past = state.read_journal(b"\n".join(lines), Identity("sha256:1", "sha256:2", "size", boot))
    for part in past.parts.values():
        part.missing(1 << 20)


@RULES
@given(ODDITIES)
def test_no_note_of_another_copys_progress_leads_to_a_traceback(odd):
    note = {"copied": 1, "total": 2, "seconds": 0.1, "streams": 3}
    said: list[str] = []
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), {".faststart/work/progress.json": changed(note, *odd)})
        _Waiting(os.fsencode(name), 1.0, said.append).note(0.0)
    assert len(said) == 1


@pytest.mark.parametrize(
    ("field", "name"), every_other(["architectures", "model_type", "quantization_config", "quant_method"], ODD | TEXTS)
)
def test_a_configuration_with_an_odd_value_where_vllm_uses_it_is_4_before_the_download(
    shelf,
    destination,
    field,
    name,
):
    config = copy.deepcopy(CONFIG)
    (config["quantization_config"] if field == "quant_method" else config)[field] = RAW if name in TEXTS else ODD[name]
    text = json.dumps(config).encode()
    shelf.files[b"config.json"] = text.replace(json.dumps(RAW).encode(), TEXTS.get(name, b""))
    result = publish("s3://bucket/tiny", destination)
    wanted = {"architectures": list, "quantization_config": dict}.get(field, str)
    good = name == "null" or (isinstance(ODD.get(name), wanted) and name not in ("half", "other half", "lists", "deep"))
    good = good or (field, name) == ("quantization_config", "twice")
    if good:
        assert result.code in (0, 4), result.message
        return
    assert (result.code, result.message["file"]) == (4, "config.json"), result.message
    assert shelf.fetched == []


@pytest.mark.parametrize(
    "index",
    [
        b"[]", b"{}", b'{"weight_map": []}', b'{"weight_map": {"a": ["x"]}}', b'{"weight_map": {"a": null}}',
        b'{"weight_map": {"a": "\\ud800.safetensors"}}', b'{"weight_map": {"\\udc00": "a.safetensors"}}',
        b'{"metadata": {"format": "\\ud8ff"}, "weight_map": {"a": "a.safetensors"}}', b"\xef\xbb\xbf{}",
        b'{"metadata": {"total_size": %s}, "weight_map": {}}' % (b"9" * 4301), b"[" * 100_000, b"", b"\0" * 64,
    ],
)  # fmt: skip
@pytest.mark.parametrize("remote", [True, False])
def test_an_index_with_an_odd_value_is_4_before_the_weights_are_brought(
    shelf,
    destination,
    tmp_path,
    index,
    remote,
):
    if remote:
        shelf.files[INDEX.encode()] = index
        result = publish("s3://bucket/tiny", destination)
        assert shelf.fetched == []
    else:
        result = publish(write(tmp_path / "source", {**MODEL, INDEX: index}), destination)
        assert not list(destination.parent.glob(".*.staging/*.safetensors"))
    assert (result.code, result.message["file"]) == (4, INDEX), result.message


TENSOR = b'"dtype":"U8","shape":[4],"data_offsets":[0,4]'


@pytest.mark.parametrize(
    ("header", "taken"),
    [
        (b'{"w":{%s}}' % TENSOR, True),
        (b'{"w":{"dtype":"U8",%s}}' % TENSOR, False),
        (b'{"w":{"\\u0064type":"U8",%s}}' % TENSOR, False),
        (b'{"w":{"shape":[4],%s}}' % TENSOR, False),
        (b'{"w":{"data_offsets":[0,4],%s}}' % TENSOR, False),
        (b'{"w":{"x":1,"x":2,%s}}' % TENSOR, True),
        (b'{"w":{"x":{"dtype":1,"dtype":2},%s}}' % TENSOR, True),
        (b'{"w":{"x":[1],%s}}' % TENSOR, True),
        (b'{"w":{%s},"w":{%s}}' % (TENSOR, TENSOR), True),
        (b'{"w":{"dtype":"U8","shape":[9],"data_offsets":[0,4]},"w":{%s}}' % TENSOR, True),
        (b'{"w":5,"w":{%s}}' % TENSOR, False),
        (b'{"dtype":{%s},"dtype":{%s}}' % (TENSOR, TENSOR), True),
        (b'{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"},"w":{%s}}' % TENSOR, False),
        (b'{"__metadata__":{"a":"b","a":"c"},"w":{%s}}' % TENSOR, True),
        (b'{"__metadata__":{"dtype":"shape: data_offsets"},"w":{%s}}' % TENSOR, True),
        (b'{"__metadata__":null,"w":{%s}}' % TENSOR, True),
        (b'{"__metadata__":{"a":1},"w":{%s}}' % TENSOR, False),
        (b'{"__metadata__":[],"w":{%s}}' % TENSOR, False),
        (b'{"\\ud800":{%s}}' % TENSOR, False),
        (b'{"\\ud83d\\ude00":{%s}}' % TENSOR, True),
        (b'{"__metadata__":{"a":"\\udc00"},"w":{%s}}' % TENSOR, False),
        (b'{"w":{"x":NaN,%s}}' % TENSOR, False),
        (b'{"w":{"x":-Infinity,%s}}' % TENSOR, False),
        (b'{"w":{"x":1e999,%s}}' % TENSOR, False),
        (b'{"w":{"x":%s,%s}}' % (b"9" * 400, TENSOR), False),
        (b'{"w":{"x":%s,%s}}' % (b"9" * 5000, TENSOR), False),
        (b'{"w":{"x":%s,%s}}' % (b"[" * 125 + b"]" * 125, TENSOR), True),
        (b'{"w":{"x":%s,%s}}' % (b"[" * 126 + b"]" * 126, TENSOR), False),
        (b'{"w":{"dtype":"U8","shape":[4.0],"data_offsets":[0,4]}}', False),
        (b'{"w":{"dtype":null,"shape":[4],"data_offsets":[0,4]}}', False),
        (b'{"w":{"dtype":"U8","shape":[true],"data_offsets":[0,4]}}', False),
        (b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,%s]}}' % (b"9" * 4300), False),
        (b'{"w":{"dtype":"U8","shape":[4],"data_offsets":[0,4,4]}}', False),
        (b'{"w":{"dtype":"U8","shape":{},"data_offsets":[0,4]}}', False),
        (b'\xef\xbb\xbf{"w":{%s}}' % TENSOR, False),
        (b'\n {"w":{%s}}  ' % TENSOR, True),
        (b'{"w":{%s}}\0' % TENSOR, False),
        (b'{"w\x01":{%s}}' % TENSOR, False),
        (b'{"w\xed\xa0\x80":{%s}}' % TENSOR, False),
    ],
)  # fmt: skip
def test_a_header_is_taken_exactly_where_the_library_takes_it(tmp_path, header, taken):
    """`taken` is what safetensors 0.8 says, where it is installed, too."""
    data = with_header(header, b"\1\2\3\4")
    source = look(os.fsencode(write(tmp_path, {**MODEL, INDEX: b"", "model.safetensors": data})), ["all"], Patience())
    wrong = [one for one in judge(source, Patience()).findings if one.file == b"model.safetensors" and one.code]
    assert ([one.code for one in wrong] or [0]) == ([0] if taken else [4]), wrong
    library = pytest.importorskip("safetensors")
    try:
        library.deserialize(data)
    except Exception:  # noqa: BLE001 - the class of its errors has no public name
        assert not taken
    else:
        assert taken


@pytest.mark.parametrize("task", ["copy", "--in-place", "--check"])
@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("config.json", b'{"architectures": {"a": 1}, "model_type": "llama"}'),
        ("config.json", b'{"model_type": "\\ud800"}'),
        ("config.json", b'{"model_type": "llama", "quantization_config": []}'),
        ("config.json", b'{"model_type": ' + b"9" * 5000 + b"}"),
        ("config.json", b"[" * 100_000),
        ("config.json", b"\xff\xfe{\0}\0"),
        (INDEX, b'{"weight_map": ["a"]}'),
        (INDEX, b'{"weight_map": {"a": {"b": 1}}}'),
        (INDEX, b'{"weight_map": {"a": "\\udead"}}'),
        (FIRST, with_header(b'{"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
        (FIRST, with_header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,' + b"9" * 4300 + b"]}}", b"x")),
        (FIRST, with_header(b'{"\\udc00":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x")),
    ],
)
def test_publish_ends_with_4_and_the_files_name(tmp_path, capfd, name, data, task):
    source = write(tmp_path / "source", {**MODEL, name: data})
    result = publish(*([source, tmp_path / "to"] if task == "copy" else [task, source]))
    assert result.code == 4, result.message
    said = "".join(capfd.readouterr())
    assert name in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("field", "name"),
    every_other(
        ["schema", "model", "revision", "source", "source_digest", "chosen", "files", "folders", "total_bytes"],
        ["half", "null", "minus", "huge", "list", "object", "lists", "more digits than Python takes"],
    ),
)
def test_a_manifest_with_an_odd_value_ends_every_program_with_words(tmp_path, field, name):
    root = tmp_path / "models/tiny/r1"
    files: dict[str | bytes, bytes | None] = {
        "config.json": MODEL["config.json"],
        "model.safetensors": MODEL[FIRST],
        "tokenizer.json": b"{}",
    }
    assert publish(write(tmp_path / "source", files), root).code == 0
    document = manifest(root) | {field: RAW if name in TEXTS else ODD[name]}
    text = json.dumps(document).encode().replace(json.dumps(RAW).encode(), TEXTS.get(name, b""))
    write(root, {".faststart/manifest.json": text})
    copied = preload(root, tmp_path / "copy")
    assert copied.code in (0, 4), copied.message
    for again in (publish("--check", root), publish(tmp_path / "source", root), publish("--remove", root)):
        assert again.code in (0, 4, 8), again.message


def test_a_line_of_a_model_card_takes_no_time_whatever_it_holds(tmp_path):
    card = b"---\nlicense: a" + b" " * 60_000 + b"x\n---\n"
    source = look(os.fsencode(write(tmp_path, {**MODEL, "README.md": card})), ["all"], Patience())
    assert judge(source, Patience()).licence


@pytest.mark.parametrize("value", ODD.values(), ids=ODD)
def test_what_is_wrong_with_a_configuration_is_one_short_line(value):
    for field in ("architectures", "model_type", "quantization_config"):
        for fault in configuration.faults(b"config.json", json.dumps({field: value}).encode()):
            assert len(fault) < 300
            assert fault.isprintable()
