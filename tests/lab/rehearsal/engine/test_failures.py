"""Deployments that fail as AWS fails, in an emulated account: what the state holds then, and what the next one does.

Each case writes one row of the table in docs/failures.md; with FASTSTART_WRITE_GOLDEN=1 it writes it there.
"""

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from infra import stack_files
from lab import ROOT
from lab.account.faults import Fault
from lab.account.process import Account
from lab.provider.tool import ProviderTool
from lab.rehearsal import events
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.runner import Rehearsal, Run
from tests.lab.rehearsal.engine.conftest import quiet

pytestmark = pytest.mark.long

TABLE = ROOT / "docs" / "failures.md"
STACK = stack_files.find("research-dev")
# More than the 30 seconds after which the provider first asks about a new file system (fsx/lustre_file_system.go).
LONGEST_WAIT_SECONDS = 45


def file_system(account: Account) -> str:
    (found,) = account.client("fsx").describe_file_systems()["FileSystems"]
    return f"file system {found['Lifecycle']}, {found['StorageCapacity']} GiB"


def file_systems(account: Account) -> str:
    return f"{len(account.client('fsx').describe_file_systems()['FileSystems'])} file systems"


def system_nodes(account: Account) -> str:
    eks = account.client("eks")
    (name,) = (one for one in eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"] if one.startswith("system"))
    found = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)["nodegroup"]
    return f"node group {found['status']}, {found['scalingConfig']['maxSize']} nodes at most"


def kube_proxy(account: Account) -> str:
    return (
        f"add-on {account.client('eks').describe_addon(clusterName=CLUSTER, addonName='kube-proxy')['addon']['status']}"
    )


def everything(account: Account) -> str:
    standing = account.standing()
    return f"{len(standing)} things stand" if standing else "nothing stands"


CLUSTER = "faststart-research-dev"
MORE_STORAGE, MORE_NODES = ("capacityGib: 1200", "capacityGib: 2400"), ("desired: 1, max: 2", "desired: 1, max: 3")


UNPROTECTED = ("protect: true", "protect: false")


@dataclass(frozen=True)
class Case:
    """One failure.

    Attributes:
        name: as the table has it.
        faults: what goes wrong in the account.
        status: what is looked at in the account.
        change: text of the stack file and what takes its place; then the stack is deployed before.
        command: what fails.
        mended: the status once what has failed is made anew.
    """

    name: str
    faults: tuple[Fault, ...]
    status: Callable[[Account], str]
    change: tuple[str, str] | None = None
    command: str = "up"
    mended: str = ""


CASES = [
    Case("a fifth of all calls is throttled", (Fault("*.*", "throttled", share=0.2, seed=1),), everything),
    Case(
        "EKS does not see new roles yet",
        tuple(
            Fault(f"eks.{one}", "role_missing", times=2) for one in ("CreateCluster", "CreatePodIdentityAssociation")
        ),
        everything,
    ),
    Case("IAM does not see a new role yet", (Fault("iam.AttachRolePolicy", "role_missing", times=1),), everything),
    Case(
        "no capacity for the file system: it ends FAILED",
        (Fault("fsx.CreateFileSystem", "fails", times=1),),
        file_system,
        mended="file system AVAILABLE, 1200 GiB",
    ),
    Case(
        "the account's limit for file systems is reached",
        (Fault("fsx.CreateFileSystem", "refused", code="ServiceLimitExceeded", times=1),),
        file_system,
    ),
    Case("the file system is CREATING for too long", (Fault("fsx.CreateFileSystem", "stays", times=1),), file_system),
    Case(
        "no capacity for nodes: CREATE_FAILED",
        (Fault("eks.CreateNodegroup", "fails", times=1),),
        system_nodes,
        mended="node group ACTIVE, 2 nodes at most",
    ),
    Case("a node group is CREATING for too long", (Fault("eks.CreateNodegroup", "stays", times=1),), system_nodes),
    Case("add-ons stay DEGRADED", (Fault("eks.CreateAddon", "fails"),), kube_proxy, mended="add-on ACTIVE"),
    Case(
        "more storage: FSx fails to update",
        (Fault("fsx.UpdateFileSystem", "fails", times=1),),
        file_system,
        MORE_STORAGE,
    ),
    Case(
        "more nodes: the update fails",
        (Fault("eks.UpdateNodegroupConfig", "fails", times=1),),
        system_nodes,
        MORE_NODES,
    ),
    Case(
        "destroy: FSx fails to delete",
        (Fault("fsx.DeleteFileSystem", "fails", times=1),),
        everything,
        UNPROTECTED,
        "destroy",
    ),
    Case(
        "destroy: a subnet is still in use",
        (Fault("ec2.DeleteSubnet", "refused", code="DependencyViolation"),),
        everything,
        UNPROTECTED,
        "destroy",
    ),
]


