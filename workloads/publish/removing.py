"""`--remove`: deletes a sealed folder, under the lock that publishing takes for it.

It is renamed first, so that nobody meets half of it under its name, and its manifest is deleted last: by that a later
run knows what an interrupted one left.
"""

from __future__ import annotations

import os
import stat

from modelfolder import manifest as manifests
from modelfolder import names
from modelfolder.manifest import Manifest
from modelfolder.source import read_manifest
from podkit import files, pool
from podkit.display import size
from podkit.errors import Exit, FaststartError, writing
from podkit.patience import Patience
from podkit.surroundings import Surroundings
from publish.options import Removal
from publish.publishing import waiting
from publish.report import PublishReport
from publish.staging import lock_of, locked

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_LAST = (os.fsdecode(names.STATE), os.path.basename(os.fsdecode(manifests.PATH)))


def remove(asked: Removal, around: Surroundings, report: PublishReport) -> None:
    """Remove a sealed folder, or finish what an interrupted removal left of it.

    Args:
        asked: the folder.
        around: the process.
        report: takes the figures and the closing message.

    Raises:
        FaststartError: 6, there is no such folder; 8, its manifest has another digest; 10, it was not sealed here; 5, a
            publisher works on it; 4, 7 or 9, it cannot be read or deleted; 143, SIGTERM.
    """
    patience = around.patience

    def look(removal: Removal) -> None:
        _sealed(removal, patience)

    def take_away(removal: Removal) -> None:
        sealed = _sealed(removal, patience)
        _take_away(removal.folder, sealed, patience)
        if sealed:
            report.model, report.revision, report.total_bytes = sealed.model, sealed.revision, sealed.total_bytes
            what = f"{len(sealed.files)} files, {size(sealed.total_bytes)}: {sealed.digest}"
        else:
            what = "what an interrupted removal had left"
        report.message = f"removed {removal.folder}, {what}"

    # In a thread, so that SIGTERM is noticed while a mount hangs; the first time before a lock is made beside it.
    try:
        pool.each([asked], look, patience)
        with locked(lock_of(asked.staging), asked.folder, asked.wait, patience, waiting(asked.wait, around.say)):
            pool.each([asked], take_away, patience)
    except FaststartError as error:
        if error.code != Exit.TERMINATED:
            raise
        message = "stopped by SIGTERM; started again, it finishes what it began"
        raise FaststartError(Exit.TERMINATED, message, os.fsencode(asked.folder)) from error


def _sealed(asked: Removal, patience: Patience) -> Manifest | None:
    """Return the manifest of the folder; None if only what an interrupted removal left is there. Touches nothing.

    Raises:
        FaststartError: 6, 8 or 10, it is not to be removed; 4, 7 or 9, it cannot be read; 143, SIGTERM.
    """
    about = os.fsencode(asked.folder)

    def refuse(message: str, path: bytes = about) -> FaststartError:
        return FaststartError(Exit.REFUSED, f"{message}; nothing was touched", path)

    left = _left(asked.folder)
    with writing(about):
        mode, mode_left = _mode(asked.folder), _mode(left)
        if mode_left is not None and not _is_left(left, mode_left):
            raise refuse("is in the way and was not left by a removal, for it has no manifest", os.fsencode(left))
    if mode is None:
        if mode_left is None:
            raise FaststartError(Exit.NO_MODEL, "there is no such folder", about)
        return None
    if stat.S_ISLNK(mode):
        raise refuse("is a link; name the folder itself")
    manifest = read_manifest(about, patience) if stat.S_ISDIR(mode) else None
    if manifest is None:
        raise refuse("has no manifest, so it was not published; whoever made it removes it")
    if manifest.source == f"path:{asked.folder}":
        raise refuse("was sealed in place, so it is somebody's own; whoever made it removes it")
    if asked.manifest_digest not in (None, manifest.digest):
        message = f"its manifest has the digest {manifest.digest}, asked for is {asked.manifest_digest}"
        raise FaststartError(Exit.CHANGED, f"{message}; nothing was touched", about)
    return manifest


def _left(folder: str) -> str:
    """Return the name that a folder has while it is deleted."""
    above, name = os.path.split(folder)
    return os.path.join(above, f".{name}.removed")


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_left(path: str, mode: int) -> bool:
    """Say whether a removal left this: a folder with its manifest, or with nothing any more but the way to that."""
    if not stat.S_ISDIR(mode):
        return False
    own = os.path.join(path, os.fsdecode(names.STATE))
    inside = os.listdir(own) if os.path.isdir(own) else []
    return _LAST[1] in inside or not (inside or set(os.listdir(path)) - {_LAST[0]})


def _take_away(folder: str, sealed: Manifest | None, patience: Patience) -> None:
    name, left = os.path.basename(folder), os.path.basename(_left(folder))
    with writing(os.fsencode(folder)):
        parent = os.open(os.path.dirname(folder), _FOLDER)
        try:
            files.remove(left, parent, last=_LAST, check=patience.check)
            if sealed:
                os.rename(name, left, src_dir_fd=parent, dst_dir_fd=parent)
                os.fsync(parent)
                files.remove(left, parent, last=_LAST, check=patience.check)
            os.fsync(parent)
        finally:
            os.close(parent)
