"""What is said of a model folder: what is refused, what is only odd, and what vLLM would do with it."""

from __future__ import annotations

import bz2
import errno
import io
import json
import math
import os
import pickle
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from modelfolder import safetensors as safetensors_files
from modelfolder import structure
from modelfolder.source import look
from podkit.errors import Exit, FaststartError
from podkit.patience import TRANSIENT, Patience
from publish import pickles
from publish import verdict as verdicts
from publish.verdict import Finding, Verdict, judge
from tests.workloads.support import SHARDS, Naps, write

Files = Mapping[str | bytes, bytes | None]

FIRST, SECOND = SHARDS
INDEX = "model.safetensors.index.json"
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def as_json(document: object) -> bytes:
    return json.dumps(document).encode()


def header_of(tensors: Mapping[str, tuple[str, list[int]]]) -> dict[str, Any]:
    """Return the header of a safetensors file with some tensors, given by type and shape, one after the other."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape) in tensors.items():
        end = at + math.prod(shape) * BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, end]}
        at = end
    return header


def packed(header: object, size: int, padding: int = 0) -> bytes:
    """Return a safetensors file of a header and so many bytes of data."""
    text = as_json(header) + b" " * padding
    return len(text).to_bytes(8, "little") + text + bytes(size)


def size_of(header: Mapping[str, Any]) -> int:
    return max((tensor["data_offsets"][1] for tensor in header.values()), default=0)


def safetensors(**tensors: tuple[str, list[int]]) -> bytes:
    header = header_of(tensors)
    return packed({"__metadata__": {"format": "pt"}, **header}, size_of(header))


def index(weight_map: Mapping[str, str], total_size: object = None) -> bytes:
    return as_json({"metadata": {} if total_size is None else {"total_size": total_size}, "weight_map": weight_map})


def torch_zip(member: str = "archive/data.pkl") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(member, pickle.dumps({"w": 1}))
        archive.writestr("archive/data/0", bytes(200))
    return buffer.getvalue()


def tar(*members: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member in members:
            archive.addfile(tarfile.TarInfo(member))
    return buffer.getvalue()


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 4976698672\n"
CONFIG = as_json({"architectures": ["LlamaForCausalLM"], "model_type": "llama"})
SMALL: Files = {"config.json": CONFIG, "generation_config.json": b"{}", "tokenizer.json": b'{"version": "1.0"}\n'}
MAP = {"embed": FIRST, "head": SECOND, "norm": SECOND}
ONE, TWO = safetensors(embed=("BF16", [100, 10])), safetensors(head=("BF16", [100, 10]), norm=("F32", [10]))
MODEL: Files = {
    **SMALL,
    FIRST: ONE,
    SECOND: TWO,
    INDEX: index(MAP, 4040),
    "README.md": b"---\nlanguage: en\nlicense: apache-2.0  # see LICENSE\n---\nlicense: none\n",
}
WHOLE = safetensors(embed=("BF16", [100, 10]), head=("BF16", [100, 10]), norm=("F32", [10]))
MISTRAL: Files = {
    "params.json": b'{"dim": 10}',
    "tekken.json": b"{}",
    "consolidated.safetensors": WHOLE,
}


def judged(root: Path, files: Files, *patterns: str, **more: bytes | None) -> Verdict:
    """Judge a folder of some files; those whose content is None are not there."""
    there = {name: content for name, content in {**files, **more}.items() if content is not None}
    return judge(look(os.fsencode(write(root, there)), patterns or ["all"], Patience()), Patience())


def lines(findings: tuple[Finding, ...]) -> list[str]:
    return [f"{finding.code} {finding.file} {finding.message}" for finding in findings]


START, MAY, LOADS = "vLLM would not start: ", "vLLM may start and answer wrongly: ", "vLLM would load "
BESIDE = "damaged, in what was asked for and vLLM does not open: "


def test_nothing_is_found_in_a_whole_model_and_its_figures_are_told(tmp_path):
    verdict = judged(tmp_path, MODEL)
    assert lines(verdict.findings) == []
    assert verdict.summary == "vLLM would load 2 safetensors files, 4.0 kB BF16+F32, LlamaForCausalLM"
    assert (verdict.architecture, verdict.licence, verdict.pickles) == ("LlamaForCausalLM", "apache-2.0", ())
    assert verdict.weights
    assert (verdict.weights.format, verdict.weights.files) == ("safetensors", (FIRST.encode(), SECOND.encode()))
    assert (verdict.weights.tensor_bytes, verdict.weights.dtypes, verdict.weights.tensors) == (4040, ("BF16", "F32"), 3)


@dataclass(frozen=True)
class Damaged:
    """What is changed in MODEL, and what is then found: the first finding, and how the summary begins."""

    changed: Files
    file: str | None
    says: str
    summary: str = START
    code: Exit = Exit.DAMAGED


def replaced(name: str, key: str, value: object) -> bytes:
    """Return the second shard with one field of a tensor replaced."""
    header = header_of({"head": ("BF16", [100, 10]), "norm": ("F32", [10])})
    size = size_of(header)
    header[name][key] = value
    return packed(header, size)


NO_WEIGHTS: Files = {FIRST: None, SECOND: None, INDEX: None}
PARTS = ("pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin")
Q4 = ("q4-00001-of-00003.gguf", "q4-00003-of-00003.gguf")
DEEPSEEK = [f"model-{number:05}-of-000163.safetensors" for number in range(1, 164)]
THIRTY = {f"layer{number}": f"model-{number:05}-of-00030.safetensors" for number in range(1, 31)}

DAMAGED = {
    "shard missing, index present": Damaged(
        {FIRST: None}, INDEX, f"names 1 of 2 weight files that are not there: {FIRST}"
    ),
    "index of 30 shards where 2 of 2 are": Damaged({INDEX: index(THIRTY)}, INDEX, "names 30 of 30 weight files"),
    "all shards missing": Damaged({FIRST: None, SECOND: None}, INDEX, "names 2 of 2 weight files"),
    "shard missing, no index": Damaged({FIRST: None, INDEX: None}, SECOND, f"of which 1 is not there ({FIRST})", MAY),
    "shards numbered from 0, one missing": Damaged(
        {**NO_WEIGHTS, "model-00000-of-00002.safetensors": WHOLE},
        "model-00000-of-00002.safetensors",
        "model-00001-of-00002.safetensors",
        MAY,
    ),
    "97 of 99 shards missing, no index": Damaged(
        {**NO_WEIGHTS, "m-01-of-99.safetensors": WHOLE, "m-99-of-99.safetensors": safetensors(x=("U8", [1]))},
        "m-01-of-99.safetensors",
        "of which 97 are not there (m-02-of-99.safetensors, m-03-of-99.safetensors,",
        MAY,
    ),
    "shards as those of DeepSeek-V3, one missing": Damaged(
        {**NO_WEIGHTS, **dict.fromkeys(DEEPSEEK[1:], ONE)}, DEEPSEEK[1], f"of which 1 is not there ({DEEPSEEK[0]})", MAY
    ),
    "shard truncated": Damaged({SECOND: TWO[:-1]}, SECOND, "cut or badly written; fetch it again"),
    "shard of 0 bytes": Damaged({SECOND: b""}, SECOND, "is empty; fetch it again"),
    "shard cut in its header": Damaged({SECOND: TWO[:40]}, SECOND, "is cut or no safetensors file"),
    "shard with trailing bytes": Damaged({SECOND: TWO + b"\0"}, SECOND, "its header describes"),
    "shard of zeros": Damaged({SECOND: bytes(4000)}, SECOND, "its header cannot be read"),
    "header of another encoding": Damaged(
        {SECOND: (6).to_bytes(8, "little") + "{}".encode("utf-16")}, SECOND, "its header cannot be read"
    ),
    "an error page in place of a shard": Damaged({SECOND: b"<!DOCTYPE html>"}, SECOND, "is cut or no safetensors file"),
    "tensors overlap": Damaged(
        {
            SECOND: packed(
                {
                    "x": {"dtype": "U8", "shape": [3], "data_offsets": [0, 3]},
                    "y": {"dtype": "U8", "shape": [2], "data_offsets": [2, 4]},
                },
                4,
            )
        },
        SECOND,
        "y has bytes 2 to 4, where 3 was to come next",
    ),
    "a gap between tensors": Damaged(
        {
            SECOND: packed(
                header_of({"x": ("U8", [2])}) | {"y": {"dtype": "U8", "shape": [2], "data_offsets": [3, 5]}}, 5
            )
        },
        SECOND,
        "y has bytes 3 to 5, where 2 was to come next",
    ),
    "shape unlike the bytes": Damaged(
        {SECOND: replaced("head", "shape", [100, 11])},
        SECOND,
        "head is BF16 of shape [100, 11], its data_offsets give it 2000",
    ),
    "type unlike the bytes": Damaged(
        {SECOND: replaced("head", "dtype", "F32")}, SECOND, "head is F32 of shape [100, 10]"
    ),
    "no type": Damaged({SECOND: replaced("head", "dtype", None)}, SECOND, "no dtype, shape and offsets of head"),
    "a size below zero": Damaged(
        {SECOND: replaced("head", "shape", [-100, -10])}, SECOND, "no dtype, shape and offsets"
    ),
    "a shape of truth values": Damaged(
        {SECOND: replaced("head", "shape", [True])}, SECOND, "no dtype, shape and offsets"
    ),
    "more numbers than 64 bits count": Damaged(
        {SECOND: replaced("head", "shape", [1 << 40, 1 << 40, 0])}, SECOND, "is badly written or has a changed header"
    ),
    "more numbers than 64 bits count, of a type of the future": Damaged(
        {SECOND: packed({"x": {"dtype": "F2", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 1]}}, 1)},
        SECOND,
        "is badly written or has a changed header",
    ),
    "metadata that is no text": Damaged(
        {
            SECOND: packed(
                {"__metadata__": {"step": 1}, "head": {"dtype": "U8", "shape": [1], "data_offsets": [0, 1]}}, 1
            )
        },
        SECOND,
        "__metadata__ of its header",
    ),
    "shard is a Git LFS pointer": Damaged({SECOND: POINTER}, SECOND, "is a Git LFS pointer"),
    "tokenizer is a Git LFS pointer": Damaged({"tokenizer.json": POINTER}, "tokenizer.json", "run `git lfs pull`"),
    "config is a Git LFS pointer": Damaged({"config.json": POINTER}, "config.json", "is a Git LFS pointer"),
    "index is a Git LFS pointer": Damaged({INDEX: POINTER}, INDEX, "is a Git LFS pointer"),
    "index no JSON": Damaged({INDEX: b"{"}, INDEX, "has no readable weight_map; fetch"),
    "index empty": Damaged({INDEX: index({})}, INDEX, "names no safetensors file, so that vLLM opens none"),
    "index names tensors that are nowhere": Damaged(
        {INDEX: index({**MAP, "a": FIRST, "b": FIRST, "c": FIRST})},
        INDEX,
        "names 3 of 6 tensors that are in none of its files (a, b, ...)",
        MAY,
    ),
    "index names a tensor that is nowhere, and one in the other file": Damaged(
        {INDEX: index({**MAP, "head": FIRST, "a": FIRST})}, INDEX, "names 1 of 4 tensors", MAY
    ),
    "a tensor in two files of the index": Damaged(
        {FIRST: safetensors(embed=("U8", [1]), norm=("U8", [1]))}, INDEX, "two hold the same tensors (norm)", MAY
    ),
    "an index of 1 of the 163 parts that its file's name counts": Damaged(
        {**NO_WEIGHTS, DEEPSEEK[0]: WHOLE, INDEX: index(dict.fromkeys(MAP, DEEPSEEK[0]))},
        INDEX,
        f"names 1 parts of what has 163 by its own names: not {DEEPSEEK[1]}",
        MAY,
    ),
    "an index of bin files that leaves one out": Damaged(
        {
            **NO_WEIGHTS,
            **dict.fromkeys(PARTS, torch_zip()),
            "pytorch_model.bin.index.json": index({"a": PARTS[0]}),
        },
        "pytorch_model.bin.index.json",
        f"names 1 of 2 parts that are there: not {PARTS[1]}",
        MAY,
    ),
    "an index of Mistral's layout that leaves the last part out": Damaged(
        {
            **NO_WEIGHTS,
            **MISTRAL,
            "consolidated.safetensors": None,
            "consolidated-00001-of-00002.safetensors": WHOLE,
            "consolidated-00002-of-00002.safetensors": safetensors(x=("BF16", [1])),
            "consolidated.safetensors.index.json": index(dict.fromkeys(MAP, "consolidated-00001-of-00002.safetensors")),
        },
        "consolidated.safetensors.index.json",
        "not consolidated-00002-of-00002.safetensors",
        MAY,
    ),
    "index of bin files names one that is not there": Damaged(
        {
            **NO_WEIGHTS,
            PARTS[0]: torch_zip(),
            "pytorch_model.bin.index.json": index(dict(zip("ab", PARTS, strict=True))),
        },
        "pytorch_model.bin.index.json",
        "names 1 of 2",
        MAY,
    ),
    "index in a subfolder names a shard that is not there": Damaged(
        {"encoder/model.safetensors.index.json": index({"w": "x.safetensors"})},
        "encoder/model.safetensors.index.json",
        "names 1 of 1",
        BESIDE,
    ),
    "config overwritten by another": Damaged(
        {"config.json": b'{"i": "overwrite"}'}, "config.json", "neither model_type"
    ),
    "config missing": Damaged({"config.json": None}, "config.json", "params.json will do", code=Exit.NO_MODEL),
    "config cut": Damaged({"config.json": CONFIG[:-1]}, "config.json", "is no JSON object"),
    "config of a list": Damaged({"config.json": b"[]"}, "config.json", "is no JSON object"),
    "adapter without its base model": Damaged(
        {"config.json": None, "adapter_config.json": b"{}"}, "config.json", "is an adapter", code=Exit.NO_MODEL
    ),
    "config missing, and params.json without Mistral's weights": Damaged(
        {"config.json": None, "params.json": b"{}"}, "config.json", "is missing", code=Exit.NO_MODEL
    ),
    "params.json of Mistral's format no JSON": Damaged(
        {**NO_WEIGHTS, **MISTRAL, "params.json": b"dim"}, "params.json", "is no JSON object"
    ),
    "no weights": Damaged(
        {**NO_WEIGHTS, "tf_model.h5": b"x"}, None, "holds no weights that vLLM opens", code=Exit.NO_MODEL
    ),
    "weights in a subfolder only": Damaged(
        {**NO_WEIGHTS, "x/model.safetensors": WHOLE}, None, "holds no weights", code=Exit.NO_MODEL
    ),
    "weights of .pth only": Damaged(
        {**NO_WEIGHTS, "consolidated.00.pth": torch_zip()},
        None,
        "none of *.safetensors, *.bin, *.pt",
        code=Exit.NO_MODEL,
    ),
    "tokenizer missing": Damaged(
        {"tokenizer.json": None}, None, "holds no tokenizer: at the top there is none of tokenizer.json,"
    ),
    "tokenizer in a subfolder only": Damaged(
        {"tokenizer.json": None, "original/tokenizer.model": b"x"}, None, "holds no tokenizer"
    ),
    "tokenizer of 0 bytes": Damaged({"tokenizer.json": b""}, "tokenizer.json", "is empty"),
    "tokenizer cut": Damaged(
        {"tokenizer.json": b'{"model": {"vocab": {"a": 1,'}, "tokenizer.json", "is cut or no JSON"
    ),
    "an error page in place of a tokenizer": Damaged(
        {"tokenizer.json": b"<html>{}"}, "tokenizer.json", "is cut or no JSON"
    ),
    "extra consolidated at top": Damaged(
        {"consolidated-00001.safetensors": ONE},
        "consolidated-00001.safetensors",
        f"is not whole: it has 1000 numbers, {FIRST} and its like 2010",
    ),
    "consolidated in a subfolder": Damaged(
        {"original/consolidated.safetensors": WHOLE},
        "original/consolidated.safetensors",
        "looks for at the top, where there are none: remove it, or leave it out",
    ),
    "a part of Mistral's layout missing": Damaged(
        {**NO_WEIGHTS, **MISTRAL, "consolidated.safetensors": None, "consolidated-00001-of-00002.safetensors": WHOLE},
        "consolidated-00001-of-00002.safetensors",
        "consolidated-00002-of-00002.safetensors",
        MAY,
    ),
    "gguf that is none": Damaged({**NO_WEIGHTS, "q4.gguf": b"GGML" + bytes(9)}, "q4.gguf", "does not begin with GGUF"),
    "gguf in parts, one missing": Damaged(
        {**NO_WEIGHTS, **dict.fromkeys(Q4, b"GGUF\3")}, Q4[0], "of which 1 is not there (q4-00002-of-00003.gguf)"
    ),
    "torch zip cut": Damaged(
        {**NO_WEIGHTS, "pytorch_model.bin": torch_zip()[:-30]}, "pytorch_model.bin", "is cut: a zip archive"
    ),
    "cut part that some models load": Damaged(
        {"sparse_linear.pt": torch_zip()[:-30]}, "sparse_linear.pt", "is cut: a zip archive", MAY
    ),
    "cut part in a subfolder": Damaged(
        {"2_Dense/config.json": b"{}", "2_Dense/model.safetensors": ONE[:-1]},
        "2_Dense/model.safetensors",
        "cut or badly written",
        MAY,
    ),
    "cut file that vLLM does not open": Damaged(
        {"original/model.safetensors": WHOLE[:-1]}, "original/model.safetensors", "cut or badly written", BESIDE
    ),
    "cut torch zip that vLLM does not open": Damaged(
        {"consolidated.00.pth": torch_zip()[:-30]}, "consolidated.00.pth", "is cut: a zip archive", BESIDE
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_damaged_is_refused_with_its_code_and_the_summary_tells_what_vllm_makes_of_it(tmp_path, name):
    row = DAMAGED[name]
    verdict = judged(tmp_path, {**MODEL, **row.changed})
    about = None if row.file is None else row.file.encode()
    refused = [finding for finding in verdict.findings if finding.code is not None]
    (found,) = [finding for finding in refused if finding.file == about]
    assert (found.code, row.says in found.message) == (row.code, True), found.message
    assert verdict.findings[0].code is not None
    assert verdict.summary.startswith(row.summary)
    first = verdict.findings[0]
    shown = "the folder" if first.file is None else first.file.decode()
    assert verdict.summary.removeprefix(row.summary).startswith(f"{shown} {first.message}")


AGREEING = {
    "index of all": ((1, 2, 3), (1, 2, 3), True),
    "index without the last": ((1, 2), (1, 2, 3), False),
    "index without the first": ((2, 3), (1, 2, 3), False),
    "index and folder without the middle one": ((1, 3), (1, 3), False),
    "index of one that is not there": ((1, 2, 3), (1, 3), False),
    "numbered from 0": ((0, 1, 2), (0, 1, 2), True),
    "numbered from 0, index without the last": ((0, 1), (0, 1, 2), False),
    "no index, all there": (None, (1, 2, 3), True),
    "no index, the last is gone": (None, (1, 2), False),
    "no index, numbered from 0, the last is gone": (None, (0, 1), False),
}
NUMBERED = [
    "model-{:05}-of-00003",
    "model_{}_of_3",
    "model.{:02}.of.03",
    "model.safetensors-{:05}-of-00003",
    "m-{}-of-3-fp8",
]


@pytest.mark.inputs
@pytest.mark.parametrize("stem", NUMBERED)
@pytest.mark.parametrize("name", AGREEING)
def test_index_numbered_files_and_their_count_must_agree_for_publish_and_for_the_copy(tmp_path, name, stem):
    named, there, agree = AGREEING[name]
    of = {number: f"{stem.format(number)}.safetensors" for number in range(4)}
    files = {of[number]: safetensors(**{f"t{number}": ("U8", [8])}) for number in there}
    if named is not None:
        files[INDEX] = index({f"t{number}": of[number] for number in named})
    folder = write(tmp_path, {**SMALL, **files})
    source = look(os.fsencode(folder), ["auto"], Patience())
    codes = [finding.code for finding in judge(source, Patience()).findings if finding.code is not None]
    assert codes == ([] if agree else [Exit.DAMAGED])
    if agree:
        structure.check(source, Patience())
    else:
        with pytest.raises(FaststartError) as caught:
            structure.check(source, Patience())
        assert caught.value.code == Exit.DAMAGED


@pytest.mark.parametrize(
    "extra",
    [
        "model.safetensors",
        "model-00001-of-00007.safetensors",
        "adapter-1-of-2.safetensors",
        "mtp.safetensors",
        "m-1-of-2.gguf",
    ],
)
def test_weights_that_are_no_part_of_what_the_index_names_are_left_out_and_refuse_nothing(tmp_path, extra):
    content = b"GGUF" if extra.endswith("gguf") else ONE
    source = look(os.fsencode(write(tmp_path, {**MODEL, extra: content})), ["auto"], Patience())
    assert extra.encode() in {file.path for file in source.left_out}
    assert [finding for finding in judge(source, Patience()).findings if finding.code is not None] == []
    structure.check(source, Patience())


def test_parts_that_patterns_leave_out_are_a_choice(tmp_path):
    write(tmp_path, {**MODEL, INDEX: None})
    structure.check(look(os.fsencode(tmp_path), ["*.json", FIRST], Patience()), Patience())


TWICE = [f"model-{number:05}-of-00010.safetensors" for number in range(1, 11)]
UNPADDED = [f"model-{number}-of-10.safetensors" for number in range(1, 11)]


def holding(values: Mapping[str, bytes], dtype: str = "U8", shape: list[int] | None = None) -> bytes:
    """Return a safetensors file of tensors with some bytes."""
    header, at = {}, 0
    for name, value in values.items():
        size = [len(value) // (BITS[dtype] // 8)]
        header[name] = {"dtype": dtype, "shape": shape or size, "data_offsets": [at, at + len(value)]}
        at += len(value)
    return packed(header, 0) + b"".join(values.values())


def doubled(names: list[str], first: bytes, last: bytes, named: int, **kind: Any) -> Files:
    """Return ten shards of which the second and the tenth hold the tensor `w`, and an index that names one of them."""
    files = {name: holding({f"t{number}": b"x"}) for number, name in enumerate(names)}
    files[names[1]] = holding({"a": b"1234", "w": first})
    files[names[9]] = holding({"w": last, "z": b"12"}, **kind)
    where = {**{f"t{n}": names[n] for n in range(10) if n not in (1, 9)}, "a": names[1], "z": names[9]}
    return {**SMALL, **files, INDEX: index({**where, "w": names[named]})}


DOUBLED = {
    "the index names the last one": (b"abcdefgh", b"ABCDEFGH", 9, {}, True),
    "the index names the first one, both are equal": (b"abcdefgh", b"abcdefgh", 1, {}, True),
    "the index names the first one, and the last byte differs": (b"abcdefgh", b"abcdefgH", 1, {}, False),
    "the index names the first one, and the type differs": (b"abcdefgh", b"abcdefgh", 1, {"dtype": "I8"}, False),
    "the index names the last one, and the type differs": (b"abcdefgh", b"abcdefgh", 9, {"dtype": "I8"}, True),
    "the index names the last one, of another size": (b"abcdefgh", b"abcdefg", 9, {}, False),
}


@pytest.mark.parametrize("names", [TWICE, UNPADDED], ids=["padded", "numbers as numbers"])
@pytest.mark.parametrize("name", DOUBLED)
def test_a_tensor_in_two_files_is_damage_only_where_vllm_loads_another_than_the_index_names(tmp_path, name, names):
    first, last, named, kind, right = DOUBLED[name]
    verdict = judged(tmp_path, doubled(names, first, last, named, **kind))
    (found,) = [one for one in verdict.findings if "two hold the same tensors (w)" in one.message]
    assert (found.code, found.file) == (None if right else Exit.DAMAGED, INDEX.encode())
    assert verdict.summary.startswith(LOADS if right else MAY)


def test_tensors_that_the_index_does_not_name_at_all_are_noted(tmp_path):
    shard = {FIRST: holding({"embed": b"1", "x": b"2"}), SECOND: holding({"head": b"1", "norm": b"1", "x": b"3"})}
    verdict = judged(tmp_path, {**MODEL, **shard, INDEX: index(MAP)})
    assert [finding.code for finding in verdict.findings] == [None]


@given(st.binary(min_size=1, max_size=40), st.data())
@settings(max_examples=30)
def test_tensors_of_more_than_a_block_are_compared_to_the_last_byte(content, data):
    at = data.draw(st.integers(0, len(content) - 1))
    other = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as root:
        patch.setattr(verdicts, "_BLOCK", 7)
        same = judged(Path(root) / "same", doubled(TWICE, content, content, 1))
        differs = judged(Path(root) / "differs", doubled(TWICE, content, other, 1))
    assert (same.findings[0].code, differs.findings[0].code) == (None, Exit.DAMAGED)


QUANTIZED = {
    "GPTQ": {"q.qweight": ("I32", [8, 8]), "q.qzeros": ("I32", [1, 8]), "q.scales": ("F16", [1, 8])},
    "AWQ's weights alone": {"model.layers.0.self_attn.q_proj.qweight": ("I32", [8, 8])},
    "FP8 in blocks": {"q.weight": ("F8_E4M3", [8, 8]), "q.weight_scale_inv": ("F32", [1, 1])},
    "FP8 as Mistral names it": {"wq.weight": ("F8_E4M3", [8, 8]), "wq.qscale_weight": ("F32", [])},
    "FP8 of powers of two": {"wq.weight": ("F8_E4M3", [8, 8]), "wq.scale": ("F8_E8M0", [1, 1])},
    "NVFP4": {"q.weight": ("U8", [8, 4]), "q.weight_scale": ("F8_E4M3", [8, 1]), "q.weight_scale_2": ("F32", [])},
    "MXFP4": {"experts.gate_up_proj_blocks": ("U8", [8, 4]), "experts.gate_up_proj_scales": ("U8", [8, 1])},
    "compressed-tensors": {"q.weight_packed": ("I32", [8, 1]), "q.weight_scale": ("BF16", [8, 1])},
    "W8A8": {"q.weight": ("I8", [8, 8]), "q.weight_scale": ("F32", [8, 1])},
    "bitsandbytes, 4 bits": {"q.weight": ("U8", [32, 1]), "q.weight.absmax": ("F32", [1])},
    "bitsandbytes, 8 bits": {"q.weight": ("I8", [8, 8]), "q.SCB": ("F32", [8])},
}


@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_tensors_without_any_word_of_how_are_damage(tmp_path, name):
    files = {**SMALL, "model.safetensors": safetensors(embed=("BF16", [100, 10]), **QUANTIZED[name])}
    verdict = judged(tmp_path / "none", files)
    (found,) = [finding for finding in verdict.findings if finding.code is not None]
    assert (found.code, found.file) == (Exit.DAMAGED, b"model.safetensors")
    assert "quantized tensors" in found.message
    for number, told in enumerate(
        [
            {"config.json": as_json({"model_type": "x", "quantization_config": {"quant_method": "gptq"}})},
            {"config.json": as_json({"model_type": "x", "text_config": {"quantization_config": {"bits": 4}}})},
            {"config.json": as_json({"model_type": "x", "compression_config": {"format": "x"}})},
            {"hf_quant_config.json": b"{}"},
            {"quantize_config.json": b"{}"},
            {"quant_config.json": b"{}"},
        ]
    ):
        assert {finding.code for finding in judged(tmp_path / str(number), {**files, **told}).findings} <= {None}


@pytest.mark.parametrize(
    "tensors",
    [
        {"position_ids": ("I64", [1, 8])},
        {"attn.bias": ("BOOL", [8, 8])},
        {"attn.masked_bias": ("U8", [1])},
        {"vocab_map": ("I32", [8])},
        {"k_proj.k_scale": ("F32", [])},
        {"q.weight_scale": ("BF16", [1])},
        {"blocks": ("I8", [8])},
        {"q.weight": ("F8_E5M2", [8, 8])},
    ],
)
def test_tensors_of_whole_numbers_are_no_quantized_weights_by_themselves(tmp_path, tensors):
    verdict = judged(tmp_path, {**SMALL, "model.safetensors": safetensors(embed=("BF16", [100, 10]), **tensors)})
    assert lines(verdict.findings) == []


@dataclass(frozen=True)
class Odd:
    """What is changed in MODEL, and the only finding then, a warning; None if there is none."""

    changed: Files
    file: str | bytes | None = None
    says: str | None = None
    summary: str = LOADS
    patterns: tuple[str, ...] = ("all",)


def config(**keys: object) -> dict[str | bytes, bytes | None]:
    return {"config.json": as_json({"architectures": ["LlamaForCausalLM"], **keys})}


ODD = {
    "a head that vLLM opens by name": Odd({"joint_head.safetensors": ONE, "joint_head_config.json": b"{}"}),
    "Cosmos 3, whose weights lie in folders": Odd(
        {
            **NO_WEIGHTS,
            **config(architectures=["Cosmos3ForConditionalGeneration"]),
            "transformer/diffusion_pytorch_model.safetensors": ONE,
            "vae/diffusion_pytorch_model.safetensors": ONE,
        }
    ),
    "a model of one file": Odd({**NO_WEIGHTS, "model.safetensors": WHOLE}),
    "an embedding model": Odd(
        {
            "generation_config.json": None,
            "modules.json": b"[]",
            "2_Dense/config.json": b"{}",
            "2_Dense/model.safetensors": ONE,
        }
    ),
    "an adapter in a subfolder": Odd(
        {"adapters/a/adapter_config.json": b"{}", "adapters/a/adapter_model.safetensors": ONE}
    ),
    "Mistral's layout alone": Odd(
        {**NO_WEIGHTS, **MISTRAL, "config.json": None, "generation_config.json": None, "tokenizer.json": None}
    ),
    "Mistral's layout with an index": Odd(
        {
            **NO_WEIGHTS,
            **MISTRAL,
            "consolidated.safetensors": None,
            "consolidated-00001-of-00002.safetensors": ONE,
            "consolidated-00002-of-00002.safetensors": TWO,
            "consolidated.safetensors.index.json": index(
                {name: file.replace("model", "consolidated") for name, file in MAP.items()}
            ),
        }
    ),
    "an index of Mistral's layout and a file that it does not name": Odd(
        {
            **NO_WEIGHTS,
            **MISTRAL,
            "consolidated-old.safetensors": ONE,
            "consolidated.safetensors.index.json": index(dict.fromkeys(MAP, "consolidated.safetensors")),
        },
        None,
        "beside the mistral set, 2.1 kB in 1 files: consolidated-old.safetensors",
    ),
    "parts of another whole that the index does not name": Odd(
        {"model-00001-of-00003.safetensors": ONE},
        None,
        "does not open beside the safetensors set, 2.1 kB in 1 files: model-00001-of-00003.safetensors",
    ),
    "parts of another format, one of them missing, beside the indexed ones": Odd(
        {"pytorch_model-00002-of-00002.bin": torch_zip()}, None, "does not open beside the safetensors set"
    ),
    "bin files with an index": Odd(
        {
            **NO_WEIGHTS,
            **dict.fromkeys(PARTS, torch_zip()),
            "pytorch_model.bin.index.json": index(dict(zip("ab", PARTS, strict=True))),
        }
    ),
    "bin files without an index, numbered from 0": Odd(
        {**NO_WEIGHTS, "p-0-of-2.bin": torch_zip(), "p-1-of-2.bin": torch_zip()}
    ),
    "bin files numbered without zeros before": Odd(
        {**NO_WEIGHTS, **{f"p-{number}-of-10.bin": torch_zip() for number in range(1, 11)}}
    ),
    "the index of bin files that were left out": Odd({"pytorch_model.bin.index.json": index({"w": "gone.bin"})}),
    "picture is a Git LFS pointer": Odd({"a.png": POINTER}, "a.png", "is a Git LFS pointer"),
    "paper is a Git LFS pointer": Odd({"paper.pdf": POINTER}, "paper.pdf", "is a Git LFS pointer"),
    "a tokenizer of another kind": Odd({"tokenizer.json": None, "qwen.tiktoken": b"IQ== 0"}),
    "a tokenizer of code": Odd({"tokenizer.json": None, "tokenization_chatglm.py": b"#"}),
    "an index that names a tensor in the other file": Odd(
        {INDEX: index({**MAP, "head": FIRST})},
        INDEX,
        "names 1 of 3 tensors in another file than they are in (head)",
    ),
    "a total_size that is right": Odd({INDEX: index(MAP, 4040.0)}),
    "an index without metadata": Odd({INDEX: as_json({"weight_map": MAP})}),
    "quantized weights": Odd(
        {
            **config(quantization_config={"quant_method": "gptq"}),
            FIRST: safetensors(embed=("BF16", [100, 10])),
            SECOND: safetensors(head=("I32", [100, 5]), norm=("F32", [10])),
        }
    ),
    "a kind of quantization that may be plain": Odd(
        config(quantization_config={"quant_method": "compressed-tensors"}),
    ),
    "gpt-oss with its vocabulary": Odd(
        {"config.json": as_json({"model_type": "gpt_oss"}), "o200k_base.tiktoken": b"IQ== 0"}
    ),
    "an empty file that is no weight": Odd({"empty.txt": b"", "sub/.gitkeep": b""}),
    "index missing, all shards": Odd(
        {INDEX: None}, None, "holds 2 safetensors files and no model.safetensors.index.json: vLLM opens all of them"
    ),
    "total_size of another writer": Odd(
        {INDEX: index(MAP, 1)}, INDEX, "a total_size of 1, the tensors have 4040 bytes"
    ),
    "total_size that is no number": Odd({INDEX: index(MAP, "4" * 99)}, INDEX, "has a total_size of '444"),
    "extra safetensors, index present": Odd(
        {"adapter_model.safetensors": ONE},
        None,
        "does not open beside the safetensors set, 2.1 kB in 1 files: adapter_model.safetensors",
    ),
    "bin beside safetensors": Odd(
        dict.fromkeys(PARTS, torch_zip()),
        None,
        "beside the safetensors set, 910 bytes in 2 files: pytorch_model-00001-of-00002.bin, pytorch",
    ),
    "original and metal beside safetensors": Odd(
        {
            "original/model.safetensors": WHOLE,
            "metal/model.bin": b"x",
            "a.gguf": b"GGUF",
            "consolidated.00.pth": torch_zip(),
        },
        None,
        "beside the safetensors set, 4.8 kB in 4 files: a.gguf, consolidated.00.pth, metal/model.bin, ...",
    ),
    "generation_config.json missing": Odd(
        {"generation_config.json": None}, "generation_config.json", "takes defaults for sampling from it"
    ),
    "code of the model's own": Odd(
        {**config(auto_map={"AutoModel": "m.M"}), "m.py": b"import torch"}, "config.json", "--trust-remote-code"
    ),
    "gpt-oss without its vocabulary": Odd(
        config(architectures=["GptOssForCausalLM"]), "o200k_base.tiktoken", "set TIKTOKEN_ENCODINGS_BASE"
    ),
    "quantized by its configuration alone": Odd(
        config(quantization_config={"quant_method": "fp8"}), "config.json", "fp8, and all are BF16, F32", MAY
    ),
    "gguf alone": Odd(
        {
            **NO_WEIGHTS,
            "config.json": None,
            "tokenizer.json": None,
            "generation_config.json": None,
            "q4.gguf": b"GGUF\3",
        },
        None,
        "vLLM does not take the folder, only the path of one such file",
        START,
    ),
    "a name that is no UTF-8": Odd({b"notes-\xff.txt": b"x"}, b"notes-\xff.txt", "is no UTF-8"),
    "a type of the future": Odd(
        {SECOND: replaced("head", "dtype", "F2_E1")}, SECOND, "does not know, so that vLLM may not load it: F2_E1"
    ),
    "both layouts, of which Mistral's is left out": Odd(
        {"consolidated.safetensors": WHOLE, "params.json": b"{}"},
        None,
        "several weight formats: safetensors is copied, left out: mistral",
        patterns=("auto",),
    ),
}


@pytest.mark.parametrize("name", ODD)
def test_what_is_only_odd_is_a_warning_and_refuses_nothing(tmp_path, name):
    row = ODD[name]
    verdict = judged(tmp_path, {**MODEL, **row.changed}, *row.patterns)
    if row.says is None:
        assert lines(verdict.findings) == []
    else:
        (found,) = verdict.findings
        about = row.file.encode() if isinstance(row.file, str) else row.file
        assert (found.code, found.file, row.says in found.message) == (None, about, True), found
    assert verdict.summary.startswith(row.summary)


def test_both_layouts_whole_are_two_warnings_and_vllm_takes_that_of_mistral(tmp_path):
    verdict = judged(tmp_path, {**MODEL, **MISTRAL})
    assert [finding.code for finding in verdict.findings] == [None, None]
    assert "vLLM 0.12 and newer then takes Mistral's format" in verdict.findings[0].message
    assert f"beside the mistral set, 4.3 kB in 2 files: {FIRST}, {SECOND}" in verdict.findings[1].message
    assert (
        verdict.summary == "vLLM would load 1 safetensors file of Mistral's format, 4.0 kB BF16+F32, LlamaForCausalLM"
    )


def test_tensors_in_two_files_without_an_index_are_told_beside_the_missing_index(tmp_path):
    verdict = judged(tmp_path, {**MODEL, INDEX: None, "model.safetensors": WHOLE})
    assert [finding.code for finding in verdict.findings] == [None, None]
    assert "tensors that are in two files (embed, head, ...), and no index" in verdict.findings[1].message


ZEROS = "shard right size, zeros inside"

MEASURED = {
    "shard missing, index present": (DAMAGED["shard missing, index present"].changed, START),
    "shard missing, no index": (DAMAGED["shard missing, no index"].changed, MAY),
    ZEROS: ({SECOND: TWO[:200] + bytes(len(TWO) - 200)}, LOADS),
    "shard truncated": (DAMAGED["shard truncated"].changed, START),
    "shard of 0 bytes": (DAMAGED["shard of 0 bytes"].changed, START),
    "index missing, all shards": (ODD["index missing, all shards"].changed, LOADS),
    "extra safetensors, index present": (ODD["extra safetensors, index present"].changed, LOADS),
    "extra consolidated at top": (DAMAGED["extra consolidated at top"].changed, START),
    "consolidated nested": (DAMAGED["consolidated in a subfolder"].changed, START),
    "config overwritten": (DAMAGED["config overwritten by another"].changed, START),
    "tokenizer missing": (DAMAGED["tokenizer missing"].changed, START),
    "generation_config missing": (ODD["generation_config.json missing"].changed, LOADS),
}
"""How vLLM 0.32 was seen to react; where it depends on what the missing tensors are, it may start."""


@pytest.mark.parametrize("name", MEASURED)
def test_the_summary_says_what_vllm_was_seen_to_do(tmp_path, name):
    changed, summary = MEASURED[name]
    verdict = judged(tmp_path, {**MODEL, **changed})
    assert verdict.summary.startswith(summary)
    if summary == LOADS:
        assert verdict.summary == "vLLM would load 2 safetensors files, 4.0 kB BF16+F32, LlamaForCausalLM"


def test_what_is_refused_is_not_said_again_as_a_note(tmp_path):
    verdict = judged(tmp_path, MODEL, **{INDEX: index(THIRTY)})
    assert [finding.file for finding in verdict.findings if "names 30 of 30" in finding.message] == [INDEX.encode()]


def test_the_worst_comes_first_then_warnings_each_in_the_order_of_paths(tmp_path):
    cut = dict.fromkeys(["a/original/a.safetensors", "z.safetensors"], b"cut")
    files = {**MODEL, **cut, "config.json": b"{}", "generation_config.json": None, SECOND: TWO[:-1]}
    verdict = judged(tmp_path, files)
    assert [(finding.file, finding.code) for finding in verdict.findings] == [
        (b"config.json", Exit.DAMAGED),
        (SECOND.encode(), Exit.DAMAGED),
        (b"a/original/a.safetensors", Exit.DAMAGED),
        (b"z.safetensors", Exit.DAMAGED),
        (None, None),
    ]
    assert verdict.summary.endswith("fetch it again (and 1 more)")


def test_a_type_of_any_name_is_told_in_printable_text(tmp_path):
    data = packed({"x": {"dtype": "\u2028\n", "shape": [1], "data_offsets": [0, 1]}}, 1)
    verdict = judged(tmp_path, {**SMALL, "model.safetensors": data})
    assert verdict.weights
    assert verdict.weights.dtypes == ("\\u2028\\n",)
    assert verdict.findings[0].message.endswith(": \\u2028\\n")


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"architectures": ["A", "B"], "model_type": "m"}, "A"),
        ({"architectures": [], "model_type": "m"}, "m"),
        ({"architectures": None, "model_type": "m"}, "m"),
        ({"architectures": ["\u2028\n"]}, "\\u2028\\n"),
    ],
)
def test_the_architecture_is_the_first_one_else_the_model_type(tmp_path, keys, expected):
    verdict = judged(tmp_path, MODEL, **{"config.json": as_json(keys)})
    assert verdict.architecture == expected
    assert verdict.summary.endswith(f", {expected}" if expected else "F32")


@pytest.mark.parametrize(
    ("card", "expected"),
    [
        (b"---\nlicense: mit\n---\n", "mit"),
        (b"\xef\xbb\xbf---\r\nlicense: 'llama3.1' # text\r\n---\r\n", "llama3.1"),
        (b'---\nlicense_name: x\nlicense: "other"\n', "other"),
        (b"---\nlicense:\n- mit\n---\n", None),
        (b"---\nlicense: # none\n---\n", None),
        (b"---\n  license: mit\n---\n", None),
        (b"---\ntitle: x\n---\nlicense: mit\n", None),
        (b"license: mit\n", None),
        (b"", None),
    ],
)
def test_the_licence_is_that_of_the_front_matter(tmp_path, card, expected):
    assert judged(tmp_path, MODEL, **{"README.md": card}).licence == expected


@pytest.mark.parametrize(
    ("files", "kind", "named"),
    [
        ({"pytorch_model.bin": torch_zip()}, "bin", ["pytorch_model.bin"]),
        ({"a.pt": torch_zip(), "b.pth": torch_zip()}, "pt", ["a.pt"]),
        ({"q4.gguf": b"GGUF"}, "gguf", ["q4.gguf"]),
        ({"model.safetensors": WHOLE[:-1]}, "safetensors", ["model.safetensors"]),
    ],
    ids=["bin", "pt", "gguf", "damaged safetensors"],
)
def test_of_weights_without_a_readable_header_only_the_files_are_told(tmp_path, files, kind, named):
    weights = judged(tmp_path, {**MODEL, **NO_WEIGHTS, **files}).weights
    assert weights
    assert (weights.format, list(map(os.fsdecode, weights.files))) == (kind, named)
    assert (weights.tensor_bytes, weights.dtypes, weights.tensors) == (None, (), None)


def test_a_folder_without_weights_has_none_to_tell(tmp_path):
    assert judged(tmp_path, SMALL).weights is None


TENSORS = st.dictionaries(
    st.text(min_size=1, max_size=5).filter("__metadata__".__ne__),
    st.tuples(st.sampled_from(sorted(BITS)), st.lists(st.integers(0, 4), max_size=3)).filter(
        lambda tensor: math.prod(tensor[1]) * BITS[tensor[0]] % 8 == 0
    ),
    min_size=1,
    max_size=4,
)


def verdict_on(data: bytes) -> Verdict:
    """Judge a folder whose only weights are some bytes."""
    with tempfile.TemporaryDirectory() as root:
        return judged(Path(root), {**SMALL, "model.safetensors": data})


def is_refused(data: bytes) -> bool:
    found = {(finding.file, finding.code) for finding in verdict_on(data).findings}
    return (b"model.safetensors", Exit.DAMAGED) in found


@given(TENSORS, st.randoms(), st.integers(0, 9), st.none() | st.dictionaries(st.text(), st.text(), max_size=2))
def test_no_file_that_is_written_well_is_refused(tensors, random, padding, metadata):
    header = list(header_of(tensors).items())
    size = size_of(dict(header))
    random.shuffle(header)
    verdict = verdict_on(
        packed({**({} if metadata is None else {"__metadata__": metadata}), **dict(header)}, size, padding)
    )
    assert lines(verdict.findings) == []
    assert verdict.weights
    assert (verdict.weights.tensor_bytes, verdict.weights.tensors) == (size, len(tensors))
    assert verdict.weights.dtypes == tuple(sorted({dtype for dtype, _ in tensors.values()}))


@given(TENSORS, st.data())
def test_a_header_with_any_one_field_changed_that_says_where_bytes_are_is_refused(tensors, data):
    header = header_of(tensors)
    size = size_of(header)
    tensor = header[data.draw(st.sampled_from(sorted(header)))]
    start, end = tensor["data_offsets"]
    change = data.draw(st.sampled_from(["dtype", "shape", "start", "end", "kind", "none"]))
    match change:
        case "dtype":
            tensor["dtype"] = data.draw(st.sampled_from(sorted(BITS)))
        case "shape":
            tensor["shape"] = data.draw(st.lists(st.integers(-3, 9) | st.just(1 << 70), max_size=4))
        case "start":
            tensor["data_offsets"] = [data.draw(st.integers(-3, size + 3).filter(start.__ne__)), end]
        case "end":
            tensor["data_offsets"] = [start, data.draw(st.integers(-3, size + 3).filter(end.__ne__))]
        case "kind":
            other = st.none() | st.booleans() | st.floats() | st.text() | st.just({}) | st.just([1.0, 2])
            tensor[data.draw(st.sampled_from(["shape", "data_offsets"]))] = data.draw(other)
        case _:
            del tensor[data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))]
    if change in ("dtype", "shape"):
        # Another type or shape for just as many bytes is no damage that a header could show.
        assume(math.prod(tensor["shape"]) * BITS[tensor["dtype"]] != (end - start) * 8)
    assert is_refused(packed(header, size))


@given(TENSORS, st.integers(0), st.integers(1, 40) | st.binary(min_size=1, max_size=40))
def test_a_file_that_lost_or_got_bytes_at_any_place_is_refused(tensors, place, change):
    header = header_of(tensors)
    whole = packed(header, size_of(header))
    at = place % len(whole)
    if isinstance(change, int):
        assert is_refused(whole[:at] + whole[at + change :])
    else:
        assert is_refused(whole[:at] + change + whole[at:])
        assert is_refused(whole + change)


def test_a_file_that_is_cut_at_any_place_is_refused():
    assert [at for at in range(len(TWO[:160])) if not is_refused(TWO[:at])] == []


@given(TENSORS, st.sampled_from([(), ("embed",), ("x",)]))
def test_an_index_that_names_a_renamed_tensor_is_refused(tensors, renamed):
    names = [*tensors, *renamed]
    with tempfile.TemporaryDirectory() as root:
        files = {"model.safetensors": safetensors(**tensors), INDEX: index(dict.fromkeys(names, "model.safetensors"))}
        verdict = judged(Path(root), {**SMALL, **files})
    assert [finding.file for finding in verdict.findings] == ([INDEX.encode()] if set(renamed) - tensors.keys() else [])


def found_pickles(files: Mapping[str, bytes]) -> list[str]:
    with tempfile.TemporaryDirectory() as root:
        return list(map(os.fsdecode, judged(Path(root), {**SMALL, "model.safetensors": WHOLE, **files}).pickles))


OBJECTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=5,
)


@given(OBJECTS, st.integers(0, 5), st.sampled_from(pickles.SUFFIXES))
def test_a_pickle_of_any_protocol_is_found_by_its_content_where_it_is_named_like_one(content, protocol, suffix):
    name = "x" + suffix.decode()
    assert found_pickles({name: pickle.dumps(content, protocol)}) == [name]


@given(OBJECTS, st.integers(2, 5), st.sampled_from(["x", "x.json", "sub/x.dat", "x.py"]))
def test_a_pickle_of_a_protocol_that_marks_it_is_found_whatever_its_name(content, protocol, name):
    assert found_pickles({name: pickle.dumps(content, protocol)}) == [name]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("x.bin", torch_zip(), True),
        ("x.dat", torch_zip(), True),
        ("x.bin", torch_zip("archive/constants.pkl"), True),
        ("x.npz", torch_zip("w.npy"), False),
        ("x.bin", torch_zip("w.npy"), True),
        ("x.bin", torch_zip()[:-30], True),
        ("x.pkl", torch_zip()[:-30], True),
        ("x.dat", torch_zip()[:-30], False),
        ("x.bin", b"PK\x03\x04", True),
        ("x.pt", tar("sys_info", "pickle"), True),
        ("x", tar("./storages/"), True),
        ("x.tar", tar("code/x.pt"), False),
        ("x.ckpt", tar("code/x.pt"), True),
        ("x.joblib", bz2.compress(b"x"), True),
        ("x.pkl", b"x\x9cabc", True),
        ("x.dat", b"x\x9cabc", False),
        ("X.PKL", pickle.dumps(1, 0), True),
        ("x.bin", b"cos\nsystem\n(S'id'\ntR.", True),
        ("x.bin", b"(" * 200, True),
        ("x.bin", b"X" + (20 << 20).to_bytes(4, "little") + bytes(100), True),
        ("x.txt", b"cos\nsystem\n(S'id'\ntR.", False),
        ("x.bin", b"", False),
        ("x.bin", b"\x08\x07\x12\x07pytorch", False),
        ("x.bin", bytes(600), False),
        ("x.bin", b"I am a text, and no pickle.", True),
        ("x.bin", b"A text, and no pickle.", False),
        ("x.bin", b"lmgg\x01\0\0\0", False),
        ("x.pt", b"<html>", False),
        ("x.gguf", b"\x80\x02.", False),
        ("x.safetensors", b"\x80\x02.", False),
        ("x.onnx", b"\x08\x07\x12\x07pytorch", False),
    ],
)
def test_a_pickle_is_known_by_its_content_and_in_doubt_by_its_name(name, content, expected):
    assert found_pickles({name: content}) == ([name] if expected else [])


@pytest.mark.parametrize("first", [b"X", b"V"])
def test_a_pickle_that_begins_with_more_than_is_read_at_once_is_one(tmp_path, first):
    big = tmp_path / "x.bin"
    write(tmp_path, {**SMALL, "x.bin": first + (17 << 20).to_bytes(4, "little")})
    os.truncate(big, 18 << 20)
    assert judge(look(os.fsencode(tmp_path), ["all"], Patience()), Patience()).pickles == (b"x.bin",)


@example(b"S'\\Y'\n.", b"")
@given(st.binary(max_size=80), st.sampled_from([b"", b"PK\x03\x04", b"PK\x03\x04PK\x05\x06", b"PK\x05\x06"]))
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")  # pickletools warns of odd texts
def test_no_content_breaks_the_search_for_pickles(content, start):
    assert set(found_pickles({"x.bin": start + content, "y.dat": start + content})) <= {"x.bin", "y.dat"}


@given(st.integers(0), st.binary(min_size=1, max_size=4))
@example(0, b"")
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_an_archive_with_changed_bytes_is_no_error_and_a_cut_one_is_a_pickle(at, change):
    whole = torch_zip()
    at %= len(whole)
    found = found_pickles({"x.bin": whole[:at] + change + whole[at + len(change) :], "y.bin": whole[: at + 1]})
    assert "y.bin" in found


POOL = [
    b"", b"{}", b"[]", b"x", b"\xff\xfe", POINTER, ONE, TWO, TWO[:-1], WHOLE, CONFIG, torch_zip(), b"GGUF\3", index({}),
    index(MAP), index({"a": "../x", "b": "/etc/passwd", "c": "\x1b[2J"}), b"[" * 9999, b'{"weight_map": {"a": 1}}',
    as_json({"architectures": ["\ud800"], "quantization_config": 3, "auto_map": []}),
    b"---\nlicense: \x1b\n---", b"1" * 5000,
]  # fmt: skip
NAMES = [
    *MODEL, *MISTRAL, *PARTS, *Q4, "model.safetensors", "original/consolidated.safetensors", "a/config.json", "a.pth",
    "consolidated.safetensors.index.json", "pytorch_model.bin.index.json", "a/model.safetensors", "tokenizer.model",
    "a/model.safetensors.index.json", b"\xff.safetensors", "o200k_base.tiktoken", "adapter_config.json", "modules.json",
    "model-99999999999999999999-of-99999999999999999999.safetensors", "a\nb.bin", "m-1-of-0.bin", "m-0-of-0.bin",
]  # fmt: skip


@settings(max_examples=200)
@given(st.dictionaries(st.sampled_from(NAMES), st.sampled_from(POOL), min_size=1))
def test_whatever_lies_in_a_folder_there_is_a_verdict_that_agrees_with_itself_and_with_preload(files):
    with tempfile.TemporaryDirectory() as root:
        write(Path(root), files)
        try:
            source = look(os.fsencode(root), ["all"], Patience())
        except FaststartError:
            return
        verdict = judge(source, Patience())
        refused = [finding for finding in verdict.findings if finding.code is not None]
        refused_by_preload: list[bytes | None] = []
        try:
            structure.check(source, Patience())
        except FaststartError as error:
            refused_by_preload.append(error.file)
    assert set(refused_by_preload) <= {finding.file for finding in refused}
    assert verdict.findings[: len(refused)] == tuple(refused)
    assert all(text.isprintable() for text in (verdict.summary, *(finding.message for finding in verdict.findings)))
    assert verdict.summary.startswith((START, MAY, BESIDE, LOADS))
    assert not (refused and verdict.summary.startswith(LOADS))
    assert verdict.weights or verdict.summary.startswith(START)
    if not verdict.findings:
        assert verdict.summary.startswith(LOADS)
    for text in (verdict.architecture, verdict.licence, *(verdict.weights.dtypes if verdict.weights else ())):
        assert text is None or text.isprintable()


def test_a_file_that_goes_away_is_no_damage_and_ends_with_8(tmp_path):
    source = look(
        os.fsencode(write(tmp_path, {name: data or b"" for name, data in MODEL.items()})), ["all"], Patience()
    )
    (tmp_path / SECOND).unlink()
    with pytest.raises(FaststartError) as caught:
        judge(source, Patience())
    assert (caught.value.code, caught.value.file) == (Exit.CHANGED, SECOND.encode())


@pytest.mark.parametrize(("code", "expected"), [(TRANSIENT[0], Exit.IO_ERROR), (errno.EACCES, Exit.NOT_PERMITTED)])
@pytest.mark.parametrize(
    ("module", "name", "content"),
    [
        (pickles, "x.bin", torch_zip()),
        (pickles, "x.bin", pickle.dumps("text", 0)),
        (safetensors_files, FIRST, ONE),
        (structure, INDEX, index(MAP)),
    ],
    ids=["zip", "pickle", "header", "index"],
)
def test_an_error_of_the_file_system_is_no_damage_even_where_a_library_would_swallow_it(
    tmp_path, monkeypatch, module, name, content, code, expected
):
    class Broken(io.BytesIO):
        def read(self, size: int | None = -1, /) -> bytes:
            raise OSError(code, "broken")

    source = look(os.fsencode(write(tmp_path, {**SMALL, name: content})), ["all"], Patience())
    monkeypatch.setattr(module, "open_regular", lambda real: Broken(content))
    naps = Naps()
    with pytest.raises(FaststartError) as caught:
        judge(source, Patience(naps))
    assert (caught.value.code, caught.value.file) == (expected, name.encode())
    assert (naps.seconds > 0) == (code in TRANSIENT)


def test_a_stop_ends_it(tmp_path):
    patience = Patience()
    source = look(os.fsencode(write(tmp_path, MODEL)), ["all"], patience)
    patience.stopped = True
    with pytest.raises(FaststartError) as caught:
        judge(source, patience)
    assert caught.value.code == Exit.TERMINATED
