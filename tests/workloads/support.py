"""What the tests of preload share: trees of files, and ways to run preload in and out of this process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lab import ROOT
from preload import copier, mode
from preload.program import main

WORKLOADS = ROOT / "workloads"


def safetensors(data: bytes = b"\x01\x02\x03\x04") -> bytes:
    """Return a safetensors file with one tensor."""
    tensor = {"w": {"dtype": "U8", "shape": [len(data)], "data_offsets": [0, len(data)]}}
    header = json.dumps({"__metadata__": {"format": "pt"}, **tensor}).encode()
    return len(header).to_bytes(8, "little") + header + data


def index(*shards: str) -> bytes:
    """Return the index file of some shards."""
    return json.dumps({"weight_map": {f"w{number}": shard for number, shard in enumerate(shards)}}).encode()


SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")

MODEL: dict[str | bytes, bytes | None] = {
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}" * 700,
    SHARDS[0]: safetensors(bytes(range(256)) * 40),
    SHARDS[1]: safetensors(b"tail" * 300),
    "model.safetensors.index.json": index(*SHARDS),
    "1_Pooling/config.json": b"another config",
    "empty": None,
}


BLOCK = 8192
BIG = bytes(range(251)) * 200
"""50,200 bytes: six blocks and a short one."""


def flip(file: Path, at: int) -> None:
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def write(root: Path, files: Mapping[str | bytes, bytes | None] = MODEL) -> Path:
    """Make a tree of files and, where the content is None, folders; return its top."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / os.fsdecode(name)
        (path if content is None else path.parent).mkdir(parents=True, exist_ok=True)
        if content is not None:
            path.write_bytes(content)
    return root


def tree(root: Path) -> dict[bytes, bytes | str]:
    """Return the content of each file below a folder, its kind for all else, without the top .faststart."""
    found: dict[bytes, bytes | str] = {}
    waiting = [path for path in root.iterdir() if path.name != ".faststart"]
    while waiting:
        path = waiting.pop()
        name = os.fsencode(path.relative_to(root))
        if path.is_symlink():
            found[name] = "link"
        elif path.is_dir():
            found[name] = "folder"
            waiting.extend(path.iterdir())
        else:
            found[name] = path.read_bytes() if path.is_file() else "special"
    return found


def publish(root: Path, *, block_bytes: int = 8 << 20, **changed: Any) -> dict[str, Any]:
    """Write the manifest that publishing would write for a tree; some of its keys may be given."""

    def blocks(data: bytes) -> list[str]:
        pieces = (data[at : at + block_bytes] for at in range(0, len(data), block_bytes))
        return [hashlib.sha256(piece).hexdigest() for piece in pieces]

    content = {path: data for path, data in tree(root).items() if isinstance(data, bytes)}
    folders = {path for path, kind in tree(root).items() if kind == "folder"}
    used = {path.rpartition(b"/")[0] for path in [*content, *folders]}
    document = {
        "schema": "faststart.dev/manifest/v1",
        "model": "tiny",
        "revision": "r1",
        "source": "hf://someone/tiny",
        "created": "2026-11-30T00:00:00Z",
        "files": [
            {
                "path": path.decode(),
                "size": len(data),
                "sha256": None,
                "block_bytes": block_bytes,
                "blocks": blocks(data),
            }
            for path, data in sorted(content.items())
        ],
        "folders": sorted(path.decode() for path in folders - used),
        "total_bytes": sum(map(len, content.values())),
        "weights": {"format": "safetensors", "files": [], "tensor_bytes": 0, "dtypes": []},
        "architecture": "LlamaForCausalLM",
        "licence": None,
        "pickle": False,
    } | changed
    write(root, {".faststart/manifest.json": json.dumps(document).encode()})
    return document


SMALL_PIECES = """
import preload.copier, preload.mode
preload.copier.SMALL = preload.copier._UNIT = preload.mode.READ_BYTES = preload.mode.READ_BYTES_MAX = 4096
"""
"""For `start`: files of a few pages are then copied as large ones are, piece by piece."""


def use_small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do what SMALL_PIECES says, in this process."""
    for module, name in ((copier, "SMALL"), (copier, "_UNIT"), (mode, "READ_BYTES"), (mode, "READ_BYTES_MAX")):
        monkeypatch.setattr(module, name, mode.PAGE)


MORTAL = """
import itertools
at, numbers = int(os.environ.get("KILL_AT", "0")), itertools.count(1)
def mortal(module, name, changed=None):
    real = getattr(module, name)
    def call(*arguments, **more):
        number = next(numbers)
        if number == at and number % 2:
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*(changed(*arguments) if changed else arguments), **more)
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(module, name, call)
"""
"""For `start`: the process kills itself at the KILL_AT-th call of all that are mortal, before or after the call."""


@dataclass(frozen=True)
class Result:
    """How a run of preload in this process ended."""

    code: int
    message: str
    file: str | None
    termination: dict[str, Any]


class Naps:
    """Stands in for time.sleep: passes at once and remembers for how long it should have slept."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self, seconds: float) -> None:
        self.seconds += seconds


def preload(
    source: Path, destination: Path, *flags: str, sleep: Naps | None = None, proc: str = "/proc", sysfs: str = "/sys"
) -> Result:
    """Run preload in this process; the code and the termination message must agree."""
    with tempfile.NamedTemporaryFile() as log:
        arguments = [str(source), str(destination), *flags, "--termination-log", log.name]
        code = main(arguments, sleep=sleep or Naps(), proc=proc, sysfs=sysfs)
        termination = json.loads(log.read())
    assert termination["code"] == code
    return Result(int(code), termination["message"], termination["file"], termination)


def marker(destination: Path) -> dict[str, Any]:
    """Return the marker of a destination."""
    return json.loads((destination / ".faststart/complete.json").read_bytes())


def is_marked(destination: Path) -> bool:
    """Say whether a destination has a marker."""
    return (destination / ".faststart/complete.json").exists()


def start(*arguments: str | Path, before: str = "") -> subprocess.Popen[str]:
    """Start preload in a process of its own, after some Python code which may alter `os` there."""
    code = f"import os, sys, time, signal\n{before}\nfrom preload.program import main\nsys.exit(main(sys.argv[1:]))"
    return subprocess.Popen(
        [sys.executable, "-S", "-c", code, *map(str, arguments)],
        env={"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
