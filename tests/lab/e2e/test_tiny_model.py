"""The tiny model with real weights: real readers take it, and it goes the whole way from a source to a checked copy."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import safetensors
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from lab.e2e import tiny_model
from lab.loopback.hub import hub_here
from lab.loopback.s3 import BUCKET, serving, use
from tests.workloads.publish.support import manifest, publish
from tests.workloads.support import preload, tree


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_model.write(tmp_path_factory.mktemp("model") / "tiny")


def test_its_shards_hold_the_tensors_that_its_index_says_by_another_reader_of_safetensors(model: Path) -> None:
    index = json.loads((model / "model.safetensors.index.json").read_bytes())
    found = {
        name: path.name
        for path in model.glob("*.safetensors")
        for name, tensor in safetensors.deserialize(path.read_bytes())
        if tensor["dtype"] == "BF16"
    }

    assert found == index["weight_map"]
    assert len(set(found.values())) == tiny_model.SHARDS


@pytest.fixture(scope="module")
def tokenizer(model: Path) -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(model / "tokenizer.json"))


@given(text=st.text())
def test_its_tokenizer_gives_back_any_text_a_byte_a_token(tokenizer: tokenizers.Tokenizer, text: str) -> None:
    found = tokenizer.encode(text, add_special_tokens=False)

    assert len(found.ids) == len(text.encode())
    assert max(found.ids, default=0) < tiny_model.VOCABULARY
    assert tokenizer.decode(found.ids, skip_special_tokens=False) == text


def test_it_is_the_same_for_the_same_seed_and_another_for_another(model: Path, tmp_path: Path) -> None:
    again, other = tiny_model.write(tmp_path / "again"), tiny_model.write(tmp_path / "other", seed=1)

    assert tree(again) == tree(model)
    assert {name for name, data in tree(other).items() if tree(model)[name] != data} == {
        path.name.encode() for path in model.glob("*.safetensors")
    }


@pytest.fixture(params=["s3", "hf", "folder"])
def address(
    request: pytest.FixtureRequest, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[str]:
    """Where the model is to be had; what serves it runs."""
    files = {path.name: path.read_bytes() for path in model.iterdir()}
    if request.param == "s3":
        with serving() as store:
            use(monkeypatch, store.endpoint)
            store.put({f"tiny/{name}": data for name, data in files.items()})
            yield f"s3://{BUCKET}/tiny"
    elif request.param == "hf":
        with hub_here(tmp_path / "home") as hub:
            hub.add("org/tiny", files)
            yield "hf://org/tiny"
    else:
        yield str(model)


def test_it_is_published_copied_with_every_block_checked_and_found_good(
    address: str, model: Path, tmp_path: Path
) -> None:
    sealed, copy = tmp_path / "models/tiny/r1", tmp_path / "nvme"
    published = publish(address, sealed, "--model", "tiny", "--revision", "r1", "--files", "all")
    copied = preload(sealed, copy, "--verify", "sha256")

    assert (published.code, copied.code) == (0, 0)
    assert publish("--check", sealed).code == publish("--check", copy).code == 0
    content = {name: data for name, data in tree(copy).items() if not name.startswith(b".faststart")}
    assert content == tree(model)
    document = manifest(sealed)
    assert document["architecture"] == "LlamaForCausalLM"
    assert document["weights"]["dtypes"] == ["BF16"]
    assert document["weights"]["tensor_bytes"] == _index(model)["metadata"]["total_size"]
    assert {file["path"]: file["blocks"] for file in document["files"]} == {
        path.name: [hashlib.sha256(path.read_bytes()).hexdigest()] for path in model.iterdir()
    }


def _index(model: Path) -> dict[str, dict[str, object]]:
    return json.loads((model / "model.safetensors.index.json").read_bytes())