@pytest.fixture(scope="module")
def deployed(cli: PulumiCli, clone: Path, built: ProviderTool) -> Path:
    """The folder of a rehearsal with the stack deployed; it is copied, never changed."""
    del built  # it must be there
    rehearsal = started(clone, cli, clone / "build" / "failures" / "deployed")
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        assert rehearsal.up().code == 0
    return rehearsal.out_dir


def started(clone: Path, cli: PulumiCli, folder: Path) -> Rehearsal:
    file = clone / "stacks" / STACK.name
    return Rehearsal(file, clone, folder, cli, quiet, emulated=True, longest_wait_seconds=LONGEST_WAIT_SECONDS)


@pytest.fixture
def rehearsal(request: pytest.FixtureRequest, case: Case, cli: PulumiCli, clone: Path) -> Iterator[Rehearsal]:
    folder = clone / "build" / "failures" / re.sub(r"\W+", "-", case.name)
    if case.change:
        shutil.copytree(request.getfixturevalue("deployed"), folder, symlinks=True)
    one = started(clone, cli, folder)
    with one.alone():
        one.prepare(fresh=not case.change)
        yield one


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_a_failure_leaves_and_what_the_next_deployment_does_is_what_the_table_says(
    rehearsal: Rehearsal, case: Case
) -> None:
    if case.change:
        change(rehearsal, *case.change)
    if case.command == "destroy":
        assert rehearsal.up().code == 0
    rehearsal.account.set(faults=case.faults)

    first = getattr(rehearsal, case.command)()
    kept = faulty(rehearsal)
    after_first = left_alone(rehearsal)
    rehearsal.account.set()
    second = getattr(rehearsal, case.command)()
    status = case.status(rehearsal.account)
    still = faulty(rehearsal)
    found = refreshed(rehearsal, case) if case.command == "up" and not second.code else "-"

    row = " | ".join(
        (
            case.name,
            ended(first, case.command),
            reason(first) or "-",
            kept or "-",
            after_first or "-",
            f"{ended(second, case.command)}{': ' + done(second) if kept and not second.code else ''}",
            status + (f"; in the state with errors: {still}" if still else ""),
            found,
        )
    )
    held(f"| {row} |")


def refreshed(rehearsal: Rehearsal, case: Case) -> str:
    """What a refresh finds, and where it finds a difference, what the next `up` makes of it."""
    if rehearsal.refresh(expect_no_changes=True).code == 0:
        return "nothing"
    assert rehearsal.up().code == 0
    return f"the difference, and `up` then makes it right: {case.status(rehearsal.account)}"


KILLED = Case("the engine is killed while the file system is made", (), file_systems)


@pytest.mark.parametrize("case", [KILLED], ids=["killed"])
def test_what_was_being_made_when_the_engine_was_killed_is_made_a_second_time(rehearsal: Rehearsal, case: Case) -> None:
    account = rehearsal.account

    first = rehearsal.up(signals=lambda _: signal.SIGKILL if account.calls().get("fsx.CreateFileSystem") else None)
    assert first.code == 128 + signal.SIGKILL
    rehearsal.cancel()
    # What else was being made at that moment differs each time.
    kept = "models-fsx (pending)" if "models-fsx (pending)" in faulty(rehearsal) else "-"
    alone = "a file system" if "fsx file_systems" in left_alone(rehearsal) else "-"
    second = rehearsal.up()

    first_end, second_end = ended(first, "up"), ended(second, "up")
    row = (case.name, first_end, "-", kept, alone, second_end, case.status(account), refreshed(rehearsal, case))
    held(f"| {' | '.join(row)} |")


