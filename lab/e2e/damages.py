"""Ways in which a model's folder is damaged, each as it was reported of vLLM (shared cases of tests and e2e)."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab.e2e import tiny_model

INDEX = "model.safetensors.index.json"


@dataclass(frozen=True)
class Damage:
    """One way.

    Attributes:
        name: what is wrong with the folder.
        make: does it to a whole folder of `e2e.tiny_model`.
        says: what a person is told by whom refuses it; each must be in the message.
    """

    name: str
    make: Callable[[Path], None]
    says: tuple[str, ...]


def _shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def _lose_shard(folder: Path) -> None:
    _shards(folder)[-1].unlink()


def _lose_shard_and_index(folder: Path) -> None:
    _lose_shard(folder)
    (folder / INDEX).unlink()


def _cut(folder: Path) -> None:
    path = _shards(folder)[1]
    path.write_bytes(path.read_bytes()[:-1000])


def _empty(folder: Path) -> None:
    _shards(folder)[1].write_bytes(b"")


def _blank(folder: Path) -> None:
    """Zeros in the middle of a shard of the right size."""
    path = _shards(folder)[1]
    data = bytearray(path.read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    start = 8 + length + 4096
    data[start : start + 65536] = bytes(65536)
    path.write_bytes(data)


def _misname(folder: Path) -> None:
    """An index that names a tensor in a shard which does not have it, while another does."""
    index = json.loads((folder / INDEX).read_bytes())
    first, *_, last = sorted(set(index["weight_map"].values()))
    name = next(name for name, file in index["weight_map"].items() if file == first)
    index["weight_map"][name] = last
    (folder / INDEX).write_text(json.dumps(index), encoding="utf-8")


def _lose_tensor(folder: Path) -> None:
    """A shard that was written without one of the tensors which the index has in it."""
    path = _shards(folder)[1]
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    tensors = sorted((one["data_offsets"], name, tuple(one["shape"])) for name, one in header.items() if "shape" in one)
    (start, _), _, _ = tensors.pop()
    rest = data[8 + length : 8 + length + start]
    path.write_bytes(tiny_model.header({name: shape for _, name, shape in tensors}) + rest)


def _consolidate(folder: Path) -> None:
    shard = _shards(folder)[0]
    (folder / "consolidated-00001-of-00002.safetensors").write_bytes(shard.read_bytes())


def _nest_consolidated(folder: Path) -> None:
    (folder / "original").mkdir()
    (folder / "original/consolidated.safetensors").write_bytes(_shards(folder)[0].read_bytes())


def _add_weights(folder: Path) -> None:
    (folder / "other.safetensors").write_bytes(_shards(folder)[0].read_bytes())


def _overwrite_config(folder: Path) -> None:
    (folder / "config.json").write_text('{"this": "is the config of original/"}', encoding="utf-8")


def _lose_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def _leave_pointer(folder: Path) -> None:
    _shards(folder)[0].write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 1302528\n", encoding="utf-8"
    )


REFUSED_WHEN_PUBLISHED = (
    Damage("a shard is missing", _lose_shard, ("model-00003-of-00003.safetensors",)),
    Damage("a shard and the index are missing", _lose_shard_and_index, ("model-00003-of-00003.safetensors",)),
    Damage("a shard is cut", _cut, ("model-00002-of-00003.safetensors", "bytes")),
    Damage("a shard is empty", _empty, ("model-00002-of-00003.safetensors", "empty")),
    Damage("a shard lacks a tensor", _lose_tensor, (INDEX, "in none of its files")),
    Damage("its config is another's", _overwrite_config, ("config.json",)),
    Damage("its tokenizer is missing", _lose_tokenizer, ("tokenizer",)),
    Damage("a shard is a pointer of Git LFS", _leave_pointer, ("LFS",)),
)
"""What the publishing Job must refuse."""

LEFT_OUT = (
    Damage("part of a consolidated set lies beside it", _consolidate, ("consolidated*",)),
    Damage("a consolidated set lies in original/", _nest_consolidated, ("original",)),
    Damage("a file of weights lies beside it that the index does not name", _add_weights, ("other.safetensors",)),
)
"""What the publishing Job leaves out (the pattern of its name is in `says`): vLLM does not load it, or fails by it."""

HARMLESS = (
    Damage("nothing is wrong", lambda _: None, ()),
    Damage("the index is missing, all shards are there", lambda folder: (folder / INDEX).unlink(), ()),
    Damage("the index has a tensor in another shard than it is in", _misname, ()),
    Damage("generation_config.json is missing", lambda folder: (folder / "generation_config.json").unlink(), ()),
)
"""What vLLM loads rightly, and nothing refuses."""

REFUSED_WHEN_COPIED = (
    Damage("a shard is missing", _lose_shard, ("model-00003-of-00003.safetensors",)),
    Damage("a shard is cut", _cut, ("model-00002-of-00003.safetensors",)),
    Damage("a shard is empty", _empty, ("model-00002-of-00003.safetensors",)),
    Damage("its config is another's", _overwrite_config, ("config.json",)),
    Damage("its tokenizer is missing", _lose_tokenizer, ("tokenizer.json",)),
)
"""What the init container must refuse, of a folder that was damaged after it was published, with the size alone."""

REFUSED_BY_HASH = Damage("a shard has zeros inside", _blank, ("model-00002-of-00003.safetensors",))
"""What it sees with `preload.verify: sha256` only."""
