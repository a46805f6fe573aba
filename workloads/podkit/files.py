"""A file replaced whole or not at all, a folder removed without following a link, a file of the kernel's read."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def replace(path: bytes, data: bytes, *, folder: int | None = None, sync: bool = False) -> None:
    """Write a file beside its place, as `<path>.new`, and give it its name.

    Args:
        path: of the file.
        data: its content.
        folder: a descriptor that the path is relative to; None for the working folder.
        sync: whether the content is on disk before the file gets its name.

    Raises:
        OSError: that failed; what was there before still is.
    """
    new = path + b".new"
    with open(os.open(new, _NEW_FILE, 0o644, dir_fd=folder), "wb") as file:
        file.write(data)
        if sync:
            file.flush()
            os.fsync(file.fileno())
    os.rename(new, path, src_dir_fd=folder, dst_dir_fd=folder)


def content(path: str) -> bytes:
    """Return the content of a file, none if it cannot be read; for those of proc and sysfs."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def remove(
    name: bytes | str, folder: int, *, last: Collection[str] = (), check: Callable[[], None] = lambda: None
) -> None:
    """Remove what has a name, if anything has, with all that lies in it.

    Args:
        name: of a file, a link or a folder.
        folder: a descriptor of the folder that it lies in.
        last: names that are removed after all others of their folder.
        check: called before each removal; what it raises ends this.

    Raises:
        OSError: that failed.
    """
    check()
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return
    except IsADirectoryError:
        inner = os.open(name, _FOLDER, dir_fd=folder)
        try:
            for inside in sorted(os.listdir(inner), key=last.__contains__):
                remove(inside, inner, last=last, check=check)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
