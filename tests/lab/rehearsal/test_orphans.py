"""Whatever ends a command of the lab ends the engine and what that has started."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
from pulumi.runtime.proto import language_pb2, language_pb2_grpc

from lab import ROOT, starter
from lab.rehearsal import isolation, language_host
from lab.rehearsal.providers.__main__ import ENGINE, FOLDER

pytestmark = pytest.mark.processes

only_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")

HANG_SECONDS = 60  # ends a test that would wait for ever; none measures time

FAKE_ENGINE = """#!{python} -S
import json, os, pathlib, signal, sys
words, log = sys.argv[1:], pathlib.Path({log!r})
if "preview" in words:
    plugin = os.environ["PATH"].split(":")[0] + "/pulumi-resource-aws"
    event = {{"severity": "warning", "message": "using pulumi-resource-aws from $PATH at " + plugin}}
    pathlib.Path(words[words.index("--event-log") + 1]).write_text(json.dumps({{"diagnosticEvent": event}}) + "\\n")
if "export" in words:
    print(json.dumps({{"deployment": {{}}}}))
if words[0] != "up":
    sys.exit()
def hear(number, _):
    with log.open("a") as file:
        print(number, file=file)
    heard.append(number)
heard = []
signal.signal(signal.SIGINT, hear)
with log.open("w") as file:
    print(os.getpid(), file=file)
while len(heard) < {patience}:
    signal.pause()
sys.exit(8)
"""

# Runs a command as `python -m` does; all that it would do beside an `up` is left out.
COMMAND = """
import runpy, sys
from pathlib import Path
import lab
from lab.rehearsal import pulumi_cli
from lab.rehearsal.pulumi_cli import PulumiCli
module, folder = sys.argv[1], Path(sys.argv[2])
pulumi_cli.find_or_install = lambda say: PulumiCli(folder / "pulumi", "3.274.1", "fake", folder)
if module == "lab.rehearsal":
    lab.ROOT = folder
    sys.argv[1:] = ["up", "dev"]
else:
    from lab.rehearsal.runner import Rehearsal
    def up(*_):
        cli = pulumi_cli.find_or_install(None)
        rehearsal = Rehearsal(folder / "stacks" / "Pulumi.dev.yaml", folder, folder / "out", cli)
        with rehearsal.alone():
            rehearsal.prepare(fresh=True)
            rehearsal.up()
    from lab.kube import processes, scenario, tools
    tools.get = processes.check = lambda _: scenario
    scenario.kubernetes_version = scenario.version = "1"
    if module == "lab.kube":
        scenario.Scenario = lambda *_, **__: type("Scenario", (), {"run": up})
    else:
        from lab.e2e import sources, vllm_environment
        vllm_environment.get = lambda _: type("Environment", (), {"version": "1", "folder": folder})
        sources.standing = sources.source_of = up
    sys.argv[1:] = ["article"]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""


def eventually(holds: Callable[[], object]) -> None:
    give_up = time.monotonic() + HANG_SECONDS
    while not holds():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and that nobody asked about does not."""
    command = ["ps", "-o", "stat=", "-p", str(pid)]
    state = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    return bool(state) and not state.startswith("Z")


def kill(pid: int) -> None:
    """So that a test that fails leaves no process, either."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


class Lab:
    """A command of the lab in the middle of an `up` of an engine that ends once it was asked `patience` times."""

    def __init__(self, folder: Path, module: str, patience: int) -> None:
        self.log = folder / "log"
        engine = FAKE_ENGINE.format(python=sys.executable, log=str(self.log), patience=patience)
        (folder / "stacks").mkdir()
        for name, text in {
            "pulumi": engine,
            "Pulumi.yaml": "name: demo\nruntime: python\nstackConfigDir: stacks\n",
            "__main__.py": "",
            "stacks/Pulumi.dev.yaml": "config: {}\n",
        }.items():
            (folder / name).write_text(text, encoding="utf-8")
        (folder / "pulumi").chmod(0o755)
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        for name in isolation.FORBIDDEN:
            environment.pop(name, None)
        self.process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, module, folder],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        eventually(lambda: self.process.poll() is not None or self.lines())
        assert self.process.poll() is None, self.process.communicate()[0]

    def lines(self) -> list[int]:
        """The engine's process, then the signals that it got."""
        return [int(line) for line in self.log.read_text().split()] if self.log.exists() else []

    @property
    def engine(self) -> int:
        return self.lines()[0]

    def send(self, number: signal.Signals) -> None:
        """Sends a signal to all of the process group, as a terminal does; waits until the engine got one."""
        before = len(self.lines())
        os.killpg(self.process.pid, number)
        eventually(lambda: len(self.lines()) > before)

    def end(self) -> tuple[int, str]:
        """Its exit code, and what it said."""
        said, _ = self.process.communicate(timeout=HANG_SECONDS)
        return self.process.returncode, said


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str, int], Lab]]:
    labs: list[Lab] = []

    def start(module: str, patience: int) -> Lab:
        labs.append(Lab(tmp_path, module, patience))
        return labs[-1]

    yield start
    for one in labs:
        one.process.kill()
        one.process.communicate()
        kill(one.engine)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["lab.rehearsal", "lab.kube", "lab.e2e"])
