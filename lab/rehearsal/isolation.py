"""Keeps a rehearsal away from every account: its environment, its plugins, and the checks that both hold.

Four fences, each enough by itself: dummy credentials without any profile or metadata service; endpoints and proxies
that lead to a closed port on loopback; stand-ins in place of the plugins that would call a cloud, checked before the
engine starts and again by its own record; and a home of the engine's own, without plugins and without logins.
"""

import os
import re
import shutil
import socket
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from lab import starter
from lab.rehearsal import events as engine_events
from lab.rehearsal import language_host
from lab.rehearsal.pulumi_cli import PulumiCli

STAND_INS = ("aws", "eks", "kubernetes")
CLOUD, ENGINE = "FASTSTART_REHEARSAL_CLOUD", "FASTSTART_REHEARSAL_ENGINE"
PASSPHRASE = "rehearsal"  # noqa: S105 -- encrypts stand-ins' values in a throw-away state

# Set, each of these would take the choice of plugins out of our hands.
FORBIDDEN = ("PULUMI_DEBUG_PROVIDERS", "PULUMI_DEBUG_LANGUAGES", "PULUMI_IGNORE_AMBIENT_PLUGINS")
DROPPED = re.compile(r"(AWS_|PULUMI_|KUBE|HELM_|PYTHON|ARM_|GOOGLE_)|(GIT_DIR|GIT_WORK_TREE|VIRTUAL_ENV)$")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "GRPC_PROXY")


class RefusedError(Exception):
    """The rehearsal would not be sure to stay away from an account; nothing was run."""


@dataclass(frozen=True)
class Place:
    """The folders of one rehearsed stack.

    Attributes:
        out: what a reader looks at: texts, state, manifests, report.
        root: the clone that is rehearsed; the stand-ins run from it.
        real: plugins that are the real ones, by package: those that reach nothing but this machine.
    """

    out: Path
    root: Path
    real: Mapping[str, Path] = field(default_factory=dict)

    @property
    def work(self) -> Path:
        """All that the engine needs and writes."""
        return self.out / "work"

    @property
    def program(self) -> Path:
        """The copy of the program; the engine writes into its stack file."""
        return self.work / "program"

    @property
    def bin(self) -> Path:
        """The stand-ins' executables, first on PATH."""
        return self.work / "bin"

    @property
    def home(self) -> Path:
        """PULUMI_HOME."""
        return self.work / "home"

    @property
    def state(self) -> Path:
        """The local state backend."""
        return self.work / "state"

    @property
    def cloud(self) -> Path:
        """What the stand-ins remember of what they made."""
        return self.work / "cloud"

    @property
    def account(self) -> Path:
        """The emulated account; the stand-in for AWS uses it where it is there."""
        return self.cloud / "account"

    @property
    def longest_wait(self) -> Path:
        """How many seconds a resource of the account is waited for at most; 0 for no limit."""
        return self.cloud / "longest-wait"

    @property
    def nothing(self) -> Path:
        """An empty file, for whoever looks for a configuration."""
        return self.work / "nothing"

    def make(self) -> None:
        """Makes the folders, and the stand-ins' executables for this interpreter and this clone."""
        for folder in (self.bin, self.home, self.state, self.cloud):
            folder.mkdir(parents=True, exist_ok=True)
        self.nothing.write_bytes(b"")
        for name in STAND_INS:
            path = self.stand_in(name)
            path.write_text(self._wrapper(name), encoding="utf-8")
            path.chmod(0o755)

    def stand_in(self, name: str) -> Path:
        """The executable that stands in for a plugin, or starts the real one."""
        return self.bin / f"pulumi-resource-{name}"

    def runs(self, name: str) -> str:
        """What that executable must run."""
        return _quoted(self.real[name]) if name in self.real else "-m lab.rehearsal.providers"

    def _wrapper(self, name: str) -> str:
        if name in self.real:
            *start, _ = starter.bound([self.real[name]], owner="$PPID")
            started = " ".join('"$PPID"' if word == "$PPID" else _quoted(word) for word in start)
            return f'#!/bin/sh\nexec {started} {self.runs(name)} "$@"\n'
        return (
            "#!/bin/sh\n"
            f"# Stands in for the {name} plugin: {self.root}/lab/rehearsal/README.md\n"
            f"PYTHONPATH={_quoted(self.root)} {CLOUD}={_quoted(self.cloud)} {ENGINE}=$PPID \\\n"
            f'exec {_quoted(sys.executable)} {self.runs(name)} {name} "$@"\n'
        )


