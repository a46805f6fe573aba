"""The data sets: repeatable bytes that do not compress, in files that a loader would accept.

A set is made once, in a folder named by its kind and size; a set that was cut short is made again.
"""

import hashlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MIB = 1 << 20
BLOCK_BYTES = 8 * MIB
"""Also the block of the published manifest (docs/contracts.md, "Manifest")."""

STATE = ".faststart"
"""The folder of a source or destination that is never content."""

SMALL_FILE_BYTES = (0, 200, 2_000, 8_000, 20_000)
FREE_BYTES = 2 << 30
"""Left free on the disk when a set is made."""


@dataclass(frozen=True)
class DataSet:
    """A model folder to copy.

    Attributes:
        name: of its folder.
        words: what it holds.
        about_bytes: how much, roughly: to see beforehand whether there is room.
        fill: writes its files into an empty folder.
        needed: whether a server needs a file of this path; a copy that leaves out others is whole all the same.
    """

    name: str
    words: str
    about_bytes: int
    fill: Callable[[Path], None]
    needed: Callable[[str], bool] = lambda _: True

    def make(self, folder: Path) -> Path:
        """The set under this folder, made now if it is not there.

        Raises:
            OSError: it cannot be written, or there is no room for it.
        """
        target, unfinished = folder / self.name, folder / f"{self.name}.unfinished"
        if target.is_dir():
            return target
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        free = shutil.disk_usage(folder).free
        if free < self.about_bytes + FREE_BYTES:
            needed = f"{self.about_bytes / 1e9:.1f} GB and {FREE_BYTES / 1e9:.1f} GB to spare"
            raise OSError(f"no room for the data set {self.name}: it needs {needed}, {free / 1e9:.1f} GB are free")
        self.fill(unfinished)
        unfinished.replace(target)
        return target


