"""A tiny model with random weights that real loaders take: config, tokenizer, chat template, shards and their index.

    python -m lab.e2e.tiny_model FOLDER

Needs the standard library alone. The tensors are those that transformers names for LlamaForCausalLM; the tokenizer is
byte-level BPE without merges, so that each byte of a prompt is one token.
"""

from __future__ import annotations

import json
import math
import random
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HEAD = 64
"""What a head takes: vLLM's attention on CPUs knows 32, 64, 80, 96, 112, 128, 192 and 256."""


@dataclass(frozen=True)
class Shape:
    """How large a model is; a query head takes `HEAD`, and two of them share a key head."""

    layers: int
    hidden: int
    intermediate: int

    @property
    def heads(self) -> int:
        """Of queries."""
        return self.hidden // HEAD


TINY = Shape(layers=3, hidden=256, intermediate=512)
"""3.9 MB."""

SMALL = Shape(layers=8, hidden=1024, intermediate=4096)
"""253 MB: enough that its copy takes a while."""

SPECIAL = ("<s>", "</s>", "<pad>")
VOCABULARY = 320
"""256 bytes and the special tokens, rounded up to 64, as vLLM pads."""

SHARDS = 3
CONTEXT = 32768
"""Tokens: no less than what a stack file may ask for by --max-model-len."""

CHAT_TEMPLATE = (
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def write(folder: Path, seed: int = 0, shape: Shape = TINY) -> Path:
    """Write the model into a folder, the same bytes for the same seed; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = [(name, size, _values(name, size, seed)) for name, size in _tensors(shape)]
    step = -(-len(tensors) // SHARDS)
    places: dict[str, str] = {}
    for number in range(SHARDS):
        name = f"model-{number + 1:05d}-of-{SHARDS:05d}.safetensors"
        some = tensors[number * step : (number + 1) * step]
        (folder / name).write_bytes(safetensors(some))
        places |= {tensor: name for tensor, _, _ in some}
    total = sum(len(data) for _, _, data in tensors)
    for name, document in _documents(shape, total, places).items():
        (folder / name).write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return folder


def safetensors(tensors: list[tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Return a safetensors file with tensors of bfloat16, given by name, shape and bytes."""
    return header({name: shape for name, shape, _ in tensors}) + b"".join(data for _, _, data in tensors)


def header(shapes: dict[str, tuple[int, ...]]) -> bytes:
    """Return what a safetensors file with tensors of bfloat16 begins with; their bytes follow in this order."""
    found: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        found[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(found, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _tensors(shape: Shape) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, queries, keys = shape.hidden, shape.heads * HEAD, shape.heads // 2 * HEAD
    yield "model.embed_tokens.weight", (VOCABULARY, hidden)
    for number in range(shape.layers):
        layer = f"model.layers.{number}."
        yield layer + "input_layernorm.weight", (hidden,)
        yield layer + "self_attn.q_proj.weight", (queries, hidden)
        yield layer + "self_attn.k_proj.weight", (keys, hidden)
        yield layer + "self_attn.v_proj.weight", (keys, hidden)
        yield layer + "self_attn.o_proj.weight", (hidden, queries)
        yield layer + "post_attention_layernorm.weight", (hidden,)
        yield layer + "mlp.gate_proj.weight", (shape.intermediate, hidden)
        yield layer + "mlp.up_proj.weight", (shape.intermediate, hidden)
        yield layer + "mlp.down_proj.weight", (hidden, shape.intermediate)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (VOCABULARY, hidden)


def _values(name: str, shape: tuple[int, ...], seed: int) -> bytes:
    """Return the bytes of a tensor: ones for a norm, else values of both signs between 1/32 and 1/8."""
    count = math.prod(shape)
    if name.endswith("norm.weight"):
        return struct.pack("<H", 0x3F80) * count
    # bfloat16, little-endian: the last byte is the sign and seven bits of the exponent, the first its last bit and the
    # fraction. 0x3D00 to 0x3DFF are 2**-5 to 2**-3.
    data = bytearray(random.Random(f"{seed} {name}").randbytes(2 * count))  # noqa: S311 - to be the same again
    data[1::2] = data[1::2].translate(_EXPONENT)
    return bytes(data)


_EXPONENT = bytes(0x3D | (byte & 0x80) for byte in range(256))


def _documents(shape: Shape, total: int, places: dict[str, str]) -> dict[str, dict[str, Any]]:
    bos, eos, pad = SPECIAL
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    return {
        "config.json": {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": shape.hidden,
            "intermediate_size": shape.intermediate,
            "num_hidden_layers": shape.layers,
            "num_attention_heads": shape.heads,
            "num_key_value_heads": shape.heads // 2,
            "head_dim": HEAD,
            "vocab_size": VOCABULARY,
            "max_position_embeddings": CONTEXT,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "hidden_act": "silu",
            "tie_word_embeddings": False,
            "attention_bias": False,
            "torch_dtype": "bfloat16",
            **ids,
        },
        "generation_config.json": ids,
        "model.safetensors.index.json": {"metadata": {"total_size": total}, "weight_map": places},
        "special_tokens_map.json": {"bos_token": bos, "eos_token": eos, "pad_token": pad},
        "tokenizer.json": _tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": bos,
            "eos_token": eos,
            "pad_token": pad,
            "model_max_length": CONTEXT,
            "chat_template": CHAT_TEMPLATE,
        },
    }


def _tokenizer() -> dict[str, Any]:
    tokens = [*SPECIAL, *_byte_letters()]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": number, "content": token, **flags} for number, token in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [],
        },
    }


def _byte_letters() -> list[str]:
    """Return the letter that byte-level BPE writes for each byte: itself, or one from 256 on."""
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
