"""The words and the exit code for a command that failed."""

import subprocess
from pathlib import Path


def words(failed: subprocess.CalledProcessError) -> str:
    """The command, its exit code, and what it said: on stderr, else on stdout."""
    program, *arguments = map(str, failed.cmd)
    shown = " ".join([Path(program).name, *arguments])
    said = failed.stderr or failed.stdout or "it said nothing"
    text = said if isinstance(said, str) else said.decode(errors="replace")
    return f"`{shown}` ended with exit code {code(failed)}: {text.strip()}"


def code(failed: subprocess.CalledProcessError) -> int:
    """Its exit code as a shell has it: 128 + N where signal N ended it."""
    return failed.returncode if failed.returncode >= 0 else 128 - failed.returncode
