"""The packages of the programs that run in pods: what each may import, and what fits into a ConfigMap."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.workloads.support import WORKLOADS
from workloads import programs

LAYERS = ("podkit", "modelfolder", "preload", "publish")
"""Each package imports itself, those before it and the standard library."""

LIBRARIES = {"publish/hub.py": {"huggingface_hub"}, "publish/s3.py": {"boto3", "botocore", "s3transfer", "urllib3"}}
"""What else a file imports, inside functions: the vLLM image brings it."""

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


def test_preload_s_config_map_carries_what_preload_imports_and_publish_s_carries_itself() -> None:
    carried = {
        program: {key.partition(".")[0] for key in programs.config_map_data(program)}
        for program in ("preload", "publish")
    }

    assert carried == {"preload": {"start", "podkit", "modelfolder", "preload"}, "publish": {"publish"}}


@pytest.mark.parametrize("program", ["preload", "publish"])
def test_a_program_fits_into_its_config_map(program: str) -> None:
    sizes = {key: len(text.encode()) for key, text in programs.config_map_data(program).items()}

    assert sum(sizes.values()) < 256 * 1024
