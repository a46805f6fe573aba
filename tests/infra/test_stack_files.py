"""Stack files are found by the names of their stacks."""

from pathlib import Path

import pytest

from infra import stack_files


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "stacks"
    found.mkdir()
    for name in (
        "Pulumi.yaml",
        "Pulumi..yaml",
        "Pulumi.b.yaml",
        "Pulumi.a-1.x.yaml",
        "Pulumi.c.yml",
        "images.lock.json",
    ):
        (found / name).write_text("")
    return found


def test_each_file_of_a_stack_is_found_by_its_name(folder: Path) -> None:
    names = ["a-1.x", "b"]

    assert list(stack_files.every(folder)) == names
    for name in names:
        assert stack_files.find(name, folder) == folder / f"Pulumi.{name}.yaml"
        assert stack_files.stack_of(stack_files.find(name, folder)) == name


@pytest.mark.parametrize("stack", ["", "c", "../stacks/Pulumi.b", "B"])
def test_a_stack_without_a_file_is_refused_with_those_that_have_one(folder: Path, stack: str) -> None:
    with pytest.raises(FileNotFoundError) as error:
        stack_files.find(stack, folder)

    assert str(error.value) == f"no stacks/Pulumi.{stack}.yaml; there are: a-1.x, b"


def test_a_folder_without_stack_files_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there are: none"):
        stack_files.find("a", tmp_path)


@pytest.mark.parametrize("name", ["Pulumi.yaml", "Pulumi..yaml", "Pulumi.a.yml", "a.yaml", "XPulumi.a.yaml"])
def test_a_file_of_another_name_is_of_no_stack(name: str) -> None:
    with pytest.raises(ValueError, match="is not named like"):
        stack_files.stack_of(Path(name))
