"""What the commands of the lab have in common."""

import importlib

import pytest


@pytest.mark.parametrize(
    "command", [("lab.rehearsal", "up"), ("lab.rehearsal", "destroy"), ("lab.kube",), ("lab.e2e",)]
)
def test_a_stack_without_a_stack_file_ends_a_command_with_2_and_the_names_of_those_that_have_one(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    module, *arguments = command
    code = importlib.import_module(f"{module}.__main__").main([*arguments, "no-such-stack"])

    assert code == 2
    assert "no stacks/Pulumi.no-such-stack.yaml; there are: article, " in capsys.readouterr().out
