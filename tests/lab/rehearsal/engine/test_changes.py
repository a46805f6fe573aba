"""Changes of a deployed stack in an emulated account: each is made, and nothing of it comes back as a surprise."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from infra import stack_files
from lab.provider.tool import ProviderTool
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.runner import Rehearsal, Run
from tests.lab.rehearsal.engine.conftest import CLUSTER, FILE_SYSTEM, quiet

pytestmark = pytest.mark.long

LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
NAT = "aws:ec2/natGateway:NatGateway"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


@dataclass(frozen=True)
class Case:
    """One change.

    Attributes:
        name: what it is.
        key: of the stack file, as `faststart:section.key.key`.
        value: that it gets; None: it goes.
        expected: by type, what the engine must do to a resource of it.
    """

    name: str
    key: str
    value: object
    expected: dict[str, str]


ONE_NODE = {"instanceType": "g6.2xlarge", "size": {"min": 0, "desired": 1, "max": 1}}

CASES = [
    Case("logs are kept longer", "faststart:cluster.logRetentionDays", 30, {LOG_GROUP: "update"}),
    Case("more storage", "faststart:storage.capacityGib", 28800, {FILE_SYSTEM: "update"}),
    Case("more nodes", "faststart:nodeGroups.GROUP.size.max", 3, {NODE_GROUP: "update"}),
    Case("a tag", "aws:defaultTags.tags.cost", "42", {CLUSTER: "update", FILE_SYSTEM: "update", TEMPLATE: "update"}),
    Case("a node group more", "faststart:nodeGroups.more", ONE_NODE, {NODE_GROUP: "create"}),
    Case("another data zone", "faststart:network.dataZone", "OTHER", {FILE_SYSTEM: "replace", NODE_GROUP: "replace"}),
]


@pytest.fixture(scope="module", params=stack_files.every().values(), ids=stack_files.stack_of)
def deployed(request: pytest.FixtureRequest, cli: PulumiCli, clone: Path, built: ProviderTool) -> Rehearsal:
    """A stack that is deployed and unprotected; its folder is copied, never changed."""
    del built  # it must be there
    rehearsal = started(request.param, clone, cli, clone / "build" / "changes" / request.param.stem)
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        assert rehearsal.up().code == 0
        assert rehearsal.unprotect().code == 0
    return rehearsal


def started(file: Path, clone: Path, cli: PulumiCli, folder: Path) -> Rehearsal:
    return Rehearsal(clone / "stacks" / file.name, clone, folder, cli, quiet, emulated=True)


@pytest.fixture
def rehearsal(case: Case, deployed: Rehearsal) -> Iterator[Rehearsal]:
    folder = deployed.out_dir.with_name(f"{deployed.stack}-{re.sub(r'[^a-z]', '-', case.name)}")
    shutil.copytree(deployed.out_dir, folder, symlinks=True)
    one = started(deployed.stack_file, deployed.root, deployed.cli, folder)
    with one.alone():
        one.select()
        yield one


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_change_is_made_once_and_a_refresh_finds_it_as_it_was_made(rehearsal: Rehearsal, case: Case) -> None:
    change(rehearsal, case.key, case.value)

    run = rehearsal.up()

    assert run.code == 0, run.text
    assert {token: op for token, op in case.expected.items() if op in did(run, token)} == case.expected, run.text
    assert rehearsal.up(expect_no_changes=True).code == 0
    refreshed = rehearsal.refresh(expect_no_changes=True)
    assert refreshed.code == 0, refreshed.text
    assert rehearsal.destroy().code == 0
    assert rehearsal.standing() == []


def change(rehearsal: Rehearsal, key: str, value: object) -> None:
    file = rehearsal.copied_stack_file
    document = yaml.safe_load(file.read_text(encoding="utf-8"))
    section, *keys = key.split(".")
    network = document["config"]["faststart:network"]
    if value == "OTHER":
        value = next(zone for zone in network["zones"] if zone != network["dataZone"])
    inside = document["config"][section]
    for name in keys[:-1]:
        inside = inside[next(iter(inside)) if name == "GROUP" else name]
    inside[keys[-1]] = value
    file.write_text(yaml.safe_dump(document), encoding="utf-8")


def did(run: Run, token: str) -> set[str]:
    return {step.op for step in run.steps if step.type == token}
