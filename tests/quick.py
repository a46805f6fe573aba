"""`make quick AREA="preload ops"`: format, lint and tests of some rooms or paths, in seconds.

An area is the name of a folder of tests; with it goes the folder of code that it mirrors. A path is a file or folder
of either. Types, and the tests that use what was changed from other rooms, are left to `make check`.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from lab import ROOT

TESTS = ROOT / "tests"
USAGE = 2


def areas() -> dict[str, Path]:
    """The folder of tests of each area."""
    return {folder.name: folder for folder in sorted(TESTS.rglob("*")) if any(folder.glob("test_*.py"))}


def chosen(words: Sequence[str]) -> tuple[set[Path], set[Path]]:
    """The Python files to look at, and the files of tests to run.

    Raises:
        ValueError: a word is neither an area nor a path, has no tests, or there is none; the text lists the areas.
    """
    files, tests = set[Path](), set[Path]()
    for word in words or [""]:
        path = areas().get(word, ROOT / word)
        if not word or not path.exists():
            raise ValueError(f"AREA={word}: neither an area nor a path; areas: {', '.join(sorted(areas()))}")
        folder = path if path.is_dir() else path.parent
        mirror = folder if folder.is_relative_to(TESTS) else TESTS / folder.relative_to(ROOT)
        files |= {path} if path.is_file() else {*path.glob("*.py"), *(ROOT / mirror.relative_to(TESTS)).glob("*.py")}
        found = {path} if path.is_file() and path.is_relative_to(TESTS) else set(mirror.glob("test_*.py"))
        if not found:
            raise ValueError(
                f"AREA={word}: {mirror.relative_to(ROOT)} has no tests; areas: {', '.join(sorted(areas()))}"
            )
        tests |= found
    return files | tests, tests


def main(words: Sequence[str]) -> int:
    """Runs the command line; returns the exit code of the first command that fails, or 2 for a wrong word."""
    try:
        files, tests = chosen(words)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE
    ruff = [str(Path(sys.executable).parent / "ruff")]
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "not engine and not processes and not long", "-n", "2"]
    for command, paths in (([*ruff, "format", "--check"], files), ([*ruff, "check"], files), (pytest, tests)):
        if paths and (code := subprocess.run([*command, *sorted(paths)], cwd=ROOT, check=False).returncode):
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
