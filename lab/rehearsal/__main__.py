"""`python -m lab.rehearsal up STACK`, and `destroy STACK` and `cancel STACK`; see README.md."""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from infra import stack_files
from lab import ROOT, failures
from lab.account.process import AccountError
from lab.provider import tool
from lab.rehearsal import events, interrupted, isolation, manifests
from lab.rehearsal.pulumi_cli import EXIT_MISSING, PulumiCli, find_or_install
from lab.rehearsal.report import Report, summary
from lab.rehearsal.runner import MOTO, Rehearsal, Run
from lab.rehearsal.toolbox import ToolMissingError

Result = TypeVar("Result")


USAGE, MISSING, REFUSED, LOCKED, INTERRUPTED = 2, EXIT_MISSING, 4, 5, 130

HOW_TO_GO_ON = (
    "to go on: set `storage.protect: false` (and `cluster.deletionProtection: false`) in the stack file, "
    "make rehearse-update {variables}, and destroy again; or let the rehearsal do that in its copy: "
    "make rehearse-destroy {variables} UNPROTECT=1"
)

STANDS_IN = {
    False: "the engine and the program are real; AWS, EKS and Kubernetes are stood in for",
    True: "the engine, the program and HashiCorp's provider for AWS are real; the account is emulated (moto), and "
    "pulumi-eks and Kubernetes are stood in for",
}

FILES = {
    "preview.txt": "the engine's preview",
    "up.txt": "its up",
    "events.jsonl": "its event log of the up: what began and ended in which order",
    "state.json": "its export of the state",
    "manifests/": "each Kubernetes object as the API server would get it; Helm releases with their values",
    "work/": "the program's copy, the engine's home and state, the stand-ins' cloud and the emulated account",
}


def say(text: str) -> None:
    """A line of the rehearsal's own, apart from the engine's."""
    print(f"[rehearsal] {text}", flush=True)


