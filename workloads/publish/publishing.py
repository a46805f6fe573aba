"""A run of publish: from a look at the source to the sealed folder."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Collection

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.manifest import Manifest, canonical, digest
from modelfolder.source import Source, SourceFile, look, open_regular, read_manifest
from podkit import pool
from podkit.display import show, size
from podkit.errors import Exit, FaststartError, writing
from podkit.lines import NAME_BYTES, name, tell_many
from podkit.patience import Patience
from podkit.processor import processors
from podkit.progress import PROGRESS_SECONDS, Progress
from podkit.surroundings import Surroundings
from preload.destination import nearest_existing
from publish import sealing
from publish.hub import open_hub
from publish.options import Options
from publish.places import FolderInPlace, FolderPlace, Place, RemotePlace
from publish.report import PublishReport, telling
from publish.s3 import open_s3
from publish.sealing import Hashes, Hashing, Origin
from publish.staging import clear, finish, lock_of, locked, require_free, sync_folders
from publish.verdict import Verdict, judge

_UNREACHABLE = (Exit.NO_MODEL, Exit.NOT_PERMITTED, Exit.NETWORK)
"""How a look at a source ends that is gone or closed; a model that is sealed stands without it."""


def publish(options: Options, around: Surroundings, report: PublishReport) -> None:
    """Publish a model, or find that it is sealed already.

    Args:
        options: what was asked for.
        around: the process.
        report: takes the figures and the closing message.

    Raises:
        FaststartError: any exit code of publish; contracts.md tells what they mean.
    """
    report.model, report.revision, report.streams = options.model, options.revision, options.parallel
    if not options.in_place:
        _require_one_file_system(options)
    place = _place(options, around)
    lock, patience = _lock(options, around.patience), around.patience
    with locked(lock, options.destination, options.wait, patience, waiting(options.wait, around.say)):
        sealed = read_manifest(os.fsencode(options.destination), around.patience)
        if sealed:
            with report.phase("look"):
                _recognise(sealed, place, options, around, report)
            if options.in_place:
                with report.phase("seal"):
                    _confirm(sealed, place, options, around, report)
            return
        if not options.in_place:
            require_free(options.destination)
        with report.phase("look"):
            place.look()
        with report.phase("fetch"):
            origin = place.bring(report)
        with report.phase("seal"):
            manifest_digest, verdict = _seal(place.root, origin, options, around, report)
        if not options.in_place:
            finish(options.staging, options.destination)
    weights = verdict.weights
    what = f", {len(weights.files)} {weights.format} files" if weights else ""
    report.message = f"sealed {size(report.total_bytes or 0)}{what}: {manifest_digest}"


def _place(options: Options, around: Surroundings) -> Place:
    if options.source.startswith("s3://"):
        return RemotePlace(options, open_s3(options.source, around.patience, options.parallel), around)
    if options.source.startswith("hf://"):
        return RemotePlace(options, open_hub(options.source, options.token_file, around.patience), around)
    return FolderInPlace(options, around) if options.in_place else FolderPlace(options, around)


def _lock(options: Options, patience: Patience) -> str:
    if options.in_place:
        about = os.fsencode(options.source)
        if not patience.ask(lambda: os.path.isdir(about), about):
            raise FaststartError(Exit.NO_MODEL, "there is no such folder", about)
        own = os.path.join(options.source, os.fsdecode(names.STATE))
        if os.path.islink(own):
            message = "is a link, through which another folder's seal would be written: remove it"
            raise FaststartError(Exit.REFUSED, message, os.fsencode(own))
        return os.path.join(own, "publish.lock")
    return lock_of(options.staging)


def _require_one_file_system(options: Options) -> None:
    """Hold that a rename leads from the staging folder to the destination."""
    with writing(os.fsencode(options.destination)):
        devices = {
            os.stat(nearest_existing(os.fsencode(os.path.dirname(path)))).st_dev
            for path in (options.staging, options.destination)
        }
    if len(devices) > 1:
        message = f"--staging {options.staging} is not on the file system of {options.destination}"
        raise FaststartError(Exit.USAGE, message)


def waiting(wait: float, say: Callable[[str], None]) -> Callable[[float], None]:
    """Return what is told how long the wait for another publisher has been, and says so every few seconds."""
    said = -PROGRESS_SECONDS

    def note(waited: float) -> None:
        nonlocal said
        if waited - said >= PROGRESS_SECONDS:
            said = waited
            say(f"another publisher works on it; waiting up to {wait:g} s")

    return note


def _same_address(sealed: str | None, asked: str) -> bool:
    """Say whether a model was sealed from an address, of a repository in whatever revision."""
    return sealed == asked or (asked.startswith("hf://") and f"{sealed}".startswith(f"{asked}@"))


def _recognise(sealed: Manifest, place: Place, options: Options, around: Surroundings, report: PublishReport) -> None:
    """Hold that a sealed folder is what was asked for, and has the files that it was sealed with.

    Raises:
        FaststartError: 8, it was sealed from another address or in another way; 4, it is damaged; 143, SIGTERM.
    """
    about, moved = os.fsencode(options.destination), ""
    origin = name(sealed.source or "", NAME_BYTES)
    if sealed.chosen is not None and sealed.chosen != options.files:
        sealed_with = name(" ".join(sealed.chosen), NAME_BYTES)
        message = f"was sealed with --files {sealed_with}, asked for is {' '.join(options.files)}"
        raise FaststartError(Exit.CHANGED, f"{message}: publish it under another revision", about)
    try:
        found = place.look()
    except FaststartError as error:
        if error.code not in _UNREACHABLE or not _same_address(sealed.source, place.asked):
            raise
        around.say(f"the source cannot be looked at, and what is sealed stands without it: {error.message}")
    else:
        if found != sealed.source_digest:
            message = f"was sealed from {origin} as it was then, which is not what {place.asked} is now"
            # A branch moves, a prefix is filled anew: neither may keep what is sealed from being served (again).
            if not place.moved or not _same_address(sealed.source, place.asked):
                raise FaststartError(Exit.CHANGED, f"{message}: publish it under another revision", about)
            moved = f"{place.moved}; what is sealed stands: {origin}"
            around.say(moved)
    source = look(about, ["all"], around.patience)
    report.total_bytes = report.resumed_bytes = source.total_bytes
    report.message = f"already sealed: {len(source.files)} files, {size(source.total_bytes)}: {sealed.digest}"
    if moved:
        report.message = f"{moved}; {report.message}"


def _confirm(sealed: Manifest, place: Place, options: Options, around: Surroundings, report: PublishReport) -> None:
    """Hold the seal of a folder that is somebody's own to what publishing would write: it may have come with it.

    Raises:
        FaststartError: 4, 6, 7, 8 or 9, naming the file; 143, SIGTERM.
    """
    origin = place.bring(report)
    source, verdict = _judged(place.root, options.files, options, around)
    hashes = _hashed(source, (), around, report)
    own = manifests.parse(canonical(sealing.document(source, verdict, hashes, origin)))
    if dataclasses.replace(own, digest=sealed.digest) != sealed:
        wrong = sorted(file.path for file in {*own.files} ^ {*sealed.files})
        what = "is not what its manifest says" if wrong else "has a manifest of another model, revision or source"
        message = f"{what}: if the manifest came with the folder, remove {manifests.PATH.decode()} and seal it anew"
        raise FaststartError(Exit.CHANGED, message, wrong[0] if wrong else os.fsencode(place.root))


def _seal(
    root: str, origin: Origin, options: Options, around: Surroundings, report: PublishReport
) -> tuple[str, Verdict]:
    """Judge a folder and hash its files; then write its manifest, the only thing left of our own folder.

    Returns:
        The manifest's digest, and what the folder holds.

    Raises:
        FaststartError: 4, 6, 7, 8 or 9, naming the file; 143, SIGTERM.
    """
    # What was put together here holds what was chosen, and nothing else.
    source, verdict = _judged(root, options.files if options.in_place else ("all",), options, around)
    hashes = _hashed(source, set(origin.sha256), around, report)
    wrong = sealing.wrong_sha256(hashes, origin.sha256)
    if wrong:
        for path in wrong:
            with writing(path):
                os.unlink(os.path.join(os.fsencode(root), path))
        message = (
            f"does not have the SHA-256 that {origin.address} tells ({len(wrong)} such files); removed: start again to"
            " fetch it anew"
        )
        raise FaststartError(Exit.DAMAGED, message, wrong[0])
    pool.each(source.files, _put_on_disk, around.patience)
    data = canonical(sealing.document(source, verdict, hashes, origin))
    with writing(os.fsencode(root)):
        if not options.in_place:
            clear(root)
        sealing.write_manifest(root, data)
    if not options.in_place:
        sync_folders(root, source.folders)
    return digest(data), verdict


def _judged(root: str, files: tuple[str, ...], options: Options, around: Surroundings) -> tuple[Source, Verdict]:
    source = look(os.fsencode(root), files, around.patience, by_manifest=False)
    verdict = judge(source, around.patience, tokenizer=options.tokenizer == "required")
    _require_good(source, verdict, options, around)
    return source, verdict


def _hashed(
    source: Source, whole: Collection[bytes], around: Surroundings, report: PublishReport
) -> dict[bytes, Hashes]:
    hashing = Hashing(source.files, whole, processors(), around.patience)
    progress = Progress(source.total_bytes, around.say, around.draw, done="hashed")
    with telling(progress, lambda: hashing.done, processors()), report.verifying():
        return hashing.run()


def _require_good(source: Source, verdict: Verdict, options: Options, around: Surroundings) -> None:
    tell_many([f"{show(path)}: is {kind}, skipped" for path, kind in source.skipped], around.say, "skipped")
    for file in source.files:
        try:
            file.path.decode()
        except UnicodeDecodeError as error:
            message = "the name is no UTF-8: rename it in the source, or leave it out with --files"
            raise FaststartError(Exit.DAMAGED, message, file.path) from error
    bad = [finding for finding in verdict.findings if finding.code is not None]
    tell_many(verdict.findings, around.say, "findings")
    if bad:
        first = bad[0]
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise FaststartError(first.code or Exit.DAMAGED, first.message + more, first.file)
    if verdict.pickles and not options.allow_pickle:
        message = (
            f"is a Python pickle, or cannot be told from one ({len(verdict.pickles)} such files): whoever wrote it can"
            " run code in the server; publish safetensors, leave it out with --files, or allow it with --allow-pickle"
        )
        raise FaststartError(Exit.NOT_PERMITTED, message, verdict.pickles[0])


def _put_on_disk(file: SourceFile) -> None:
    with writing(file.path), open_regular(file.real) as stream:
        os.fsync(stream.fileno())
