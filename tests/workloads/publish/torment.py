"""Kills publishers for as long as it takes; test_kill.py is the short form.

    python -m tests.workloads.publish.torment --hits 50

The models come from an S3 and from a hub that stand in on loopback. Prints a line for docs; exit 1 if anything differed
or too few kills hit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "workloads"))  # as pytest does by pyproject.toml

from lab.loopback import s3
from lab.loopback.hub import Hub
from tests.workloads.publish.support import MODEL, Torment, torment

CONTENT = {os.fsencode(path): data for path, data in MODEL.items() if data is not None}
BIG = CONTENT | {b"tokenizer.model": random.Random(0).randbytes(3_000_000)}


def from_s3(folder: Path, hits: int, seed: int) -> Torment:
    """Publish from a bucket whose answers come a moment late, with kills."""

    def late(app: s3.App, environ: dict[str, Any], start: s3.Start) -> Any:
        time.sleep(0.05)
        return app(environ, start)

    with pytest.MonkeyPatch.context() as patch, s3.serving() as store:
        s3.use(patch, store.endpoint)
        store.between = late
        store.put({f"tiny/{path.decode()}": data for path, data in BIG.items()})
        return torment(f"s3://{s3.BUCKET}/tiny", BIG, folder / "models/r1", hits, seed, {})


def from_hub(folder: Path, hits: int, seed: int) -> Torment:
    """Publish from a repository, with kills."""
    with Hub() as hub:
        hub.add("org/tiny", {path.decode(): data for path, data in BIG.items()})
        environment = {"HF_ENDPOINT": hub.url, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(folder / "home")}
        return torment("hf://org/tiny@main", BIG, folder / "models/r1", hits, seed, environment)


PLACES = {"S3": from_s3, "hub": from_hub}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.workloads.publish.torment", description=__doc__)
    parser.add_argument("--hits", type=int, default=50, help="kills that must hit a publisher, of all places (50)")
    parser.add_argument("--seed", type=int, default=5)
    given = parser.parse_args()
    failed = False
    for name, kill in PLACES.items():
        wanted, began = -(-given.hits // len(PLACES)), time.monotonic()
        with tempfile.TemporaryDirectory(prefix="torment.") as folder:
            total = kill(Path(folder), wanted, given.seed)
        for line in total.wrong:
            print(f"wrong: {line}")
        print(
            f"- {dt.datetime.now(dt.UTC):%Y-%m-%d}, kill -9 of publish from the stand-in {name}: {total.hits} hits,"
            f" {total.models} models, {total.starts} starts, {len(total.wrong)} wrong;"
            f" {time.monotonic() - began:.0f} s, seed {given.seed},"
            f" Python {platform.python_version()}, Linux {platform.release()}.",
            flush=True,
        )
        failed |= bool(total.wrong) or total.hits < wanted
    return failed


if __name__ == "__main__":
    sys.exit(main())
