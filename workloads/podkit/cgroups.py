"""The limits of the cgroups that this process is in, of version 1 and 2; inside a container its own is the top one."""

from __future__ import annotations

import os
from collections.abc import Iterator

from podkit.files import content


def folders(controller: str, proc: str = "/proc", sysfs: str = "/sys") -> Iterator[tuple[int, str]]:
    """Return the version and the folder of each cgroup that a controller limits this process by, the nearest first."""
    top = f"{sysfs}/fs/cgroup"
    for line in content(f"{proc}/self/cgroup").decode(errors="replace").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if controllers and controller not in controllers.split(","):
            continue
        version, base = (1, f"{top}/{controller}") if controllers else (2, top)
        while True:
            yield version, f"{base}{path.rstrip('/')}"
            if path in ("", "/"):
                break
            path = os.path.dirname(path)


def number(file: str) -> int | None:
    """Return the number in a file of a cgroup; None where there is no file, or no limit."""
    text = content(file).strip()
    return int(text) if text.isdigit() else None
