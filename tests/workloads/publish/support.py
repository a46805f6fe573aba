"""What the tests of publish share: ways to run it in and out of this process, and a model that is good."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from publish.program import main
from tests.workloads.support import WORKLOADS, tree


def safetensors(**tensors: bytes) -> bytes:
    """Return a safetensors file with tensors of bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, data in tensors.items():
        header[name] = {"dtype": "U8", "shape": [len(data)], "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(tensors.values())


FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"

MODEL: dict[str | bytes, bytes | None] = {
    "config.json": json.dumps({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}).encode(),
    "generation_config.json": b"{}",
    "tokenizer.json": json.dumps({"version": "1.0", "added_tokens": ["x" * 18] * 545}).encode(),
    FIRST: safetensors(a=bytes(range(256)) * 40),
    SECOND: safetensors(b=b"tail" * 300, c=b"end"),
    "model.safetensors.index.json": json.dumps(
        {"metadata": {"total_size": 11_443}, "weight_map": {"a": FIRST, "b": SECOND, "c": SECOND}}
    ).encode(),
    "README.md": b"---\nlicense: apache-2.0\n---\nA tiny model.\n",
    "1_Pooling/config.json": b'{"pooling": "mean"}',
}


@dataclass(frozen=True)
class Published:
    """How a run of publish ended."""

    code: int
    message: dict[str, Any]


def publish(*arguments: str | Path) -> Published:
    """Run publish in this process."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "termination-log"
        code = main([*map(str, arguments), "--termination-log", str(log)], sleep=lambda _: None)
        message = json.loads(log.read_bytes())
    assert message["code"] == code
    return Published(code, message)


def manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a folder."""
    return json.loads((folder / ".faststart/manifest.json").read_bytes())


def start(
    *arguments: str | Path, before: str = "", environment: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    """Start publish in a process of its own, after some Python code; it ends as `python3 -m publish` does."""
    code = f"import os, sys, signal\n{before}\nfrom publish.program import main\nos._exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1", **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@dataclass
class Torment:
    """What came of publishing with kills.

    Attributes:
        hits: kills that met a publisher at work.
        models: how many models were published in the end.
        starts: of the program.
        wrong: what should not be, a line each.
    """

    hits: int = 0
    models: int = 0
    starts: int = 0
    wrong: list[str] = field(default_factory=list)


def torment(
    address: str,
    content: Mapping[bytes, bytes],
    destination: Path,
    hits: int,
    seed: int,
    environment: Mapping[str, str],
) -> Torment:
    """Publish with kill -9 at random moments until so many of them have hit, and compare what comes of it.

    Args:
        address: where the model is.
        content: what the place holds, by path.
        destination: made anew for each model.
        hits: how many kills must hit.
        seed: of the moments.
        environment: of the program.
    """
    total, chance = Torment(), random.Random(seed)

    def staged() -> bool:
        return bool(list(destination.parent.glob(".*.staging")))

    def run(limit: float | None = None) -> tuple[bool, float]:
        """Start it, and kill it so long after it began with the model; say whether it was, and how long that took."""
        total.starts += 1
        process = start(address, destination, environment=environment)
        while process.poll() is None and not staged():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.005)
        began = time.monotonic()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        killed = process.poll() is None
        process.kill()
        said = process.communicate()[1]
        if process.returncode and not killed:
            total.wrong.append(f"exit {process.returncode}: {said}")
        return killed, time.monotonic() - began

    _, seconds = run()
    while total.hits < hits and not total.wrong and total.starts < 20 + 5 * hits:
        shutil.rmtree(destination, ignore_errors=True)
        for _ in range(chance.randint(1, 4)):
            killed, _ = run(chance.uniform(0, seconds))
            if destination.exists():
                # The lock file of one that was killed stays for the next.
                total.wrong += differences(destination, content, {f".{destination.name}.staging.lock"})
            if not killed:
                break
            total.hits += 1
        run()
        total.models += 1
        total.wrong += differences(destination, content)
    return total


def differences(destination: Path, content: Mapping[bytes, bytes], beside: Collection[str] = ()) -> list[str]:
    """Return how what stands at a destination differs from a sealed model with some content.

    Args:
        destination: the folder.
        content: what the model holds, by path.
        beside: names that may lie beside it.
    """
    wrong = []
    found = {path: data for path, data in tree(destination).items() if data != "folder"}
    if found != content:
        wrong.append(f"other files, or other bytes: {sorted(found.keys() ^ content.keys())}")
    if [path.name for path in (destination / ".faststart").iterdir()] != ["manifest.json"]:
        wrong.append("more than the manifest is left")
    process = start("--check", destination)
    said = process.communicate()
    if process.returncode:
        wrong.append(f"--check: exit {process.returncode}: {said}")
    if strays := {path.name for path in destination.parent.iterdir()} - {destination.name, *beside}:
        wrong.append(f"left beside it: {strays}")
    return wrong
