"""What a figure depends on besides the code: the machine, its load, the commit."""

import datetime as dt
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from lab import ROOT
from lab.bench import host_memory


def describe(work: Path) -> dict[str, Any]:
    """The machine, as far as a reader needs it to weigh a figure; memory in bytes."""
    return {
        "cpu": _field("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": memory_bytes(),
        "free_memory": host_memory.state(),
        "kernel": platform.release(),
        "file_system": file_system(work),
        "python": platform.python_version(),
    }


def memory_bytes() -> int:
    """All memory of the machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def available_bytes() -> int:
    """Memory that a program can have without pushing another one's out."""
    return int(_field("/proc/meminfo", "MemAvailable").split()[0]) * 1024


def moment() -> dict[str, Any]:
    """Date, commit and load of now."""
    return {
        "date": dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "load": round(os.getloadavg()[0], 2),
    }


def commit() -> str:
    """The clone's commit, with a + where files differ from it; unknown outside of a clone."""
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, check=False, capture_output=True, text=True
    )
    if shown.returncode:
        return "unknown"
    changed = subprocess.run(
        ["git", "status", "--porcelain", "--", "workloads", "lab/bench"],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    return shown.stdout.strip() + ("+" if changed.stdout else "")


def file_system(path: Path) -> str:
    """The type of the file system that holds a path."""
    device = path.stat().st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        before, _, after = line.partition(" - ")
        if before.split()[2] == wanted:
            return after.split()[0]
    return "unknown"


def _field(path: str, name: str) -> str:
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
