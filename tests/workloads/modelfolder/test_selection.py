"""Which files of a model folder `--files` chooses: realistic folders first, then what holds for any folder."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from modelfolder.selection import SMALL, Selection, select
from podkit.errors import Exit, FaststartError
from tests.workloads.support import index

GB = 1_000_000_000
MB = 1_000_000

Files = dict[str | bytes, int | bytes]
"""Size of each file, or its content where that is read."""


def chosen(files: Files, *patterns: str) -> Selection:
    contents = {os.fsencode(path): what for path, what in files.items() if isinstance(what, bytes)}
    sizes = {os.fsencode(path): len(what) if isinstance(what, bytes) else what for path, what in files.items()}
    return select(sizes, patterns or ["auto"], contents.__getitem__)


def left_out(files: Files, *patterns: str) -> dict[str, str]:
    return {os.fsdecode(file.path): file.reason for file in chosen(files, *patterns).left_out}


def kept(files: Files, *patterns: str) -> set[str]:
    return set(map(os.fsdecode, chosen(files, *patterns).paths))


def shards(stem: str, count: int, size: int, suffix: str = "safetensors") -> Files:
    return {f"{stem}-{number:05}-of-{count:05}.{suffix}": size for number in range(1, count + 1)}


def indexed(stem: str, count: int, size: int, suffix: str = "safetensors") -> Files:
    found = shards(stem, count, size, suffix)
    return {**found, f"{stem}.{suffix}.index.json": index(*map(str, found))}


CONFIGS: Files = {"config.json": 1000, "generation_config.json": 200}
HF: Files = {
    **CONFIGS,
    "tokenizer.json": 17 * MB,
    "tokenizer_config.json": 50_000,
    "special_tokens_map.json": 300,
    "README.md": 20_000,
    "LICENSE": 11_000,
    ".gitattributes": 1_500,
}


@dataclass(frozen=True)
class Repo:
    """A folder: what is needed, what is not with a word of each reason, and the needed weights."""

    needed: Files
    waste: dict[str, tuple[int | bytes, str]]
    weights: tuple[str, set[str]] | None
    notes: tuple[str, ...] = ()


ORIGINAL = "original/: another layout"
SAFETENSORS = "another weight format: safetensors is there"
INDEX = "an index of weights that are not copied"

REPOS = {
    "gpt-oss-120b": Repo(
        {**HF, **indexed("model", 15, 4_350 * MB), "chat_template.jinja": 17_000, "USAGE_POLICY": 300},
        {
            "original/config.json": (400, ORIGINAL),
            "original/dtypes.json": (13_000, ORIGINAL),
            "original/model--00001-of-00007.safetensors": (10 * GB, ORIGINAL),
            "original/model.safetensors": (55 * GB, ORIGINAL),
            "metal/model.bin": (65 * GB, "metal/: weights for Apple's chips"),
        },
        ("safetensors", set(map(str, shards("model", 15, 0)))),
    ),
    "Llama-3.1-8B": Repo(
        {**HF, **indexed("model", 4, 4 * GB), "USE_POLICY.md": 4_700},
        {
            "original/consolidated.00.pth": (16 * GB, ORIGINAL),
            "original/params.json": (200, ORIGINAL),
            "original/tokenizer.model": (2 * MB, ORIGINAL),
        },
        ("safetensors", set(map(str, shards("model", 4, 0)))),
    ),
    "Mistral-7B-v0.3, both layouts and both tokenizers": Repo(
        {
            **HF,
            **indexed("model", 3, 4_800 * MB),
            "params.json": 200,
            "tokenizer.model": 590_000,
            "tokenizer.model.v3": 590_000,
        },
        {"consolidated.safetensors": (14_500 * MB, SAFETENSORS)},
        ("safetensors", set(map(str, shards("model", 3, 0)))),
        (
            (
                "several weight formats: safetensors is copied, left out: mistral, 14.50 GB; "
                "for vLLM's --load-format mistral name the files with --files"
            ),
        ),
    ),
    "Mistral-Small-3.2, both layouts and only Mistral's tokenizer": Repo(
        {**CONFIGS, "consolidated.safetensors": 48 * GB, "params.json": 1_200, "tekken.json": 20 * MB},
        {
            **{str(path): (4_800 * MB, "another weight format: mistral is there") for path in shards("model", 10, 0)},
            "model.safetensors.index.json": (index(*map(str, shards("model", 10, 0))), INDEX),
        },
        ("mistral", {"consolidated.safetensors"}),
        ("several weight formats: mistral is copied, left out: safetensors, 48.00 GB",),
    ),
    "Mistral-Large-3, Mistral's layout alone": Repo(
        {**indexed("consolidated", 4, 5 * GB), "params.json": 1_200, "tekken.json": 20 * MB},
        {},
        ("mistral", set(map(str, shards("consolidated", 4, 0)))),
    ),
    "Mistral's layout with the index of shards that were not downloaded": Repo(
        {"config.json": 1000, "consolidated.safetensors": 48 * GB, "params.json": 1_200, "tekken.json": 20 * MB},
        {"model.safetensors.index.json": (index("model-00001-of-00001.safetensors"), INDEX)},
        ("mistral", {"consolidated.safetensors"}),
    ),
    "Mixtral-8x7B": Repo(
        {**HF, **indexed("model", 19, 4_900 * MB)},
        {f"consolidated.{number:02}.pt": (12 * GB, SAFETENSORS) for number in range(8)},
        ("safetensors", set(map(str, shards("model", 19, 0)))),
        ("several weight formats: safetensors is copied, left out: pt, 96.00 GB",),
    ),
    "Llama-2, bin beside safetensors": Repo(
        {**HF, **indexed("model", 2, 6_700 * MB)},
        {
            **{str(path): (6_700 * MB, SAFETENSORS) for path in shards("pytorch_model", 2, 0, "bin")},
            "pytorch_model.bin.index.json": (b"{}", INDEX),
        },
        ("safetensors", set(map(str, shards("model", 2, 0)))),
        ("several weight formats: safetensors is copied, left out: bin, 13.40 GB",),
    ),
    "an old BERT in every format": Repo(
        {**CONFIGS, "model.safetensors": 440 * MB, "vocab.txt": 230_000},
        {
            "pytorch_model.bin": (440 * MB, SAFETENSORS),
            "tf_model.h5": (536 * MB, SAFETENSORS),
            "flax_model.msgpack": (438 * MB, SAFETENSORS),
            "rust_model.ot": (534 * MB, SAFETENSORS),
            "model.onnx": (440 * MB, SAFETENSORS),
            "openvino_model.bin": (440 * MB, SAFETENSORS),
            "openvino_model.xml": (200_000, SAFETENSORS),
            "onnx/model.onnx": (440 * MB, "onnx/: another weight format"),
            "openvino/openvino_model.bin": (440 * MB, "openvino/: another weight format"),
            "coreml/fill-mask/model.mlpackage/Data/weight.bin": (440 * MB, "coreml/: weights for Apple's chips"),
        },
        ("safetensors", {"model.safetensors"}),
        ("several weight formats: safetensors is copied, left out: bin, 0.44 GB",),
    ),
    "bin alone with an index and what training left": Repo(
        {**HF, **indexed("pytorch_model", 2, 10 * GB, "bin")},
        {
            "pytorch_model.bin": (20 * GB, "not named by pytorch_model.bin.index.json"),
            "training_args.bin": (5_000, "left by the training"),
            "optimizer.pt": (40 * GB, "left by the training"),
            "scheduler.pt": (1_000, "left by the training"),
            "rng_state_0.pth": (15_000, "left by the training"),
            "checkpoint-500/model.safetensors": (20 * GB, "checkpoint-500/: a checkpoint"),
            "checkpoint-500/config.json": (1000, "checkpoint-500/: a checkpoint"),
        },
        ("bin", set(map(str, shards("pytorch_model", 2, 0, "bin")))),
    ),
    "gemma with a .gguf": Repo(
        {**HF, **indexed("model", 4, 4_250 * MB), "tokenizer.model": 4 * MB},
        {"gemma-7b.gguf": (34 * GB, SAFETENSORS), "quants/gemma-q4.gguf": (5 * GB, SAFETENSORS)},
        ("safetensors", set(map(str, shards("model", 4, 0)))),
        ("several weight formats: safetensors is copied, left out: gguf, 34.00 GB",),
    ),
    "gguf alone": Repo(
        {**shards("model-Q4_K_M", 2, 20 * GB, "gguf"), "mmproj.gguf": 800 * MB, "Q8/model-Q8.gguf": 70 * GB},
        {"banner.PNG": (100_000, "picture")},
        ("gguf", {*map(str, shards("model-Q4_K_M", 2, 0, "gguf")), "mmproj.gguf"}),
    ),
    "an embedding model of sentence-transformers": Repo(
        {
            **HF,
            "model.safetensors": 600 * MB,
            "modules.json": 500,
            "config_sentence_transformers.json": 200,
            "sentence_bert_config.json": 60,
            "1_Pooling/config.json": 300,
            "2_Dense/config.json": 100,
            "2_Dense/model.safetensors": 9 * MB,
            "3_Dense_1024/config.json": 100,
            "3_Dense_1024/pytorch_model.bin": 9 * MB,
        },
        {
            "2_Dense/pytorch_model.bin": (9 * MB, SAFETENSORS),
            "onnx/model.onnx_data": (600 * MB, "onnx/: another weight format"),
        },
        ("safetensors", {"model.safetensors"}),
    ),
    "bge-m3, whose small heads vLLM loads by name": Repo(
        {
            **HF,
            "pytorch_model.bin": 2_270 * MB,
            "colbert_linear.pt": 2_100_000,
            "sparse_linear.pt": 3_500,
            "sentencepiece.bpe.model": 5 * MB,
            "long.txt": 70 * MB,
        },
        {"imgs/mkqa.jpg": (600_000, "picture"), "imgs/others.webp": (20_000, "picture")},
        ("bin", {"pytorch_model.bin"}),
    ),
    "a LoRA adapter": Repo(
        {"adapter_config.json": 700, "adapter_model.safetensors": 160 * MB, "tokenizer.json": 9 * MB},
        {"adapter_model.bin": (160 * MB, SAFETENSORS), "training_args.bin": (5_000, "left by the training")},
        ("safetensors", {"adapter_model.safetensors"}),
        ("several weight formats: safetensors is copied, left out: bin, 0.16 GB",),
    ),
    "a model with adapters": Repo(
        {
            **HF,
            **indexed("model", 3, 4 * GB),
            "adapter_config.json": 700,
            "adapter_model.safetensors": 160 * MB,
            "vision-lora/adapter_config.json": 700,
            "vision-lora/adapter_model.safetensors": 800 * MB,
            "modeling_phi4mm.py": 120_000,
            "additional_chat_templates/tool_use.jinja": 4_000,
        },
        {"examples/what_is_shown.WAV": (300_000, "audio"), "sample_inference.ipynb": (50_000, "notebook")},
        ("safetensors", set(map(str, shards("model", 3, 0)))),
    ),
    "DeepSeek-V3": Repo(
        {
            **HF,
            **indexed("model", 163, 4_200 * MB),
            "modeling_deepseek.py": 75_000,
            "inference/model.py": 30_000,
            "inference/configs/config_671B.json": 500,
        },
        {
            "figures/benchmark.png": (180_000, "figures/: pictures"),
            "figures/niah.txt": (100, "figures/: pictures"),
            "DeepSeek_V3.pdf": (70 * MB, "0.07 GB of a kind that vLLM does not open"),
        },
        ("safetensors", set(map(str, shards("model", 163, 0)))),
    ),
    "more safetensors than the index names": Repo(
        {**HF, **indexed("model", 2, 5 * GB)},
        {
            "mtp.safetensors": (3 * GB, "not named by model.safetensors.index.json"),
            "model.safetensors": (10 * GB, "not named by model.safetensors.index.json"),
            **{str(path): (5 * GB, "not named by model.safetensors.index.json") for path in shards("model.fp16", 2, 0)},
            "model.fp16.safetensors.index.json": (index(*map(str, shards("model.fp16", 2, 0))), INDEX),
        },
        ("safetensors", set(map(str, shards("model", 2, 0)))),
    ),
    "parts without an index, all of which vLLM opens": Repo(
        {**HF, **shards("model", 3, 5 * GB), "model.safetensors": GB, "extra.safetensors": GB},
        {},
        ("safetensors", {*map(str, shards("model", 3, 0)), "model.safetensors", "extra.safetensors"}),
    ),
    "a pipeline of several parts": Repo(
        {
            "model_index.json": 500,
            "scheduler/scheduler_config.json": 300,
            "text_encoder/config.json": 700,
            **{f"text_encoder/{name}": what for name, what in indexed("model", 2, 5 * GB).items()},
            "transformer/config.json": 400,
            **{f"transformer/{name}": what for name, what in indexed("diffusion_pytorch_model", 3, 9 * GB).items()},
            "vae/config.json": 800,
            "vae/diffusion_pytorch_model.safetensors": 160 * MB,
            "audio_detokenizer/config.yaml": 900,
            "audio_detokenizer/model.pt": 20 * GB,
        },
        {
            "vae/diffusion_pytorch_model.bin": (160 * MB, SAFETENSORS),
            "text_encoder/flax_model.msgpack": (5 * GB, SAFETENSORS),
            "teaser.mp4": (30 * MB, "video"),
        },
        None,
    ),
    "a small model, where the rules are the same": Repo(
        {**HF, **indexed("model", 5, MB), 'it\'s a "name".txt': 26},
        {
            "original/consolidated.00.pth": (2 * MB, ORIGINAL),
            "original/config.json": (54, ORIGINAL),
            "metal/model.bin": (2 * MB, "metal/: weights for Apple's chips"),
            "onnx/model.onnx": (2 * MB, "onnx/: another weight format"),
            "pytorch_model-00001-of-00001.bin": (2 * MB, SAFETENSORS),
            "tiny-Q4_K_M.gguf": (2 * MB, SAFETENSORS),
            "figures/bench mark.png": (4, "figures/: pictures"),
            ".cache/huggingface/download/config.json.metadata": (2, ".cache/: left by git or a download"),
        },
        ("safetensors", set(map(str, shards("model", 5, 0)))),
        (
            "several weight formats: safetensors is copied, left out: bin, 0.00 GB",
            "several weight formats: safetensors is copied, left out: gguf, 0.00 GB",
        ),
    ),
    "what lies about": Repo(
        {
            **HF,
            "model.safetensors": 2 * GB,
            "model.tensors": 2 * GB,
            "vocab.bpe.gz": 1_300_000,
            "voices/anna.pt": 63 * MB,
            "data/notes.csv": 1_000,
        },
        {
            "._model.safetensors": (4_096, "left by macOS"),
            ".git/lfs/objects/ab/cd": (2 * GB, ".git/: left by git"),
            ".cache/huggingface/download/model.safetensors.metadata": (100, ".cache/: left by git or a download"),
            "train.parquet": (64 * MB, "of a kind that vLLM does not open"),
            "code.tar.gz": (1_000, "archive"),
            "raw/dump": (64 * MB, "0.06 GB of a kind that vLLM does not open"),
            "global_step500/mp_rank_00_model_states.pt": (2 * GB, "weights in a folder without a configuration"),
            "old/consolidated.safetensors": (100, SAFETENSORS),
            "old/consolidated.safetensors.index.json": (b"{}", INDEX),
        },
        ("safetensors", {"model.safetensors"}),
    ),
}


@pytest.mark.parametrize("name", REPOS)
def test_auto_copies_what_vllm_opens_and_says_why_it_leaves_out_the_rest(name):
    repo = REPOS[name]
    waste = {path: what for path, (what, _) in repo.waste.items()}
    found = chosen({**repo.needed, **waste})
    reasons = {file.path.decode(): file.reason for file in found.left_out}

    assert set(map(os.fsdecode, found.paths)) == repo.needed.keys()
    assert reasons.keys() == waste.keys()
    assert [path for path, (_, reason) in repo.waste.items() if reason not in reasons[path]] == []
    assert sum(file.size for file in found.left_out) == sum(
        len(what) if isinstance(what, bytes) else what for what in waste.values()
    )
    assert (found.weights and (found.weights[0], set(map(os.fsdecode, found.weights[1])))) == repo.weights
    assert found.notes == repo.notes


@pytest.mark.parametrize(
    ("name", "gigabytes"), [("gpt-oss-120b", 130), ("Llama-3.1-8B", 16), ("gemma with a .gguf", 39)]
)
def test_auto_saves_what_the_copy_of_everything_wastes(name, gigabytes):
    found = chosen({**REPOS[name].needed, **{path: what for path, (what, _) in REPOS[name].waste.items()}})

    assert round(sum(file.size for file in found.left_out) / GB) == gigabytes


TWO: Files = shards("model", 2, GB)


@pytest.mark.parametrize(
    "content",
    [
        b"", b"no json", b"\xff\xfe\xff", b"[]", b"3", b"{}", b'{"weight_map": 1}', b'{"weight_map": ["a"]}',
        b'{"weight_map": {"w": 1}}', b'{"weight_map": {"w": null, "v": "model-00001-of-00002.safetensors"}}',
        b'{"weight_map": {"w": "\\ud800"}}', b"[" * 100_000, b"1" * 10_000,
    ],
)  # fmt: skip
def test_a_damaged_index_stays_with_all_weights_of_its_format(content):
    found = chosen({**HF, **TWO, "model.safetensors.index.json": content, "pytorch_model.bin": GB})

    assert [file.path for file in found.left_out] == [b"pytorch_model.bin"]
    assert found.weights == ("safetensors", tuple(map(os.fsencode, TWO)))
    assert "model.safetensors.index.json has no readable weight_map" in found.notes[0]


def test_an_index_that_names_too_much_stays_with_what_is_there():
    stale = index(*map(str, shards("model", 30, 0)), *map(str, TWO))
    found = chosen({**HF, **TWO, "model.safetensors.index.json": stale, "extra.safetensors": 1})

    assert [file.path for file in found.left_out] == [b"extra.safetensors"]
    assert found.notes == ("model.safetensors.index.json names 30 of 32 weight files that are not there",)


@pytest.mark.parametrize(
    "shard", ["../model-00001-of-00002.safetensors", "/etc/passwd", "", ".", "config.json", "a\0b"]
)
def test_an_index_that_leads_elsewhere_takes_nothing_away(shard):
    files = {**HF, **TWO, "model.safetensors.index.json": index(shard)}

    assert kept(files) == files.keys()


def test_an_index_whose_files_are_all_gone_stays_so_that_the_loss_is_found():
    for others in ({}, {"sparse_linear.pt": 1_000}, {"adapter/config.json": 1, "adapter/model.safetensors": GB}):
        files = {**HF, **others, "model.safetensors.index.json": index("model.safetensors")}
        assert kept(files) == files.keys()


def test_an_index_may_name_files_in_subfolders_even_in_those_that_are_left_out():
    named = {"parts/a.safetensors": GB, "original/b.safetensors": GB}
    files = {**HF, **named, "model.safetensors.index.json": index(*named)}

    assert kept(files) == files.keys()
    assert chosen(files).weights == ("safetensors", (b"original/b.safetensors", b"parts/a.safetensors"))
    assert left_out({**files, "parts/c.safetensors": GB}) == {
        "parts/c.safetensors": "weights in a folder without a configuration"
    }


def test_weights_that_may_be_a_part_of_the_model_do_not_drive_out_another_format():
    files = {**HF, "projector.safetensors": 20 * MB, "pytorch_model.bin": 14 * GB, "llm/part.pt": GB}

    assert kept(files) == files.keys()


BY_NAME = {
    "BGE-M3, its heads": {"sparse_linear.pt": 70 * MB, "colbert_linear.pt": 2 * MB},
    "DFlash, its mask": {"mask_embedding.pt": 90 * MB},
    "Clef-Omni, its head": {"joint_head.safetensors": 2 * GB, "joint_head_config.json": 300},
    "Jina, its adapters": {
        "adapters/retrieval/adapter_model.safetensors": 120 * MB,
        "adapters/code/adapter_model.safetensors": 120 * MB,
    },
    "MiMo-Audio, its tokenizer": {"audio_tokenizer/model.safetensors": 2 * GB},
    "MiMo-Audio, its tokenizer as a pickle": {"audio_tokenizer/pytorch_model.bin": 2 * GB},
    "Kimi-Audio, its Whisper": {"whisper-large-v3/model.safetensors": 3 * GB},
    "Kimi-Audio, its Whisper in parts": shards("whisper-large-v3/model", 2, 3 * GB),
    "Cosmos 3, its transformer": {"transformer/diffusion_pytorch_model.safetensors": 9 * GB},
    "Cosmos 3, its encoder of pictures": {"vision_encoder/model.safetensors": GB},
    "sentence-transformers, a dense layer": {"2_Dense/model.safetensors": 100 * MB, "2_Dense/config.json": 100},
}


@pytest.mark.parametrize("name", BY_NAME)
def test_weights_that_vllm_opens_by_name_are_copied_beside_an_indexed_set(name):
    whole = {**HF, **indexed("model", 3, 4 * GB)}
    assert kept({**whole, **BY_NAME[name]}) == {*whole, *BY_NAME[name]}
    assert chosen({**whole, **BY_NAME[name]}).weights == chosen(whole).weights


@pytest.mark.parametrize(
    "path",
    [
        "encodings/model.safetensors",
        "old/joint_head.safetensors",
        "joint_head2.safetensors",
        "whisper-large-v2/model.safetensors",
        "a/transformer/model.safetensors",
        "original/sparse_linear.pt",
    ],
)
def test_weights_of_like_names_elsewhere_are_left_out(path):
    assert path not in kept({**HF, **indexed("model", 3, 4 * GB), path: 2 * GB})


@pytest.mark.parametrize(
    "files",
    [
        {"original/consolidated.00.pth": 16 * GB, "original/params.json": 200, "README.md": 1},
        {"checkpoint-500/config.json": 1, "checkpoint-500/model.safetensors": GB},
        {"config.json": 1, "tf_model.h5": GB, "onnx/model.onnx": GB},
        {"config.json": 1, "logo.png": 1},
    ],
)
def test_a_folder_without_weights_where_vllm_looks_is_copied_whole(files):
    assert kept(files) == files.keys()


def test_the_size_from_which_a_file_needs_a_reason_is_64_megabytes():
    assert set(left_out({**HF, "model.safetensors": GB, "a/b": SMALL - 1, "a/c": SMALL})) == {"a/c"}


def test_all_copies_everything_and_warns_of_a_second_layout():
    repo = REPOS["Mistral-7B-v0.3, both layouts and both tokenizers"]
    found = chosen({**repo.needed, "consolidated.safetensors": GB, "a.png": 1}, "all")

    assert found.left_out == ()
    assert found.weights
    assert found.weights[0] == "safetensors"
    assert found.notes == ("consolidated*.safetensors is copied, too: vLLM 0.12 and newer then takes Mistral's format",)
    assert chosen({**HF, **indexed("model", 2, GB)}, "all").notes == ()


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (["*.json"], {"a.json", "sub/b.json", "sub/deep/c.json"}),
        (["sub/*.json"], {"sub/b.json", "sub/deep/c.json"}),
        (["sub/"], {"sub/b.json", "sub/deep/c.json", "sub/d.BIN"}),
        (["?.json", "sub/d.*"], {"a.json", "sub/d.BIN"}),
        (["*.BIN"], {"sub/d.BIN"}),
        (["[!s]*"], {"a.json", "e\udcff.json2", "x\ny"}),
        (["e\udcff*"], {"e\udcff.json2"}),
        (["x*y"], {"x\ny"}),
        (["*"], {"a.json", "sub/b.json", "sub/deep/c.json", "sub/d.BIN", "e\udcff.json2", "x\ny"}),
    ],
)
def test_patterns_mean_what_they_mean_to_hf_download(patterns, expected):
    files: Files = dict.fromkeys(["a.json", "sub/b.json", "sub/deep/c.json", "sub/d.BIN", "e\udcff.json2", "x\ny"], 1)

    assert kept(files, *patterns) == expected
    assert set(left_out(files, *patterns).values()) <= {"named by no pattern"}


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a.json", "*.bin"], "--files *.bin: names none of the 5 files: a.json, b\\xff, c, ..."),
        (["A.json"], "--files A.json: names none of the 5 files: a.json, b\\xff, c, ..."),
        (["\udcfe\n"], "--files \\xfe\\n: names none of the 5 files: a.json, b\\xff, c, ..."),
        (["./a.json"], "--files ./a.json: names none of the 5 files: a.json, b\\xff, c, ..."),
        (["auto", "*.json"], "--files takes either auto, or all, or patterns"),
        (["*.json", "all"], "--files takes either auto, or all, or patterns"),
        (["auto", "all"], "--files takes either auto, or all, or patterns"),
        ([], "--files takes either auto, or all, or patterns"),
    ],
)
def test_a_pattern_that_names_nothing_and_a_mixture_are_refused(patterns, message):
    with pytest.raises(FaststartError) as caught:
        select({b"e": 1, b"d": 1, b"c": 1, b"b\xff": 1, b"a.json": 1}, patterns, dict[bytes, bytes]().__getitem__)
    assert (caught.value.code, caught.value.message) == (Exit.USAGE, message)


def test_what_the_reading_of_an_index_raises_passes_and_each_index_is_read_once():
    asked: list[bytes] = []

    def read(path: bytes) -> bytes:
        asked.append(path)
        return index(*map(str, TWO))

    def refuse(path: bytes) -> bytes:
        raise FaststartError(Exit.CHANGED, "gone", path)

    sizes = {os.fsencode(path): 1 for path in [*TWO, "model.safetensors.index.json", "pytorch_model.bin.index.json"]}
    select(sizes, ["auto"], read)
    assert asked == [b"model.safetensors.index.json"]
    with pytest.raises(FaststartError, match="gone"):
        select(sizes, ["auto"], refuse)


NAMES = [
    b"model.safetensors", b"model-00001-of-00002.safetensors", b"model-00002-of-00002.safetensors",
    b"extra.safetensors", b"adapter_model.safetensors", b"consolidated.safetensors", b"consolidated.00.pth",
    b"pytorch_model.bin", b"adapter_model.bin", b"mm_projector.bin", b"training_args.bin", b"sparse_linear.pt",
    b"openvino_model.bin", b"q4.gguf", b"tf_model.h5", b"model.onnx", b".hidden.bin", b"\xff.safetensors", b"\xfe.bin",
    b"model.safetensors.index.json", b"model.fp16.safetensors.index.json", b"consolidated.safetensors.index.json",
    b"pytorch_model.bin.index.json", b"adapter_config.json", b"config.json", b"params.json", b"tekken.json",
    b"tokenizer.json", b"tokenizer.model", b"modeling.py", b"a.png", b"a.tar.gz", b"unknown", b"data.parquet", b"\xff",
]  # fmt: skip
FOLDERS = [b""] * 6 + [
    b"original/",
    b"metal/",
    b"2_Dense/",
    b"sub/",
    b"sub/deep/",
    b"sub/onnx/",
    b"checkpoint-5/",
    b"\xff/",
]
ANY_NAME = st.binary(min_size=1).filter(lambda name: not set(b"/\0") & set(name) and name not in (b".", b".."))
PATHS = st.tuples(st.sampled_from(FOLDERS), st.sampled_from(NAMES) | ANY_NAME).map(b"".join)
SIZES = st.dictionaries(PATHS, st.sampled_from([0, 1, SMALL - 1, SMALL, 5 * GB]), max_size=25)


@st.composite
def folders(draw: st.DrawFn) -> tuple[dict[bytes, int], dict[bytes, bytes]]:
    """Draw the sizes of some files, and for each an index: good, stale, hostile or none at all."""
    sizes: dict[bytes, int] = draw(SIZES)
    contents: dict[bytes, bytes] = {}
    for path in sizes:
        folder = path[: path.rfind(b"/") + 1]
        near = [other[len(folder) :].decode("utf-8", "replace") for other in sizes if other.startswith(folder)]
        named = st.lists(st.sampled_from([*near, "../x", "/x", "no"]), max_size=4).map(lambda names: index(*names))
        contents[path] = draw(named | st.sampled_from([b"", b"{", b'{"weight_map": {"w": 3}}']))
    return sizes, contents


def is_top_weight(path: bytes) -> bool:
    weights = (b".safetensors", b".bin", b".pt", b".pth", b".gguf")
    return path.endswith(weights) and not path.startswith((b".", b"training_args", b"openvino")) and b"/" not in path


@given(folders(), st.randoms())
@example(({}, {}), None)
def test_every_file_is_copied_or_left_out_whatever_the_order_and_what_was_chosen_is_chosen_again(drawn, random):
    sizes, contents = drawn
    found = select(sizes, ["auto"], contents.__getitem__)
    skipped = [file.path for file in found.left_out]

    assert skipped == sorted(sizes.keys() - found.paths)
    assert found.paths <= sizes.keys()
    assert all(file.size == sizes[file.path] and file.reason.isprintable() for file in found.left_out)
    shuffled = list(sizes.items())
    if random:
        random.shuffle(shuffled)
    assert select(dict(shuffled), ["auto"], contents.__getitem__) == found
    again = select({path: sizes[path] for path in found.paths}, ["auto"], contents.__getitem__)
    assert (again.paths, again.left_out, again.weights) == (found.paths, (), found.weights)


@given(folders())
def test_configurations_stay_and_so_do_weights_and_all_that_a_good_index_names(drawn):
    sizes, contents = drawn
    found = select(sizes, ["auto"], contents.__getitem__)

    tops = {b"config.json", b"params.json", b"tekken.json", b"tokenizer.json", b"tokenizer.model", b"modeling.py"}
    assert tops & sizes.keys() <= found.paths
    if any(map(is_top_weight, sizes)):
        assert found.weights
        assert found.weights[1]
        assert found.paths.issuperset(found.weights[1])
    if found.weights and found.weights[0] == "safetensors" and (data := contents.get(b"model.safetensors.index.json")):
        try:
            named = {shard.encode() for shard in json.loads(data)["weight_map"].values()} & sizes.keys()
        except (ValueError, AttributeError):
            named = {path for path in sizes if path.endswith(b".safetensors") and is_top_weight(path)}
            named -= {path for path in sizes if path.startswith(b"consolidated")}
        if any(path.endswith(b".safetensors") for path in named):
            assert named <= found.paths
        assert b"model.safetensors.index.json" in found.paths


@given(folders())
def test_nothing_that_is_copied_makes_vllm_take_another_format(drawn):
    sizes, contents = drawn
    found = select(sizes, ["auto"], contents.__getitem__)
    flips = {path for path in found.paths if path.rpartition(b"/")[2] == b"consolidated.safetensors"}

    if found.weights and found.weights[0] != "mistral":
        top = {"bin": b"pytorch_model.bin", "safetensors": b"model.safetensors"}.get(found.weights[0], b"")
        assert not flips or flips <= {
            name.encode() for name in json.loads(contents[top + b".index.json"])["weight_map"].values()
        }


@given(folders())
def test_an_index_that_is_copied_names_no_weights_beside_it_that_are_left_out(drawn):
    sizes, contents = drawn
    found = select(sizes, ["auto"], contents.__getitem__)

    for path in found.paths:
        folder, stem = path[: path.rfind(b"/") + 1], path[path.rfind(b"/") + 1 :].removesuffix(b".index.json")
        start, suffix = (b"consolidated" if stem.startswith(b"consolidated") else b""), stem[stem.rfind(b".") :]
        if path.endswith(b".safetensors.index.json") and b"weight_map" in contents[path]:
            shards = json.loads(contents[path])["weight_map"].values()
            named = {name.encode() for name in shards if isinstance(name, str)}
            beside = {name for name in named if name.startswith(start or b"model") and name.endswith(suffix)}
            assert {folder + name for name in beside if b"/" not in name} & sizes.keys() <= found.paths


@given(SIZES)
def test_all_and_a_star_copy_everything(sizes):
    for patterns in (["all"], ["*"]) if sizes else (["all"],):
        found = select(sizes, patterns, lambda path: b"{}")
        assert (found.paths, found.left_out) == (frozenset(sizes), ())
