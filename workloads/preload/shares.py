"""Blocks that several streams read at once: a hash is made in order, but its bytes need not come in order.

Without this the end of a copy waits for whole blocks, each of which comes through one stream. As in `work`, nothing
here waits or reads; the caller holds a lock around each call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from preload.work import Piece

SHARE_MIN = 1 << 20
"""Fewer bytes than this are not worth another stream. Shares begin at multiples of it."""


@dataclass(eq=False)
class Share:
    """Bytes of a block that a stream reads for the one that hashes it.

    Attributes:
        since: when its read began.
        buffer: what was read, as soon as it was.
        taken: whether the stream that hashes works with the buffer.
        over: whether nobody needs it any more.
    """

    piece: Piece
    start: int
    end: int
    since: float
    buffer: memoryview | None = None
    taken: bool = False
    over: bool = False


class Shares:
    """What is read ahead of the streams that hash."""

    def __init__(self) -> None:
        self._shares: dict[Piece, list[Share]] = {}

    def offer(self, pieces: Iterable[Piece], now: float, most: int) -> Share | None:
        """Return a share of the block with most bytes that nobody reads yet; at most so many bytes of it."""
        best, free = None, SHARE_MIN - 1
        for piece in pieces:
            if piece.reached and (left := self.limit(piece, piece.reached) - piece.reached) > free:
                best, free = piece, left
        if not best:
            return None
        end = best.reached + free
        start = end - min(most, free if free <= most else free // 2)
        start = -(-start // SHARE_MIN) * SHARE_MIN
        if start >= end:
            return None
        share = Share(best, start, end, now)
        self._shares.setdefault(best, []).append(share)
        return share

    def limit(self, piece: Piece, at: int) -> int:
        """Return up to where a block's own stream reads from an offset: to the next share, or to the end."""
        starts = (share.start for share in self._shares.get(piece, ()) if not share.over and share.start >= at)
        return min(starts, default=piece.end)

    def at(self, piece: Piece, offset: int) -> Share | None:
        """Return the share of a block that begins at an offset."""
        return next((share for share in self._shares.get(piece, ()) if share.start == offset and not share.over), None)

    def forget(self, piece: Piece) -> None:
        """Let nobody go on with shares of a block."""
        for share in self._shares.pop(piece, ()):
            share.over = True
