"""`python -m lab.kube STACK`: one stack of `stacks/` on a real Kubernetes control plane, from nothing to nothing."""

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infra import stack_files
from lab import ROOT, failures
from lab.kube import tools
from lab.kube.cluster_state import WrongError
from lab.kube.control_plane import ControlPlaneError
from lab.kube.scenario import FAILURE, Scenario
from lab.rehearsal.isolation import RefusedError
from lab.rehearsal.pulumi_cli import find_or_install
from lab.rehearsal.toolbox import ToolMissingError

FAILED, USAGE, MISSING, REFUSED = 1, 2, 3, 4


def say(text: str) -> None:
    """A line of ours."""
    print(f"[kube] {text}", flush=True)


def main(arguments: Sequence[str]) -> int:
    """Runs the command line.

    Returns:
        0 all holds; 1 something does not; 2 no such stack; 3 a tool is not to be had; 4 refused, because an account
        might be reached; 128 + N ended by signal N.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.kube", description=__doc__)
    parser.add_argument("stack", metavar="STACK", help="of stacks/Pulumi.STACK.yaml")
    parser.add_argument("--short", action="store_true", help="deploy, look and destroy, and disturb nothing in between")
    parser.add_argument("--charts", type=Path, help="a folder of the real charts, each in a folder of its name")
    parser.add_argument("--show", action="store_true", help="show what the engine says, too")
    options = parser.parse_args(arguments)
    try:
        stack_file = stack_files.find(options.stack)
    except FileNotFoundError as missing:
        say(str(missing))
        return USAGE
    started = time.monotonic()
    try:
        cli, found = find_or_install(say), tools.get(say)
    except ToolMissingError as missing:
        say(str(missing))
        return MISSING
    got = time.monotonic()
    out = ROOT / "build" / "kube" / options.stack
    say(f"of {options.stack}: Kubernetes {found.kubernetes_version} is real; AWS and the nodes are stood in for")
    show = (lambda line: print(f"    {line}", flush=True)) if options.show else (lambda _: None)
    charts = options.charts.absolute() if options.charts else None
    try:
        scenario = Scenario(stack_file, out, cli, found, say, show, charts, short=options.short)
        scenario.run()
    except (WrongError, ControlPlaneError, subprocess.CalledProcessError) as error:
        say(failures.words(error) if isinstance(error, subprocess.CalledProcessError) else str(error))
        say(f"what stood at that moment: {out / FAILURE}; the logs: {out / 'control-plane'}")
        return FAILED
    except RefusedError as error:
        say(str(error))
        return REFUSED
    ended = time.monotonic()
    say(f"all {len(scenario.done)} hold; tools {got - started:.0f} s, the rest {ended - got:.0f} s")
    return 0


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
