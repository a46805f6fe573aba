"""The exit codes of the pod programs and the one exception that carries them."""

from __future__ import annotations

import contextlib
import enum
import errno
from collections.abc import Iterator


class Exit(enum.IntEnum):
    """Exit codes, as fixed in contracts.md ("Exit codes"). 1 is missing: it is Python's own, for a crash."""

    DONE = 0
    USAGE = 2
    NO_SPACE = 3
    DAMAGED = 4
    BUSY = 5
    NO_MODEL = 6
    NOT_PERMITTED = 7
    CHANGED = 8
    IO_ERROR = 9
    REFUSED = 10
    NETWORK = 11
    TERMINATED = 143


class FaststartError(Exception):
    """A foreseen end of a pod program.

    Attributes:
        code: the exit code it leads to.
        message: what happened and what to do, without the file's name.
        file: the file or folder it is about, if there is one.
        passing: whether it may pass by itself, though its code is that of errors that do not.
        offset: the byte of the file that it is about, if it is about one.
    """

    def __init__(
        self, code: Exit, message: str, file: bytes | None = None, *, passing: bool = False, offset: int | None = None
    ):
        super().__init__(message)
        self.code = code
        self.message = message
        self.file = file
        self.passing = passing
        self.offset = offset


_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_NOT_PERMITTED = (errno.EACCES, errno.EPERM, errno.EROFS)
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


def source_error(error: OSError, file: bytes) -> FaststartError:
    """Return what an error on a file of the source means.

    Returns:
        7, it may not be read; 8, it went away; 4, or 2 for an absolute path, its name is too long; else 9.
    """
    if error.errno == errno.ENAMETOOLONG:
        return _too_long(error, file)
    if error.errno in _NOT_PERMITTED:
        return FaststartError(Exit.NOT_PERMITTED, f"cannot be read: {error.strerror}", file)
    if error.errno in _GONE:
        return FaststartError(Exit.CHANGED, f"was there a moment ago: {error.strerror}", file)
    return FaststartError(Exit.IO_ERROR, f"reading the source failed: {error.strerror}", file)


def destination_error(error: OSError, file: bytes) -> FaststartError:
    """Return what an error in the destination means.

    Returns:
        3, it is full; 7, it may not be written; 4, or 2 for an absolute path, the name is too long; else 9.
    """
    if error.errno == errno.ENAMETOOLONG:
        return _too_long(error, file)
    if error.errno in _NO_SPACE:
        return FaststartError(Exit.NO_SPACE, f"the destination is full: {error.strerror}", file)
    if error.errno in _NOT_PERMITTED:
        return FaststartError(Exit.NOT_PERMITTED, f"cannot be written in the destination: {error.strerror}", file)
    return FaststartError(Exit.IO_ERROR, f"writing to the destination failed: {error.strerror}", file)


def _too_long(error: OSError, file: bytes) -> FaststartError:
    """Return that a file of a model, or a folder that was asked for, has a name that no file system takes."""
    code = Exit.USAGE if file.startswith(b"/") else Exit.DAMAGED
    return FaststartError(code, f"the name, or one on the way to it, is too long: {error.strerror}", file)


@contextlib.contextmanager
def writing(file: bytes) -> Iterator[None]:
    """Turn an OSError into the FaststartError of `destination_error`, which names the file."""
    try:
        yield
    except OSError as error:
        raise destination_error(error, file) from error
