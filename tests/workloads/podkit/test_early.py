"""SIGTERM that comes before a program stands ends it with 143 and words."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.support import WORKLOADS, write
from workloads import programs

pytestmark = pytest.mark.processes

BLOCKING = """
with open({ready!r}, "w") as pipe:
    pipe.write("imports")
open({never!r}).read()
"""


@pytest.fixture(params=["resource", "argparse", "json", "threading", "urllib"])
def slow(request, tmp_path: Path) -> tuple[Path, Path]:
    """A folder with a module whose import never ends, and the pipe by which it says that it began."""
    ready, never = tmp_path / "ready", tmp_path / "never"
    for pipe in (ready, never):
        os.mkfifo(pipe)
    content = BLOCKING.format(ready=str(ready), never=str(never)).encode()
    return write(tmp_path / "modules", {f"{request.param}.py": content}), ready


def stop_while_it_imports(slow: tuple[Path, Path], command: list[str], path: Path) -> tuple[int, str]:
    modules, ready = slow
    started = subprocess.Popen(
        [sys.executable, "-S", *command],
        env={**os.environ, "PYTHONPATH": f"{modules}:{path}"},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert ready.read_text() == "imports"
    started.send_signal(signal.SIGTERM)
    said = started.communicate(timeout=60)[1]
    return started.returncode, said


@pytest.mark.parametrize("program", ["preload", "publish"])
@pytest.mark.parametrize("log", [["--termination-log", "LOG"], ["--termination-log=LOG"], [], ["--termination-log"]])
def test_a_program_that_still_imports_ends_with_143_a_line_and_the_termination_message(slow, tmp_path, program, log):
    file = tmp_path / "log"
    command = ["-m", program, "a", "b", *(word.replace("LOG", str(file)) for word in log)]
    code, said = stop_while_it_imports(slow, command, WORKLOADS)
    assert (code, said) == (143, f"{program}: exit 143: stopped by SIGTERM before it began\n")
    assert file.exists() == any("LOG" in word for word in log)
    if file.exists():
        assert json.loads(file.read_bytes()) == {"code": 143, "message": "stopped by SIGTERM before it began"}


@pytest.mark.parametrize("program", ["preload", "publish"])
def test_so_does_one_whose_files_lie_flat_as_in_a_pod(slow, tmp_path, program):
    flat = tmp_path / "flat"
    for name in ("preload", program):
        write(flat, {key: text.encode() for key, text in programs.config_map_data(name).items()})
    code, said = stop_while_it_imports(slow, [str(flat / "start.py"), program, "a", "b"], flat)
    assert (code, said) == (143, f"{program}: exit 143: stopped by SIGTERM before it began\n")


def test_after_the_result_is_told_sigterm_changes_nothing(tmp_path):
    code = """
import os, signal
from podkit import early
early.end_on_sigterm("preload")
from preload.program import main
found = main(["--nonsense"])
os.kill(os.getpid(), signal.SIGTERM)
os._exit(found)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(WORKLOADS)}, capture_output=True, check=False
    )
    assert ended.returncode == 2
