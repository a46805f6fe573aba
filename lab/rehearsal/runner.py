"""Runs the engine's commands for one stack, on a copy of the program and with the stand-ins."""

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from infra import stack_files
from lab import files, starter
from lab.account.process import Account
from lab.rehearsal import events as engine_events
from lab.rehearsal import interrupted, isolation, program_copy
from lab.rehearsal.pulumi_cli import PulumiCli

Show = Callable[[str], None]
MOTO = "moto"
"""The emulated account's name, for who asks for it."""

Signals = Callable[[str], signal.Signals | None]
"""Asked about each line that the engine says: the signal that the engine gets now."""

# The engine ends in order at the first one, and at once at the second, which leaves pending operations.
_PATIENCE = (signal.SIGINT, signal.SIGINT, signal.SIGKILL)

ROLE = re.compile(r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]+")

# The settings by which a stack keeps its data: the engine's protection of the file system, AWS's of the cluster.
PROTECTIONS = ("faststart:storage.protect", "faststart:cluster.deletionProtection")


def once(asked: Callable[[str], bool]) -> Signals:
    """Interrupts the engine, as Ctrl-C does, at the first line of which this is true."""
    left = [signal.SIGINT]
    return lambda line: left.pop() if left and asked(line) else None


@dataclass(frozen=True)
class Run:
    """One command of the engine, ended.

    Attributes:
        code: its exit code; 7 where changes were not expected, 128 + N where signal N ended it.
        text: all that it said, as it said it.
        events: its own log.
        seconds: how long it took.
    """

    code: int
    text: str
    events: list[engine_events.Event]
    seconds: float

    @property
    def changes(self) -> dict[str, int]:
        """The engine's own summary, `{"create": 35}`."""
        return engine_events.changes(self.events)

    @property
    def steps(self) -> list[engine_events.Step]:
        """What it did, by the moment at which each began."""
        return engine_events.order(self.events)


