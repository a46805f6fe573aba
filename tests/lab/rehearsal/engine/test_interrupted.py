"""The engine ended in the middle of its work: what the state holds, what the next command does; nobody is left.

| how it ends | exit code | lock | the state holds what was in flight as |
| --- | --- | --- | --- |
| Ctrl-C once | 1 | no | done: the engine waits for it |
| Ctrl-C twice | 8 | no | pending |
| killed | 137 | yes | pending |
"""

import fcntl
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.rehearsal import interrupted
from lab.rehearsal.interrupted import LockedError
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.runner import Rehearsal, Run, Signals
from tests.lab.rehearsal.engine.conftest import STACK_FILES, rehearsal

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc, and ends the engine with its owner"),
]

HANG_SECONDS = 60  # ends a test that would wait for ever; none measures time
END_SECONDS = 10  # a plugin asks every second whether its engine is there

SUBNETS = {"subnet-0", "subnet-1", "subnet-2"}
PROGRAM = """
import pulumi, pulumi_aws as aws
vpc = aws.ec2.Vpc("vpc", cidr_block="10.0.0.0/16", tags={"turn": "first"})
subnets = [
    aws.ec2.Subnet(f"subnet-{number}", vpc_id=vpc.id, cidr_block=f"10.0.{number}.0/24", availability_zone="us-east-1a")
    for number in range(3)
]
aws.ec2.RouteTable("last", vpc_id=vpc.id, opts=pulumi.ResourceOptions(depends_on=subnets))
"""


def eventually(holds: Callable[[], Any], seconds: float = HANG_SECONDS) -> None:
    give_up = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < give_up, f"not after {seconds} s"
        time.sleep(0.02)


class Small:
    """A stack of a few resources of AWS, whose operations a test lets wait."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self.rehearsal = rehearsal
        self.place = rehearsal.place
        self._lock: Any = None

    def write(self, program: str = PROGRAM) -> None:
        (self.place.program / "__main__.py").write_text(program, encoding="utf-8")

    def hold(self) -> None:
        """Lets all operations wait: each takes this lock of the stand-in's."""
        self._lock = (self.place.cloud / "aws.lock").open("w")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def let_go(self) -> None:
        self._lock.close()

    def disturbed(
        self,
        run: Callable[..., Run],
        word: str,
        names: set[str],
        first: Callable[[], signal.Signals],
        then: Signals = lambda _: None,
        after: str = "",
    ) -> Run:
        """A command of the engine that is disturbed while operations are in flight, and the state says so.

        Args:
            run: the command.
            word: the engine's for the operations, like `creating`.
            names: of the resources that they are about.
            first: the signal that the engine gets at that moment.
            then: asked about each line afterwards.
            after: in the line from which on operations wait; from the beginning, if empty.
        """
        missing = set(names)
        if not after:
            self.hold()

        def signals(line: str) -> signal.Signals | None:
            if not missing:
                return then(line)
            if after and after in line:
                self.hold()
            missing.difference_update([name for name in names if f" {name} {word}" in line])
            if missing:
                return None
            eventually(lambda: {(word, name) for name in names} <= set(self._pending_now()))
            return first()

        return run(signals=signals)

    def _pending_now(self) -> list[tuple[str, str]]:
        """As `pending`, while the engine runs."""
        (file,) = (self.place.state / ".pulumi" / "stacks").rglob("*.json")
        return _named({"deployment": json.loads(file.read_text(encoding="utf-8"))["checkpoint"]["latest"]})

    def pending(self) -> list[tuple[str, str]]:
        """The pending operations, each with the name of its resource."""
        return _named(json.loads(self.rehearsal.export()))

    def made(self) -> set[str]:
        """The names of the resources of AWS in the state."""
        resources = json.loads(self.rehearsal.export())["deployment"]["resources"]
        return {one["urn"].rpartition("::")[2] for one in resources if one["type"].startswith("aws:")}

    def standing(self) -> list[str]:
        """The names of what stands in the cloud, by type."""
        return sorted(one["urn"].rpartition("::")[2] for one in self._world().values())

    def ids(self) -> dict[str, str]:
        """The ID of each resource in the cloud, by its URN."""
        return {one["urn"]: key.partition("|")[2] for key, one in self._world().items()}

    def _world(self) -> dict[str, Any]:
        file = self.place.cloud / "aws.json"
        return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}

    def left(self) -> list[str]:
        """The processes of the engine and of what it started: they have its environment."""
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if f"PULUMI_HOME={self.place.home}\0".encode() in (folder / "environ").read_bytes():
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:  # it has ended, or is somebody else's
                continue
        return found


def _named(exported: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one.operation, one.urn.rpartition("::")[2]) for one in interrupted.pending(exported)]


@pytest.fixture
def small(cli: PulumiCli, clone: Path, tmp_path: Path) -> Iterator[Small]:
    file = rehearsal(STACK_FILES[0], clone, cli).stack_file
    one = Small(Rehearsal(file, clone, tmp_path / "small", cli, lambda _: None))
    with one.rehearsal.alone():
        one.rehearsal.prepare(fresh=True)
        one.write()
        yield one
    eventually(lambda: not one.left(), END_SECONDS)


def succeeded(run: Run) -> bool:
    assert run.code == 0, run.text
    return True


