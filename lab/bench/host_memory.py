"""A virtual machine that gives its free memory back to its host pays for each page of it again at the next use."""

import contextlib
import mmap
from collections.abc import Callable, Iterator
from pathlib import Path

ORDER = Path("/sys/module/page_reporting/parameters/page_reporting_order")
"""Free blocks of 2 to this power pages and more are given back (the kernel's documentation: mm/free_page_reporting)."""

NEVER = 11
"""One more than the largest block that x86-64 and arm64 kernels have with pages of 4 KiB."""

TOUCHED = 0.8
"""The share of the free memory that is used once, so that the host has it ready."""

GIVEN_BACK = "free memory goes back to the host, which slows writes into the page cache by chance"
KEPT = "free memory is kept from going back to the host"
OWN = "free memory stays"


def state(order: Path = ORDER) -> str:
    """Say what becomes of free memory now: OWN, KEPT or GIVEN_BACK; `order` is the kernel's setting."""
    found = _order(order)
    if found is None:
        return OWN
    return KEPT if found >= NEVER else GIVEN_BACK


@contextlib.contextmanager
def kept(say: Callable[[str], None], available: int, order: Path = ORDER) -> Iterator[None]:
    """Keeps free memory from going back to the host until the end; without root it only says that it cannot.

    The first 2 GB that a program wrote into memory that had gone back took 5 seconds of processor time, the next
    0.6: which of the tools meets it is chance, and no server with GPUs has it.

    Args:
        say: takes a line for people.
        available: bytes of memory that may be used once, so that the host has it ready.
        order: the kernel's setting.
    """
    before = _order(order)
    if before is None or before >= NEVER:
        yield
        return
    try:
        order.write_text(str(NEVER), encoding="ascii")
    except OSError:
        say(f"{GIVEN_BACK}; root can keep it")
        yield
        return
    try:
        _touch(int(TOUCHED * available))
        yield
    finally:
        order.write_text(str(before), encoding="ascii")


def _order(order: Path) -> int | None:
    try:
        return int(order.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _touch(size: int) -> None:
    if size < mmap.PAGESIZE:
        return
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        for at in range(0, size, mmap.PAGESIZE):
            memory[at] = 1
