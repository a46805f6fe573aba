"""Which files are Python pickles: whoever wrote one can run code in the program that loads it.

In doubt a file is one, if its name ends like one.
"""

from __future__ import annotations

import enum
import pickletools
import zipfile
from collections.abc import Callable
from typing import BinaryIO, TypeVar

from modelfolder.source import SourceFile, open_regular
from podkit.patience import Patience

T = TypeVar("T")

START = 512
"""Bytes from the start of a file that `kind` needs: the first header of a tar archive."""

SUFFIXES = (b".bin", b".pt", b".pth", b".ckpt", b".pkl", b".pickle", b".joblib")
"""How files end that torch, pickle and joblib load, and that need not be pickles."""

_NEVER = (b".safetensors", b".gguf")
"""How files end that are only ever read as what they are named."""

_PROTOCOLS = tuple(bytes([0x80, protocol]) for protocol in range(2, 6))
"""How pickles begin since protocol 2; older ones have no such mark."""

_ZIP = b"PK\x03\x04"
_COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x04\x22\x4d\x18", b"x\x01", b"x\x5e", b"x\x9c", b"x\xda")
"""How gzip, bzip2, xz, lz4 and zlib begin, in which joblib puts pickles."""

_TAR = (b"sys_info", b"storages", b"tensors", b"pickle")
"""What a tar archive of torch before 0.1.10 holds (torch/serialization.py: _legacy_load)."""

_AT_ONCE = 16 << 20  # bytes; the list of a torch archive's members has less than a hundred for each tensor
_OPCODES = 64  # so many in a row are no accident


class Kind(enum.Enum):
    """What a file is.

    Attributes:
        PICKLE: a Python pickle, or an archive with one.
        CUT: named like one, and a zip archive that has no end or cannot be read; what is left may be a pickle.
        OTHER: anything else.
    """

    PICKLE = enum.auto()
    CUT = enum.auto()
    OTHER = enum.auto()


def kind(file: SourceFile, start: bytes, patience: Patience) -> Kind:
    """Say what a file is, by its content and, where that leaves it open, by its name.

    Args:
        file: the file.
        start: its first START bytes, all of them if it is smaller.
        patience: repeats reads that fail for the moment.

    Raises:
        FaststartError: 7, 8 or 9 naming the file; 143, SIGTERM.
    """
    named = file.path.lower().endswith(SUFFIXES)
    if not start or file.path.endswith(_NEVER):
        return Kind.OTHER
    if start.startswith(_PROTOCOLS):
        return Kind.PICKLE
    if start.startswith(_ZIP):
        members = _on(file, patience, _members)
        if members is None:
            return Kind.CUT if named else Kind.OTHER
        return Kind.PICKLE if any(member.endswith(".pkl") for member in members) else Kind.OTHER
    if start[257:262] == b"ustar":
        first = start[:100].rstrip(b"\0").removeprefix(b"./").rstrip(b"/")
        return Kind.PICKLE if named or first in _TAR else Kind.OTHER
    if named and (start.startswith(_COMPRESSED) or _on(file, patience, _is_protocol_0_or_1)):
        return Kind.PICKLE
    return Kind.OTHER


class _TooMuchError(ValueError):
    """A library asked for more bytes at once than are given to it."""


class _Stream:
    """A file for libraries that trust it: they get little at once, and cannot swallow an I/O error."""

    def __init__(self, file: BinaryIO, size: int):
        self.error: OSError | None = None
        self._file = file
        self._size = size

    def read(self, size: int = -1) -> bytes:
        left = self._size - self.tell()
        if size > left:
            return b""  # less than asked for, as at the end of any file
        if max(size, left if size < 0 else 0) > _AT_ONCE:
            raise _TooMuchError
        return self._noting(lambda: self._file.read(size))

    def readline(self) -> bytes:
        line = self._noting(lambda: self._file.readline(_AT_ONCE))
        if len(line) == _AT_ONCE:
            raise _TooMuchError
        return line

    def seek(self, offset: int, whence: int = 0) -> int:
        at = offset + (0, self.tell(), self._size)[whence]
        if not 0 <= at <= self._size:
            raise ValueError("outside the file")
        return self._noting(lambda: self._file.seek(at))

    def tell(self) -> int:
        return self._noting(self._file.tell)

    def _noting(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except OSError as error:
            self.error = error
            raise


def _on(file: SourceFile, patience: Patience, ask: Callable[[_Stream], T]) -> T:
    def opened() -> T:
        with open_regular(file.real) as raw:
            stream = _Stream(raw, file.size)
            answer = ask(stream)
            if stream.error:
                raise stream.error
            return answer

    return patience.read(file.path, opened)


def _members(stream: _Stream) -> list[str] | None:
    """Return the names in a zip archive, None if its list of them is missing or cannot be read."""
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return None


def _is_protocol_0_or_1(stream: _Stream) -> bool:
    """Say whether a file begins like a pickle of a protocol that has no mark: with instructions that make sense."""
    try:
        for number, (opcode, _, _) in enumerate(pickletools.genops(stream), 1):  # pyright: ignore[reportArgumentType]
            if opcode.name == "STOP" or number == _OPCODES:
                return True
    except _TooMuchError:
        return True
    except ValueError:
        pass
    return False
