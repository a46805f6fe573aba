"""The packages of the programs that run in pods: what each may import, and what fits into a ConfigMap."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.support import WORKLOADS
from workloads import programs

LAYERS = ("podkit", "modelfolder", "preload", "publish")
"""Each package imports itself, those before it and the standard library."""

LIBRARIES = {
    "publish/hub.py": {"huggingface_hub"},
    "publish/s3.py": {"boto3", "botocore", "s3transfer", "urllib3"},
    "publish/smallfiles.py": {"jinja2"},
}
"""What else a file imports: the vLLM image brings it."""

MAX_BYTES = 512 * 1024
"""Half of the 1 MiB above which Kubernetes refuses a ConfigMap, so that a program can be split in time. No last-applied
annotation limits it further, to 256 KiB: Pulumi writes it by server-side apply, which adds none."""

FILES = {
    f"{path.parent.name}/{path.name}": path for package in LAYERS for path in sorted((WORKLOADS / package).glob("*.py"))
}


def imported(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_bytes(), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            assert node.module
            names.add(node.module.partition(".")[0])
    return names


@pytest.mark.parametrize("name", FILES)
def test_each_file_is_python_3_10_and_imports_the_standard_library_and_the_packages_below_its_own(name: str) -> None:
    below = LAYERS[: LAYERS.index(name.partition("/")[0]) + 1]

    assert imported(FILES[name]) - sys.stdlib_module_names <= {*below} | LIBRARIES.get(name, set())


def test_each_package_is_flat() -> None:
    inside = [path for package in LAYERS for path in (WORKLOADS / package).iterdir() if path.name != "__pycache__"]

    assert {path.suffix for path in inside} == {".py"}


def test_preload_s_config_map_carries_the_packages_below_preload_and_publish_s_carries_itself() -> None:
    carried = {
        program: {key.partition(".")[0] for key in programs.config_map_data(program)}
        for program in ("preload", "publish")
    }

    assert carried == {"preload": {"start", "podkit", "modelfolder", "preload"}, "publish": {"publish"}}


def test_preload_imports_each_module_of_modelfolder_and_its_own() -> None:
    """What only publishing needs lies in `publish`."""
    code = "import sys, preload.program; print(*sys.modules)"
    imported_there = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(WORKLOADS)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    modules = {name.replace("/", ".").removesuffix(".py").removesuffix(".__init__") for name in FILES}

    assert {
        one
        for one in modules - {"preload.__main__"} - set(imported_there)
        if one.partition(".")[0] in ("modelfolder", "preload")
    } == set()


@pytest.mark.parametrize("program", ["preload", "publish"])
def test_a_program_fits_into_its_config_map(program: str) -> None:
    sizes = {key: len(text.encode()) for key, text in programs.config_map_data(program).items()}
    largest = sorted(sizes, key=lambda key: sizes[key], reverse=True)[:3]

    assert sum(sizes.values()) <= MAX_BYTES, ", ".join(f"{key} has {sizes[key]} bytes" for key in largest)
