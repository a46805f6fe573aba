"""A run of preload: from a look at the source to the marker."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from modelfolder import structure
from modelfolder.errors import Exit, FaststartError
from modelfolder.manifest import canonical
from modelfolder.names import show
from modelfolder.patience import Patience
from modelfolder.source import Source, SourceFile, look
from preload import localdisk, state
from preload.copier import Copy, require_unchanged
from preload.destination import (
    Destination,
    Inventory,
    locked,
    nearest_existing,
    read_journal,
    read_marker,
    require_acceptable,
    take_inventory,
    writing,
)
from preload.options import Options
from preload.report import Progress, Report, size
from preload.state import Record


def run(
    options: Options, patience: Patience, report: Report, say: Callable[[str], None], proc: str, sysfs: str
) -> None:
    """Copy a model, or find that it is there already, or say what would be copied (--plan).

    Args:
        options: what was asked for.
        patience: told when to stop.
        report: takes the figures and the closing message.
        say: takes a line for people.
        proc: where proc is mounted.
        sysfs: where sysfs is mounted.

    Raises:
        FaststartError: any exit code of preload but 2; contracts.md tells what they mean.
    """
    source = look(options.source, patience)
    report.manifest = source.manifest
    for path, kind in source.skipped:
        say(f"{show(path)}: is {kind}, skipped")
    total = source.manifest.total_bytes
    if options.max_bytes is not None and total > options.max_bytes:
        message = f"the model has {total} bytes, --max-bytes allows {options.max_bytes}"
        raise FaststartError(Exit.CHANGED, message, source.root)
    root = os.path.abspath(options.destination)
    require_acceptable(root, source.root)
    if options.require_local_disk:
        localdisk.require(nearest_existing(root), proc, sysfs)
    boot = state.boot_id(proc)
    if options.plan:
        if _is_complete(root, source, options.verify, boot, patience):
            report.message = "plan: nothing to do, the destination is complete"
        else:
            report.message = _print_plan(_plan(root, source, options.verify, boot, patience, report))
        return
    with locked(root, options.wait, patience, say) as destination, _recorded(report, patience, destination, say):
        if _is_complete(root, source, options.verify, boot, patience):
            report.resumed_bytes = total
            report.message = f"already complete: {len(source.files)} files, {size(total)}"
        else:
            destination.remove_marker()
            work = _plan(root, source, options.verify, boot, patience, report)
            _copy(destination, source, work, boot, options, patience, report, say)


@contextlib.contextmanager
def _recorded(
    report: Report, patience: Patience, destination: Destination, say: Callable[[str], None]
) -> Iterator[None]:
    """Leave report.json in the destination, however the block ends; only a crash leaves none."""

    def record() -> None:
        report.retries = patience.retries
        try:
            destination.write_report(canonical(report.document()))
        except OSError as error:
            say(f"report.json cannot be written: {error}")

    try:
        yield
    except FaststartError as error:
        report.fail(error)
        record()
        raise
    record()


@dataclass(frozen=True)
class _Work:
    """What lies in a destination, what of it is known to be whole, and what is to be copied."""

    found: Inventory
    kept: dict[bytes, Record]
    missing: list[SourceFile]


def _is_complete(root: bytes, source: Source, verify: str, boot: str | None, patience: Patience) -> bool:
    """Say whether the marker stands for this source and all is there. Reads no content of a file."""
    return (
        state.marker_covers(read_marker(root), source.manifest, verify, boot)
        and take_inventory(root, patience).first_difference(source.manifest) is None
    )


def _plan(root: bytes, source: Source, verify: str, boot: str | None, patience: Patience, report: Report) -> _Work:
    """Find out what there is to do, and that it can be done. Touches nothing."""
    if verify != "none":
        began = time.monotonic()
        structure.check(source, patience)
        report.verify_seconds += time.monotonic() - began
    found = take_inventory(root, patience)
    records = state.journal_records(read_journal(root), source.manifest, boot)
    kept = {
        file.path: records[file.path]
        for file in source.files
        if file.path in found.files and _is_whole(file, records.get(file.path), found.files[file.path])
    }
    missing = [file for file in source.files if file.path not in kept]
    _require_space(root, missing, [found.files[path] for path in found.files.keys() - kept.keys()])
    return _Work(found, kept, missing)


def _is_whole(file: SourceFile, record: Record | None, status: os.stat_result) -> bool:
    """Say whether a file in the destination is the one that was entered as whole, and fits the source."""
    now = Record.of(status)
    return record == now and (now.size, now.mtime_ns) == (file.size, file.mtime_ns)


def _require_space(root: bytes, missing: list[SourceFile], removed: list[os.stat_result]) -> None:
    with writing(root):
        disk = os.statvfs(nearest_existing(root))
    free = disk.f_bavail * disk.f_frsize + sum(status.st_blocks * 512 for status in removed)
    needed = sum(-(-file.size // disk.f_frsize) * disk.f_frsize for file in missing)
    if needed > free:
        message = f"no space: {size(needed)} to copy, {size(free)} free, {size(needed - free)} too little"
        raise FaststartError(Exit.NO_SPACE, message, root)


def _print_plan(work: _Work) -> str:
    removed = sorted(work.found.files.keys() - work.kept.keys() - {file.path for file in work.missing})
    lines = [f"copy {file.size} {show(file.path)}" for file in work.missing]
    lines += [f"remove {show(path)}" for path in removed]
    print("\n".join(lines))
    total = size(sum(file.size for file in work.missing))
    return f"plan: {len(work.missing)} files to copy, {total}; {len(work.kept)} kept, {len(removed)} removed"


def _copy(
    destination: Destination,
    source: Source,
    work: _Work,
    boot: str | None,
    options: Options,
    patience: Patience,
    report: Report,
    say: Callable[[str], None],
) -> None:
    manifest = source.manifest
    destination.prepare(manifest, work.found, work.kept, boot, patience)
    report.resumed_bytes = sum(record.size for record in work.kept.values())
    copy = Copy(work.missing, destination, options.parallel, patience)
    report.streams = copy.streams
    began = time.monotonic()
    try:
        copy.run(Progress(manifest.total_bytes - report.resumed_bytes, say).update)
    finally:
        report.copied_bytes = copy.copied
        report.copy_seconds = time.monotonic() - began
    for file in source.files:
        require_unchanged(file, patience)
    if options.verify != "none":
        wrong = take_inventory(destination.root, patience).first_difference(manifest)
        if wrong is not None:
            raise FaststartError(Exit.DAMAGED, "is not as it was copied: something else writes there", wrong)
    destination.write_marker(state.marker(manifest, options.verify, boot))
    resumed = f", {size(report.resumed_bytes)} resumed" if report.resumed_bytes else ""
    report.message = (
        f"complete: {len(source.files)} files, {size(report.copied_bytes)} copied in"
        f" {report.copy_seconds:.1f} s, {size(report.rate)}/s{resumed}"
    )