def test_a_command_that_is_told_to_end_lets_the_engine_end_in_order(
    started: Callable[[str, int], Lab], module: str, number: signal.Signals
) -> None:
    lab = started(module, 1)
    lab.send(number)
    code, said = lab.end()

    assert not runs(lab.engine)
    assert lab.lines()[1:] == [signal.SIGINT]
    assert code == (8 if module == "lab.rehearsal" else 128 + number), said
    assert "Traceback" not in said


def test_a_command_that_is_told_twice_lets_the_engine_end_at_once(started: Callable[[str, int], Lab]) -> None:
    lab = started("lab.rehearsal", 2)
    lab.send(signal.SIGINT)
    assert runs(lab.engine)
    lab.send(signal.SIGTERM)
    code, said = lab.end()

    assert lab.lines()[1:] == [signal.SIGINT, signal.SIGINT]
    assert (code, "Traceback" in said) == (8, False)


def test_the_third_time_the_engine_is_killed(started: Callable[[str, int], Lab]) -> None:
    lab = started("lab.rehearsal", 9)
    for _ in range(2):
        lab.send(signal.SIGINT)
    lab.process.send_signal(signal.SIGINT)
    code, said = lab.end()

    assert not runs(lab.engine)
    assert code == 128 + signal.SIGKILL
    assert "ended with exit code 137" in said


@only_linux
@pytest.mark.parametrize("module", ["lab.rehearsal", "lab.kube", "lab.e2e"])
def test_a_command_that_is_killed_takes_the_engine_along(started: Callable[[str, int], Lab], module: str) -> None:
    lab = started(module, 1)
    lab.process.kill()

    eventually(lambda: not runs(lab.engine))
    assert lab.lines()[1:] == []


# ---------------------------------------------------------------- what the engine starts

# Starts a command as the engine would, says its number and its first line, and waits to be killed.
OWNER = """
import subprocess, sys, time
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
print(process.pid, process.stdout.readline().strip(), flush=True)
time.sleep(600)
"""


# Becomes a bound program.
BOUND = """
import os, signal, sys
from lab import starter
print(flush=True)
command = starter.bound(sys.argv[2:], signal.Signals(int(sys.argv[1])), os.getppid())
os.execv(command[0], command)
"""


@contextmanager
def owner(*command: str | Path, **environment: str) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """Who started a command, the command's number, and its first line."""
    arguments = [sys.executable, "-c", OWNER, *command]
    with subprocess.Popen(
        arguments, cwd=ROOT, env={**os.environ, **environment}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            pid, _, line = process.stdout.readline().partition(" ")
            try:
                yield process, int(pid), line.strip()
            finally:
                kill(int(pid))
        finally:
            process.kill()


@only_linux
def test_the_language_host_ends_when_its_engine_is_killed() -> None:
    with owner(sys.executable, "-P", language_host.__file__) as (engine, host, port):
        assert port.isdigit()
        assert runs(host)
        engine.kill()
        eventually(lambda: not runs(host))


@only_linux
def test_a_plugin_that_is_a_folder_ends_with_the_language_host_that_started_it(tmp_path: Path) -> None:
    (tmp_path / "__main__.py").write_text("import os, time\nprint(os.getpid())\ntime.sleep(600)\n", encoding="utf-8")
    request = language_pb2.RunPluginRequest(pwd=str(tmp_path))
    request.info.program_directory = str(tmp_path)

    with (
        owner(sys.executable, "-P", language_host.__file__) as (engine, _, port),
        grpc.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        said: Any = language_pb2_grpc.LanguageRuntimeStub(channel).RunPlugin(request)
        plugin = int(next(said).stdout)
        assert runs(plugin)
        engine.kill()
        eventually(lambda: not runs(plugin))


def test_the_language_host_ends_at_once_where_its_engine_is_gone_already() -> None:
    command = [sys.executable, "-P", language_host.__file__, "127.0.0.1:1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@only_linux
def test_a_stand_in_ends_when_its_engine_was_gone_before_it_could_look(tmp_path: Path) -> None:
    environment = {FOLDER: str(tmp_path), ENGINE: "1"}
    with owner(sys.executable, "-m", "lab.rehearsal.providers", "aws", **environment) as (_, stand_in, port):
        assert port.isdigit()
        eventually(lambda: not runs(stand_in))


@only_linux
def test_a_real_plugin_ends_with_the_engine(tmp_path: Path) -> None:
    plugin = tmp_path / "a plugin"
    plugin.write_text('#!/bin/sh\necho "$@"; exec sleep 600\n', encoding="utf-8")
    plugin.chmod(0o755)
    place = isolation.Place(tmp_path / "out", ROOT, {"kubernetes": plugin})
    place.make()

    with owner(place.stand_in("kubernetes"), "127.0.0.1:1", "two words") as (engine, pid, line):
        assert line == "127.0.0.1:1 two words"
        assert runs(pid)
        engine.kill()
        eventually(lambda: not runs(pid))


@only_linux
@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_a_bound_program_gets_its_signal_when_its_owner_is_gone(end: signal.Signals) -> None:
    with owner(sys.executable, "-c", BOUND, str(int(end)), "/bin/sleep", "600") as (process, pid, _):
        eventually(lambda: Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip() == "sleep")
        process.kill()
        eventually(lambda: not runs(pid))


@only_linux
def test_a_bound_program_is_not_started_where_its_owner_is_gone_already(tmp_path: Path) -> None:
    made = tmp_path / "made"
    done = subprocess.run(starter.bound(["/usr/bin/touch", made], owner=1), timeout=HANG_SECONDS, check=False)

    assert (done.returncode, made.exists()) == (0, False)
