"""SIGTERM at any moment from the first line of a program to its last: it ends with words, and with the code it told.

Modules are made slow by a line at their beginning that reads from a fifo: whoever has opened that for writing knows
that the program is there, and that it stays.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podkit import early
from podkit.console import stopping_on_sigterm
from podkit.early import MESSAGE, Early, termination_log
from podkit.errors import Exit, FaststartError
from podkit.options import common
from podkit.patience import Patience
from preload.report import CopyReport
from publish.report import PublishReport
from tests.workloads.support import WORKLOADS, write
from workloads import programs

SLOW = "open({fifo!r}).read()\n"
SLOW_AT_THE_END = "\nimport atexit; atexit.register(lambda: open({fifo!r}).read())\n"


@dataclass
class Ended:
    code: int
    err: str


class Programs:
    """The programs as a ConfigMap gives them, in a folder, of which a module may be slow."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.log = folder / "log"
        self._flat = folder / "flat"
        self._fifo = folder / "fifo"
        os.mkfifo(self._fifo)
        self._flat.mkdir()
        for program in ("preload", "publish"):
            for key, text in programs.config_map_data(program).items():
                (self._flat / key).write_text(text)

    @property
    def start(self) -> list[str]:
        return ["-S", str(self._flat / "start.py")]

    def slow(self, key: str, line: str = SLOW) -> None:
        """Let a module read from the fifo, at its beginning or at the end of the process."""
        path = self._flat / key
        text = path.read_text() if path.exists() else ""
        added = line.format(fifo=str(self._fifo))
        path.write_text(text + added if line == SLOW_AT_THE_END else added + text.replace("from __future__", "#", 1))

    def stopped(
        self,
        arguments: Sequence[str],
        redirect: str = "",
        environment: Mapping[str, str] = os.environ,
        *,
        goes_on: bool = False,
    ) -> Ended:
        """Start Python, send SIGTERM once it reads from the fifo, and return how it ended."""
        process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" {redirect}', "bash", sys.executable, *arguments],
            env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
            stderr=subprocess.PIPE,
            text=True,
        )
        with self._fifo.open("w") as fifo:
            process.send_signal(signal.SIGTERM)
            if goes_on:
                fifo.close()
            err = process.communicate(timeout=60)[1]
        return Ended(process.returncode, err)


@pytest.fixture
def there(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


MODULES = {
    "preload": [
        "runpy.py", "argparse.py", "threading.py", "signal.py", "contextlib.py", "podkit.__init__.py",
        "preload.__init__.py", "preload.__main__.py", "podkit.console.py", "podkit.errors.py", "podkit.lines.py",
        "modelfolder.source.py", "preload.copier.py", "preload.program.py",
    ],
    "publish": [
        "os.py", "logging.py", "publish.__init__.py", "publish.__main__.py", "publish.program.py", "publish.hub.py",
        "publish.pickles.py", "publish.s3.py",
    ],
}  # fmt: skip
"""What is slow; of the standard library a module that stands before it on the path."""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "module"),
    [(program, module) for program, modules in MODULES.items() for module in modules],
)
def test_sigterm_while_a_program_is_imported_ends_in_words_with_143_and_the_termination_message(there, program, module):
    there.slow(module)
    ended = there.stopped([*there.start, program, "a", "b", "--termination-log", str(there.log)])

    assert (ended.code, ended.err) == (143, f"{program}: exit 143: {MESSAGE}\n")
    told = json.loads(there.log.read_bytes())
    assert (told["code"], told["message"], told["file"]) == (143, MESSAGE, None)
    assert sorted(path.name for path in there.folder.iterdir()) == ["fifo", "flat", "log"]


@pytest.mark.processes
@pytest.mark.parametrize("program", ["preload", "publish"])
@pytest.mark.parametrize("module", ["podkit.errors.py", "modelfolder.names.py", "preload.request.py"])
def test_so_it_is_from_a_checkout(there, program, module):
    below = there.folder / "checkout"
    for path in WORKLOADS.glob("*/*.py"):
        write(below, {f"{path.parent.name}/{path.name}": path.read_bytes()})
    package, name = module.split(".", 1)
    slowed = below / package / name
    slowed.write_text(
        SLOW.format(fifo=str(there.folder / "fifo")) + slowed.read_text().replace("from __future__", "#", 1)
    )
    environment = {**os.environ, "PYTHONPATH": str(below)}
    ended = there.stopped(["-S", "-m", program, "--termination-log", str(there.log)], environment=environment)

    assert (ended.code, ended.err) == (143, f"{program}: exit 143: {MESSAGE}\n")
    assert json.loads(there.log.read_bytes())["code"] == 143


