"""What a changed stack file does to a deployed stack: what it makes, updates, replaces and deletes, by property.

python -m lab.provider.changes OLD.yaml NEW.yaml [--json]

The old file is deployed in a rehearsal (the real engine on stand-in clouds), and a preview with the new one says which
inputs every resource would have then. For resources of AWS HashiCorp's provider says what becomes of them; for the
others, and for what is made or deleted, the engine's own word counts.
"""

import argparse
import contextlib
import dataclasses
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from infra import stack_files
from lab import ROOT, failures
from lab.provider import tool
from lab.provider.mapping import Failure
from lab.provider.mapping import Path as Steps
from lab.provider.provider import Provider, RefusedError
from lab.provider.tool import ProviderTool
from lab.rehearsal import events, program_copy, pulumi_cli
from lab.rehearsal.isolation import RefusedError as UnsafeError
from lab.rehearsal.pulumi_cli import PulumiCli
from lab.rehearsal.runner import Rehearsal
from lab.rehearsal.toolbox import ToolMissingError

USAGE, MISSING, FAILED = 2, tool.EXIT_MISSING, 1

_REPLACEMENT = ("create-replacement", "replace", "delete-replaced")


class NotComparedError(Exception):
    """One of the two files could not be deployed or previewed; the text is the engine's."""


@dataclass(frozen=True)
class Change:
    """What happens to one resource.

    Attributes:
        urn: the resource.
        action: `create`, `update`, `replace`, `delete`, or `refused` where the provider refuses the new inputs.
        properties: the inputs that change, as dotted paths.
        replaced: those of them that need a new resource.
        reason: what the provider says where it refuses.
        protected: the engine refuses to replace or delete it until its protection is taken off.
    """

    urn: str
    action: str
    properties: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    reason: str = ""
    protected: bool = False

    @property
    def text(self) -> str:
        """In one line; a property that needs a new resource has a star."""
        names = [f"{name}*" if name in self.replaced else name for name in self.properties]
        notes = [", ".join(names), self.reason, "protected" if self.protected else ""]
        kind, name = self.urn.split("::")[2].rpartition("$")[2], self.urn.split("::", 3)[3]
        return f"{self.action:8}{kind} {name}" + "".join(f"; {note}" for note in notes if note)


@dataclass(frozen=True)
class Deployed:
    """A stack that was deployed in a rehearsal, to be compared with other versions of its file.

    Attributes:
        rehearsal: the rehearsal, which is running.
        provider: what judges the resources of AWS.
        protected: the URNs of what the engine would neither replace nor delete.
    """

    rehearsal: Rehearsal
    provider: ProviderTool
    protected: frozenset[str]

    def changes(self, new: Path) -> list[Change]:
        """What a stack file changes, by URN.

        Args:
            new: counts as a new version of the deployed stack's file, whatever its name.

        Raises:
            NotComparedError: the engine's preview fails.
        """
        text = new.read_text(encoding="utf-8")
        file = self.rehearsal.copied_stack_file
        before = file.read_text(encoding="utf-8")
        salt = [line for line in before.splitlines(keepends=True) if line.startswith("encryptionsalt:")]
        file.write_text("".join([program_copy.without_secrets(text), *salt]), encoding="utf-8")
        try:
            run = self.rehearsal.preview()
        finally:
            file.write_text(before, encoding="utf-8")
        if run.code:
            raise NotComparedError(f"{new}: the preview fails:\n" + "\n".join(events.messages(run.events, "error")))
        config = yaml.safe_load(text)["config"]
        aws = {name.removeprefix("aws:"): value for name, value in config.items() if name.startswith("aws:")}
        with Provider.without_account(self.provider.program, aws) as provider:
            found = [*_changes(provider, run.events)]
        return [
            replace(one, protected=one.urn in self.protected and one.action in ("replace", "delete")) for one in found
        ]


