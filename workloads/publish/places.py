"""Where a model comes from, and how it is brought into the folder that is sealed."""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import tempfile
import threading
from typing import Protocol

from modelfolder import unfinished
from modelfolder.source import Source, look
from podkit import pool
from podkit.display import size
from podkit.errors import Exit, FaststartError, writing
from podkit.lines import tell_many
from podkit.progress import Progress
from podkit.surroundings import Surroundings
from preload import localdisk
from preload.request import CopyRequest
from preload.run import copy, require_max_bytes, require_space
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
        wanted, chosen = choose(listing, options.files, self._read)
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
        report.resumed_bytes = report.total_bytes - total
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
        if not listing.lasting and choose(self._remote.listing(), options.files, self._read)[0] != wanted:
            message = "has changed in the source since publishing began: start again"
            raise FaststartError(Exit.CHANGED, message, os.fsencode(options.source))
        return dataclasses.replace(
            _origin(options, listing.address, listing.digest),
            licence=listing.licence,
            sha256={path: file.sha256 for path, file in wanted.items() if file.sha256},
        )

    def _read(self, file: RemoteFile) -> bytes:
        """Return the content of a file that the choice depends on; none, if it cannot be had, and may be left out."""
        try:
            with writing(file.path), tempfile.TemporaryDirectory(prefix="publish.") as folder:
                fetched = self._remote.fetch(file, folder, lambda _: None)
                with open(fetched, "rb") as stream:
                    return stream.read()
        except FaststartError as error:
            if error.code not in (Exit.DAMAGED, Exit.NOT_PERMITTED):
                raise
            return b""

    def _fetch(self, staging: Staging, file: RemoteFile) -> None:
        with staging.fetching(file) as folder:
            staging.place(file, self._remote.fetch(file, folder, self._count))

    def _count(self, number: int) -> None:
        with self._lock:
            self._fetched += number

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
