"""Which files are Python pickles: whoever wrote one can run code in the program that loads it.

A file whose name ends like one is a pickle unless it is known to be none: what `pickle`, `zipfile` or torch would read
in it, as far as it can be told, ends before anything is called. A file of another name is one by its content alone.
"""

from __future__ import annotations

import enum
import io
import pickletools
import posixpath
import struct
import tarfile
import threading
import zipfile
from collections.abc import Callable
from typing import BinaryIO, TypeVar, cast

from modelfolder.source import SourceFile, open_regular
from podkit.patience import Patience

T = TypeVar("T")

START = 512
"""Bytes from the start of a file that `kind` needs: the first header of a tar archive."""

SUFFIXES = (
    b".bin", b".pt", b".pth", b".ckpt", b".pkl", b".pickle", b".joblib", b".th", b".ptl", b".pk", b".pckl", b".dill",
    b".pt.tar", b".pth.tar",
)  # fmt: skip
"""How files end that torch, pickle and joblib load, and that need not be pickles."""

_NEVER = (b".safetensors", b".gguf")
"""How files end that are only ever read as what they are named."""

_COMPRESSED = (
    b"\x1f\x8b", b"BZ", b"\xfd7zXZ", b"]\0", b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"ZF",
    b"x\x01", b"x\x5e", b"x\x9c", b"x\xda",
)  # fmt: skip
"""How gzip, bzip2, xz, lzma, lz4, zstd, joblib's own format and zlib begin, in which pickles are put."""

_TAR = ("sys_info", "storages", "tensors", "pickle")
"""What a tar archive of torch before 0.1.10 holds (torch/serialization.py: _legacy_load)."""

_ZIP = b"PK\x03\x04"
_ZIP_END = b"PK\x05\x06"
_ZIP_END_RECORD = struct.Struct("<4s4H2LH")
_ZIP_TAIL = 128 << 10  # bytes at the end in which a zip archive's end is looked for: more than zipfile or torch look at

_AT_ONCE = 4 << 20  # bytes; the list of a torch archive's members has less than a hundred for each tensor
_OPCODES = 64  # so many in a row are no accident
_MEMBERS = 10_000  # of a tar archive that are looked at

_CALLS = frozenset(
    {
        "GLOBAL", "INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "OBJ", "NEWOBJ", "NEWOBJ_EX", "REDUCE", "BUILD",
        "PERSID", "BINPERSID", "STOP",
    }
)  # fmt: skip
"""Opcodes that import or call something, and the one that ends a pickle."""

_BY_CODE = {opcode.code: opcode for opcode in pickletools.opcodes}

_archives = threading.Lock()
"""Held while an archive's list of members is in memory, so that many threads do not have one each."""


class Kind(enum.Enum):
    """What a file is.

    Attributes:
        PICKLE: a Python pickle, an archive with one, or what cannot be told from these.
        CUT: named like one, and a zip archive that has no end or cannot be read; what is left may be a pickle.
        OTHER: anything else.
    """

    PICKLE = enum.auto()
    CUT = enum.auto()
    OTHER = enum.auto()


class _Pickled(enum.Enum):
    """What the pickle machine makes of a file: it is marked as a pickle, may be one, or fails before any call."""

    MARKED = enum.auto()
    MAYBE = enum.auto()
    FAILS = enum.auto()


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
    if start.startswith(_ZIP):
        return _on(file, patience, lambda stream: _zip(stream, named))
    if not named:
        pickled = _pickled(io.BytesIO(start)) == _Pickled.MARKED
        return Kind.PICKLE if pickled or (_is_tar(start) and _on(file, patience, _is_torch_tar)) else Kind.OTHER
    harmless = (
        not start.startswith(_COMPRESSED)
        and not _is_tar(start)
        and _on(file, patience, _pickled) == _Pickled.FAILS
        and not _on(file, patience, _ends_like_zip)
    )
    return Kind.OTHER if harmless else Kind.PICKLE


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


def _zip(stream: _Stream, named: bool) -> Kind:
    """Say what a zip archive is."""
    if not _ends_like_zip(stream):
        return Kind.CUT if named else Kind.OTHER
    try:
        with _archives, zipfile.ZipFile(stream) as archive:
            holds = any(name.lower().endswith(".pkl") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return Kind.CUT if named else Kind.PICKLE
    # torch finds the list of members by its place, zipfile by the archive's end: they can be two lists.
    end = stream.seek(-_ZIP_END_RECORD.size, 2)
    mark, *_, size, offset, comment = _ZIP_END_RECORD.unpack(stream.read(_ZIP_END_RECORD.size))
    one_list = (mark, offset + size, comment) == (_ZIP_END, end, 0)
    return Kind.PICKLE if named or holds or not one_list else Kind.OTHER


def _ends_like_zip(stream: _Stream) -> bool:
    stream.seek(-min(stream.seek(0, 2), _ZIP_TAIL), 2)
    return _ZIP_END in stream.read()


def _is_tar(start: bytes) -> bool:
    """Say whether a tar archive's header comes first; that of an old one has no mark, and a checksum alone."""
    try:
        tarfile.TarInfo.frombuf(start, "utf-8", "surrogateescape")
    except (tarfile.TarError, ValueError):
        return False
    return True


def _is_torch_tar(stream: _Stream) -> bool:
    """Say whether a tar archive has a member that torch looks for, or more members than are looked at."""
    try:
        with _archives, tarfile.open(fileobj=cast("BinaryIO", stream), mode="r:") as archive:
            for number, member in enumerate(archive):
                if number == _MEMBERS or posixpath.basename(posixpath.normpath(member.name)) in _TAR:
                    return True
    except (tarfile.TarError, ValueError, OverflowError, RecursionError):
        return True
    return False


def _pickled(stream: _Stream | BinaryIO) -> _Pickled:
    """Say what the pickle machine makes of a file: it obeys one opcode after the other, until it meets none."""
    for _ in range(_OPCODES):
        code = stream.read(1).decode("latin-1")
        opcode = _BY_CODE.get(code)
        if opcode is None:
            return _Pickled.FAILS if code else _Pickled.MAYBE
        if opcode.name == "PROTO":
            return _Pickled.MARKED
        if opcode.name in _CALLS:
            return _Pickled.MAYBE
        try:
            if opcode.arg:
                opcode.arg.reader(cast("BinaryIO", stream))
        except ValueError:  # pickle may read what this library cannot
            return _Pickled.MAYBE
    return _Pickled.MAYBE
