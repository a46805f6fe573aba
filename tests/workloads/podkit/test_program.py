"""A program from its command line to its exit code."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from podkit.errors import Exit, FaststartError
from podkit.options import Parser
from podkit.program import Program
from podkit.report import Report
from podkit.surroundings import Surroundings

SAID = "some help\n"


def parse(arguments: Sequence[str]) -> str:
    parser = Parser("tiny", SAID, "7")
    parser.add_argument("word")
    return parser.parse_args(arguments).word


def work(word: str, around: Surroundings, report: Report) -> None:
    if word == "fail":
        raise FaststartError(Exit.DAMAGED, "is damaged", b"a-file")
    if word == "stop":
        os.kill(os.getpid(), signal.SIGTERM)
        around.patience.check()
    report.message = f"did {word}"


main = Program("tiny", parse, Report, work).main


@pytest.mark.parametrize(
    ("word", "code", "line"),
    [
        ("well", 0, "tiny: did well"),
        ("fail", 4, "tiny: exit 4: a-file: is damaged"),
        ("stop", 143, "tiny: exit 143: stopped by SIGTERM; what was copied is kept"),
    ],
)
def test_an_end_is_told_in_the_exit_code_a_line_and_the_termination_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], word: str, code: int, line: str
) -> None:
    log = tmp_path / "log"
    told: list[tuple[str, int]] = []

    def after(asked: str, around: Surroundings, report: Report) -> None:
        del around
        told.append((asked, report.code))

    program = Program("tiny", parse, Report, work, after)

    assert program.main([word, "--termination-log", str(log)]) == code
    assert capsys.readouterr().err.splitlines() == [line]
    assert json.loads(log.read_bytes())["code"] == code
    assert told == [(word, code)]


def test_a_wrong_command_line_is_2_and_nothing_comes_after_it(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def after(*_: object) -> None:
        raise AssertionError

    program = Program("tiny", parse, Report, work, after)

    assert program.main(["--termination-log", str(log), "--words"]) == 2
    assert json.loads(log.read_bytes())["code"] == 2


@pytest.mark.parametrize(("flag", "said"), [("--help", SAID), ("--version", "tiny 7\n")])
def test_help_and_version_are_printed_and_nothing_is_done(
    capsys: pytest.CaptureFixture[str], flag: str, said: str
) -> None:
    with pytest.raises(SystemExit) as exited:
        main([flag])

    assert (exited.value.code, capsys.readouterr().out) == (0, said)


def test_a_termination_log_that_cannot_be_written_is_said_and_changes_no_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["well", "--termination-log", str(tmp_path)]) == 0
    assert "the termination message cannot be written" in capsys.readouterr().err


def test_a_termination_log_that_is_there_is_overwritten_in_place(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("x" * 9000)
    before = log.stat().st_ino
    main(["fail", "--termination-log", str(log)])

    assert json.loads(log.read_text())["code"] == 4
    assert log.stat().st_ino == before


@pytest.mark.parametrize("arguments", [[], ["well"], ["--help"]])
def test_the_handler_for_sigterm_is_put_back(arguments: list[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        main(arguments)
    except SystemExit:
        assert arguments == ["--help"]

    assert signal.getsignal(signal.SIGTERM) is before
