"""Imports run in one direction: instance_types -> settings -> components -> workloads -> __main__."""

import ast
import functools
from pathlib import Path

import pytest

from lab import ROOT


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


LAYERS = [
    {"infra", "infra.images", "infra.instance_types", "infra.layout", "infra.versions"},
    {"infra.sizing"},
    {"infra.settings.findings", "infra.settings.schema", "infra.settings.sections"},
    {"infra.settings.values"},
    {f"infra.settings.sections.{name}" for name in ("aws", "cluster", "models", "network", "nodes", "storage")},
    {"infra.settings.sections.plugins", "infra.settings.sections.servers"},
    {"infra.settings.environment"},
    {"infra.settings.key_reference", "infra.settings.messages", "infra.settings.rules.rule"},
    {
        f"infra.settings.rules.{name}"
        for name in ("cluster", "mirrors", "models", "network", "plugins", "servers", "storage")
    },
    {"infra.settings.rules"},
    {"infra.settings.reading"},
    {"infra.settings"},
    {"infra.iam", "infra.stack_files"},
    {"infra.network", "infra.cluster", "infra.namespaces", "infra.bootstrap"},
    {"infra.node_groups", "infra.storage"},
    {"infra.plugins"},
    {"workloads.pods", "workloads.programs", "workloads.start"},
    {"workloads.delivery"},
    {"workloads.model_server", "workloads.published_model"},
    {"workloads.next_commands"},
    {"__main__"},
]


@functools.cache
def modules() -> dict[str, Path]:
    paths = [ROOT / "__main__.py", *sorted((ROOT / "infra").rglob("*.py")), *sorted((ROOT / "workloads").glob("*.py"))]
    return {module_name(path): path for path in paths}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            given = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= {name if name in modules() else node.module for name in given}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_every_module_has_its_layer() -> None:
    assert set(modules()) == set().union(*LAYERS)


@pytest.mark.parametrize("name", modules())
def test_a_module_imports_only_from_layers_below_its_own(name: str) -> None:
    (level,) = [i for i, layer in enumerate(LAYERS) if name in layer]
    ours = imported(modules()[name]) & set().union(*LAYERS)

    assert ours <= set().union(*LAYERS[:level])


def test_only_the_settings_read_the_configuration() -> None:
    readers = {
        name
        for name, path in modules().items()
        if any(word in path.read_text() for word in ("pulumi.Config", "get_config_env", "os.environ", "getenv"))
    }

    assert readers == {"infra.settings.reading"}


def test_no_component_asks_aws_for_anything() -> None:
    for name, path in modules().items():
        calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        names = {call.attr for call in calls if isinstance(call, ast.Attribute)}
        looks = {one for one in names if one.startswith(("get_", "lookup"))}
        assert looks <= {"get_stack", "get_default", "get_config_env", "get_close_matches"}, name
        assert "boto3" not in imported(path), name


def test_the_program_reaches_no_network_of_its_own() -> None:
    """What registries say is asked by `make pin-images` and kept in the lock file."""
    for name, path in modules().items():
        packages = {one.partition(".")[0] for one in imported(path)}
        assert not packages & {"ops", "lab", "requests", "urllib", "urllib3", "http", "socket"}, name


def test_no_resource_is_made_inside_apply() -> None:
    for name, path in modules().items():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "apply":
                inside = [ast.unparse(argument) for argument in node.args]
                assert not [text for text in inside if "aws." in text or "k8s." in text or "eks." in text], name
