"""Finds the Pulumi CLI, or gets one without asking anything of the reader.

In this order: `pulumi` on PATH, a copy in our cache, the Pulumi SDK's own installer, a build with Go from the module
file in lab/tools/pulumi. What was got is kept outside the clone, by version, in
`${FASTSTART_CACHE:-~/.cache/faststart}/pulumi/<version>-<os>-<arch>/bin/pulumi`.
"""

import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import TOOLS
from lab.rehearsal import language_host
from lab.rehearsal.toolbox import (
    CommandFailedError,
    Say,
    Toolbox,
    ToolMissingError,
    go_version,
    in_module_file,
    numbers,
    run_with_progress,
)

MODULE = TOOLS / "pulumi"
PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
INSTALLER_SECONDS = 300
EXIT_MISSING = 3


class CliMissingError(ToolMissingError):
    """No way led to a Pulumi CLI; the text says what was tried and what would help."""


@dataclass(frozen=True)
class PulumiCli:
    """A Pulumi CLI that runs here.

    Attributes:
        path: the executable.
        version: as it says itself, without the leading v.
        origin: how it was found, in words.
        language_host_dir: the folder where *our* Python language host stands beside it; None where the
            installation brings its own.
    """

    path: Path
    version: str
    origin: str
    language_host_dir: Path | None


@dataclass(frozen=True)
class Finder(Toolbox):
    """What the search depends on; tests hand in their own."""

    tool: str = "pulumi"
    module: Path = MODULE

    # ---- found

    def on_path(self) -> PulumiCli | None:
        """`pulumi` on PATH, if the program can use it; says why not otherwise."""
        path = self.which("pulumi")
        if path is None:
            return None
        version = self.version_of(path)
        wanted = sdk_version()
        if version is None:
            self.say(f"{path} on PATH does not tell its version: ignored")
            return None
        if not compatible(version, wanted):
            self.say(f"{path} on PATH is {version}, the Pulumi SDK here is {wanted}: ignored")
            return None
        beside = (path.parent, path.resolve().parent)
        if not any((folder / language_host.NAME).exists() for folder in beside) and not self.which(language_host.NAME):
            self.say(f"{path} on PATH has no {language_host.NAME} beside it: ignored")
            return None
        return PulumiCli(path, version, "on PATH", None)

    def cached(self) -> PulumiCli | None:
        """A CLI that an earlier run built or installed."""
        for version in (pinned_version(self.module), sdk_version()):
            path = self.folder(version) / "bin" / "pulumi"
            if not path.exists():
                continue
            if self.version_of(path) != version:
                self.say(f"{path} does not run or is no {version}: ignored")
                continue
            beside = path.parent / language_host.NAME
            ours = language_host.is_ours(beside)
            return PulumiCli(path, version, "from the cache", path.parent if ours else None)
        return None

    def version_of(self, path: Path) -> str | None:
        """What `pulumi version` says; None where it says nothing of use."""
        with tempfile.TemporaryDirectory() as home:
            env = {**self.environ, "PULUMI_HOME": home, "PULUMI_SKIP_UPDATE_CHECK": "true"}
            try:
                done = subprocess.run(
                    [path, "version"], env=env, capture_output=True, text=True, timeout=60, check=False
                )
            except (OSError, subprocess.TimeoutExpired):
                return None
        found = re.match(r"v?(\d+\.\d+\.\d+\S*)", done.stdout.strip())
        return found[1] if found and done.returncode == 0 else None

    # ---- got

    def install(self) -> PulumiCli:
        """By the Pulumi SDK's own installer.

        Raises:
            CliMissingError: it could not be reached, or what it brought does not run.
        """
        version = sdk_version()
        self.say(f"asking the Pulumi SDK's own installer for {version} (a minute where it can be reached)")
        with self.one_at_a_time():
            if found := self.cached():
                return found
            target = self.folder(version)
            with self.beside(target) as unfinished:
                reason = run_installer(unfinished, self.say)
                if reason is None and self.version_of(unfinished / "bin" / "pulumi") is None:
                    reason = "what it installed does not run"
                if reason is not None:
                    raise CliMissingError(f"the Pulumi SDK's own installer: {reason}")
        return PulumiCli(target / "bin" / "pulumi", version, "installed by the Pulumi SDK", None)

    def build(self) -> PulumiCli:
        """With Go, from our module file; our language host is put beside it.

        Raises:
            ToolMissingError: no usable Go, or the build failed.
        """
        version = pinned_version(self.module)
        with self.one_at_a_time():
            if found := self.cached():
                return found
            go = self.go()
            target = self.folder(version)
            with self.beside(target) as unfinished:
                binary = unfinished / "bin" / "pulumi"
                binary.parent.mkdir()
                self.say(f"building Pulumi {version} with {go}: once, 3 to 6 minutes on two cores, 3 GB of modules")
                self.compile(
                    go,
                    {binary: PACKAGE},
                    # As the vendor's releases are built.
                    tags="osusergo,grpcnotrace",
                    ldflags=f"-X {VERSION_VARIABLE}=v{version}",
                )
                if (got := self.version_of(binary)) != version:
                    raise CliMissingError(f"the build with Go: the result calls itself {got}, not {version}")
                language_host.write_beside(binary.parent)
        path = target / "bin" / "pulumi"
        return PulumiCli(path, version, "built with Go", path.parent)


