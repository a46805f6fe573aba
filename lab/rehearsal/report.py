"""The report of a rehearsal: what was real, what was stood in for, how much, how long."""

import importlib.metadata
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from lab.rehearsal.manifests import RELEASE, plain
from lab.rehearsal.pulumi_cli import PulumiCli

SDKS = ("pulumi", "pulumi-aws", "pulumi-eks", "pulumi-kubernetes")

REAL = """\
- The engine: {cli}, with its plan, its order, its state and its refusals.
- The program and the stack file, as they are in this clone, on a copy.
- The SDKs and their types: {sdks}. The stand-ins refuse inputs that these types don't know, that are missing, or that
  are of another kind."""

STOOD_IN_FOR = """\
{aws}
- Helm: {releases} releases were recorded with chart, version and values; no chart was fetched.
- Pods: none ran. The manifests are what the API server would get.
- The Python language host: {language_host}.
- Left out of what was shown, and kept in the files: the engine's warnings `using pulumi-resource-NAME from $PATH at
  ...`, one for each process of a stand-in. They are its own record that the stand-ins were used."""


BY_FILE = """\
- The provider's checks and plans: {judge}.
- AWS, EKS and Kubernetes: the plugins `aws`, `eks` and `kubernetes` are Python programs of this repository
  (`lab/rehearsal/providers/`), and the cloud behind them is a file. Ids, addresses, ARNs and mount names are made up,
  nothing takes the time that it takes, and nobody was asked for quota or capacity."""
IN_ACCOUNT = """\
- The account: AWS's APIs are answered on this machine (`lab/account/`: moto, and EKS and FSx by their API models). Ids,
  addresses and ARNs are made up, what takes AWS minutes takes seconds, and nobody was asked for quota or capacity.
- The bridge from Pulumi to HashiCorp's provider, pulumi-eks and Kubernetes: the plugins `aws`, `eks` and `kubernetes`
  are Python programs of this repository (`lab/rehearsal/providers/`)."""
REAL_PROVIDER = """
- HashiCorp's {}, which is inside pulumi-aws: it checked inputs, planned changes, and made, read, changed and deleted
  AWS's resources by its own code and with its own waits."""

BY_PROVIDER = (
    "HashiCorp's {} checked inputs and planned changes; what AWS alone refuses, the tables of "
    "`lab/rehearsal/providers/` say"
)
BY_TABLES = (
    "the tables of `lab/rehearsal/providers/` say what a change replaces and what AWS alone refuses; other values were "
    "checked by the SDK's types only. Once `python -m lab.provider.tool` has built HashiCorp's provider for AWS, that "
    "one checks and plans"
)


@dataclass
class Report:
    """What a report tells.

    Attributes:
        stack: its name.
        cli: the engine.
        state: the engine's export.
        timings: seconds by step, in order.
        changes: the engine's own summary by step.
        warnings: what the program and the engine warned of.
        files: what was written, file to what it is.
        judge: the provider that checked and planned the resources of AWS; empty where none was built.
        emulated: whether that provider made them, in an emulated account.
    """

    stack: str
    cli: PulumiCli
    state: dict[str, Any]
    timings: dict[str, float] = field(default_factory=dict)
    changes: dict[str, dict[str, int]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    judge: str = ""
    emulated: bool = False

    @property
    def resources(self) -> list[dict[str, Any]]:
        """The resources in the state."""
        return self.state["deployment"].get("resources") or []

    @property
    def outputs(self) -> dict[str, Any]:
        """The stack's outputs, without secrets."""
        for resource in self.resources:
            if resource["type"] == "pulumi:pulumi:Stack":
                return plain(resource.get("outputs") or {})
        return {}

    def counts(self) -> dict[str, int]:
        """How many resources of each type, by type."""
        return dict(sorted(Counter(resource["type"] for resource in self.resources).items()))

    def text(self) -> str:
        """The report, as Markdown."""
        sdks = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in SDKS)
        real = REAL.format(cli=f"Pulumi {self.cli.version} ({self.cli.origin})", sdks=sdks)
        judge = BY_PROVIDER.format(self.judge) if self.judge else BY_TABLES
        releases = sum(resource["type"] == RELEASE for resource in self.resources)
        parts = [
            f"# Rehearsal of the stack `{self.stack}`",
            "No account was touched and nothing was billed. This is no proof that AWS would agree.",
            "## What was real",
            real + REAL_PROVIDER.format(self.judge) if self.emulated else real,
            "## What was stood in for",
            STOOD_IN_FOR.format(
                releases=releases,
                aws=IN_ACCOUNT if self.emulated else BY_FILE.format(judge=judge),
                language_host="ours" if self.cli.language_host_dir else "the installation's own",
            ),
            "## Steps",
            _table(("step", "seconds", "the engine's summary"), self._steps()),
            "## Warnings",
            "\n".join(f"- {' '.join(warning.split())}" for warning in self.warnings) or "None.",
            f"## Resources: {len(self.resources)}",
            _table(("type", "count"), [(f"`{name}`", str(count)) for name, count in self.counts().items()]),
            "## Files",
            _table(("file", "what it is"), [(f"`{name}`", what) for name, what in self.files.items()]),
        ]
        return "\n\n".join(parts) + "\n"

    def _steps(self) -> list[tuple[str, ...]]:
        rows = [(step, f"{seconds:.1f}", summary(self.changes.get(step, {}))) for step, seconds in self.timings.items()]
        return [*rows, ("all", f"{sum(self.timings.values()):.1f}", "")]


def summary(changes: dict[str, int]) -> str:
    """`35 create, 2 same`."""
    return ", ".join(f"{count} {op}" for op, count in sorted(changes.items()))


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