def _quoted(path: Path | str) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"


class ClosedPort:
    """A port of loopback that answers nobody while this object lives: bound, so none other gets it, never listening."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.bind(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()


def environment(place: Place, cli: PulumiCli, dead_end: str, ambient: Mapping[str, str]) -> dict[str, str]:
    """The engine's environment: the caller's without anything that leads to an account, and ours.

    Args:
        place: the rehearsal's folders.
        cli: whose folder comes right after the stand-ins on PATH.
        dead_end: the address that endpoints and proxies lead to.
        ambient: the caller's environment.
    """
    kept = {
        name: value
        for name, value in ambient.items()
        if not DROPPED.match(name) and name.upper() not in PROXIES and name.upper() != "NO_PROXY"
    }
    path = os.pathsep.join([str(place.bin), str(cli.path.parent), ambient.get("PATH", os.defpath)])
    loopback = "127.0.0.1,localhost,::1"  # the engine talks with its plugins there
    ours = {
        "PATH": path,
        "AWS_ACCESS_KEY_ID": "AKIAREHEARSALONLY000",
        "AWS_SECRET_ACCESS_KEY": "rehearsal-only-not-a-secret",
        "AWS_CONFIG_FILE": str(place.nothing),
        "AWS_SHARED_CREDENTIALS_FILE": str(place.nothing),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": dead_end,
        "KUBECONFIG": str(place.nothing),
        "NO_PROXY": loopback,
        "no_proxy": loopback,
        "PULUMI_HOME": str(place.home),
        "PULUMI_BACKEND_URL": f"file://{place.state}",
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
        "PULUMI_DEBUG_COMMANDS": "true",  # only under it the engine has --event-log
        "PYTHONUNBUFFERED": "1",
    }
    for proxy in PROXIES:
        ours[proxy] = ours[proxy.lower()] = dead_end
    if cli.language_host_dir is not None:
        ours.update(language_host.variables())
    return {**kept, **ours}


def check_before(place: Place, env: Mapping[str, str], ambient: Mapping[str, str]) -> None:
    """Refuses where the engine could take another plugin than a stand-in.

    Raises:
        RefusedError: with every reason.
    """
    reasons = [
        f"{name} is set in your environment: it decides which plugins the engine takes; unset it"
        for name in FORBIDDEN
        if ambient.get(name)
    ]
    project = yaml.safe_load((place.program / "Pulumi.yaml").read_text(encoding="utf-8")) or {}
    reasons += [
        f"Pulumi.yaml has `{key}:`: it comes before the stand-ins"
        for key in ("plugins", "packages")
        if project.get(key)
    ]
    for name in STAND_INS:
        first = shutil.which(f"pulumi-resource-{name}", path=env["PATH"])
        ours = place.stand_in(name)
        if first is None or Path(first) != ours:
            reasons.append(f"the first pulumi-resource-{name} on PATH is {first}, not the stand-in {ours}")
        elif place.runs(name) not in ours.read_text(encoding="utf-8", errors="replace"):
            reasons.append(f"{ours} is not the stand-in that was put there")
    if any((place.home / "plugins").glob("*")):
        reasons.append(f"{place.home} holds plugins; it must be the rehearsal's own: start with --fresh")
    _refuse(reasons)


def check_after(place: Place, events: Iterable[engine_events.Event]) -> None:
    """Refuses where the engine's own record shows another plugin than a stand-in, or no aws plugin at all.

    Raises:
        RefusedError: with every reason.
    """
    used = engine_events.plugins(events)
    reasons = [
        f"the engine says it used {path} for {name}"
        for name, paths in sorted(used.items())
        for path in sorted(paths)
        if name not in STAND_INS or Path(path) != place.stand_in(name)
    ]
    if "aws" not in used:
        reasons.append("the engine does not say that it took the aws plugin from PATH: it may have used another one")
    _refuse(reasons)


def _refuse(reasons: list[str]) -> None:
    if reasons:
        listed = "\n".join(f"  - {why}" for why in reasons)
        raise RefusedError(f"refused, because an account might be reached:\n{listed}")
