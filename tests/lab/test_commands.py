"""What the commands of the lab have in common."""

import importlib
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import failures


@pytest.mark.parametrize(
    "command", [*(("lab.rehearsal", name) for name in ("up", "destroy", "cancel")), ("lab.kube",), ("lab.e2e",)]
)
def test_a_stack_without_a_stack_file_ends_a_command_with_2_and_the_names_of_those_that_have_one(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    module, *arguments = command
    code = importlib.import_module(f"{module}.__main__").main([*arguments, "no-such-stack"])

    assert code == 2
    assert "no stacks/Pulumi.no-such-stack.yaml; there are: article, " in capsys.readouterr().out


FAILED = subprocess.CalledProcessError(137, [Path("/opt/pulumi"), "stack", "export"], stderr="error: out of memory\n")
WORDS = "`pulumi stack export` ended with exit code 137: error: out of memory"


@pytest.mark.parametrize(
    ("module", "part", "arguments", "code"),
    [
        ("lab.kube.__main__", "Scenario", ["article"], 1),
        ("lab.e2e.__main__", "check", ["article"], 1),
        ("lab.provider.changes", "deployed", ["stacks/Pulumi.article.yaml", "stacks/Pulumi.article.yaml"], 1),
        ("lab.rehearsal.release", "find_or_install", ["9.9.9"], 137),
    ],
)
def test_a_command_of_another_program_that_fails_is_told_of_without_a_traceback(
    module: str,
    part: str,
    arguments: list[str],
    code: int,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise FAILED

    command = importlib.import_module(module)
    for name in ("find_or_install", "pulumi_cli.find_or_install", "tool.get", "tools.get"):
        if hasattr(command, name.partition(".")[0]):
            monkeypatch.setattr(f"{module}.{name}", lambda _: SimpleNamespace(kubernetes_version="1.35.4"))
    monkeypatch.setattr(f"{module}.{part}", fails)

    assert command.main(arguments) == code
    said = capsys.readouterr()
    assert WORDS in said.out + said.err


@pytest.mark.parametrize(
    ("failed", "words", "code"),
    [
        (subprocess.CalledProcessError(1, ["kubectl", "get", "pods"], stderr="no route"), "no route", 1),
        (subprocess.CalledProcessError(2, ["kubectl"], output="said here", stderr=""), "said here", 2),
        (subprocess.CalledProcessError(2, ["kubectl"], output=b"\xff bytes"), "\ufffd bytes", 2),
        (subprocess.CalledProcessError(255, ["kubectl"]), "it said nothing", 255),
        (
            subprocess.CalledProcessError(-9, [Path("/bin/kubectl"), Path("/x")], stderr="  \n"),
            "`kubectl /x` ended",
            137,
        ),
        (subprocess.CalledProcessError(-15, ("a", "b"), stderr=b"bye\n"), "exit code 143: bye", 143),
    ],
)
def test_what_failed_is_told_with_its_words_and_its_exit_code(
    failed: subprocess.CalledProcessError, words: str, code: int
) -> None:
    assert words in failures.words(failed)
    assert f"exit code {code}: " in failures.words(failed)
    assert failures.code(failed) == code