@pytest.mark.processes
@pytest.mark.parametrize("program", ["preload", "publish"])
def test_so_it_is_from_one_file(there, program):
    archive = there.folder / "archive"
    programs.write_archive(program, archive)
    (there.folder / "argparse.py").write_text(SLOW.format(fifo=str(there.folder / "fifo")))
    code = f"import runpy, sys; sys.path.insert(1, {str(there.folder)!r}); sys.argv = sys.argv[1:]; "
    ended = there.stopped(["-S", "-c", f"{code}runpy.run_path({str(archive)!r}, run_name='__main__')", "x", "a", "b"])

    assert (ended.code, ended.err) == (143, f"{program}: exit 143: {MESSAGE}\n")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--termination-log={log}"], ""),
        (["--termination-log", "elsewhere", "--termination-log", "{log}"], ""),
        (["--nonsense", "--termination-log", "{log}", "--stall", "x"], ""),
        (["--termination-log", "{log}/not/there"], "preload: the termination message cannot be written: "),
        (["--termination-log", "{folder}"], "preload: the termination message cannot be written: Is a directory\n"),
        (["--termination-log"], ""),
        ([], ""),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_any_command_line_is_told_of_where_it_wants_that(there, given, words):
    there.slow("podkit.errors.py")
    asked = [one.format(log=there.log, folder=there.folder) for one in given]
    ended = there.stopped([*there.start, "preload", *asked])

    assert (ended.code, ended.err.startswith(f"preload: exit 143: {MESSAGE}\n{words}")) == (143, True)
    assert there.log.exists() == any(one.endswith("{log}") for one in given)


@pytest.mark.processes
@pytest.mark.parametrize("redirect", ["2>&-", "2>/dev/full", ">&- 2>&-"])
def test_whatever_its_streams_are(there, redirect):
    there.slow("podkit.errors.py")
    ended = there.stopped([*there.start, "preload", "--termination-log", str(there.log)], redirect)

    assert ended.code == 143
    assert json.loads(there.log.read_bytes())["code"] == 143


@pytest.mark.processes
@pytest.mark.parametrize(
    ("program", "arguments", "code"),
    [
        ("preload", ["{folder}/nothing", "{folder}/copy"], 6),
        ("preload", ["{folder}/model", "{folder}/copy"], 0),
        ("preload", ["--nonsense"], 2),
        ("preload", ["{folder}/empty", "{folder}/copy"], 6),
        ("preload", ["{folder}/model", "{folder}/model"], 10),
    ],
)
def test_sigterm_after_the_end_was_told_changes_neither_the_code_nor_the_message(there, program, arguments, code):
    write(there.folder / "model", {"config.json": b"{}"})
    write(there.folder / "empty", {})
    there.slow("preload.program.py", SLOW_AT_THE_END)
    asked = [one.format(folder=there.folder) for one in arguments]
    ended = there.stopped([*there.start, program, *asked, "--termination-log", str(there.log)], goes_on=True)

    assert (ended.code, json.loads(there.log.read_bytes())["code"]) == (code, code)
    assert MESSAGE not in ended.err


@pytest.mark.parametrize("report", [CopyReport(), PublishReport()], ids=lambda one: type(one).__name__)
def test_the_termination_message_is_that_of_a_report_that_knows_no_more(report):
    report.fail(FaststartError(Exit.TERMINATED, MESSAGE))

    told = json.loads(report.termination_message())
    assert json.loads(early._FIELDS) == {**told, "seconds": 0.0}


WORDS = st.sampled_from(
    ["--termination-log", "--termination-log=x", "--termination-log=", "x", "y/z", "--", "--stay", "-", "ü"]
)


@given(st.lists(WORDS, max_size=6))
def test_it_finds_the_place_of_the_termination_message_where_the_program_finds_it(arguments):
    found = common(arguments).termination_log
    # A command line that argparse cannot take apart has none there, and the last one that it names here.
    assert termination_log(arguments) == found or not found


def test_an_early_handler_is_not_put_back_and_any_other_is():
    before = signal.getsignal(signal.SIGTERM)
    try:
        for handler, after in ((Early("tiny", []), signal.SIG_IGN), (signal.SIG_DFL, signal.SIG_DFL)):
            signal.signal(signal.SIGTERM, handler)
            with stopping_on_sigterm(Patience()):
                pass
            assert signal.getsignal(signal.SIGTERM) == after
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.processes
def test_nothing_is_imported_before_the_handler_stands_that_python_has_not_loaded():
    code = "import sys; before = {*sys.modules}; import podkit.early; print(*{*sys.modules} - before)"
    found = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env={"PYTHONPATH": str(WORKLOADS)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert set(found.stdout.split()) <= {"podkit", "podkit.early"}