@dataclass
class Rehearsal:
    """One stack's rehearsal.

    Attributes:
        stack_file: a file named like `Pulumi.<stack>.yaml`, anywhere.
        root: the clone with the program.
        out_dir: where everything is written; kept between runs, so that a second `up` is an update.
        cli: the engine.
        show: gets each line that the engine says, but for those about where the stand-ins were found.
        ambient: the environment that is made safe for the engine.
        real: plugins that are the real ones (see `isolation.Place`).
        emulated: whether an emulated account stands behind the aws stand-in (lab/account).
        longest_wait_seconds: how long a resource there is waited for at most; 0 for the program's own time-outs.
    """

    stack_file: Path
    root: Path
    out_dir: Path
    cli: PulumiCli
    show: Show = print
    ambient: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    real: Mapping[str, Path] = field(default_factory=dict)
    emulated: bool = False
    longest_wait_seconds: float = 0
    _closed_port: isolation.ClosedPort | None = field(default=None, init=False, repr=False)
    _ending: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False, repr=False)
    _account: Account | None = field(default=None, init=False, repr=False)
    _engine: subprocess.Popen[str] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        """Makes the paths absolute: the engine runs in another folder."""
        self.stack_file = self.stack_file.absolute()
        self.root = self.root.absolute()
        self.out_dir = self.out_dir.absolute()

    @property
    def stack(self) -> str:
        """The stack's name, from its file's."""
        return stack_files.stack_of(self.stack_file)

    @property
    def make_variables(self) -> str:
        """What names this rehearsal to the targets of `make`."""
        return f"STACK={self.stack} ACCOUNT={MOTO}" if self.emulated else f"STACK={self.stack}"

    @property
    def place(self) -> isolation.Place:
        """The folders."""
        return isolation.Place(self.out_dir, self.root, self.real)

    @property
    def copied_stack_file(self) -> Path:
        """The stack file that the engine reads and writes."""
        return self.place.program / "stacks" / self.stack_file.name

    # ---- before the engine

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Keeps a second rehearsal of the same stack out, and a port closed; ends the account when it is left.

        Raises:
            RefusedError: another one is running.
        """
        self.out_dir.mkdir(parents=True, exist_ok=True)
        with (self.out_dir / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise isolation.RefusedError(f"another rehearsal is running in {self.out_dir}") from None
            self._closed_port = isolation.ClosedPort()
            try:
                with contextlib.ExitStack() as self._ending:
                    yield
            finally:
                self._closed_port.close()
                self._closed_port = self._account = None

    def prepare(self, *, fresh: bool = False) -> None:
        """Copies program and stack file, puts the stand-ins in their place, makes or selects the stack.

        Args:
            fresh: forget what earlier runs made.

        Raises:
            RefusedError: the engine could take another plugin than a stand-in.
            LockedError: an engine that was killed has left its lock.
            subprocess.CalledProcessError: the engine would not make the stack.
        """
        if fresh:
            shutil.rmtree(self.place.work, ignore_errors=True)
        self.place.make()
        program_copy.copy_program(self.root, self.place.program, self.stack_file)
        self.select()

    def select(self) -> None:
        """Selects the stack on the copy that is there, making it where the state has none.

        Raises:
            RefusedError: the engine could take another plugin than a stand-in.
            LockedError: an engine that was killed has left its lock.
            subprocess.CalledProcessError: the engine would not make the stack.
        """
        self._make_safe()
        if held := self.locks():
            raise interrupted.LockedError(self.about_locks(held))
        if self.emulated and self._account is None:
            self._account = self._started_account()
        self.command("stack", "select", "--create", self.stack)

    def _make_safe(self) -> None:
        self.place.make()
        isolation.check_before(self.place, self.environment(), self.ambient)

    def environment(self) -> dict[str, str]:
        """The engine's environment."""
        if self._closed_port is None:
            raise RuntimeError("only within `with rehearsal.alone():`")
        return isolation.environment(self.place, self.cli, self._closed_port.url, self.ambient)

    @property
    def account(self) -> Account:
        """The emulated account, from `prepare` or `select` on."""
        if self._account is None:
            raise RuntimeError("only of an emulated account, after `prepare` or `select`")
        return self._account

    def _started_account(self) -> Account:
        """The account of the stack file, with the roles that the file names: these stand before a first `up`."""
        aws = stack_files.read(self.stack_file).aws
        files.replace(self.place.longest_wait, str(self.longest_wait_seconds))
        account = self._ending.enter_context(Account(self.place.account, aws.region, *aws.allowed_account_ids[:1]))
        account.give_roles(ROLE.findall(self.stack_file.read_text(encoding="utf-8")))
        return account

    # ---- the engine

    def preview(self, *, expect_no_changes: bool = False) -> Run:
        """What an `up` would do; exit code 7 where it would do something and nothing was expected."""
        return self._run("preview", *(["--expect-no-changes"] if expect_no_changes else []))

    def up(
        self, *, expect_no_changes: bool = False, replace: Sequence[str] = (), signals: Signals | None = None
    ) -> Run:
        """Deploys, without a preview of its own: the caller has just shown one.

        Args:
            expect_no_changes: the engine ends with an error where it had something to do.
            replace: URNs of what is made anew although nothing asks for it.
            signals: how the engine is disturbed.
        """
        options = ["--expect-no-changes"] if expect_no_changes else []
        for urn in replace:
            options += ["--replace", urn]
        return self._run("up", "--yes", "--skip-preview", *options, signals=signals)

    def refresh(self, *, expect_no_changes: bool = False) -> Run:
        """Compares the state with what the stand-ins remember."""
        return self._run("refresh", "--yes", "--skip-preview", *(["--expect-no-changes"] if expect_no_changes else []))

    def destroy(self, *, signals: Signals | None = None) -> Run:
        """Deletes everything.

        With the engine's own preview, always: without it `destroy` finds a protected resource only when it comes to it,
        with others deleted by then.
        """
        return self._run("destroy", "--yes", signals=signals)

    def unprotect(self) -> Run:
        """Takes the protection off as on a real account: both settings in the (copied) stack file, and an `up`."""
        for key in PROTECTIONS:
            self.command("config", "set", "--path", key, "false", "--type", "bool")
        return self.up()

    def locks(self) -> list[str]:
        """The locks that engines have left in the state: who took each, and when."""
        return interrupted.locks(self.place.state)

    def about_locks(self, held: list[str]) -> str:
        """What these locks mean, and how to remove them."""
        return interrupted.about_locks(self.stack, held, f"make rehearse-cancel {self.make_variables}")

    def cancel(self) -> None:
        """Removes the locks that engines have left.

        Raises:
            RefusedError: the engine could take another plugin than a stand-in.
            subprocess.CalledProcessError: the engine fails.
        """
        self._make_safe()
        self.command("cancel", "--yes", self.stack)

    def interrupt(self) -> None:
        """Lets a command of the engine that runs in another thread end in order."""
        if engine := self._engine:
            engine.send_signal(signal.SIGINT)

    def export(self) -> str:
        """The engine's own export of the state, JSON; secrets in it are encrypted."""
        return self.command("stack", "export")

    def command(self, *arguments: str) -> str:
        """Any other command of the engine; its stdout.

        Raises:
            subprocess.CalledProcessError: with what it said.
        """
        done = subprocess.run(
            [self.cli.path, *arguments, "--non-interactive", "--color", "never"],
            cwd=self.place.program,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    def _run(self, operation: str, *options: str, signals: Signals | None = None) -> Run:
        log = self.place.work / f"{operation}.jsonl"
        log.unlink(missing_ok=True)
        command = [self.cli.path, operation, *options, "--non-interactive", "--color", "never", "--event-log", log]
        started = time.monotonic()
        lines: list[str] = []

        def told(line: str) -> None:
            lines.append(line)
            if not self.is_about_stand_ins(line):
                self.show(line.rstrip("\n"))
            if signals and (number := signals(line)):
                engine.send_signal(number)

        with subprocess.Popen(
            starter.bound([*command, "--stack", self.stack]),
            cwd=self.place.program,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # Ctrl-C is for this process, which hands it on
        ) as engine:
            self._engine = engine
            try:
                code = self._follow(engine, told)
            finally:
                self._engine = None
        run = Run(
            code if code >= 0 else 128 - code, "".join(lines), engine_events.read(log), time.monotonic() - started
        )
        if code == 0 and operation in {"preview", "up"}:
            isolation.check_after(self.place, run.events)
        return run

    def _follow(self, engine: subprocess.Popen[str], told: Show) -> int:
        """Hands on what the engine says until it ends; its exit code, negative where a signal ended it.

        Whatever interrupts this process interrupts the engine, and is raised once that has ended. Ctrl-C is not raised
        where the engine's exit code tells of it.
        """
        assert engine.stdout is not None
        causes: list[BaseException] = []
        while True:
            try:
                for line in engine.stdout:
                    if not causes or isinstance(causes[-1], KeyboardInterrupt):
                        told(line)
                code = engine.wait()
                break
            except BaseException as cause:  # noqa: BLE001 -- raised below
                engine.send_signal(_PATIENCE[min(len(causes), len(_PATIENCE) - 1)])
                causes.append(cause)
                if isinstance(cause, KeyboardInterrupt):
                    self.show("interrupted: waiting for the engine to end; once more ends it at once")
        for cause in causes:
            if code == 0 or not isinstance(cause, KeyboardInterrupt):
                raise cause
        return code

    def is_about_stand_ins(self, line: str) -> bool:
        """Whether a line is the engine's unavoidable warning that it took a stand-in of ours from PATH."""
        found = engine_events.AMBIENT.search(line)
        return found is not None and Path(found[3]).parent == self.place.bin

    # ---- after the engine

    def standing(self) -> list[str]:
        """What stands, as `type id`: in the stand-ins' cloud, of AWS by the account's own lists where there is one."""
        if self.emulated:
            return [*self.account.standing(), *standing(self.place.cloud, "kubernetes.json")]
        return standing(self.place.cloud)


def standing(cloud: Path, names: str = "*.json") -> list[str]:
    """What a stand-in cloud holds, as `type id`."""
    held: list[str] = []
    for path in sorted(cloud.glob(names)):
        held += sorted(key.replace("|", " ", 1) for key in json.loads(path.read_text(encoding="utf-8")))
    return held
