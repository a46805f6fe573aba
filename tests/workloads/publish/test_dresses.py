"""Pickles in disguise: each file that a reader obeys is refused, by what the real torch was seen to do."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.e2e import vllm_environment
from modelfolder.source import look
from podkit.patience import Patience
from publish.verdict import judge
from tests.workloads.publish import dresses
from tests.workloads.support import write

SEEN = json.loads(Path(__file__).with_name("dresses.json").read_bytes())
"""What `dresses.py` printed."""

BESIDE = {
    "config.json": b'{"model_type": "llama"}',
    "weights.bin": b"\x08\x07\x12\x07pytorch",
    "openvino_model.bin": b"\x9b\x3d\x91\x3d" * 1000,
    "zeros.bin": bytes(2048),
    "ggml.bin": b"lmgg\x01\0\0\0",
    "fasttext.bin": b"\xba\x16\x4f\x2f\x0c\0\0\0",
    "word2vec.bin": b"3000000 300\n</s> ",
    "page.pt": b"<html>",
    "notes.md": b"Not a pickle.",
    "N0.txt": b"N0(1}]",
}
"""Files that no reader obeys."""


def test_each_file_that_a_reader_obeys_is_found_and_no_other(tmp_path):
    there = dresses.dresses("/called")
    verdict = judge(look(os.fsencode(write(tmp_path, {**BESIDE, **there})), ["all"], Patience()), Patience())
    assert list(map(os.fsdecode, verdict.pickles)) == sorted(there)


def test_of_each_dress_it_is_known_who_obeys_it():
    assert {name for name, readers in SEEN["obeyed"].items() if readers} == dresses.dresses("/called").keys()


@pytest.mark.processes
def test_the_real_torch_obeys_the_files_that_it_was_seen_to_obey(tmp_path):
    environment = vllm_environment.installed()
    if environment is None:
        pytest.skip("the vLLM environment is not here: python -m lab.e2e.vllm_environment installs it")
    script = dresses.__file__
    found = subprocess.run(
        [environment.folder / "bin/python", script, tmp_path / "dresses"], capture_output=True, check=True, timeout=120
    )
    assert json.loads(found.stdout) == SEEN