def contents(root: Path) -> Iterator[tuple[str, int]]:
    """Path below the root and size of each file, without our own folder."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name != STATE]
        for name in names:
            path = Path(folder, name)
            yield str(path.relative_to(root)), path.lstat().st_size


# ---- the sets


def sharded(count: int, shard_bytes: int) -> DataSet:
    """A model in shards of equal size, with an index and its JSON files."""

    def fill(folder: Path) -> None:
        _model(folder, count, shard_bytes)

    return DataSet(
        f"sharded-{count}x{shard_bytes}", f"{count} shards of {_size(shard_bytes)}", count * shard_bytes, fill
    )


def single(size: int) -> DataSet:
    """A model in one file."""

    def fill(folder: Path) -> None:
        _weights(folder / "model.safetensors", 0, size)
        _config(folder / "config.json")

    return DataSet(f"single-{size}", f"one file of {_size(size)}", size, fill)


def small(count: int, folders: int) -> DataSet:
    """Many small files; a config.json at the top makes them a model."""

    def fill(folder: Path) -> None:
        chance = random.Random(1)  # noqa: S311 - bytes that repeat, no secret
        _config(folder / "config.json")
        for number in range(count):
            place = folder / f"d{number % folders % 40}" / f"e{number % folders // 40}"
            if number < folders:
                place.mkdir(parents=True)
            (place / f"f{number}.json").write_bytes(chance.randbytes(chance.choice(SMALL_FILE_BYTES)))

    words = f"{count:,} files of 0-20 kB in {folders:,} folders"
    return DataSet(f"small-{count}", words, count * sum(SMALL_FILE_BYTES) // len(SMALL_FILE_BYTES), fill)


def junk(count: int, shard_bytes: int) -> DataSet:
    """A repository as it is often found: the shards, the same weights twice more in other formats, pictures."""

    def fill(folder: Path) -> None:
        _model(folder, count, shard_bytes)
        for number in range(count):
            _noise(folder / f"pytorch_model-{number + 1:05}-of-{count:05}.bin", count + number, shard_bytes)
        _noise(folder / "original" / "consolidated.00.pth", 2 * count, count * shard_bytes)
        for number in range(8):
            _noise(folder / "images" / f"picture-{number}.png", 2 * count + 1 + number, MIB)

    def needed(path: str) -> bool:
        return "/" not in path and path.endswith((".safetensors", ".json"))

    words = f"{count} shards of {_size(shard_bytes)}, the same weights as .bin and under original/, 8 pictures"
    return DataSet(f"junk-{count}x{shard_bytes}", words, 3 * count * shard_bytes, fill, needed)


def published(of: DataSet) -> DataSet:
    """A set with the manifest that publishing writes; its files are links to those of the set beside it."""

    def fill(folder: Path) -> None:
        source = of.make(folder.parent)
        for path, _ in contents(source):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(source / path)
        (folder / STATE).mkdir()
        (folder / STATE / "manifest.json").write_bytes(_manifest(folder))

    return DataSet(f"published-{of.name}", f"{of.words}, published", of.about_bytes, fill)


# ---- the files


@cache
def _pool() -> memoryview:
    """Random bytes, twice the same BLOCK_BYTES: a window into them at another place is another block."""
    once = random.Random(0).randbytes(BLOCK_BYTES)  # noqa: S311 - bytes that repeat, no secret
    return memoryview(once + once)


def _blocks(key: int, size: int) -> Iterator[memoryview]:
    """A file's bytes; no block is like another in files of up to 32 GiB with keys below 2,048."""
    for index in range(-(-size // BLOCK_BYTES)):
        place = (key * 4096 + index) * 999_983 % BLOCK_BYTES
        yield _pool()[place : place + min(BLOCK_BYTES, size - index * BLOCK_BYTES)]


def _noise(path: Path, key: int, size: int, head: bytes = b"") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(head)
        for block in _blocks(key, size - len(head)):
            file.write(block)


def _weights(path: Path, key: int, size: int) -> None:
    """A safetensors file of exactly this size: 8 bytes with the header's length, the header, one tensor of bytes."""
    header_bytes = 120
    data_bytes = size - 8 - header_bytes
    tensor = {"dtype": "U8", "shape": [data_bytes], "data_offsets": [0, data_bytes]}
    header = json.dumps({f"w{key}": tensor}).encode().ljust(header_bytes)
    _noise(path, key, size, header_bytes.to_bytes(8, "little") + header)


def _config(path: Path) -> None:
    path.write_text(json.dumps({"model_type": "llama", "architectures": ["LlamaForCausalLM"]}), encoding="utf-8")


def _padded(path: Path, key: int, size: int) -> None:
    """A JSON file of this size."""
    text = bytes(next(_blocks(key, size))).hex()
    path.write_text(json.dumps({"pad": text[: size - len('{"pad": ""}')]}), encoding="utf-8")


def _model(folder: Path, count: int, shard_bytes: int) -> None:
    names = [f"model-{number + 1:05}-of-{count:05}.safetensors" for number in range(count)]
    for number, name in enumerate(names):
        _weights(folder / name, number, shard_bytes)
    index = {"metadata": {}, "weight_map": {f"w{number}": name for number, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    _config(folder / "config.json")
    for number, name in enumerate(("generation_config", "tokenizer_config", "special_tokens_map")):
        _padded(folder / f"{name}.json", 1000 + number, 40_000)
    _padded(folder / "tokenizer.json", 1003, min(9_000_000, shard_bytes))


def _manifest(folder: Path) -> bytes:
    files = []
    for path, size in sorted(contents(folder), key=lambda item: os.fsencode(item[0])):
        whole, blocks = hashlib.sha256(), []
        with (folder / path).open("rb") as file:
            while block := file.read(BLOCK_BYTES):
                whole.update(block)
                blocks.append(hashlib.sha256(block).hexdigest())
        files.append(
            {"path": path, "size": size, "sha256": whole.hexdigest(), "block_bytes": BLOCK_BYTES, "blocks": blocks}
        )
    weights = [file for file in files if file["path"].endswith(".safetensors")]
    document = {
        "schema": "faststart.dev/manifest/v1",
        "model": "bench",
        "revision": "1",
        "source": "bench",
        "created": "2026-01-01T00:00:00Z",
        "files": files,
        "folders": [],
        "total_bytes": sum(file["size"] for file in files),
        "weights": {
            "format": "safetensors",
            "files": len(weights),
            "tensor_bytes": sum(file["size"] - 128 for file in weights),
            "dtypes": ["U8"],
        },
        "architecture": "LlamaForCausalLM",
        "licence": None,
        "pickle": False,
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _size(count: int) -> str:
    unit, name = (1 << 30, "GiB") if count >= 1 << 30 else (MIB, "MiB") if count >= MIB else (1 << 10, "KiB")
    return f"{count / unit:g} {name}"
