"""Gets terraform-provider-aws, built once from its Go module with the services that the program uses.

python -m lab.provider.tool    # gets it, and says where it is
"""

import hashlib
import os
import re
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from lab import TOOLS
from lab.provider import trimmed_module
from lab.provider.trimmed_module import MODULE
from lab.rehearsal.toolbox import Prepare, Say, Toolbox, ToolMissingError, in_module_file

NAME = "terraform-provider-aws"
MODULE_FILE = TOOLS / NAME
EXIT_MISSING = 3


@dataclass(frozen=True)
class ProviderTool:
    """The built provider.

    Attributes:
        program: the executable.
        version: the release that it is a commit of, without the leading v.
    """

    program: Path
    version: str


def version(module: Path = MODULE_FILE) -> str:
    """The release to which the module file's commit belongs: no tag of its major version names the module."""
    return in_module_file(module, rf"{re.escape(MODULE)} v\S+ // v(\S+)")


def build_name(module: Path = MODULE_FILE) -> str:
    """What its folder in the cache is named after: release, commit, and how it is cut."""
    commit = in_module_file(module, rf"{re.escape(MODULE)} v\S+-([0-9a-f]{{12}})\b")
    recipe = hashlib.sha256(Path(trimmed_module.__file__).read_bytes()).hexdigest()[:8]
    return f"{version(module)}-{commit}-{recipe}"


def toolbox(say: Say, environ: Mapping[str, str] = os.environ) -> Toolbox:
    """What getting it depends on."""
    return Toolbox(say, environ, NAME, MODULE_FILE)


def trim(box: Toolbox) -> Prepare:
    """What gives Go the trimmed module in the place of the whole one."""

    def prepare(go: Path, source: Path) -> None:
        trimmed_module.write(box.module_folder(go, MODULE), source / "provider")
        with (source / "go.mod").open("a", encoding="utf-8") as file:
            file.write(f"\nreplace {MODULE} => ./provider\n")

    return prepare


def find(environ: Mapping[str, str] = os.environ) -> ProviderTool | None:
    """The provider out of the cache; None where it was not built yet."""
    folder = toolbox(print, environ).folder(build_name()) / "bin"
    return _in(folder) if (folder / NAME).exists() else None


def get(say: Say, environ: Mapping[str, str] = os.environ) -> ProviderTool:
    """The provider, from the cache or built there.

    Raises:
        ToolMissingError: no usable Go, no module, or the build failed.
    """
    box = toolbox(say, environ)
    folder = box.built(
        build_name(),
        {NAME: MODULE},
        f"building the provider for AWS {version()}: once, 3 to 5 minutes on two cores",
        ldflags=f"-X {MODULE}/version.ProviderVersion={version()}",
        prepare=trim(box),
    )
    return _in(folder)


def _in(folder: Path) -> ProviderTool:
    return ProviderTool(folder / NAME, version())


def main() -> int:
    """`python -m lab.provider.tool`: gets it; exit code 3 where it is not to be had."""
    started = time.monotonic()
    try:
        found = get(lambda text: print(text, flush=True))
    except ToolMissingError as missing:
        print(missing, file=sys.stderr)
        return EXIT_MISSING
    print(f"{found.program}\nprovider for AWS {found.version}; {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
