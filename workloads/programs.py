"""The programs that run in pods, as data of ConfigMaps: the code is read here and mounted there.

`python -m workloads.programs PROGRAM FILE` writes one as a single file, for use elsewhere (`docs/preload.md`).
"""

import sys
import zipfile
from pathlib import Path

from infra.layout import program_config_map

# The packages in each program's ConfigMap, and the programs whose ConfigMaps are mounted for it.
_PACKAGES = {"preload": ("preload", "modelfolder", "podkit"), "publish": ("publish",)}
_MOUNTED = {"preload": ("preload",), "publish": ("publish", "preload")}
_STARTS = "preload"  # whose ConfigMap has start.py, for it is mounted for all


def config_map_data(program: str) -> dict[str, str]:
    """What a program's ConfigMap holds, by key `<package>.<file>`, and `start.py`: at most 512 KiB.

    Args:
        program: The program's package under `workloads/`.

    Returns:
        Text by key, in a fixed order.
    """
    files = {f"{path.parent.name}.{path.name}": path for path in _files(program)}
    if program == _STARTS:
        files["start.py"] = Path(__file__).with_name("start.py")
    return {key: path.read_text(encoding="utf-8") for key, path in files.items()}


def mounted(program: str) -> list[str]:
    """Names of the ConfigMaps that are mounted at `infra.layout.PROGRAMS`, whole and flat, to run a program.

    No pod names a file of them: with each new one it would be another pod, and roll.
    """
    return [program_config_map(one) for one in _MOUNTED[program]]


def write_archive(program: str, target: Path) -> None:
    """Write a program as one file that Python runs; the same code gives the same bytes.

    Args:
        program: The program's package under `workloads/`.
        target: The file, overwritten if it is there.
    """
    start = (
        f"import sys\nfrom podkit import early\nearly.install({program!r}, sys.argv[1:])\n"
        f"from {program}.program import main\nsys.exit(main(sys.argv[1:]))\n"
    )
    members = {
        f"{path.parent.name}/{path.name}": path.read_text(encoding="utf-8")
        for one in _MOUNTED[program]
        for path in _files(one)
    }
    with target.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in {"__main__.py": start, **members}.items():
                archive.writestr(zipfile.ZipInfo(name), text, zipfile.ZIP_DEFLATED)
    target.chmod(0o755)


def _files(program: str) -> list[Path]:
    here = Path(__file__).parent
    return [path for package in _PACKAGES[program] for path in sorted((here / package).glob("*.py"))]


if __name__ == "__main__":
    write_archive(sys.argv[1], Path(sys.argv[2]))
