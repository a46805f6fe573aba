"""`--account moto`, the command line: with an engine and an account that say what a test wants."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Self

import pytest
import yaml

from lab.account.process import AccountError
from lab.provider.tool import ProviderTool
from lab.rehearsal import __main__ as command_line
from lab.rehearsal import runner
from lab.rehearsal.toolbox import Say, ToolMissingError
from tests.lab.rehearsal.test_runner import FakeEngine, clone, engine, rehearse

__all__ = ["clone", "engine", "rehearse"]  # fixtures

ROLE = "arn:aws:iam::111122223333:role/team/deploy"


class FakeAccount:
    """An account that remembers how it was opened, and holds what a test puts there."""

    opened: list["FakeAccount"]
    left: list[str]

    def __init__(self, folder: Path, region: str, account: str = "") -> None:
        self.folder, self.region, self.account = folder, region, account
        self.roles: list[str] = []
        self.is_open = False

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.opened.append(self)
        self.is_open = True
        return self

    def __exit__(self, *_: object) -> None:
        self.is_open = False

    def give_roles(self, arns: Iterable[str]) -> None:
        self.roles += arns

    def standing(self) -> list[str]:
        return self.left


@pytest.fixture(autouse=True)
def accounts(monkeypatch: pytest.MonkeyPatch, clone: Path) -> type[FakeAccount]:
    FakeAccount.opened, FakeAccount.left = [], []
    monkeypatch.setattr(runner, "Account", FakeAccount)
    monkeypatch.setattr(command_line.tool, "get", lambda say: ProviderTool(Path("/provider"), "6.48.0"))
    document = yaml.safe_load((Path(__file__).parents[3] / "stacks" / "Pulumi.article.yaml").read_text("utf-8"))
    document["config"] |= {"aws:region": "us-east-1", "aws:assumeRoles": [{"roleArn": ROLE}]}
    document["config"]["faststart:cluster"]["access"]["deployRole"] = ROLE
    (clone / "stacks" / "Pulumi.dev.yaml").write_text(yaml.safe_dump(document), encoding="utf-8")
    return FakeAccount


def test_an_up_in_an_account_is_followed_by_a_second_one_and_a_refresh_that_expect_nothing(
    engine: FakeEngine, rehearse: Callable[..., int], clone: Path
) -> None:
    assert rehearse("up", "dev", "--fresh", "--account", "moto", "--quiet") == 0

    ran = [call for call in engine.calls() if call.split()[0] in ("preview", "up", "refresh", "destroy")]
    assert [call.split()[0] for call in ran] == ["preview", "up", "up", "refresh"]
    assert ["--expect-no-changes" in call for call in ran] == [False, False, True, True]
    report = (clone / "build" / "account" / "dev" / "report.md").read_text(encoding="utf-8")
    assert "lab/account/" in report
    assert "by its own code and with its own waits" in report
    assert not (clone / "build" / "rehearsal").exists()


def test_the_account_is_the_stack_file_s_with_the_roles_that_it_names(rehearse: Callable[..., int]) -> None:
    rehearse("up", "dev", "--account", "moto", "--quiet")

    (account,) = FakeAccount.opened
    assert (account.region, account.account, {*account.roles}) == ("us-east-1", "111122223333", {ROLE})
    assert not account.is_open


@pytest.mark.parametrize("failing", ["preview", "up", "second"])
def test_the_account_ends_when_the_engine_fails(engine: FakeEngine, rehearse: Callable[..., int], failing: str) -> None:
    engine.answer(**{failing: {"code": 255, "says": "error: no"}})

    assert rehearse("up", "dev", "--account", "moto", "--quiet") == 255
    assert [one.is_open for one in FakeAccount.opened] == [False]


def test_what_stands_in_the_account_after_a_destroy_is_listed_and_is_a_failure(
    rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev", "--account", "moto", "--quiet")
    FakeAccount.left = ["fsx file_systems: fs-1"]

    assert rehearse("destroy", "dev", "--account", "moto", "--quiet") == 1
    assert "fsx file_systems: fs-1" in capsys.readouterr().out


def test_the_way_on_after_a_protected_destroy_names_the_account(
    engine: FakeEngine, rehearse: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    rehearse("up", "dev", "--account", "moto", "--quiet")
    engine.answer(destroy={"code": 1, "says": "error: cannot be deleted\nbecause it is protected. To unprotect ..."})

    assert rehearse("destroy", "dev", "--account", "moto", "--quiet") == 1
    assert "make rehearse-destroy STACK=dev ACCOUNT=moto UNPROTECT=1" in capsys.readouterr().out


def test_without_the_provider_the_exit_code_is_three_and_no_account_is_opened(
    engine: FakeEngine,
    rehearse: Callable[..., int],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def none(say: Say) -> ProviderTool:
        raise ToolMissingError("Go: the module proxy is out of reach")

    monkeypatch.setattr(command_line.tool, "get", none)

    assert rehearse("up", "dev", "--account", "moto") == command_line.MISSING
    assert "the module proxy is out of reach" in capsys.readouterr().out
    assert (engine.calls(), FakeAccount.opened) == ([], [])


def test_an_account_that_does_not_start_is_told_without_a_traceback(
    rehearse: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: FakeAccount) -> FakeAccount:
        raise AccountError("build/account: the account did not start (exit code 1)")

    monkeypatch.setattr(FakeAccount, "__enter__", broken)

    assert rehearse("up", "dev", "--account", "moto") == command_line.USAGE
    assert "did not start" in capsys.readouterr().out


def test_a_stack_file_with_mistakes_is_refused_before_an_account_is_opened(
    rehearse: Callable[..., int], clone: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = clone / "stacks" / "Pulumi.dev.yaml"
    file.write_text(file.read_text("utf-8").replace("us-east-1a", "eu-west-1a"), encoding="utf-8")

    assert rehearse("up", "dev", "--account", "moto") == command_line.USAGE
    assert "has mistakes, mend them first" in capsys.readouterr().out
    assert FakeAccount.opened == []