class Steps:
    """Numbers the steps, and keeps their times."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.done: dict[str, float] = {}

    def __call__(self, name: str, what: str, work: Callable[[], Result]) -> Result:
        """Says what is about to be done, does it, and says how long it took."""
        say(f"{len(self.done) + 1}/{self.count} {what}")
        started = time.monotonic()
        result = work()
        self.done[name] = time.monotonic() - started
        return result


def ended(rehearsal: Rehearsal, run: Run, what: str, *, shown: bool) -> bool:
    """Says how a command of the engine ended; whether it ended well."""
    if run.code:
        if not shown:
            print("".join(line for line in run.text.splitlines(True) if not rehearsal.is_about_stand_ins(line)))
        say(f"{what} ended with exit code {run.code}; the engine's own words are above")
    return run.code == 0


def changed(rehearsal: Rehearsal, run: Run, what: str, *, shown: bool) -> bool:
    """The same of a command that changes the state; says of a bad end which lock and pending operations it left."""
    if is_well := ended(rehearsal, run, what, shown=shown):
        return is_well
    if held := rehearsal.locks():
        say(rehearsal.about_locks(held))
    tell_of_pending(rehearsal)
    return is_well


def tell_of_pending(rehearsal: Rehearsal) -> None:
    """Says which operations the state calls pending, if there are any."""
    if text := interrupted.about_pending(rehearsal.stack, interrupted.pending(json.loads(rehearsal.export()))):
        say(text)


def tools(steps: Steps, rehearsal_of: Callable[[PulumiCli], Rehearsal]) -> Rehearsal:
    """The rehearsal, with the tools that it needs: from the cache, or built there."""
    cli = steps("CLI", "the Pulumi CLI", lambda: find_or_install(say))
    say(f"    {cli.version}, {cli.origin}: {cli.path}")
    rehearsal = rehearsal_of(cli)
    if rehearsal.emulated:
        provider = steps("provider", "HashiCorp's provider for AWS", lambda: tool.get(say))
        say(f"    {provider.version}: {provider.program}")
    return rehearsal


def up(rehearsal_of: Callable[[PulumiCli], Rehearsal], *, emulated: bool, fresh: bool, shown: bool) -> int:
    """Previews, deploys and looks whether anything is left to do; writes everything that can be looked at.

    In an emulated account a second `up` and a refresh look; without one a preview does.
    """
    steps = Steps(8 if emulated else 6)
    rehearsal = tools(steps, rehearsal_of)
    out = rehearsal.out_dir
    with rehearsal.alone():
        for name in ("preview.txt", "up.txt", "events.jsonl", "state.json", "report.md"):
            (out / name).unlink(missing_ok=True)
        steps("copy", "a copy of the program, and the stack on a local state", lambda: rehearsal.prepare(fresh=fresh))

        preview = steps("preview", "pulumi preview", rehearsal.preview)
        (out / "preview.txt").write_text(preview.text, encoding="utf-8")
        if not ended(rehearsal, preview, "the preview", shown=shown):
            return preview.code

        deployed = steps("up", "pulumi up", rehearsal.up)
        (out / "up.txt").write_text(deployed.text, encoding="utf-8")
        if (log := rehearsal.place.work / "up.jsonl").exists():  # not where the engine refused to begin
            log.replace(out / "events.jsonl")
        if not changed(rehearsal, deployed, "the up", shown=shown):
            return deployed.code

        looks = {"second preview": rehearsal.preview}
        if emulated:
            looks = {"second up": rehearsal.up, "refresh": rehearsal.refresh}
        found: dict[str, dict[str, int]] = {}
        for name, look in looks.items():
            looked = steps(name, f"{name}, that must find nothing to do", partial(look, expect_no_changes=True))
            if not changed(rehearsal, looked, f"the {name}", shown=shown):
                return looked.code
            found[name] = looked.changes

        report = steps("report", "state, manifests, report", lambda: write_out(rehearsal))
    report.timings = steps.done
    report.changes = {"preview": preview.changes, "up": deployed.changes, **found}
    report.warnings = events.messages([*preview.events, *deployed.events], "warning")
    if open_ends := interrupted.about_pending(rehearsal.stack, interrupted.pending(report.state)):
        report.warnings.append(open_ends)
    (out / "report.md").write_text(report.text(), encoding="utf-8")
    tell(report, out)
    return 0


def write_out(rehearsal: Rehearsal) -> Report:
    """Writes state and manifests; the report is begun."""
    exported = rehearsal.export()
    (rehearsal.out_dir / "state.json").write_text(exported, encoding="utf-8")
    report = Report(rehearsal.stack, rehearsal.cli, json.loads(exported), emulated=rehearsal.emulated)
    judge = rehearsal.place.cloud / "judge"
    report.judge = judge.read_text(encoding="utf-8") if judge.exists() else ""
    written = manifests.write(report.state, rehearsal.out_dir / "manifests")
    report.files = {**FILES, "manifests/": f"{FILES['manifests/']} ({len(written)} files)"}
    return report


def tell(report: Report, out: Path) -> None:
    """The end of an `up`: outputs, warnings, where everything is."""
    print("\nOutputs:")
    for name, value in report.outputs.items():
        print(manifests.dump({name: value}).rstrip("\n").replace("\n", "\n    ").join(("    ", "")))
    print(flush=True)
    for warning in report.warnings:
        say(f"warning: {warning}")
    seconds = sum(report.timings.values())
    say(f"{len(report.resources)} resources ({summary(report.changes['up'])}), {seconds:.0f} s; AWS was not reached")
    say(f"what was real and what was stood in for: {out / 'report.md'}")


def destroy(rehearsal_of: Callable[[PulumiCli], Rehearsal], *, emulated: bool, unprotect: bool, shown: bool) -> int:
    """Destroys what an `up` made, and looks whether anything is left."""
    steps = Steps(3 + emulated + unprotect)
    rehearsal = tools(steps, rehearsal_of)
    if not (rehearsal.place.program / "Pulumi.yaml").exists():
        say(f"nothing to destroy: no rehearsal of {rehearsal.stack} in {rehearsal.out_dir}")
        return USAGE
    with rehearsal.alone():
        rehearsal.select()
        if unprotect:
            text = "storage.protect and cluster.deletionProtection: false, in the copied stack file, and pulumi up"
            taken_off = steps("unprotect", text, rehearsal.unprotect)
            if not changed(rehearsal, taken_off, "the up", shown=shown):
                return taken_off.code
        before = rehearsal.standing()
        run = steps("destroy", "pulumi destroy, with its preview first", rehearsal.destroy)
        (rehearsal.out_dir / "destroy.txt").write_text(run.text, encoding="utf-8")
        left = steps("look", "what still stands", rehearsal.standing)
        is_well = changed(rehearsal, run, "the destroy", shown=shown)
        if is_well and left:
            tell_of_pending(rehearsal)
    if not is_well:
        say("nothing was deleted" if left == before else f"{len(left)} of {len(before)} still stand")
        if "because it is protected" in run.text:
            say(HOW_TO_GO_ON.format(variables=rehearsal.make_variables))
        return run.code
    if left:
        say("still standing, and with a real account still billing:")
        for one in left:
            print(f"    {one}")
        return 1
    say(f"{summary(run.changes)}; nothing is left {'in the account' if emulated else 'in the stand-in cloud'}")
    return 0


def cancel(rehearsal_of: Callable[[PulumiCli], Rehearsal]) -> int:
    """Removes the lock that a killed engine left, as `pulumi cancel` does on a real account."""
    rehearsal = rehearsal_of(find_or_install(say))
    if not (rehearsal.place.program / "Pulumi.yaml").exists():
        say(f"nothing to cancel: no rehearsal of {rehearsal.stack} in {rehearsal.out_dir}")
        return USAGE
    with rehearsal.alone():
        held = rehearsal.locks()
        rehearsal.cancel()
        for one in held:
            say(f"the lock is removed: {one}")
        if not held:
            say(f"the state of {rehearsal.stack} had no lock")
        tell_of_pending(rehearsal)
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="python -m lab.rehearsal", description=__doc__)
    commands = top.add_subparsers(dest="command", required=True)
    for name, what in (("up", up), ("destroy", destroy), ("cancel", cancel)):
        command = commands.add_parser(name, help=(what.__doc__ or "").strip().splitlines()[0])
        command.add_argument("stack", metavar="STACK", help="of stacks/Pulumi.STACK.yaml")
        command.add_argument("--account", choices=[MOTO], help="let HashiCorp's provider work in an emulated account")
        command.add_argument("--quiet", action="store_true", help="don't show what the engine says, only the steps")
    commands.choices["up"].add_argument("--fresh", action="store_true", help="forget what earlier runs made")
    commands.choices["destroy"].add_argument(
        "--unprotect", action="store_true", help="take the protection off first, in the rehearsal's own copy"
    )
    return top


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Runs a command; its exit code.

    0 done; 2 no such stack, or nothing to destroy or to cancel; 3 a tool could not be got; 4 refused, because an
    account might be reached; 5 an engine that was killed has left its lock; 130 interrupted outside the engine; else
    the engine's own (128 + N where signal N ended it), or 1 where something still stands after a destroy.
    """
    options = parser().parse_args(arguments)
    try:
        file = stack_files.find(options.stack, root / "stacks")
    except FileNotFoundError as missing:
        say(str(missing))
        return USAGE
    emulated = options.account == MOTO
    out = root / "build" / ("account" if emulated else "rehearsal") / options.stack
    say(f"of {options.stack}: {STANDS_IN[emulated]}")

    def rehearsal_of(cli: PulumiCli) -> Rehearsal:
        show = (lambda _: None) if options.quiet else (lambda line: print(f"    {line}".rstrip(), flush=True))
        return Rehearsal(file, root, out, cli, show, emulated=emulated)

    try:
        if options.command == "up":
            return up(rehearsal_of, emulated=emulated, fresh=options.fresh, shown=not options.quiet)
        if options.command == "cancel":
            return cancel(rehearsal_of)
        return destroy(rehearsal_of, emulated=emulated, unprotect=options.unprotect, shown=not options.quiet)
    except (stack_files.UnusableError, AccountError) as wrong:
        say(str(wrong))
        return USAGE
    except ToolMissingError as missing:
        say(str(missing))
        return MISSING
    except isolation.RefusedError as refused:
        say(str(refused))
        return REFUSED
    except interrupted.LockedError as locked:
        say(str(locked))
        return LOCKED
    except subprocess.CalledProcessError as failed:
        say(failures.words(failed))
        return failures.code(failed)
    except KeyboardInterrupt:
        say("interrupted")
        return INTERRUPTED


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
