"""A run of preload: from a look at the source to the marker."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from modelfolder import structure
from modelfolder.manifest import canonical
from modelfolder.source import Source, look
from podkit import documents, pool
from podkit.display import show, size
from podkit.errors import Exit, FaststartError, writing
from podkit.lines import tell_many
from podkit.patience import Patience
from podkit.progress import PROGRESS_SECONDS, Progress, describe
from podkit.surroundings import Surroundings
from preload import localdisk, mode, recheck, state
from preload.copier import Copy, Job, Settings, require_unchanged
from preload.destination import (
    Destination,
    Inventory,
    Journal,
    locked,
    nearest_existing,
    part_status,
    parts_bytes,
    read_journal,
    read_marker,
    read_progress,
    require_acceptable,
    take_inventory,
)
from preload.report import CopyReport
from preload.request import CopyRequest
from preload.state import Identity, Past, Record

_SHARED_PROGRESS_SECONDS = 1.0  # between two notes for those who wait for the destination

_GIB = 2**30


def copy(request: CopyRequest, around: Surroundings, report: CopyReport) -> None:
    """Copy a model, or find that it is there already.

    Args:
        request: what is asked for.
        around: the process.
        report: takes the figures and the closing message.

    Raises:
        FaststartError: any exit code of preload; contracts.md tells what they mean.
    """
    report.record = functools.partial(_record_before, request, around, report)
    task = _task(request, around, report)
    waiting = _Waiting(task.root, request.wait, around.say)
    with locked(task.root, request.wait, around.patience, waiting.note) as destination, task.recorded(destination):
        task.complete(destination)


def plan(request: CopyRequest, around: Surroundings, report: CopyReport) -> None:
    """Print what `copy` would do, and touch nothing.

    Args:
        request: what is asked for.
        around: the process.
        report: takes the figures and a summary.

    Raises:
        FaststartError: what `copy` would raise before its first change.
    """
    report.message = _task(request, around, report).describe()


def _record_before(request: CopyRequest, around: Surroundings, report: CopyReport) -> None:
    """Leave report.json in a destination that could be copied into, of a source that cannot be looked at."""
    root, source = map(os.path.abspath, (request.destination, request.source))
    if f"{os.fsdecode(root)}/".startswith(f"{os.fsdecode(source)}/"):
        return
    try:
        require_acceptable(root, None)
        if request.require_local_disk:
            localdisk.require(localdisk.disk_of(nearest_existing(root), around.proc, around.sysfs))
        with locked(root, 0, Patience(), lambda _: None) as destination:
            destination.write_report(canonical(report.recorded()))
    except (OSError, FaststartError) as error:
        around.say(f"report.json cannot be written: {error}")


def _task(request: CopyRequest, around: Surroundings, report: CopyReport) -> _Task:
    """Look at the source and the destination, and decide how to copy. Touches nothing."""
    with report.phase("scan"):
        source = look(request.source, request.files, around.patience)
    report.source = source
    tell_many([f"{show(path)}: is {kind}, skipped" for path, kind in source.skipped], around.say, "skipped")
    tell_many(source.notes, around.say, "notes")
    _require_asked_for(source, request)
    root = os.path.abspath(request.destination)

    # In a thread, as `look` is.
    def accept(root: bytes) -> None:
        around.patience.ask(lambda: require_acceptable(root, source.root), source.root)

    pool.each([root], accept, around.patience)
    disk = localdisk.disk_of(nearest_existing(root), around.proc, around.sysfs)
    if request.require_local_disk:
        localdisk.require(disk)
    identity = Identity.of(source, request.verify, state.boot_id(around.proc))
    memory = mode.free_memory(around.proc, around.sysfs)
    how = mode.decide(request.write, request.cache, source.total_bytes, request.streams, memory, disk.file_system)
    report.write, report.reason = how.name, how.reason
    return _Task(request, source, identity, how, root, around, report)


def _require_asked_for(source: Source, request: CopyRequest) -> None:
    total = source.total_bytes
    if request.manifest_digest not in (None, source.manifest.digest):
        found = source.manifest.digest if source.manifest.origin == "published" else "no published manifest"
        message = f"--manifest-digest asks for {request.manifest_digest}, the source has {found}"
        raise FaststartError(Exit.CHANGED, message, source.root)
    require_max_bytes(total, request.max_bytes, source.root)
    if request.verify == "sha256":
        bare = next((file for file in source.files if file.size and not file.listed.blocks), None)
        if bare:
            message = "--verify sha256 needs a published manifest with its block hashes; use --verify size, or publish"
            raise FaststartError(Exit.USAGE, message, bare.path)


def require_max_bytes(total: int, allowed: int | None, about: bytes) -> None:
    """Hold that a model has at most so many bytes, if that is limited.

    Raises:
        FaststartError: 8, it has more.
    """
    if allowed is not None and total > allowed:
        enough = f"in the stack file sizeGib must be at least {-(-total // _GIB)}"
        raise FaststartError(
            Exit.CHANGED, f"the model has {total} bytes, --max-bytes allows {allowed}; {enough}", about
        )


def require_space(needed: int, free: int, verb: str, about: bytes) -> None:
    """Hold that what is missing fits.

    Args:
        needed: bytes that are missing.
        free: bytes that are free.
        verb: what is to be done with the missing ones.
        about: where they are to lie.

    Raises:
        FaststartError: 3, they do not fit.
    """
    if needed > free:
        message = f"no space: {size(needed)} to {verb}, {size(free)} free, {size(needed - free)} too little"
        raise FaststartError(Exit.NO_SPACE, message, about)


class _Waiting:
    """Says, every few seconds, for whom we wait."""

    def __init__(self, root: bytes, wait: float, say: Callable[[str], None]):
        self._root = root
        self._wait = wait
        self._say = say
        self._said = -PROGRESS_SECONDS

    def note(self, waited: float) -> None:
        if waited - self._said < PROGRESS_SECONDS:
            return
        self._said = waited
        try:
            progress = documents.parse_object(read_progress(self._root))
            far = describe(progress["copied"], progress["total"], progress["seconds"], progress["streams"])
        except (ValueError, KeyError, TypeError, ArithmeticError):
            far = "no word yet of how far it is"
        self._say(f"another preload owns the destination; waiting up to {self._wait:g} s: {far}")


@dataclass(frozen=True)
class _State:
    """What lies in a destination, and what of it is known to be good."""

    found: Inventory
    past: Past

    def whole(self, source: Source) -> bool:
        """Say whether all that was asked for is there, and nothing else."""
        files, known = self.found.files, self.past.records
        return len(known) == len(source.files) == len(files) and self.found.folders == source.folders

    def with_records(self, more: Past, source: Source) -> _State:
        """Return the same with records of more whole files, of which no parts are needed."""
        parts = {n: part for n, part in self.past.parts.items() if source.files[n].path not in more.records}
        return _State(self.found, Past(self.past.records | more.records, self.past.synced | more.synced, parts))


@dataclass(frozen=True)
class _Task:
    """One copy that was asked for."""

    request: CopyRequest
    source: Source
    identity: Identity
    mode: mode.Mode
    root: bytes
    around: Surroundings
    report: CopyReport

    def complete(self, destination: Destination) -> None:
        """Copy what is missing and set the marker; nothing, if the marker stands and all is there."""
        with self.report.phase("plan"):
            now = self._state()
        if self._is_complete(now):
            self._say_running(destination)
            self.report.resumed_bytes = self.source.total_bytes
            self.report.message = f"already complete: {len(self.source.files)} files, {size(self.source.total_bytes)}"
            return
        destination.remove_marker()
        doubts = recheck.doubts(self.source, now.found, now.past)
        with self.report.phase("plan"):
            self._require_possible(now)
            spared = [doubt.file.path for doubt in doubts]
            destination.prepare(self.source, now.found, now.past, self.around.patience, spared)
        self._say_running(destination)
        if doubts:
            now = self._rechecked(destination, now, doubts)
            with self.report.phase("plan"):
                destination.prepare(self.source, now.found, now.past, self.around.patience)
        self._copy(destination, now, self._jobs(now))

    def describe(self) -> str:
        """Print what would be done, and return a summary. Touches nothing."""
        now = self._state()
        if self._is_complete(now):
            return "plan: nothing to do, the destination is complete"
        self._require_possible(now)
        possible = self._jobs(now)
        wanted = {file.path for file in self.source.files}
        doubts = {doubt.file.path for doubt in recheck.doubts(self.source, now.found, now.past)}
        jobs = [job for job in possible if job.file.path not in doubts]
        checks = [job for job in possible if job.file.path in doubts]
        removed = sorted(now.found.files.keys() - wanted)
        for planned, what in (
            ([_plan_line("copy", _missing(job), job.file.path, "the rest" * job.resumed) for job in jobs], "to copy"),
            (
                [_plan_line("check", one.file.size, one.file.path, "copied if it is not whole") for one in checks],
                "to check",
            ),
            ([_plan_line("keep", record.size, path) for path, record in sorted(now.past.records.items())], "kept"),
            ([_plan_line("leave", file.size, file.path, file.reason) for file in self.source.left_out], "left out"),
            ([_plan_line("remove", now.found.files[path].st_size, path) for path in removed], "to remove"),
        ):
            tell_many(planned, self.around.print, what)
        left_out = sum(file.size for file in self.source.left_out)
        to_check = f"{len(checks)} to check, " if checks else ""
        return (
            f"plan: {len(jobs)} files to copy, {size(sum(map(_missing, jobs)))} with {self.mode.name} writes"
            f" ({self.mode.reason}); {to_check}{len(now.past.records)} kept, {len(self.source.left_out)} left out,"
            f" {size(left_out)}; {len(removed)} removed"
        )

    @contextlib.contextmanager
    def recorded(self, destination: Destination) -> Iterator[None]:
        """Leave report.json in the destination, however the block ends; only a crash leaves none."""

        def record() -> None:
            self.report.retries = self.around.patience.retries
            try:
                destination.write_report(canonical(self.report.recorded()))
            except OSError as error:
                self.around.say(f"report.json cannot be written: {error}")

        self.report.record = record
        try:
            yield
        except FaststartError as error:
            self.report.fail(error)
            record()
            raise
        else:
            record()
        finally:
            self.report.record = lambda: None

    def _say_running(self, destination: Destination) -> None:
        if self.request.pod_uid:
            destination.write_run(self.request.pod_uid)

    def _is_complete(self, now: _State) -> bool:
        return state.marker_covers(read_marker(self.root), self.identity) and now.whole(self.source)

    def _state(self) -> _State:
        """Hold what lies in the destination against the journal. Reads no content of a file."""
        found = take_inventory(self.root, self.around.patience)
        past = state.read_journal(read_journal(self.root), self.identity)
        records = {
            file.path: past.records[file.path]
            for file in self.source.files
            if file.path in past.records
            and file.path in found.files
            and Record.of(found.files[file.path]) == past.records[file.path]
        }
        parts = {}
        for number, part in past.parts.items():
            if number >= len(self.source.files) or self.source.files[number].path in records:
                continue
            status = part_status(self.root, number)
            if status and part.fits(status, self.source.files[number].size):
                parts[number] = part
        return _State(found, Past(records, past.synced & records.keys(), parts))

    def _rechecked(self, destination: Destination, now: _State, doubts: Sequence[recheck.Doubt]) -> _State:
        """Hold what nothing vouches for against its hashes, and vouch for what is whole."""
        total, threads = sum(doubt.file.size for doubt in doubts), recheck.threads(self.request.streams)
        self.around.say(f"{len(doubts)} files, {size(total)}, lie here and may be whole: held against their hashes")
        progress = Progress(total, self.around.say, self.around.draw, done="checked")
        lock = threading.Lock()
        done = 0

        def tick(count: int) -> None:
            nonlocal done
            with lock:
                done += count
                progress.update(done, threads)

        with self.report.phase("recheck"), self._journal(destination, now.past) as journal:
            check = recheck.Recheck(doubts, destination, journal, self._settings, self.around.patience, tick)
            try:
                check.run()
            finally:
                self.report.verify_seconds += check.verify_seconds
        self.around.say(f"{len(check.past.records)} of {len(doubts)} files are whole")
        return now.with_records(check.past, self.source)

    def _check(self) -> None:
        """Hold the source's files against what they say about themselves."""
        if self.request.verify != "none":
            began = time.monotonic()
            structure.check(self.source, self.around.patience)
            self.report.verify_seconds += time.monotonic() - began

    def _jobs(self, now: _State) -> list[Job]:
        """Return what is to be copied."""
        jobs = []
        for number, file in enumerate(self.source.files):
            if file.path not in now.past.records:
                part = now.past.parts.get(number)
                jobs.append(Job(number, file, part.missing(file.size) if part else [(0, file.size)], bool(part)))
        return jobs

    def _require_possible(self, now: _State) -> None:
        """Hold that the source is good, and that what is missing fits. Touches nothing.

        What will be removed, and what parts take already, counts as free.
        """
        self._check()
        removed = [now.found.files[path].st_blocks for path in now.found.files.keys() - now.past.records.keys()]
        with writing(self.root):
            disk = os.statvfs(nearest_existing(self.root))
        free = disk.f_bavail * disk.f_frsize + 512 * sum(removed) + parts_bytes(self.root)
        needed = sum(-(-job.file.size // disk.f_frsize) * disk.f_frsize for job in self._jobs(now))
        require_space(needed, free, "copy", self.root)

    def _copy(self, destination: Destination, now: _State, jobs: list[Job]) -> None:
        source, request, report, patience = self.source, self.request, self.report, self.around.patience
        missing = sum(map(_missing, jobs))
        report.resumed_bytes = source.total_bytes - missing
        with self._journal(destination, now.past) as journal:
            copy = Copy(jobs, destination, journal, self._settings, patience)
            report.streams = copy.streams
            self._say_start(len(jobs), missing, copy.streams)
            began = time.monotonic()
            try:
                with report.phase("copy"):
                    copy.run(self._ticker(destination, missing))
            finally:
                report.copied_bytes, report.streams = copy.copied, copy.streams
                report.copy_seconds = time.monotonic() - began
                report.verify_seconds += copy.verify_seconds
        with report.phase("finish"):
            if source.manifest.origin == "scanned":
                pool.each(source.files, lambda file: require_unchanged(file, patience), patience)
            if request.verify != "none":
                records = state.read_journal(read_journal(destination.root), self.identity).records
                wrong = take_inventory(destination.root, patience).first_difference(source, records)
                if wrong is not None:
                    raise FaststartError(Exit.DAMAGED, "is not as it was copied: something else writes there", wrong)
            synced = copy.synced and now.past.synced == now.past.records.keys()
            if synced:
                destination.sync_folders(source)
            destination.write_marker(state.marker(source, self.identity, synced=synced), sync=synced)
        resumed = f", {size(report.resumed_bytes)} resumed" if report.resumed_bytes else ""
        report.message = (
            f"complete: {len(source.files)} files, {size(report.copied_bytes)} copied in"
            f" {report.copy_seconds:.1f} s, {size(report.rate)}/s{resumed}"
        )

    @property
    def _settings(self) -> Settings:
        verify = self.request.verify
        return Settings(self.mode, self.request.streams, verify != "none", verify == "sha256")

    @contextlib.contextmanager
    def _journal(self, destination: Destination, past: Past) -> Iterator[Journal]:
        with (
            writing(self.root),
            destination.journal(self.identity, past, self.around.patience, sync=self.mode.direct) as journal,
        ):
            yield journal

    def _say_start(self, files: int, missing: int, streams: int) -> None:
        how = f"{self.mode.name} writes: {self.mode.reason}"
        self.around.say(f"{files} files, {size(missing)} to copy with {streams} streams; {how}")

    def _ticker(self, destination: Destination, total: int) -> Callable[[int, int], None]:
        progress = Progress(total, self.around.say, self.around.draw)
        started = shared = time.monotonic()

        def tick(copied: int, streams: int) -> None:
            nonlocal shared
            progress.update(copied, streams)
            now = time.monotonic()
            self.report.copied_bytes, self.report.copy_seconds = copied, now - started
            if now - shared >= _SHARED_PROGRESS_SECONDS:
                shared = now
                note = {"copied": copied, "total": total, "seconds": round(now - started, 1), "streams": streams}
                with contextlib.suppress(OSError):  # whoever waits does without
                    destination.write_progress(canonical(note))

        return tick


def _missing(job: Job) -> int:
    return sum(end - start for start, end in job.missing)


def _plan_line(verb: str, number: int, path: bytes, why: str = "") -> str:
    return f"{verb:6} {size(number):>12}  {show(path)}" + (f"  ({why})" if why else "")
