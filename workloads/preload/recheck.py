"""Files in a destination that no record vouches for: each is held against the hashes that were published.

Such a file may be whole all the same: the node was reset before a copy through the page cache was on disk, the copy was
verified less than is asked for now, the journal is torn. To read it here costs the source nothing.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from modelfolder import pool
from modelfolder.patience import Patience
from modelfolder.processor import processors
from modelfolder.source import Source, SourceFile
from preload.buffers import page_buffer
from preload.copier import SMALL, SYNCED_SMALL_FILES
from preload.destination import Destination, Inventory
from preload.mode import Mode
from preload.state import PAGE, Past, Record

PIECE = 64 << 20
"""What a thread reads in a row, in bytes: so that one large file keeps all threads busy."""


class Doubt(NamedTuple):
    """A file of the right size in the destination, and its record as it lies there."""

    file: SourceFile
    record: Record


def doubts(source: Source, found: Inventory, past: Past) -> list[Doubt]:
    """Return the files that may be whole, that nothing vouches for, and that hashes were published of.

    A file with a second name is none: its mode and mtime are somebody else's, too.
    """
    possible = []
    for file in source.files:
        status = found.files.get(file.path)
        if status is None or file.path in past.records or not file.listed.blocks:
            continue
        if stat.S_ISREG(status.st_mode) and status.st_size == file.size and status.st_nlink == 1:
            possible.append(Doubt(file, Record.of(status)))
    return possible


def threads(most: int) -> int:
    """Return how many threads read and hash, of so many that are allowed: two for each processor, four at the least."""
    return min(most, max(4, 2 * processors()))


def whole(
    possible: Sequence[Doubt],
    destination: Destination,
    mode: Mode,
    most_threads: int,
    patience: Patience,
    tick: Callable[[int], None],
) -> Past:
    """Hold files against their hashes, and return the records of those that are whole; the first wrong block ends one.

    What cannot be read counts as not whole: it is copied again, which says why if that fails, too.

    Args:
        possible: the files.
        destination: where they lie; those that are whole get their mode and mtime.
        mode: whether to read around the page cache.
        most_threads: how many threads there may be.
        patience: tells when to stop.
        tick: told from the threads how many more bytes were read, or need not be.

    Raises:
        FaststartError: 143, SIGTERM.
    """
    return _Recheck(destination, mode, patience, tick).run(possible, threads(most_threads))


class _Piece(NamedTuple):
    """Some blocks of a file, one after the other."""

    doubt: Doubt
    first: int
    end: int


@dataclass(frozen=True)
class _Recheck:
    destination: Destination
    mode: Mode
    patience: Patience
    tick: Callable[[int], None]

    def run(self, possible: Sequence[Doubt], number: int) -> Past:
        wrong: set[bytes] = set()
        past = Past()

        def read(piece: _Piece) -> None:
            path = piece.doubt.file.path
            try:
                fits = path not in wrong and self._fits(piece)
            except OSError:
                fits = False
            if not fits:
                wrong.add(path)
            self.tick(min(piece.end * _step(piece), piece.doubt.file.size) - piece.first * _step(piece))

        def keep(doubt: Doubt) -> None:
            path, small = doubt.file.path, doubt.file.size <= SMALL
            try:
                sync = not small or sync_small
                past.records[path] = self.destination.keep(doubt.file, doubt.record, sync=sync, drop=self.mode.drop)
            except OSError:
                return
            if sync:
                past.synced.add(path)

        small = [doubt for doubt in possible if doubt.file.size <= SMALL]
        sync_small = len(small) <= SYNCED_SMALL_FILES
        pool.each([piece for doubt in small for piece in _pieces(doubt)], read, self.patience)
        large = [piece for doubt in possible if doubt.file.size > SMALL for piece in _pieces(doubt)]
        pool.each(large, read, self.patience, number)
        pool.each([doubt for doubt in possible if doubt.file.path not in wrong], keep, self.patience)
        return past

    def _fits(self, piece: _Piece) -> bool:
        """Say whether each block has its hash.

        Raises:
            OSError: it cannot be read.
        """
        file, record = piece.doubt
        step = _step(piece)
        buffer = page_buffer(min(self.mode.request, -(-file.size // PAGE) * PAGE))
        with self.destination.opened(file.path, record, direct=self.mode.direct) as (fd, _):
            for number in range(piece.first, piece.end):
                digest = hashlib.sha256()
                at, end = number * step, min((number + 1) * step, file.size)
                while at < end:
                    self.patience.check()
                    # Around the page cache whole pages are asked for; the last ones of a file come short.
                    count = min(os.preadv(fd, [buffer[: -(-(end - at) // PAGE) * PAGE]], at), end - at)
                    if not count:
                        return False
                    digest.update(buffer[:count])
                    at += count
                if digest.digest() != file.listed.blocks[number]:
                    return False
        return True


def _step(piece: _Piece) -> int:
    return piece.doubt.file.listed.block_bytes


def _pieces(doubt: Doubt) -> list[_Piece]:
    blocks = len(doubt.file.listed.blocks)
    together = max(1, PIECE // doubt.file.listed.block_bytes)
    return [_Piece(doubt, first, min(first + together, blocks)) for first in range(0, blocks, together)]