@contextlib.contextmanager
def deployed(old: Path, folder: Path, cli: PulumiCli, provider: ProviderTool) -> Iterator[Deployed]:
    """Deploys a stack file in a rehearsal.

    Args:
        old: the stack file, named `Pulumi.<stack>.yaml`.
        folder: for the rehearsal's own files.
        cli: the engine.
        provider: what judges the resources of AWS.

    Raises:
        NotComparedError: it cannot be deployed.
    """
    rehearsal = Rehearsal(old, ROOT, folder, cli, lambda _: None)
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        run = rehearsal.up()
        if run.code:
            raise NotComparedError(f"{old}: cannot be deployed:\n" + "\n".join(events.messages(run.events, "error")))
        resources = json.loads(rehearsal.export())["deployment"]["resources"]
        rehearsal.command("state", "unprotect", "--all", "--yes")  # a preview ends where it meets what is protected
        yield Deployed(rehearsal, provider, frozenset(one["urn"] for one in resources if one.get("protect")))


def _changes(provider: Provider, happened: Sequence[events.Event]) -> Iterator[Change]:
    steps: dict[str, dict[str, Any]] = {}
    for event in happened:
        if found := event.get("resourcePreEvent"):
            told = {name: value for name, value in found["metadata"].items() if value}
            steps[told["urn"]] = {**told, **steps.get(told["urn"], {})}
    for urn, step in sorted(steps.items()):
        is_default = step["type"].startswith("pulumi:providers:") and "::default" in urn
        if not is_default and (change := _change(provider, urn, step)):
            yield change


def _change(provider: Provider, urn: str, step: Mapping[str, Any]) -> Change | None:
    action = "replace" if step["op"] in _REPLACEMENT else step["op"]
    if not (step["type"].startswith("aws:") and "new" in step and provider.knows(step["type"])):
        names = tuple(sorted(step.get("detailedDiff") or step.get("diffs") or ()))
        return None if action == "same" else Change(urn, action, names, tuple(step.get("keys") or ()))
    old, inputs = step.get("old"), step["new"]["inputs"]
    if refused := provider.check(step["type"], inputs) if old else provider.check_new(step["type"], inputs):
        return Change(urn, "refused", _texts([one.path for one in refused]), reason=_reason(refused))
    if not old:
        return Change(urn, "create")
    try:
        diff = provider.diff(step["type"], old["id"], old["inputs"], old["outputs"], inputs)
    except RefusedError as error:
        return Change(urn, "refused", _texts([one.path for one in error.failures]), reason=_reason(error.failures))
    return None if diff.action == "none" else Change(urn, diff.action, _texts(diff.changed), _texts(diff.replaced))


def _reason(refused: Sequence[Failure]) -> str:
    return "; ".join(one.reason for one in refused)


def _texts(paths: Sequence[Steps]) -> tuple[str, ...]:
    return tuple(".".join(map(str, path)) for path in paths if path)


def _say(text: str) -> None:
    print(f"[changes] {text}", file=sys.stderr, flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compares two stack files.

    Returns:
        0; 1 one cannot be deployed; 2 no such file; 3 a tool is not to be had; 128 + N ended by signal N.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lab.provider.changes", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("old", type=Path, metavar="OLD", help="the stack file as it was deployed")
    parser.add_argument("new", type=Path, metavar="NEW", help="the one to deploy next")
    parser.add_argument("--json", action="store_true", help="as a list of objects")
    options = parser.parse_args(arguments)
    try:
        for path in (options.old, options.new):
            stack_files.read(path)
        tools = pulumi_cli.find_or_install(_say), tool.get(_say)
        with tempfile.TemporaryDirectory() as folder, deployed(options.old, Path(folder), *tools) as stack:
            found = stack.changes(options.new)
    except (stack_files.UnusableError, ValueError) as error:
        _say(str(error))
        return USAGE
    except ToolMissingError as missing:
        _say(str(missing))
        return MISSING
    except (NotComparedError, UnsafeError) as error:
        _say(str(error))
        return FAILED
    except subprocess.CalledProcessError as failed:
        _say(failures.words(failed))
        return FAILED
    print(json.dumps([dataclasses.asdict(one) for one in found], indent=1) if options.json else _table(found))
    return 0


def _table(found: Sequence[Change]) -> str:
    return "\n".join(one.text for one in found) or "nothing changes"


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
