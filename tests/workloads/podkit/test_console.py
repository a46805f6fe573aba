"""What becomes of a program whose standard output or error is closed, full, or speaks another encoding."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.workloads.publish.support import MODEL
from tests.workloads.support import WORKLOADS, write

pytestmark = pytest.mark.processes

GOOD, BAD = 0, 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good model, and a bad one about which the program prints more than a pipe holds; both have a strange name."""
    top = tmp_path_factory.mktemp("models")
    write(top / "good", {**MODEL, "größe.bin": b"\x80\x02."})
    pointers = {f"{'deep/' * 40}{number}.safetensors": b"" for number in range(300)}
    write(top / "bad", {**MODEL, "größe.bin": b"\x80\x02.", **pointers})
    return top


def run(
    models: Path, *arguments: str, redirect: str = "", program: str = "publish", **environment: str
) -> tuple[int, str]:
    """Run a program in a shell that redirects its streams; return its exit code, and what standard error got."""
    command = f'"$@" {redirect}'
    ended = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command, "bash", sys.executable, "-m", program, *arguments],
        cwd=models,
        env={**os.environ, "PYTHONPATH": str(WORKLOADS), **environment},
        capture_output=True,
        check=False,
        timeout=60,
    )
    return ended.returncode, ended.stderr.decode()


READERS = ["| true", "| head -n 1", "| head -c 1", ">&-", "2>&1 | true", "2>&1 | head -n 1", "2>&-", ">&- 2>&-"]


@pytest.mark.parametrize("redirect", READERS)
@pytest.mark.parametrize(("folder", "code"), [("good", GOOD), ("bad", BAD)])
def test_a_reader_that_goes_away_changes_no_exit_code_and_shows_no_traceback(models, redirect, folder, code):
    found, said = run(models, "--check", folder, redirect=redirect)

    assert (found, [word for word in ("Traceback", "Error", "Exception") if word in said]) == (code, [])


@pytest.mark.parametrize("redirect", ["> /dev/full", "2> /dev/full", "> /dev/full 2>&1"])
@pytest.mark.parametrize("folder", ["good", "bad"])
def test_standard_output_that_is_full_is_9_unless_something_is_worse_and_standard_error_none(models, redirect, folder):
    found, said = run(models, "--check", folder, redirect=redirect)

    lost = redirect.startswith(">")
    assert found == (BAD if folder == "bad" else 9 if lost else GOOD)
    assert "Traceback" not in said
    assert ("standard output cannot be written: No space left on device" in said) == (
        redirect == "> /dev/full" and folder == "good"
    )


@pytest.mark.parametrize("redirect", ["| true", ">&-", "2>&-", "> /dev/full"])
@pytest.mark.parametrize(
    ("program", "arguments"),
    [
        ("preload", ("--plan", "good", "copy")),
        ("preload", ("--help",)),
        ("publish", ("--help",)),
        ("publish", ("--version",)),
        ("publish", ()),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, Sequence) and not isinstance(value, str) else value,
)
def test_no_program_ends_with_a_traceback_for_what_its_streams_are(models, redirect, program, arguments):
    code, said = run(models, *arguments, redirect=redirect, program=program)

    full = redirect == "> /dev/full" and "--plan" in arguments
    assert code == (9 if full else 2 if not arguments else 0)
    assert [word for word in ("Traceback", "Exception ignored") if word in said] == []


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8", "cp1252", "koi8-r"])
def test_names_that_the_encoding_of_standard_output_lacks_are_printed_as_escapes(models, encoding):
    ended = subprocess.run(
        [sys.executable, "-m", "publish", "--check", "good"],
        cwd=models,
        env={**os.environ, "PYTHONPATH": str(WORKLOADS), "PYTHONIOENCODING": encoding},
        capture_output=True,
        check=True,
        timeout=60,
    )
    shown = "größe.bin".encode(encoding, "backslashreplace")
    assert shown in ended.stdout
