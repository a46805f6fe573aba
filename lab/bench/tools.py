"""The tools that are compared: finds them, installs what is missing where that is allowed, and builds slowfs."""

import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SLOWFS = Path(__file__).with_name("slowfs.c")

INSTALL_SECONDS = 300


@dataclass(frozen=True)
class Tool:
    """A program that rows need.

    Attributes:
        package: the Debian package that brings it.
        version: the command that tells its version.
        needed: whether its absence is worth an installation; an optional one only adds to a profile.
    """

    package: str
    version: tuple[str, ...]
    needed: bool = True


TOOLS: Mapping[str, Tool] = {
    "busybox": Tool("busybox-static", ("busybox", "--help")),
    "cp": Tool("coreutils", ("cp", "--version")),
    "sha256sum": Tool("coreutils", ("sha256sum", "--version")),
    "rsync": Tool("rsync", ("rsync", "--version")),
    "rclone": Tool("rclone", ("rclone", "version")),
    "fpsync": Tool("fpart", ("fpsync", "-h")),
    "fio": Tool("fio", ("fio", "--version")),
    "strace": Tool("strace", ("strace", "--version"), needed=False),
    # what the throttled source needs
    "fusermount3": Tool("fuse3", ("fusermount3", "--version")),
    "pkg-config": Tool("pkg-config", ("pkg-config", "--version")),
    "cc": Tool("gcc", ("cc", "--version")),
}
THROTTLE = ("fusermount3", "pkg-config", "cc")

Say = Callable[[str], None]


class ToolMissingError(Exception):
    """A tool is not to be had here; the text says why, and what would help."""


def install_missing(say: Say) -> None:
    """Installs the packages of missing tools, as root on Debian; says one line for each tool that stays missing."""
    missing = {name: tool for name, tool in TOOLS.items() if tool.needed and shutil.which(name) is None}
    if not _has_fuse_headers():
        missing["libfuse3"] = Tool("libfuse3-dev", ())
    if not missing:
        return
    packages = sorted({tool.package for tool in missing.values()})
    if shutil.which("apt-get") is None:
        reason = "there is no apt-get here"
    elif os.geteuid() != 0:
        reason = f"not root; as root: apt-get install {' '.join(packages)}"
    else:
        say(f"installing {', '.join(packages)}")
        reason = _apt_get(packages)
    for name in missing:
        if shutil.which(name) is None and not (name == "libfuse3" and _has_fuse_headers()):
            say(f"{name} is missing: {reason}")


def require(names: tuple[str, ...]) -> None:
    """Holds that tools are there.

    Raises:
        ToolMissingError: one is not.
    """
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        packages = ", ".join(sorted({TOOLS[name].package for name in missing}))
        raise ToolMissingError(f"{', '.join(missing)} not on PATH (Debian: {packages})")


def versions() -> dict[str, str]:
    """What each tool that is there says of its version."""
    return {name: _version(tool.version) for name, tool in TOOLS.items() if shutil.which(name)}


def slowfs(environ: Mapping[str, str]) -> Path:
    """The throttled source's binary, built into the cache if it is not there.

    Raises:
        ToolMissingError: it cannot be built, or nothing can be mounted here.
    """
    require(THROTTLE)
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        raise ToolMissingError("/dev/fuse cannot be opened: the throttled source is a FUSE file system")
    if os.geteuid() != 0:
        raise ToolMissingError("not root: the throttled source's read-ahead can be set by root only")
    binary = _slowfs_folder(environ) / "slowfs"
    if not binary.exists():
        _build_slowfs(binary)
    return binary


def _slowfs_folder(environ: Mapping[str, str]) -> Path:
    cache = environ.get("FASTSTART_CACHE") or Path(environ.get("HOME") or Path.home(), ".cache", "faststart")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    version = hashlib.sha256(SLOWFS.read_bytes()).hexdigest()[:12]
    return Path(cache).absolute() / "slowfs" / f"{version}-{platform.system().lower()}-{machine}"


def _build_slowfs(binary: Path) -> None:
    if not _has_fuse_headers():
        raise ToolMissingError("libfuse 3's headers are missing (Debian: libfuse3-dev)")
    flags = subprocess.check_output(["pkg-config", "--cflags", "--libs", "fuse3"], text=True).split()
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        unfinished = Path(folder, "slowfs")
        built = subprocess.run(
            ["cc", "-O2", SLOWFS, "-o", unfinished, *flags, "-lpthread"], check=False, capture_output=True, text=True
        )
        if built.returncode:
            raise ToolMissingError(f"slowfs cannot be built: {built.stderr.strip()}")
        unfinished.replace(binary)


def _has_fuse_headers() -> bool:
    known = ["pkg-config", "--exists", "fuse3"]
    return shutil.which("pkg-config") is not None and subprocess.run(known, check=False).returncode == 0


def _apt_get(packages: list[str]) -> str:
    """Installs packages; what went wrong, in words."""
    environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    words = ""
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        try:
            done = subprocess.run(
                ["apt-get", *command],
                check=False, capture_output=True, text=True, env=environ, timeout=INSTALL_SECONDS,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"apt-get {command[0]} did not end within {INSTALL_SECONDS} s"
        words = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it said nothing"]
        words = f"apt-get {command[0]} ended with exit code {done.returncode}: {words[0]}"
    return words


def _version(command: tuple[str, ...]) -> str:
    """The first word that looks like a version in what a command says."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    found = re.search(r"\d+\.\d[\w.+-]*", done.stdout + done.stderr)
    return found[0] if found else "unknown"
