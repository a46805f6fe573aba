"""What the program of today would do to the stacks that released versions made: what CHANGELOG says, and no more."""

import os
from pathlib import Path

import pytest

from lab.rehearsal.events import messages
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.release import Change, Released, changed, released
from lab.rehearsal.runner import Rehearsal
from tests.lab.rehearsal.engine.conftest import CLUSTER, FILE_SYSTEM, SUBNET, VPC, quiet

pytestmark = pytest.mark.engine

# Whoever replaces these loses data, or every pod and node with them.
LASTING = {FILE_SYSTEM, CLUSTER, VPC, SUBNET}


@pytest.fixture(scope="session", params=released(), ids=lambda one: f"{one.version}-{one.stack}")
def upgrade(request: pytest.FixtureRequest, cli: PulumiCli, clone: Path) -> tuple[Released, list[Change]]:
    """A stack of a released version, and what the engine says that today's program would change there."""
    old: Released = request.param
    folder = clone / "build" / "released" / old.version / old.stack
    rehearsal = Rehearsal(old.stack_file, clone, folder, cli, quiet)
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        old.restore(rehearsal)
        run = rehearsal.preview()
    assert run.code == 0, "\n".join(messages(run.events, "error"))
    return old, list(changed(run.steps))


def test_an_upgrade_changes_what_the_list_of_its_version_says(upgrade: tuple[Released, list[Change]]) -> None:
    old, found = upgrade
    if os.environ.get("FASTSTART_WRITE_GOLDEN"):
        old.write_changes(found)

    assert [one[:2] for one in found] == [one[:2] for one in old.changes()], "run `make golden`, name CHANGELOG's entry"


def test_no_upgrade_loses_the_file_system_the_cluster_the_vpc_or_a_subnet(
    upgrade: tuple[Released, list[Change]],
) -> None:
    assert [one for one in upgrade[1] if one.type in LASTING and one.what in ("replace", "delete")] == []