@pytest.mark.parametrize("case", [case for case in CASES if case.mended], ids=lambda case: case.name)
def test_what_has_failed_for_good_is_made_anew_when_it_is_named(rehearsal: Rehearsal, case: Case) -> None:
    change(rehearsal, *UNPROTECTED)
    rehearsal.account.set(faults=case.faults)
    assert rehearsal.up().code
    rehearsal.account.set()

    run = rehearsal.up(replace=with_errors(rehearsal))

    assert run.code == 0, run.text
    assert case.status(rehearsal.account) == case.mended
    assert with_errors(rehearsal) == []
    assert rehearsal.refresh(expect_no_changes=True).code == 0


def with_errors(rehearsal: Rehearsal) -> list[str]:
    """The URNs of what the state holds with errors."""
    return [
        one["urn"]
        for one in json.loads(rehearsal.export())["deployment"].get("resources") or []
        if one.get("initErrors")
    ]


def change(rehearsal: Rehearsal, old: str, new: str) -> None:
    file = rehearsal.copied_stack_file
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def ended(run: Run, command: str) -> str:
    return f"`{command}` fails" if run.code else f"`{command}` succeeds"


def reason(run: Run) -> str:
    """What the provider says of the first failure, without ids and the names that differ each time."""
    for text in events.messages(run.events, "error"):
        found = re.search(r"stand-in for aws: (?:(?:creating|updating|deleting) urn:\S+: )?(.*)", text)
        if found:
            words = re.sub(r"\b(fs|subnet|eni|vpc)-[0-9a-f]{17}", r"\1-...", found[1])
            words = re.sub(r"RequestID: [0-9a-f-]+", "RequestID: ...", words)
            # Which of several that are made side by side comes first differs each time.
            words = re.sub(
                r"policy/\w+|(?<=IAM Role \()[\w-]+|(?<=role with name )[\w-]+|(?<=-dev:)[\w-]+", "...", words
            )
            words = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "...", words)
            return "`" + re.sub(r"-[0-9a-f]{8}\b", "-...", words).replace("|", "/") + "`"
    return ""


def faulty(rehearsal: Rehearsal) -> str:
    """What the state holds with errors of its creation or change, and what it holds as begun."""
    deployment = json.loads(rehearsal.export())["deployment"]
    named = [one["urn"].split("::")[-1] for one in deployment.get("resources") or [] if one.get("initErrors")]
    begun = [one["resource"]["urn"].split("::")[-1] for one in deployment.get("pending_operations") or []]
    return ", ".join([*sorted(named), *(f"{one} (pending)" for one in sorted(begun))])


def left_alone(rehearsal: Rehearsal) -> str:
    """What stands in the account and the state does not know."""
    state = rehearsal.export()
    known = re.compile(r"ec2 (network_|route_tables)|logs |ec2 security_groups|kms ")  # they belong to another resource
    lost = [one for one in rehearsal.account.standing() if not known.match(one) and named_in(one) not in state]
    return ", ".join(sorted(lost))


def named_in(standing: str) -> str:
    return standing.rsplit("/", 1)[-1].rsplit(" ", 1)[-1]


def done(run: Run) -> str:
    """What the engine did to resources other than making them."""
    steps = [step for step in run.steps if step.op not in ("same", "create", "refresh")]
    return ", ".join(sorted(f"{step.op} of {step.name}" for step in steps)) or "no change"


def held(row: str) -> None:
    """Holds that the table has this row, or writes it there."""
    text = TABLE.read_text(encoding="utf-8")
    start = row.split("|")[1]
    before = next((line for line in text.splitlines() if line.startswith(f"|{start}|")), None)
    if os.environ.get("FASTSTART_WRITE_GOLDEN"):
        assert before is not None, f"docs/failures.md has no row that begins with |{start}|"
        TABLE.write_text(text.replace(before, row), encoding="utf-8")
    else:
        assert row == before
