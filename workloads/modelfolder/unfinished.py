"""Downloads that are not finished: control files beside a file, and holes where a safetensors file has tensors."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection
from typing import Any

from modelfolder import leftovers
from modelfolder.source import SourceFile, open_regular
from podkit.display import show
from podkit.errors import Exit, FaststartError
from podkit.patience import Patience

_MARK = re.compile(rb"(.+)(%s|\.st)" % leftovers.MARKS, re.DOTALL | re.IGNORECASE)
"""How downloaders name what they keep beside a file that they have not finished; `.st` is axel's.

`.incomplete` is none: huggingface_hub and modelscope write into such a file elsewhere, and rename it when it is whole.
"""

_MAKES_HOLES = re.compile(rb"zfs|lustre|nfs4?|cifs|smb3|ceph|gpfs|beegfs|9p|virtiofs|fuse.*")
"""File systems that leave zeros out by themselves (ZFS, and Lustre on it, with compression), or whose servers do."""

_NO_ANSWER = (errno.ENXIO, errno.EINVAL, errno.EOPNOTSUPP)


def marks(paths: Collection[bytes]) -> dict[bytes, bytes]:
    """Return the files among some paths that are not finished, each with what says so."""
    return {found[1]: path for path in sorted(paths) if (found := _MARK.fullmatch(path)) and found[1] in paths}


def complaint(mark: bytes) -> str:
    """Return what is wrong with a file that has a mark beside it."""
    return (
        f"is not finished: a downloader left {show(mark)} beside it; let it finish, or fetch the file again; if it is"
        " whole, remove the mark"
    )


def require_finished(chosen: Collection[bytes], paths: Collection[bytes]) -> None:
    """Hold that no file that was chosen has the mark of an unfinished download among the paths of its folder.

    Raises:
        FaststartError: 4, one has.
    """
    for path, mark in marks(paths).items():
        if path in chosen:
            raise FaststartError(Exit.DAMAGED, complaint(mark), path)


def require_no_hole(file: SourceFile, header: dict[str, Any], patience: Patience) -> None:
    """Hold that a safetensors file has no hole where its tensors are: a piece that has not come reads as zeros.

    A sparse copy (`cp --sparse=always`, `rsync --sparse`) makes holes of zeros, too; the two look alike. What is sealed
    with its hashes is believed, and so are file systems that make holes by themselves.

    Args:
        file: a whole one, by its header.
        header: its header.
        patience: asked before each step.

    Raises:
        FaststartError: 4, it has one; 7, 8, 9 not readable, gone, I/O error; 143 SIGTERM.
    """
    spans = {name: one["data_offsets"] for name, one in header.items() if name != "__metadata__"}
    data = file.size - max((end for _, end in spans.values()), default=0)
    if file.listed.blocks or data == file.size:
        return

    def look() -> int | None:
        with open_regular(file.real) as stream:
            try:
                hole = os.lseek(stream.fileno(), data, os.SEEK_HOLE)
            except OSError as error:
                if error.errno not in _NO_ANSWER:
                    raise
                return None
            return hole if hole < file.size and not _makes_holes(os.fstat(stream.fileno()).st_dev) else None

    hole = patience.read(file.path, look)
    if hole is not None:
        inside = next((name for name, (start, end) in spans.items() if data + start <= hole < data + end), "")
        tensor = show(inside.encode("utf-8", "backslashreplace"))
        message = (
            f"has a hole at byte {hole}, where its header says that {tensor:.200} is: its download is not finished, or"
            " a sparse copy left zeros out; fetch it again, or write the zeros out: cp --sparse=never"
        )
        raise FaststartError(Exit.DAMAGED, message, file.path)


def _makes_holes(device: int) -> bool:
    number = f"{os.major(device)}:{os.minor(device)}".encode()
    try:
        with open("/proc/self/mountinfo", "rb") as file:
            fields = [line.split() for line in file]
    except OSError:
        return False
    return any(one[2] == number and _MAKES_HOLES.fullmatch(one[one.index(b"-") + 1]) for one in fields)
