"""`python -m lab.e2e STACK`: the pods that the program renders, run with the real vLLM; then through Kubernetes."""

import argparse
import dataclasses
import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from infra import stack_files
from lab import ROOT, failures
from lab.e2e import sources, tiny_model, vllm_environment
from lab.e2e.cases import Cases
from lab.e2e.control_plane import EndToEnd, expected_answers
from lab.e2e.stack import Images, Stack
from lab.kube import tools as kube_tools
from lab.kube.cluster_state import WrongError
from lab.kube.control_plane import ControlPlaneError
from lab.kube.process import SandboxError
from lab.kube.processes import check
from lab.rehearsal.isolation import RefusedError
from lab.rehearsal.pulumi_cli import PulumiCli, find_or_install
from lab.rehearsal.runner import Rehearsal
from lab.rehearsal.toolbox import ToolMissingError

FAILED, USAGE, MISSING, REFUSED = 1, 2, 3, 4
ANSWERS = "answers.json"


def say(text: str) -> None:
    """A line of ours."""
    print(f"[e2e] {text}", flush=True)


def run_cases(stack_file: Path, out: Path, cli: PulumiCli, images: Images, short: bool) -> None:
    """The cases without a control plane; writes what the picture, the table and the answers are.

    Raises:
        WrongError: one does not hold.
    """
    rehearsal = Rehearsal(stack_file, ROOT, out / "rehearsal", cli, lambda _: None)
    with sources.standing(sources.source_of(stack_file)) as source, rehearsal.alone():
        rehearsal.prepare(fresh=True)
        stack = Stack(rehearsal, images, out / "pods", source.where)
        cases = Cases(stack, source, out, say, short)
        try:
            cases.run()
        finally:
            stack.node.end()
            stack.processes.end()
        answers = [dataclasses.asdict(one) for one in cases.answers]
        (out / ANSWERS).write_text(json.dumps(answers, indent=1), encoding="utf-8")
        (out / "timeline.txt").write_text(cases.table + "\n", encoding="utf-8")
        print(cases.table, flush=True)
        say(f"the picture: {cases.picture.relative_to(ROOT)}")


def run_control_plane(stack_file: Path, out: Path, cli: PulumiCli, images: Images) -> None:
    """The way through the control plane.

    Raises:
        WrongError: something is not as it should be.
        ToolMissingError: the control plane is not to be had.
    """
    found = kube_tools.get(say)
    model = tiny_model.write(out / "models" / "kube", 0, tiny_model.SMALL)
    with sources.standing(sources.source_of(stack_file)) as source:
        source.put(model)
        expected = expected_answers(out / ANSWERS)
        scenario = EndToEnd(
            stack_file, out / "kube", cli, found, say, pace=1.0, images=images, source=source, expected=expected
        )
        scenario.run()


def main(arguments: Sequence[str]) -> int:
    """Runs the command line.

    Returns:
        0 all holds; 1 something does not; 2 no such stack; 3 a tool, vLLM or the kernel's namespaces are not to be had;
        4 refused, because an account might be reached; 128 + N ended by signal N.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.e2e", description=__doc__)
    parser.add_argument("stack", metavar="STACK", help="of stacks/Pulumi.STACK.yaml")
    parser.add_argument("--short", action="store_true", help="one cold start, one refusal of each kind, Kubernetes")
    parser.add_argument("--only", choices=("cases", "kube"), help="one of the two parts")
    options = parser.parse_args(arguments)
    try:
        stack_file = stack_files.find(options.stack)
    except FileNotFoundError as missing:
        say(str(missing))
        return USAGE
    out = ROOT / "build" / "e2e" / options.stack
    started = time.monotonic()
    try:
        for name in ("pods", "damaged", "models", "check") if options.only != "kube" else ("check",):
            shutil.rmtree(out / name, ignore_errors=True)
        out.mkdir(parents=True, exist_ok=True)
        check(out / "check")
        cli, environment = find_or_install(say), vllm_environment.get(say)
        say(f"of {options.stack}: vLLM {environment.version} is real, on this machine's processors")
        if options.only != "kube":
            run_cases(stack_file, out, cli, Images(environment), options.short)
        if options.only != "cases":
            run_control_plane(stack_file, out, cli, Images(environment))
    except (SandboxError, ToolMissingError) as missing:
        say(str(missing))
        return MISSING
    except (WrongError, ControlPlaneError, subprocess.CalledProcessError) as error:
        say(failures.words(error) if isinstance(error, subprocess.CalledProcessError) else str(error))
        say(f"the logs of all containers: {out.relative_to(ROOT)}/**/containers/*/log")
        return FAILED
    except RefusedError as error:
        say(str(error))
        return REFUSED
    say(f"all holds, {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda number, _: sys.exit(128 + number))
    sys.exit(main(sys.argv[1:]))
