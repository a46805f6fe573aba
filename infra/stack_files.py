"""Stack files as tools read them, without the engine; the program's own way is `infra.settings.load`."""

from pathlib import Path

import yaml

from infra.settings import Finding, Settings, check

FOLDER = Path(__file__).parent.parent / "stacks"


class UnreadableError(Exception):
    """A stack file cannot be read; the text says why, without its name."""


def read(path: Path) -> tuple[Settings | None, list[Finding]]:
    """Reads and checks a stack file.

    Args:
        path: A file named like `Pulumi.<stack>.yaml`.

    Returns:
        What `infra.settings.check` says of it.

    Raises:
        UnreadableError: There is no such file, or it is no YAML.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UnreadableError(str(error)) from error
    config = document.get("config") if isinstance(document, dict) else None
    stack = path.name.removeprefix("Pulumi.").removesuffix(".yaml")
    return check(config if isinstance(config, dict) else {}, stack)
