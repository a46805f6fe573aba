"""Reserving disk space for a file."""

from __future__ import annotations

import ctypes
import errno
import os

_FALLOCATE = getattr(ctypes.CDLL(None, use_errno=True), "fallocate", None)


def fallocate(fd: int, size: int) -> None:
    """Reserve the space of a whole file.

    Not by os.posix_fallocate: where the file system cannot do it, glibc writes a byte to each of its blocks instead
    (posix_fallocate(3), "Caveats").

    Raises:
        OSError: that failed; EOPNOTSUPP, EINVAL or ENOSYS, it cannot be done here.
    """
    if not _FALLOCATE:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    while _FALLOCATE(fd, 0, ctypes.c_int64(0), ctypes.c_int64(size)):
        number = ctypes.get_errno()
        if number != errno.EINTR:
            raise OSError(number, os.strerror(number))