def creating(small: Small, first: Callable[[], signal.Signals], then: Signals = lambda _: None) -> Run:
    return small.disturbed(small.rehearsal.up, "creating", SUBNETS, first, then, after=" vpc created")


PENDING = [("creating", name) for name in sorted(SUBNETS)]


def test_after_one_ctrl_c_the_engine_finishes_what_it_began_and_the_next_up_goes_on(small: Small) -> None:
    def let_them_end(line: str) -> None:
        if "^C received; cancelling" in line:
            small.let_go()

    run = creating(small, lambda: signal.SIGINT, let_them_end)

    assert run.code == 1
    assert "update canceled" in run.text
    assert (small.rehearsal.locks(), small.pending()) == ([], [])
    assert small.made() == {"vpc", *SUBNETS}

    assert succeeded(again := small.rehearsal.up())
    assert again.changes["create"] == 1
    assert small.standing() == ["last", *sorted(SUBNETS), "vpc"]


def test_after_two_ctrl_c_creates_stay_pending_even_after_a_good_up_until_they_are_cleared(small: Small) -> None:
    run = creating(small, lambda: signal.SIGINT, lambda line: signal.SIGINT if "cancelling" in line else None)
    eventually(lambda: not small.left(), END_SECONDS)
    small.let_go()

    assert run.code == 8
    assert "^C received; terminating" in run.text
    assert (small.rehearsal.locks(), small.pending()) == ([], PENDING)
    assert small.made() == {"vpc"}
    assert small.standing() == ["vpc"]

    assert succeeded(again := small.rehearsal.up())
    assert "with 3 pending operations" in again.text
    assert small.made() == {"vpc", *SUBNETS, "last"}
    assert small.pending() == PENDING
    assert succeeded(small.rehearsal.refresh())
    assert small.pending() == PENDING
    small.rehearsal.command("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert small.pending() == []
    assert succeeded(small.rehearsal.preview(expect_no_changes=True))


def test_a_killed_engine_leaves_its_lock_and_what_it_was_creating_is_imported(small: Small) -> None:
    def kill_before_it_hears() -> signal.Signals:
        engine = small.rehearsal._engine
        assert engine
        engine.send_signal(signal.SIGSTOP)
        small.let_go()
        try:
            eventually(lambda: SUBNETS & set(small.standing()))
        finally:
            engine.kill()  # whatever happens: a stopped one would never end
        return signal.SIGKILL

    run = creating(small, kill_before_it_hears)
    eventually(lambda: not small.left(), END_SECONDS)

    assert run.code == 128 + signal.SIGKILL
    assert len(small.rehearsal.locks()) == 1
    with pytest.raises(LockedError, match="make rehearse-cancel STACK="):
        small.rehearsal.select()
    small.rehearsal.cancel()
    assert (small.rehearsal.locks(), small.pending()) == ([], PENDING)
    assert small.made() == {"vpc"}
    lost = {urn: one for urn, one in small.ids().items() if urn.rpartition("::")[2] in SUBNETS}

    again = small.rehearsal.up()
    assert again.code == 1
    assert "conflicts with another subnet" in again.text

    pair = [f"--import-pending-creates={word}" for word in next(iter(lost.items()))]
    before = small.made()
    small.rehearsal.command("refresh", "--yes", "--skip-preview", *pair)
    assert small.made() == before, "it imports by now: say so in README and interrupted.py"

    ids = {urn.rpartition("::")[2]: one for urn, one in lost.items()}
    file = small.place.work / "import.json"
    small.rehearsal.command("preview", "--import-file", str(file))
    listed = json.loads(file.read_text(encoding="utf-8"))
    listed["resources"] = [{**one, "id": ids[one["name"]]} for one in listed["resources"] if one["name"] in ids]
    file.write_text(json.dumps(listed), encoding="utf-8")
    small.rehearsal.command("import", "--file", str(file), "--yes", "--generate-code=false", "--protect=false")
    small.rehearsal.command("refresh", "--yes", "--skip-preview", "--clear-pending-creates")
    assert small.pending() == []
    assert succeeded(small.rehearsal.up())
    assert small.made() == {"vpc", *SUBNETS, "last"}
    assert small.standing() == ["last", *sorted(SUBNETS), "vpc"]


def test_what_a_killed_engine_was_updating_or_deleting_is_done_by_the_next_command(small: Small) -> None:
    assert succeeded(small.rehearsal.up())
    small.write(PROGRAM.replace("first", "second"))
    run = small.disturbed(small.rehearsal.up, "updating", {"vpc"}, lambda: signal.SIGKILL)
    eventually(lambda: not small.left(), END_SECONDS)
    small.let_go()
    small.rehearsal.cancel()

    assert run.code == 128 + signal.SIGKILL
    assert small.pending() == [("updating", "vpc")]
    assert succeeded(again := small.rehearsal.up())
    assert again.changes["update"] == 1
    assert small.pending() == []

    run = small.disturbed(small.rehearsal.destroy, "deleting", {"last"}, lambda: signal.SIGKILL)
    eventually(lambda: not small.left(), END_SECONDS)
    small.let_go()
    small.rehearsal.cancel()

    assert run.code == 128 + signal.SIGKILL
    assert small.pending() == [("deleting", "last")]
    assert succeeded(small.rehearsal.destroy())
    assert (small.pending(), small.standing()) == ([], [])
