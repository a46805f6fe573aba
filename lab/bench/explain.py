"""Where a tool's time goes: the system calls of one more run, under strace."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from lab.bench.datasets import DataSet
from lab.bench.measure import Bench, Contestant, RunFailedError
from lab.bench.sources import Source

SHOWN = 8


def syscalls(
    bench: Bench, contestant: Contestant, data_set: DataSet, data: Path, source: Source, say: Callable[[str], None]
) -> list[dict[str, Any]]:
    """The system calls that took longest, each with its seconds (summed over threads) and its count."""
    if shutil.which("strace") is None:
        say("no profile by system call: strace is not on PATH")
        return []
    table = bench.work / "strace.txt"
    traced = Bench(
        bench.work,
        {**bench.environ, "TRACED": contestant.command, "TABLE": str(table.absolute())},
        limit_seconds=bench.limit_seconds,
    )
    command = 'strace --summary-only --summary-wall-clock --follow-forks --output="$TABLE" sh -c "$TRACED"'
    try:
        traced.run(replace(contestant, command=command), data_set, data, source, "disk", compare=False)
        return parse(table.read_text(encoding="utf-8"))
    except (RunFailedError, OSError) as error:
        say(f"no profile by system call of {contestant.name}: {error}")
        return []
    finally:
        table.unlink(missing_ok=True)


def parse(text: str) -> list[dict[str, Any]]:
    """The rows of strace's summary, the longest first."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        if len(fields) >= 5 and fields[0].replace(".", "").isdigit() and fields[-1] != "total":
            found.append({"name": fields[-1], "seconds": float(fields[1]), "calls": int(fields[3])})
    return sorted(found, key=lambda row: -row["seconds"])[:SHOWN]
