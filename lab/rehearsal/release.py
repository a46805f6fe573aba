"""The states that released versions of the program left: what the program of today would do to such a stack.

python -m lab.rehearsal.release VERSION    # keeps the states that today's program makes of all stacks, as VERSION's

`released/<version>/` holds for each stack its stack file, the engine's state after an `up` on the stand-in clouds, and
the list of what today's program would change there, `<what> <urn> <title of the entry in CHANGELOG>` a line.
"""

import argparse
import json
import lzma
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import yaml

from infra import stack_files
from lab import ROOT, failures
from lab.rehearsal.events import Step
from lab.rehearsal.isolation import RefusedError
from lab.rehearsal.pulumi_cli import EXIT_MISSING, CliMissingError, find_or_install
from lab.rehearsal.runner import Rehearsal

FOLDER = Path(__file__).with_name("released")

# Where and when a resource was registered: differs from run to run, and nothing reads it.
_PROVENANCE = ("created", "modified", "sourcePosition", "stackTrace")

UNEXPLAINED = "?"
REFUSED = 4


class Change(NamedTuple):
    """What happens to one resource.

    Attributes:
        what: `create`, `update`, `replace` or `delete`.
        urn: the resource.
        entry: the title of the entry of CHANGELOG that says so.
    """

    what: str
    urn: str
    entry: str = UNEXPLAINED

    @property
    def type(self) -> str:
        """The resource's own type, without its parents'."""
        return self.urn.split("::")[2].split("$")[-1]


@dataclass(frozen=True)
class Released:
    """A stack as a released version left it.

    Attributes:
        version: of the program, `0.1.0`.
        stack: the stack's name.
        folder: where the states of all versions are.
    """

    version: str
    stack: str
    folder: Path = FOLDER

    @property
    def stack_file(self) -> Path:
        """What the stack file said; of its keys only those that are refused since are edited."""
        return self.folder / self.version / f"Pulumi.{self.stack}.yaml"

    @property
    def state(self) -> Path:
        """The engine's export with secrets in plain, all of them the stand-ins' own; xz."""
        return self.folder / self.version / f"{self.stack}.state.json.xz"

    @property
    def golden(self) -> Path:
        """What the program of today would change."""
        return self.folder / self.version / f"{self.stack}.changes"

    def changes(self) -> list[Change]:
        """The rows of the list."""
        lines = self.golden.read_text(encoding="utf-8").splitlines() if self.golden.exists() else []
        return [Change(*line.split(maxsplit=2)) for line in lines]

    def write_changes(self, found: Iterable[Change]) -> None:
        """Writes the list anew; a row that was there keeps its entry."""
        entries = {(one.what, one.urn): one.entry for one in self.changes()}
        rows = [f"{one.what} {one.urn} {entries.get((one.what, one.urn), UNEXPLAINED)}\n" for one in found]
        self.golden.write_text("".join(rows), encoding="utf-8")

    def keep(self, exported: str, stack_file: Path) -> None:
        """Keeps a state, as `pulumi stack export --show-secrets` writes it, and the stack file that it came of."""
        state = json.loads(exported)
        state["deployment"].pop("manifest", None)
        state["deployment"].pop("secrets_providers", None)
        for resource in state["deployment"]["resources"]:
            for name in _PROVENANCE:
                resource.pop(name, None)
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self.state.write_bytes(lzma.compress(json.dumps(state, sort_keys=True).encode()))
        shutil.copyfile(stack_file, self.stack_file)
        self.write_changes([])

    def restore(self, rehearsal: Rehearsal) -> None:
        """Gives a rehearsal that is prepared this state, its secrets encrypted with the rehearsal's own key."""
        state = json.loads(lzma.decompress(self.state.read_bytes()))
        salt = yaml.safe_load(rehearsal.copied_stack_file.read_text(encoding="utf-8"))["encryptionsalt"]
        state["deployment"]["secrets_providers"] = {"type": "passphrase", "state": {"salt": salt}}
        file = rehearsal.place.work / "released.json"
        file.write_text(json.dumps(state), encoding="utf-8")
        rehearsal.command("stack", "import", "--file", str(file))


def released(folder: Path = FOLDER) -> list[Released]:
    """Every stack of every released version."""
    return [
        Released(path.parent.name, path.name.removesuffix(".state.json.xz"), folder)
        for path in sorted(folder.glob("*/*.state.json.xz"))
    ]


_REPLACEMENT = {"replace", "create-replacement", "delete-replaced"}


def changed(steps: Iterable[Step]) -> Iterator[Change]:
    """What the steps of a preview change, by URN; default providers left out, which follow the versions of the SDKs."""
    found: dict[str, str] = {}
    for step in steps:
        what = "replace" if step.op in _REPLACEMENT else step.op
        is_default = step.type.startswith("pulumi:providers:") and step.name.startswith("default")
        if what != "same" and not is_default:
            found[step.urn] = "replace" if "replace" in (what, found.get(step.urn)) else what
    for urn, what in sorted(found.items()):
        yield Change(what, urn)


def entries(changelog: str, since: str) -> Mapping[str, str]:
    """The entries of CHANGELOG that are newer than a version: their titles (in bold) and whole texts."""
    newer = changelog.partition("\n## Unreleased\n")[2].partition(f"\n## {since} ")[0]
    items = ("\n" + newer).split("\n- ")[1:]
    texts = [" ".join(item.partition("\n\n")[0].split()) for item in items]
    return {text.removeprefix("**").partition(".**")[0]: text for text in texts if text.startswith("**")}


def keep_all(version: str) -> int:
    """Keeps the state of every stack as a version's; the exit code is the engine's where it fails."""
    cli = find_or_install()
    for stack, file in stack_files.every().items():
        rehearsal = Rehearsal(file, ROOT, ROOT / "build" / "released" / stack, cli, lambda _: None)
        with rehearsal.alone():
            rehearsal.prepare(fresh=True)
            run = rehearsal.up()
            if run.code:
                print(run.text)
                return run.code
            Released(version, stack).keep(rehearsal.command("stack", "export", "--show-secrets"), file)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line.

    Returns:
        0; 3 no Pulumi CLI could be got; 4 refused, because an account might be reached; 128 + N ended by signal N; else
        the engine's own.
    """
    parser = argparse.ArgumentParser(
        prog="python -m lab.rehearsal.release", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("version", metavar="VERSION", help="the version that is being released, like 0.2.0")
    try:
        return keep_all(parser.parse_args(arguments).version)
    except CliMissingError as missing:
        print(missing)
        return EXIT_MISSING
    except RefusedError as refused:
        print(refused)
        return REFUSED
    except subprocess.CalledProcessError as failed:
        print(failures.words(failed))
        return failures.code(failed)


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, _: sys.exit(128 + number))
    sys.exit(main())
