"""Where a model comes from, and how it is brought into the folder that is sealed."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import tempfile
import threading
from collections.abc import Callable
from typing import Protocol

from modelfolder import structure, unfinished
from modelfolder.selection import Selection, read_index, select
from modelfolder.source import Source, look, require_readable
from podkit import pool
from podkit.display import size
from podkit.errors import Exit, FaststartError, writing
from podkit.lines import tell_many
from podkit.progress import Progress
from podkit.surroundings import Surroundings
from preload import localdisk
from preload.request import CopyRequest
from preload.run import copy, require_max_bytes, require_space
from publish import configuration
from publish.contents import INDEXES, configuration_of, largest
from publish.options import Options
from publish.remote import Listing, Remote, RemoteFile, choose, require_names_fit, wanted_folders
from publish.report import PublishReport, telling
from publish.sealing import Origin
from publish.staging import Staging
from publish.striping import stripe

_COMMIT = re.compile("[0-9a-f]{40}")


class Place(Protocol):
    """Where a model comes from.

    Attributes:
        asked: its address as it was asked for, without a revision.
        moved: what is said where the address has come to stand for something else; empty where it cannot.
        root: the folder that is sealed.
    """

    asked: str
    moved: str
    root: str

    def look(self) -> str:
        """Find out what is there; return `sha256:` and hex digits that stand for it.

        Raises:
            FaststartError: 6, 7, 8, 9, 11 or 143, as contracts.md has them.
        """
        ...

    def bring(self, report: PublishReport) -> Origin:
        """Bring what was chosen of it into `root`, and nothing else; called after `look`.

        Raises:
            FaststartError: any exit code of publish.
        """
        ...


def _origin(options: Options, address: str, digest: str) -> Origin:
    """Return where a model came from that a place tells no more about."""
    return Origin(
        model=options.model,
        revision=options.revision,
        address=address,
        digest=digest,
        chosen=options.files,
        licence=None,
        sha256={},
    )


def require_sound(chosen: Selection, read: Callable[[bytes], bytes]) -> None:
    """Hold the small files that tell what a model is to be readable, before its weights are brought.

    Args:
        chosen: what is to be brought.
        read: returns the content of one.

    Raises:
        FaststartError: 4, one is not; whatever `read` raises.
    """
    kind = chosen.weights[0] if chosen.weights else ""
    path, index = configuration_of(chosen.paths), INDEXES.get(kind)

    def is_there(path: bytes) -> bool:
        return path in chosen.paths and not read(path).startswith(structure.LFS_START)  # which is told of later

    if kind != "gguf" and is_there(path) and (fault := next(configuration.faults(path, read(path)), None)):
        raise FaststartError(Exit.DAMAGED, f"{fault}; fetch it again", path)
    if index and is_there(index):
        try:
            read_index(read(index))
        except ValueError as error:
            message = f"is no weight index ({error}): it has no readable weight_map; fetch it again"
            raise FaststartError(Exit.DAMAGED, message, index) from error


def _if_it_can_be(read: Callable[[RemoteFile], bytes], file: RemoteFile) -> bytes:
    """Return the content of a file that a choice depends on; none, if it cannot be had: it may be left out."""
    try:
        return read(file)
    except FaststartError as error:
        if error.code not in (Exit.DAMAGED, Exit.NOT_PERMITTED):
            raise
        return b""


def _holds_another(asked: str) -> str:
    return f"{asked} holds something else now, which another revision would publish"


class RemotePlace:
    """A bucket or a repository, whose files are fetched."""

    def __init__(self, options: Options, remote: Remote, around: Surroundings):
        asked = options.source.rstrip("/")
        self.asked, self.moved = asked, _holds_another(asked)
        if asked.startswith("hf://"):
            self.asked, _, revision = asked.partition("@")
            branch = "" if _COMMIT.fullmatch(revision) else revision or "main"
            self.moved = f"{branch} of {self.asked} is another commit now" if branch else ""
        self.root = options.staging
        self._options = options
        self._remote = remote
        self._around = around
        self._fetched = 0
        self._resumed = 0
        self._looked_at = 0
        self._lock = threading.Lock()

    @functools.cached_property
    def _listing(self) -> Listing:
        return self._remote.listing()

    def look(self) -> str:
        """List what is there."""
        return self._listing.digest

    def bring(self, report: PublishReport) -> Origin:
        """Fetch what is not there yet; the largest files first, so that none is left at the end."""
        listing, options, around = self._listing, self._options, self._around
        read = functools.cache(self._read)
        wanted, chosen = choose(listing, options.files, functools.partial(_if_it_can_be, read))
        require_sound(chosen, lambda path: read(wanted[path]))
        tell_many(chosen.notes, around.say, "notes")
        require_names_fit(wanted, options.staging)
        unfinished.require_finished(wanted, {file.path for file in listing.files})
        # In a thread, so that SIGTERM is noticed while the network hangs.
        holds = [file.hold for file in wanted.values() if file.hold]
        pool.each(holds, lambda hold: hold(), around.patience, threads=1)
        report.total_bytes = sum(file.size for file in wanted.values())
        require_max_bytes(report.total_bytes, options.max_bytes, os.fsencode(options.source))
        staging = Staging(options.staging)
        staging.open(wanted, wanted_folders(listing, wanted.keys()), around.patience)
        missing = sorted(
            (file for path, file in wanted.items() if path not in staging.whole), key=lambda file: -file.size
        )
        total = sum(file.size for file in missing)
        report.resumed_bytes = self._resumed = report.total_bytes - total
        self._require_space(total)
        if localdisk.disk_of(os.fsencode(options.staging), around.proc, around.sysfs).file_system == "lustre":
            stripe(options.staging, around.say)
        resumed = f", {size(report.resumed_bytes)} are there already" if report.resumed_bytes else ""
        around.say(f"{len(missing)} files, {size(total)} to fetch from {listing.address}{resumed}")
        progress = Progress(total, around.say, around.draw, done="fetched")
        with telling(progress, lambda: self._fetched, options.parallel), report.copying():
            try:
                pool.each(missing, functools.partial(self._fetch, staging), around.patience, options.parallel)
            finally:
                report.copied_bytes = self._fetched
        if not listing.lasting and self._chosen_now() != wanted:
            message = "has changed in the source since publishing began: start again"
            raise FaststartError(Exit.CHANGED, message, os.fsencode(options.source))
        return dataclasses.replace(
            _origin(options, listing.address, listing.digest),
            licence=listing.licence,
            sha256={path: file.sha256 for path, file in wanted.items() if file.sha256},
        )

    def _chosen_now(self) -> dict[bytes, RemoteFile]:
        """Return what would be chosen of what is there by now."""
        return choose(self._remote.listing(), self._options.files, functools.partial(_if_it_can_be, self._read))[0]

    def _read(self, file: RemoteFile) -> bytes:
        require_readable(file.path, file.size, largest(file.path))
        with (
            writing(file.path),
            tempfile.TemporaryDirectory(prefix="publish.") as folder,
            open(self._brought(file, folder, self._count_looked_at), "rb") as stream,
        ):
            return stream.read(file.size)

    def _fetch(self, staging: Staging, file: RemoteFile) -> None:
        with staging.fetching(file) as folder:
            staging.place(file, self._brought(file, folder, self._count))

    def _brought(self, file: RemoteFile, folder: str, progress: Callable[[int], None]) -> str:
        fetched = self._remote.fetch(file, folder, progress)
        with writing(file.path):
            came = os.stat(fetched).st_size
        if came != file.size:
            raise FaststartError(Exit.CHANGED, f"came with {came} bytes, {file.size} were listed", file.path)
        return fetched

    def _count(self, number: int) -> None:
        with self._lock:
            self._fetched += number
            came = self._resumed + self._fetched
        self._require_allowed(came)

    def _count_looked_at(self, number: int) -> None:
        """Count what comes before anything is chosen, and is fetched once more if it is."""
        with self._lock:
            self._looked_at += number
            came = self._looked_at
        self._require_allowed(came)

    def _require_allowed(self, came: int) -> None:
        """Hold that no more bytes really came than the model may have, whatever sizes were listed."""
        require_max_bytes(came, self._options.max_bytes, os.fsencode(self._options.source))

    def _require_space(self, needed: int) -> None:
        about = os.fsencode(self._options.staging)
        with writing(about):
            disk = os.statvfs(about)
        require_space(needed, disk.f_bavail * disk.f_frsize, "fetch", about)


class FolderPlace:
    """A folder, which preload's engine copies."""

    def __init__(self, options: Options, around: Surroundings):
        self.asked = f"path:{options.source}"
        self.moved = _holds_another(self.asked)
        self.root = options.staging
        self._options = options
        self._around = around

    @functools.cached_property
    def _source(self) -> Source:
        return look(os.fsencode(self._options.source), self._options.files, self._around.patience)

    def look(self) -> str:
        """Look at the names, sizes and times in it, or at its manifest if it is sealed itself."""
        return self._source.manifest.digest

    def bring(self, report: PublishReport) -> Origin:
        """Copy it, and leave nothing of what the copy needed."""
        options, around, source = self._options, self._around, self._source
        hashed = all(file.listed.blocks or not file.size for file in source.files)
        request = CopyRequest(
            source=os.fsencode(options.source),
            destination=os.fsencode(options.staging),
            files=options.files,
            verify="sha256" if hashed else "size",
            streams=options.parallel,
            wait=options.wait,
            max_bytes=options.max_bytes,
        )
        there = {file.path: file for file in source.files}
        sizes = {path: file.size for path, file in there.items()}
        read = functools.cache(lambda path: structure.read(there[path], around.patience, largest(path)))
        require_sound(select(sizes, ["all"], read), read)
        copy(request, around, report)
        report.total_bytes = source.total_bytes
        return _origin(options, self.asked, self.look())


class FolderInPlace:
    """A folder that is sealed as it stands."""

    def __init__(self, options: Options, around: Surroundings):
        self.asked, self.moved = f"path:{options.source}", ""
        self.root = options.source
        self._options = options
        self._around = around

    @functools.cached_property
    def _source(self) -> Source:
        return look(os.fsencode(self.root), self._options.files, self._around.patience, by_manifest=False)

    def look(self) -> str:
        """Look at the names, sizes and times in it."""
        return self._source.manifest.digest

    def bring(self, report: PublishReport) -> Origin:
        """Bring nothing: it is there."""
        options = self._options
        report.total_bytes = report.resumed_bytes = self._source.total_bytes
        require_max_bytes(self._source.total_bytes, options.max_bytes, os.fsencode(self.root))
        return _origin(options, self.asked, self.look())