def find(say: Say = print, environ: Mapping[str, str] = os.environ) -> PulumiCli | None:
    """The CLI that is here already, on PATH or in the cache; None where there is none."""
    finder = Finder(say, environ)
    return finder.on_path() or finder.cached()


def find_or_install(
    say: Say = print, environ: Mapping[str, str] = os.environ, finder: Finder | None = None
) -> PulumiCli:
    """The CLI that is here already, else one got by the SDK's installer or built with Go.

    Raises:
        CliMissingError: with every way's own reason, and what would help.
    """
    finder = finder or Finder(say, environ)
    if found := finder.on_path() or finder.cached():
        return found
    reasons: list[str] = []
    try:
        return finder.install()
    except ToolMissingError as missing:
        reasons.append(str(missing))
        finder.say(f"{missing}; going on without it")
    try:
        return finder.build()
    except ToolMissingError as missing:
        reasons.append(str(missing))
    raise CliMissingError(
        "no Pulumi CLI, and none could be got:\n"
        + "".join(f"  - {reason}\n" for reason in reasons)
        + f"What would help: a Pulumi installation >= {sdk_version()} on PATH; or Go >= {go_version(finder.module)} "
        + "on PATH and a Go module proxy that can be reached; "
        + f"or a CLI copied to {finder.folder(pinned_version(finder.module))}/bin/pulumi."
    )


def sdk_version() -> str:
    """The version of the Pulumi SDK in this environment."""
    return importlib.metadata.version("pulumi")


def pinned_version(module: Path = MODULE) -> str:
    """The version of the CLI that our module file pins."""
    return in_module_file(module, r"^\s*github\.com/pulumi/pulumi/pkg/v3 v(\S+)")


def compatible(cli: str, sdk: str) -> bool:
    """Whether this CLI can run a program of this SDK: the same major version, and no older minor one."""
    return numbers(cli)[0] == numbers(sdk)[0] and numbers(cli)[:2] >= numbers(sdk)[:2]


def run_installer(root: Path, say: Say) -> str | None:
    """Runs `pulumi.automation.PulumiCommand.install` for this folder; the reason where it failed.

    In a process of its own: it has no time limit, and where its host is a black hole it would hang.
    """
    program = (
        "import socket, sys\n"
        "socket.setdefaulttimeout(20)\n"
        "from pulumi.automation import PulumiCommand\n"
        "try:\n"
        "    PulumiCommand.install(root=sys.argv[1])\n"
        "except Exception as e:\n"
        "    sys.exit(f'{type(e).__name__}: {e}')\n"
    )
    try:
        run_with_progress([sys.executable, "-c", program, root], "installing", say, seconds=INSTALLER_SECONDS)
    except CommandFailedError as failed:
        return failed.last_words
    return None


def main() -> int:
    """`python -m lab.rehearsal.pulumi_cli`: sees to it that there is a CLI, and says which."""
    try:
        cli = find_or_install(lambda text: print(text, flush=True))
    except CliMissingError as missing:
        print(missing, file=sys.stderr)
        return EXIT_MISSING
    print(f"Pulumi CLI {cli.version}, {cli.origin}: {cli.path}")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
