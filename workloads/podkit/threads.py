"""Starting threads where the system may refuse more of them."""

from __future__ import annotations

import contextlib
import os
import re
import resource
import threading
from collections.abc import Callable, Iterable, Iterator

from podkit import cgroups
from podkit.errors import Exit, FaststartError
from podkit.files import content

_STACK_BYTES = 8 << 20
"""Address space of a thread's stack: the usual RLIMIT_STACK (pthread_create(3))."""


class NoThreadError(FaststartError):
    """Exit code 9: the system lets this process have no further thread, or too few."""

    def __init__(self) -> None:
        super().__init__(Exit.IO_ERROR, f"no further thread can be started: {limit()}")


def start(targets: Iterable[Callable[[], object]], started: list[threading.Thread], needed: int = 1) -> None:
    """Start daemon threads, as many as the system gives.

    Args:
        targets: what each of them runs, the most needed ones first.
        started: gets those that were started.
        needed: how many of them there must be.

    Raises:
        NoThreadError: there are fewer.
    """
    for number, target in enumerate(targets):
        thread = threading.Thread(target=target, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            if number < needed:
                raise NoThreadError from error
            return
        started.append(thread)


@contextlib.contextmanager
def beside(work: Callable[[threading.Event], object]) -> Iterator[None]:
    """Run something in a thread of its own while the block runs, if there can be a thread for it.

    Args:
        work: gets the event that is set when the block is over, and returns soon after.
    """
    over = threading.Event()
    threads: list[threading.Thread] = []

    def do() -> None:
        with contextlib.suppress(MemoryError):  # which the block meets, too, and ends with
            work(over)

    start([do], threads, needed=0)
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def possible(wanted: int) -> int:
    """Return how many threads can be started now, up to a number: they are started, and end at once.

    For libraries that fail where they get fewer than they were told to use.
    """
    ended = threading.Event()
    threads: list[threading.Thread] = []
    try:
        start([ended.wait] * wanted, threads, needed=0)
    finally:
        ended.set()
        for thread in threads:
            thread.join()
    return len(threads)


def is_refusal(error: BaseException) -> bool:
    """Say whether an error is Python's that a thread cannot be started, which has no class of its own."""
    return isinstance(error, RuntimeError) and "start new thread" in str(error)


def limit(proc: str = "/proc", sysfs: str = "/sys") -> str:
    """Return the limit that keeps this process from another thread; all that it has, where none is reached.

    Args:
        proc: where proc is mounted.
        sysfs: where sysfs is mounted.
    """
    limits: list[str] = []
    for number, field, what in (
        (resource.RLIMIT_AS, b"VmSize", "address space (ulimit -v, RLIMIT_AS)"),
        (resource.RLIMIT_DATA, b"VmData", "memory of its own (ulimit -d, RLIMIT_DATA)"),
    ):
        most = resource.getrlimit(number)[0]
        if most != resource.RLIM_INFINITY:
            limits.append(f"a process may have {most} bytes of {what}")
            used = re.search(rb"^%s:\s+(\d+) kB" % field, content(f"{proc}/self/status"), re.MULTILINE)
            if used and int(used[1]) * 1024 + _STACK_BYTES > most:
                return limits[-1]
    for _, folder in cgroups.folders("pids", proc, sysfs):
        most, now = (cgroups.number(f"{folder}/pids.{name}") for name in ("max", "current"))
        if most is not None:
            what = "pids.max of its cgroup; podPidsLimit of the kubelet"
            limits.append(f"the container may have {most} processes and threads ({what})")
            if now is not None and now >= most:
                return limits[-1]
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    if processes != resource.RLIM_INFINITY and os.geteuid():  # root is exempt
        limits.append(f"the user {os.geteuid()} may have {processes} processes and threads (ulimit -u, RLIMIT_NPROC)")
    most = cgroups.number(f"{proc}/sys/kernel/threads-max")
    limits.append(f"the node may have {most or 'some'} threads (kernel.threads-max)")
    return "; ".join(limits)
