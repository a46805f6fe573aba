"""One life of each stack on the real engine, shared by all tests: what each command did is kept, and asserted later."""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from infra import stack_files
from lab import ROOT
from lab.rehearsal import program_copy, pulumi_cli
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.runner import Rehearsal, Run

CLUSTER = "aws:eks/cluster:Cluster"
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem"
SUBNET = "aws:ec2/subnet:Subnet"
VPC = "aws:ec2/vpc:Vpc"

STACK_FILES = [*stack_files.every().values()]


@pytest.fixture(scope="session")
def cli() -> PulumiCli:
    said: list[str] = []
    found = pulumi_cli.find(said.append)
    if found is not None:
        return found
    reason = "; ".join([*said, "no Pulumi CLI on PATH or in the cache: `make rehearse` gets one"])
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def quiet(_line: str) -> None:
    """What the engine says is in each Run."""


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=test", "-c", "user.email=test@example.org"]
    command = ["git", "-C", str(folder), *identity, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="session")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of its own with everything that stands in this one, committed or not yet."""
    folder = tmp_path_factory.mktemp("clone")
    for file in program_copy.program_files(ROOT):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / file, folder / file)
    git(folder, "init", "--quiet")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "all of it")
    return folder


@dataclass
class Life:
    """A stack from its first preview to its end.

    Attributes:
        stack: its name.
        runs: every command of the engine, in order, by what it was for.
        standing: what the stand-in cloud held after some of them.
        state: the engine's export after the first `up`.
        git: what git found changed in the repository afterwards.
    """

    stack: str
    runs: dict[str, Run] = field(default_factory=dict)
    standing: dict[str, list[str]] = field(default_factory=dict)
    state: str = ""
    git: str = ""

    def __getitem__(self, name: str) -> Run:
        return self.runs[name]


def live(rehearsal: Rehearsal) -> Life:
    life = Life(rehearsal.stack)
    runs, standing = life.runs, life.standing
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        runs["preview"] = rehearsal.preview()
        runs["up"] = rehearsal.up()
        life.state = rehearsal.export()
        standing["up"] = rehearsal.standing()
        runs["again"] = rehearsal.preview(expect_no_changes=True)
        runs["refresh"] = rehearsal.refresh(expect_no_changes=True)
        runs["grown"] = grown(rehearsal)
        runs["refused destroy"] = rehearsal.destroy()
        standing["refused destroy"] = rehearsal.standing()
        ask_for_another_file_system(rehearsal)
        runs["refused replacement"] = rehearsal.up()
        standing["refused replacement"] = rehearsal.standing()
        runs["replacement"] = rehearsal.unprotect()
        standing["replacement"] = rehearsal.standing()
        runs["after the replacement"] = rehearsal.preview(expect_no_changes=True)
        runs["destroy"] = rehearsal.destroy()
        standing["destroy"] = rehearsal.standing()
    life.git = git(rehearsal.root, "status", "--porcelain")
    return life


def grown(rehearsal: Rehearsal) -> Run:
    """A preview with twice the capacity, which is a whole number of every step."""
    file = rehearsal.copied_stack_file
    text = file.read_text(encoding="utf-8")
    line = next(line for line in text.splitlines() if line.strip().startswith("capacityGib:"))
    key, capacity = line.split(":")
    file.write_text(text.replace(line, f"{key}: {2 * int(capacity)}"), encoding="utf-8")
    try:
        return rehearsal.preview()
    finally:
        file.write_text(text, encoding="utf-8")


def ask_for_another_file_system(rehearsal: Rehearsal) -> None:
    """By a change of the copied stack file that any stack allows: no EFA where it has it, else another data zone."""
    config = yaml.safe_load(rehearsal.copied_stack_file.read_text(encoding="utf-8"))["config"]
    if config["faststart:storage"]["efa"]:
        rehearsal.command("config", "set", "--path", "faststart:storage.efa", "false", "--type", "bool")
        return
    network = config["faststart:network"]
    zone = next(zone for zone in network["zones"] if zone != network["dataZone"])
    rehearsal.command("config", "set", "--path", "faststart:network.dataZone", zone)


@pytest.fixture(scope="session", params=STACK_FILES, ids=stack_files.stack_of)
def life(request: pytest.FixtureRequest, cli: PulumiCli, clone: Path) -> Life:
    return live(rehearsal(request.param, clone, cli))


def rehearsal(stack_file: Path, clone: Path, cli: PulumiCli, folder: str = "rehearsal") -> Rehearsal:
    file = clone / "stacks" / stack_file.name
    return Rehearsal(file, clone, clone / "build" / folder / stack_files.stack_of(file), cli, quiet)


@pytest.fixture
def scratch(cli: PulumiCli, clone: Path) -> Rehearsal:
    """A rehearsal of the first stack, for a test that spoils it."""
    return rehearsal(STACK_FILES[0], clone, cli, "scratch")
