"""Fetches the Go modules of the tools that are still to be built, while something else goes on.

python3 -m lab.kube.go_modules    # needs no virtual environment; whatever it cannot fetch, the build fetches later

It needs Go on PATH: what the build gets as a Python package where there is none is not got here.
"""

import os
import signal
import sys

from lab import TOOLS
from lab.kube import tools
from lab.provider import tool
from lab.rehearsal import pulumi_cli
from lab.rehearsal.toolbox import CommandFailedError, Prepare, Toolbox


def _as_it_is(_box: Toolbox) -> Prepare:
    return lambda *_: None


TO_BUILD = {
    "pulumi": (pulumi_cli.pinned_version(), [pulumi_cli.PACKAGE], _as_it_is),
    "kubernetes": (tools.kubernetes_version(), list(tools.SERVER_PACKAGES.values()), _as_it_is),
    "pulumi-kubernetes": (tools.provider_build(), ["."], _as_it_is),
    "terraform-provider-aws": (tool.build_name(), [tool.MODULE], tool.trim),
}
"""Of each tool what names its folder in the cache, its packages, and what alters its module file's folder."""


def say(text: str) -> None:
    """A line of ours."""
    print(f"[modules] {text}", flush=True)


def main() -> int:
    """Fetches them, one tool after the other; 0, or 1 where a tool's could not be fetched."""
    code = 0
    for name, (version, packages, prepare) in TO_BUILD.items():
        box = Toolbox(say, os.environ, name, TOOLS / name)
        if box.folder(version).exists():
            continue
        go = box.go_on_path()
        if go is None:
            say("there is no such Go on PATH: the build gets Go, then the modules")
            return 0
        try:
            box.fetch(go, packages, prepare(box))
        except CommandFailedError as failed:
            say(f"{name}: {failed}; the build tries again")
            code = 1
        else:
            say(f"{name}: its modules are here")
    return code


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    sys.exit(main())
