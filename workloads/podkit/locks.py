"""A lock file that one program of several holds, on any node that has the file system mounted."""

from __future__ import annotations

import errno
import fcntl
from collections.abc import Callable

from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

_NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP)  # Lustre without the mount option flock says ENOSYS (llite/file.c)
_SECONDS = 0.1  # between two tries


def acquire(
    lock: int, about: bytes, owner: str, wait: float, patience: Patience, waiting: Callable[[float], None]
) -> None:
    """Take an exclusive lock; it ends when all descriptors of the open file are closed, at the latest with the process.

    Args:
        lock: a descriptor of the lock file.
        about: what the lock is about, for the message.
        owner: what another owner does, for the message.
        wait: seconds to wait for another owner.
        patience: ends the wait when it is told to stop.
        waiting: told every moment, with the seconds waited, while there is another owner.

    Raises:
        FaststartError: 10, the file system has no locks; 5, another owner is still there after the wait; 143, SIGTERM.
        OSError: locking failed in another way.
    """
    waited = 0.0
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if waited >= wait:
                raise FaststartError(
                    Exit.BUSY, f"{owner}, still after {wait:g} s; give it time with --wait", about
                ) from error
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
            message = (
                f"the file system has no locks (flock: {error.strerror}): mount Lustre with the option flock, in a"
                " PersistentVolume by mountOptions: [flock]"
            )
            raise FaststartError(Exit.REFUSED, message, about) from error
        else:
            return
        waiting(waited)
        patience.pause(_SECONDS)
        waited += _SECONDS
