"""Two versions of a stack file, and what the second one does to what the first one deployed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra import stack_files
from lab.provider import changes
from lab.provider.changes import Change, Deployed, NotComparedError
from lab.provider.provider import Provider
from lab.provider.tool import ProviderTool
from lab.rehearsal import pulumi_cli
from tests.lab.provider.conftest import Stack

OLD = stack_files.every()["article"]
FILE_SYSTEM = "aws:fsx/lustreFileSystem:LustreFileSystem models-fsx"


@pytest.fixture(scope="module")
def stack(built: ProviderTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployed]:
    cli = pulumi_cli.find(lambda _: None)
    if cli is None:
        reason = "no Pulumi CLI on PATH or in the cache: `make rehearse` gets one"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    with changes.deployed(OLD, tmp_path_factory.mktemp("rehearsal"), cli, built) as found:
        yield found


def version(folder: Path, **storage: object) -> Path:
    """A stack file with other values of `storage`."""
    content = yaml.safe_load(OLD.read_text())
    content["config"]["faststart:storage"] |= storage
    file = folder / OLD.name
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.engine
def test_the_same_file_changes_nothing(stack: Deployed) -> None:
    assert stack.changes(OLD) == []


@pytest.mark.engine
def test_a_changed_file_is_told_by_resource_and_property(stack: Deployed, tmp_path: Path) -> None:
    found = [one for one in stack.changes(version(tmp_path, efa=False, capacityGib=28800)) if "aws:" in one.text]

    assert [one.text for one in found] == [
        "update  aws:eks/nodeGroup:NodeGroup p5; labels.faststart.dev/lustre-expected",
        f"replace {FILE_SYSTEM}; efaEnabled*, storageCapacity; protected",
    ]


@pytest.mark.engine
def test_a_file_that_the_program_refuses_is_not_compared(stack: Deployed, tmp_path: Path) -> None:
    with pytest.raises(NotComparedError, match=r"storage\.capacityGib"):
        stack.changes(version(tmp_path, capacityGib=1000))


def test_what_is_made_or_changed_against_the_provider_s_rules_is_refused(provider: Provider, article: Stack) -> None:
    vpc = article.one("Vpc")
    wrong = {"inputs": {**vpc["inputs"], "cidrBlock": "10.0.0.0/8"}}
    sentence = 'expected "cidr_block" to contain a network Value with between 16 and 28 significant bits, got: 8'

    found = changes._changes(
        provider,
        [
            {"resourcePreEvent": {"metadata": {"op": "create", "urn": "u::a", "type": vpc["type"], "new": wrong}}},
            {
                "resourcePreEvent": {
                    "metadata": {"op": "same", "urn": "u::b", "type": vpc["type"], "old": vpc, "new": vpc}
                }
            },
            {
                "resourcePreEvent": {
                    "metadata": {"op": "same", "urn": "u::c", "type": vpc["type"], "old": vpc, "new": wrong}
                }
            },
            {"resourcePreEvent": {"metadata": {"op": "create", "urn": "u::d", "type": vpc["type"], "new": vpc}}},
            {"resourcePreEvent": {"metadata": {"op": "delete", "urn": "u::e", "type": vpc["type"], "old": vpc}}},
        ],
    )

    assert [*found] == [
        Change("u::a", "refused", ("cidrBlock",), reason=sentence),
        Change("u::c", "refused", ("cidrBlock",), reason=sentence),
        Change("u::d", "create"),
        Change("u::e", "delete"),
    ]
