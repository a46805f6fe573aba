"""Copies the program and its stack file: the engine writes into stack files, and the clone must stay as it is."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

# Only for a folder that git does not know; within a clone .gitignore decides.
IGNORED = {".git", ".venv", "venv", "build", "node_modules", "__pycache__"}

# What a stack of a real account carries to decrypt its secrets; none of it can be used here.
_KEYS = re.compile(r"^(secretsprovider|encryptedkey|encryptionsalt):.*\n?", re.MULTILINE)
_SECRET = re.compile(r"^(\s*(?:- )?)secure:\s+\S+\s*$")
_SALT = re.compile(r"^encryptionsalt:.*\n?", re.MULTILINE)

SECRET = "stand-in-for-a-secret"  # noqa: S105 -- what is shown in a secret's place


def program_files(root: Path) -> list[Path]:
    """The program's files, relative to the root: tracked ones, and new ones that are not ignored."""
    command = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        listed = b""
    files = sorted({Path(os.fsdecode(name)) for name in listed.split(b"\0") if name})
    if Path("Pulumi.yaml") not in files:
        files = sorted(_walk(root))
    return [file for file in files if (root / file).is_file()]


def _walk(root: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in IGNORED and not name.endswith("_cache")]
        for name in files:
            yield (Path(folder) / name).relative_to(root)


def copy_program(root: Path, target: Path, stack_file: Path) -> None:
    """Makes the target a copy of the program with this one stack file.

    Args:
        root: the clone.
        target: a folder of the rehearsal's own; replaced.
        stack_file: goes to `stacks/` of the copy. The encryption salt that the engine once wrote into the copy there
            stays, so that the state can be read again.
    """
    copied_stack = target / "stacks" / stack_file.name
    salt = _SALT.search(copied_stack.read_text(encoding="utf-8")) if copied_stack.exists() else None
    shutil.rmtree(target, ignore_errors=True)
    for file in program_files(root):
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(root / file, target / file)
    text = without_secrets(stack_file.read_text(encoding="utf-8"))
    copied_stack.parent.mkdir(parents=True, exist_ok=True)
    copied_stack.write_text(text + (salt[0] if salt else ""), encoding="utf-8")
    if sys.prefix != sys.base_prefix:
        # For a full installation's language host, which obeys Pulumi.yaml's `virtualenv: .venv`.
        (target / ".venv").symlink_to(sys.prefix, target_is_directory=True)


def without_secrets(stack_text: str) -> str:
    """A stack file without its keys, and with a stand-in for each encrypted value: no key of theirs is at hand here."""
    lines: list[str] = []
    for line in _KEYS.sub("", stack_text).splitlines():
        found = _SECRET.match(line)
        if found and found[1].endswith("- "):
            lines.append(found[1] + SECRET)
        elif found and lines and lines[-1].rstrip().endswith(":"):
            lines[-1] = f"{lines[-1].rstrip()} {SECRET}"
        else:
            lines.append(line)
    return "".join(f"{line}\n" for line in lines)
