"""Kills copies and resets their node, for long; test_kill.py is the short form.

    python -m tests.workloads.preload.soak --hits 200

Prints a line every 20 hits and at the end one for docs; exit 1 if a byte differed or too few kills hit.
"""

from __future__ import annotations

import argparse
import datetime as dt
import platform
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "workloads"))  # as pytest does by pyproject.toml

from tests.workloads.preload.faulty import (
    MIB,
    MODES,
    Faulty,
    Torment,
    big_model,
    compiled,
    publish_hashed,
    torment,
)

STEP = 20


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.workloads.preload.soak", description=__doc__)
    parser.add_argument("--hits", type=int, default=200, help="kills that must hit a running copy (200)")
    parser.add_argument("--seed", type=int, default=5)
    parser.add_argument("--mib", type=int, default=40, help="size of the model (40)")
    parser.add_argument("--folder", type=Path, help="where to work, made if need be; default: the temp folder")
    given = parser.parse_args()
    if given.folder:
        given.folder.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    said = 0

    def say(total: Torment) -> None:
        nonlocal said
        if total.hits // STEP > said:
            said = total.hits // STEP
            print(f"{total.hits} hits, {figures(total)}, {time.monotonic() - began:.0f} s", flush=True)

    with tempfile.TemporaryDirectory(prefix="soak.", dir=given.folder) as name:
        folder = Path(name)
        sizes = (given.mib * MIB // 2 + 1237, given.mib * MIB * 3 // 10, given.mib * MIB // 5 + 4096)
        source = publish_hashed(big_model(folder / "source", sizes, given.seed))
        faulty = Faulty(compiled(folder))
        total = torment(faulty, source, folder / "destination", given.hits, given.seed, say)
    for line in total.wrong:
        print(f"wrong: {line}")
    modes = ", ".join(" ".join(mode) for mode in MODES)
    print(
        f"- {dt.datetime.now(dt.UTC):%Y-%m-%d}, kill -9: {total.hits} hits on running copies of {given.mib}"
        f" MiB ({modes}); {figures(total)}; {time.monotonic() - began:.0f} s, seed {given.seed},"
        f" Python {platform.python_version()}, Linux {platform.release()}."
    )
    return bool(total.wrong) or total.hits < given.hits


def figures(total: Torment) -> str:
    return (
        f"{total.copies} copies, {total.starts} starts, {total.resets} resets of the node,"
        f" {total.resumed_copies} resumed with"
        f" {total.resumed_bytes / MIB:.0f} MiB, {len(total.wrong)} wrong"
    )


if __name__ == "__main__":
    sys.exit(main())
