"""Stack files as tools find and read them, without the engine; the program's own way is `infra.settings.load`."""

import re
from pathlib import Path

import yaml

from infra.settings import Settings, check

FOLDER = Path(__file__).parent.parent / "stacks"

_NAME = re.compile(r"Pulumi\.(.+)\.yaml")


class UnusableError(Exception):
    """A stack file has no settings to give; the text names it and says why."""


def stack_of(path: Path) -> str:
    """The name of the stack that a stack file is for.

    Raises:
        ValueError: The file is not named like `Pulumi.<stack>.yaml`.
    """
    found = _NAME.fullmatch(path.name)
    if found is None:
        raise ValueError(f"{path.name} is not named like Pulumi.<stack>.yaml")
    return found[1]


def every(folder: Path = FOLDER) -> dict[str, Path]:
    """The stack files of a folder by the names of their stacks, in the order of these."""
    return {stack_of(path): path for path in sorted(folder.glob("Pulumi.?*.yaml"))}


def find(stack: str, folder: Path = FOLDER) -> Path:
    """The stack file of a stack.

    Raises:
        FileNotFoundError: There is none; the text lists the stacks that have one.
    """
    files = every(folder)
    if stack not in files:
        known = ", ".join(files) or "none"
        raise FileNotFoundError(f"no {folder.name}/Pulumi.{stack}.yaml; there are: {known}")
    return files[stack]


def read(path: Path) -> Settings:
    """The settings in a stack file, defaults included.

    Args:
        path: A file named like `Pulumi.<stack>.yaml`.

    Raises:
        UnusableError: There is no such file, it is no YAML, or `infra.settings.check` finds mistakes in it.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UnusableError(f"{path}: cannot be read: {error}") from error
    config = document.get("config") if isinstance(document, dict) else None
    settings, findings = check(config if isinstance(config, dict) else {}, stack_of(path))
    if settings is None:
        mistakes = [f"  {finding}" for finding in findings if finding.refuses]
        raise UnusableError("\n".join([f"{path}: has mistakes, mend them first:", *mistakes]))
    return settings
