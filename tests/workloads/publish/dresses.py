"""Pickles in disguise: files that make some reader call `os.mkdir`, however they look to a program that only inspects.

    python dresses.py FOLDER    # writes them, loads each with each reader in a process of its own; JSON: who called

Needs torch, and nothing of this repository.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

READERS = ("pickle", "torch", "torch.jit", "gzip", "bz2", "lzma", "zlib", "zipfile")
"""Programs that load a file: `pickle`, `torch` without weights_only, and what joblib unpacks first."""


def _called(mark: str) -> bytes:
    """Return instructions of protocol 0 that make a folder."""
    return b"cposix\nmkdir\n(V%s\ntR" % mark.encode()


class _Calls:
    def __init__(self, mark: str):
        self._mark = mark

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (self._mark,)


def _zip(members: dict[str, bytes], *, comment: bytes = b"") -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.comment = comment
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _two_directories(shown: dict[str, bytes], hidden: dict[str, bytes]) -> bytes:
    """Return a zip archive whose end is preceded by one list of members and names the place of another."""
    inner, outer = _zip(hidden), _zip(shown)
    inner_end, outer_end = inner.rindex(b"PK\5\6"), outer.rindex(b"PK\5\6")
    _, _, inner_count, inner_size, inner_at, _ = struct.unpack("<4s4xHHLLH", inner[inner_end:])
    _, _, _, outer_size, outer_at, _ = struct.unpack("<4s4xHHLLH", outer[outer_end:])
    size = max(inner_size, outer_size)
    first = inner[:inner_end] + bytes(size - inner_size)
    second = outer[outer_at:outer_end] + bytes(size - outer_size)
    return first + second + struct.pack("<4s4xHHLLH", b"PK\5\6", inner_count, inner_count, size, inner_at, 0)


def _tar(members: dict[str, bytes], *, kind: int = tarfile.PAX_FORMAT, magic: bool = True) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    data = bytearray(buffer.getvalue())
    at = 0
    while not magic and data[at]:
        size = int(data[at + 124 : at + 135], 8)
        data[at + 257 : at + 265] = bytes(8)
        data[at + 148 : at + 156] = b" " * 8
        data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
        at += 512 + -(-size // 512) * 512
    return bytes(data)


def dresses(mark: str) -> dict[str, bytes]:
    """Return files by their names; each makes the folder `mark` in at least one reader."""
    calls = _called(mark)
    plain = {protocol: pickle.dumps(_Calls(mark), protocol) for protocol in range(6)}
    storages, nothing = calls + b".", pickle.dumps(0, 2)
    archive = {"archive/data.pkl": plain[2], "archive/version": b"3\n", "archive/byteorder": b"little"}
    benign = {f"archive/data/{number}": b"weights" for number in range(3)}
    legacy = {"storages": storages, "tensors": nothing, "pickle": nothing}
    return {
        # Broken or missing ends.
        "no-end.bin": plain[2][:-1],
        "no-end-0.bin": calls,
        "broken-end.bin": calls + b"\xff\xff\xff",
        "broken-end-after-the-stop.bin": calls + b".\xff",
        "end-in-an-argument.bin": calls + b"X\xff\xff\xff\x7fshort",
        "end-in-a-line.bin": calls + b"Vno line feed",
        "text-that-one-reader-refuses.bin": b"S'\xc3\xa9'\n0" + calls + b".",
        "number-that-one-reader-refuses.bin": b"I0x10\n0" + calls + b".",
        "frame-that-is-too-short.bin": b"\x80\x04\x95\x02\0\0\0\0\0\0\0" + calls + b".",
        # Something before the mark of a pickle, or before what is called.
        "one-before.bin": b"N0" + plain[4],
        "mark-before.bin": b"(1" + plain[2],
        "text-before.bin": b"Vread me\n0" + plain[5],
        "many-before.bin": b"N0" * 5000 + calls + b".",
        "memo-before.bin": b"".join(b"K\1q%c0" % number for number in range(60)) + calls + b".",
        "large-text-before.bin": b"X" + struct.pack("<L", 5 << 20) + bytes(5 << 20) + b"0" + calls + b".",
        "import-alone.bin": b"N0" + calls + b"0cno.such.module\nx\n",
        "instance.pt": b"(V%s\niposix\nmkdir\n." % mark.encode(),
        "object.pth": b"(cposix\nmkdir\nV%s\no." % mark.encode(),
        "build-after.ckpt": b"}0" + calls + b"0N.",
        # Archives of torch.
        "archive.bin": _zip(archive),
        "archive-in-capitals.bin": _zip({name.replace(".pkl", ".PKL"): data for name, data in archive.items()}),
        "archive-with-a-comment.bin": _zip(archive, comment=b"of torch"),
        "archive-with-two-lists.bin": _two_directories(benign, archive),
        "archive-with-two-lists.dat": _two_directories(benign, archive),
        "archive-behind-weights.bin": bytes(4096) + _zip(archive),
        "archive-and-more.bin": _zip(archive) + bytes(100),
        # Tar archives of torch before 0.1.10.
        "tar.bin": _tar(legacy),
        "tar-without-mark.bin": _tar(legacy, kind=tarfile.USTAR_FORMAT, magic=False),
        "tar-without-mark.dat": _tar(legacy, kind=tarfile.USTAR_FORMAT, magic=False),
        "tar-with-another-first.bin": _tar({"README.md": b"# A model", **legacy}),
        "tar-with-another-first.dat": _tar({"README.md": b"# A model", **legacy}),
        "tar-with-pax-header.dat": _tar({"a" * 300: b"", **legacy}),
        "tar-of-gnu.dat": _tar({"a" * 300: b"", **legacy}, kind=tarfile.GNU_FORMAT),
        "tar-cut.dat": _tar(legacy)[:1024],
        # What is unpacked first.
        "gzip.bin": gzip.compress(plain[4], mtime=0),
        "bzip2.pt": bz2.compress(plain[4]),
        "lzma.pkl": lzma.compress(plain[4], lzma.FORMAT_ALONE),
        "xz.ckpt": lzma.compress(plain[4]),
        "zlib.joblib": zlib.compress(plain[4]),
        "zlib-level-1.joblib": zlib.compress(plain[4], 1),
        # Names.
        "CAPITALS.BIN": calls + b".",
        "x.dill": calls + b".",
        "x.pth.tar": calls + b".",
        "sub/x.th": calls + b".",
        "x.json": b"N0" + plain[2],
        "x.md": plain[3][:-1],
    }


def load(reader: str, path: str) -> None:
    """Load a file with one of READERS."""
    if reader == "torch":
        import_module("torch").load(path, weights_only=False)
    elif reader == "torch.jit":
        import_module("torch").jit.load(path)
    elif reader == "zipfile":
        with zipfile.ZipFile(path) as archive:
            for name in archive.namelist():
                if name.lower().endswith(".pkl"):
                    pickle.loads(archive.read(name))
    else:
        content = Path(path).read_bytes()
        pickle.loads(content if reader == "pickle" else import_module(reader).decompress(content))


def who_calls(folder: Path) -> dict[str, list[str]]:
    """Write the dresses into a folder, and return by which readers each was obeyed."""
    folder.mkdir(parents=True, exist_ok=True)
    mark = folder / "called"
    found: dict[str, list[str]] = {}
    for name, content in dresses(str(mark)).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        found[name] = []
        for reader in READERS:
            child = os.fork()
            if not child:
                os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
                try:
                    load(reader, str(path))
                finally:
                    os._exit(0)
            os.waitpid(child, 0)
            if mark.exists():
                mark.rmdir()
                found[name].append(reader)
    return found


if __name__ == "__main__":
    version = import_module("torch").__version__
    print(json.dumps({"torch": version, "obeyed": who_calls(Path(sys.argv[1]))}, indent=1))
