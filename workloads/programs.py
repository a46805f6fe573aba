"""The programs that run in pods, as data of one ConfigMap each: the code is read here and mounted there."""

from pathlib import Path

MOUNT_PATH = "/opt/faststart"

# What each program carries beside itself.
_PACKAGES = {"preload": ("preload", "modelfolder")}


def config_map_data(program: str) -> dict[str, str]:
    """The files of a program, by ConfigMap key `<package>.<file>`.

    Args:
        program: The program's package under `workloads/`.

    Returns:
        Text by key, in a fixed order.
    """
    return {f"{path.parent.name}.{path.name}": path.read_text(encoding="utf-8") for path in _files(program)}


def config_map_items(program: str) -> list[tuple[str, str]]:
    """Where each key of `config_map_data` is mounted below `MOUNT_PATH`, as (key, path)."""
    return [(f"{path.parent.name}.{path.name}", f"{path.parent.name}/{path.name}") for path in _files(program)]


def _files(program: str) -> list[Path]:
    here = Path(__file__).parent
    return [path for package in _PACKAGES[program] for path in sorted((here / package).glob("*.py"))]
