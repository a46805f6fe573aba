"""Modules import in one direction, each wherever it stands: at the top, in a function, or for the type checker."""

from __future__ import annotations

import ast
import graphlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab import ROOT

# What each room may import of the others. The program and what people run beside it know nothing of the lab. The engine
# starts the providers as processes, so the rehearsal imports none. Only e2e imports a program of pods, to compare
# vLLM's verdict with its own.
ROOMS: dict[str, set[str]] = {
    "infra": set(),
    "workloads": {"infra"},
    "ops": {"infra", "workloads"},
    "lab": set(),
    "lab.account": {"lab"},
    "lab.bench": {"lab"},
    "lab.loopback": {"lab"},
    "lab.rehearsal.providers": {"lab", "lab.provider"},
    "lab.rehearsal": {"infra", "lab", "lab.account"},
    "lab.rehearsal.__main__": {"infra", "lab", "lab.account", "lab.provider", "lab.rehearsal"},
    "lab.provider": {"infra", "lab", "lab.rehearsal"},
    "lab.kube": {"infra", "lab", "lab.provider", "lab.rehearsal", "lab.rehearsal.providers"},
    "lab.e2e": {"infra", "lab", "lab.loopback", "lab.rehearsal", "lab.kube", "workloads"},
}


def files() -> Iterator[tuple[str, Path]]:
    """Name and file of each module in a room."""
    for top in sorted({room.partition(".")[0] for room in ROOMS}):
        for path in sorted((ROOT / top).rglob("*.py")):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
            yield name.removesuffix(".__init__"), path


MODULES = dict(files())


def imported(path: Path) -> set[str]:
    """The modules of ours that a file imports; what pods run is imported by its own name, without `workloads`."""
    named: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            named |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            module = node.module or ""
            inner = {f"{module}.{alias.name}" for alias in node.names}
            named |= {one if one in MODULES or f"workloads.{one}" in MODULES else module for one in inner}
    return {name for one in named for name in (one, f"workloads.{one}") if name in MODULES}


IMPORTS = {name: imported(path) for name, path in MODULES.items()}


def room(module: str) -> str:
    return max((one for one in ROOMS if f"{module}.".startswith(f"{one}.")), key=len)


def test_no_modules_import_each_other() -> None:
    try:
        graphlib.TopologicalSorter(IMPORTS).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"they import each other: {' <- '.join(error.args[1])}")


@pytest.mark.parametrize("name", ROOMS)
def test_a_room_imports_only_what_it_may(name: str) -> None:
    found = {
        f"{module} imports {other}"
        for module, others in IMPORTS.items()
        for other in others
        if room(module) == name and room(other) not in {name, *ROOMS[name]}
    }

    assert not found


def test_every_folder_of_the_lab_is_a_room() -> None:
    folders = {f"lab.{path.parent.name}" for path in (ROOT / "lab").glob("*/__init__.py")}

    assert folders == {one for one in ROOMS if one.count(".") == 1}
    assert set(graphlib.TopologicalSorter(ROOMS).static_order()) == set(ROOMS)


def test_imports_are_seen_wherever_they_stand(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text(
        "from typing import TYPE_CHECKING\n"
        "if TYPE_CHECKING:\n    from lab.kube.pods import PodLife\n"
        "def main():\n    from lab.kube import volumes\n    import infra.versions\n    import publish.program\n"
    )

    assert imported(file) == {"lab.kube.pods", "lab.kube.volumes", "infra.versions", "workloads.publish.program"}
