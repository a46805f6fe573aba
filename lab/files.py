"""How files are written that others read meanwhile."""

from pathlib import Path


def replace(path: Path, text: str) -> None:
    """Writes a file whole or not at all: who reads it finds the old text or the new one.

    Raises:
        OSError: it cannot be written; an old one is as it was.
    """
    new = path.with_name(f"{path.name}.new")
    new.write_text(text, encoding="utf-8")
    new.replace(path)
