"""Which bytes are copied next, and by whom: ranges of files, shared out so that no stream is idle before the end.

Nothing here waits, reads or writes; the caller holds a lock around each call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RANGE_MAX = 64 << 20
"""The most bytes of one range. Smaller ones at the end, and split ranges, leave no tail."""

STUCK_SECONDS = 1.0
"""A read may take this long, or STUCK_FACTOR times as long as others do, before an idle stream tries it too."""

STUCK_FACTOR = 4.0

_MEMORY = 0.1  # the weight of the last read in the mean of how long reads take

Interval = tuple[int, int]
"""Start and end of some bytes of a file; the end is not part of it."""


@dataclass(eq=False)
class Piece:
    """Bytes of one file that are read, and then written, as one.

    Attributes:
        owner: the range whose stream may write it.
        moves: how often it came forward; a rival has lost once this changes.
        writing: whether its bytes are being written at the moment; nobody else may then.
        since: when its present read began.
        rivals: how many streams besides the first have tried it.
        reached: up to where the first stream has read or is reading it; 0 where that is not told.
    """

    file: int
    start: int
    end: int
    owner: Range
    since: float
    moves: int = 0
    writing: bool = False
    done: bool = False
    rivals: int = 0
    reached: int = 0


@dataclass(eq=False)
class Range:
    """Bytes of one file that one stream copies, piece after piece.

    Attributes:
        at: where its next piece begins.
        end: where it ends; another stream may take over its end.
        piece: the one in work.
        seen: `moves` of the piece when this stream began with it.
        empty: whether it stands for a file without bytes.
    """

    file: int
    at: int
    end: int
    piece: Piece | None = None
    seen: int = 0
    empty: bool = False


@dataclass
class FileWork:
    """What is missing of one file.

    Attributes:
        size: in bytes.
        missing: the bytes to copy, in order.
        unit: ranges are cut at multiples of this many bytes of the file.
    """

    size: int
    missing: Sequence[Interval]
    unit: int


class Work:
    """All bytes of a copy: each is handed out until it has been written once.

    Args:
        files: what is missing of each file, by the file's number.
        streams: how many streams share it.
        small: files up to this many bytes are never split.
    """

    def __init__(self, files: Mapping[int, FileWork], streams: int, small: int):
        self.total = self.left = sum(end - start for work in files.values() for start, end in work.missing)
        self._streams = streams
        self._seconds = 0.0
        self._turn = 0
        self._units = {number: work.unit for number, work in files.items()}
        self._file_left = {number: sum(end - start for start, end in work.missing) for number, work in files.items()}
        self._files_left = len(files)
        # The last of each list is taken first.
        whole = {n for n, work in files.items() if work.size <= small and len(work.missing) == 1}
        self._small = sorted(whole, reverse=True)
        large = files.keys() - whole
        self._large = sorted(large, key=lambda number: (self._file_left[number], -number))
        self._missing = {number: list(files[number].missing) for number in [*self._small, *large]}
        self._untaken = sum(self._file_left[number] for number in large)
        self._open: dict[int, list[Interval]] = {}
        self._pieces: list[Piece] = []
        self._ranges: list[Range] = []

    @property
    def finished(self) -> bool:
        """Say whether each byte of each file has been written."""
        return not self._files_left

    @property
    def pieces(self) -> Sequence[Piece]:
        """Return the pieces that are in work."""
        return self._pieces

    def take(self, now: float, *, small: bool = True) -> Range | None:
        """Hand out a range, or None if there is nothing to do at the moment.

        First what nobody has; then the second half of another stream's range; then a piece that another stream has
        been reading for too long.

        Args:
            now: the time.
            small: whether a file that nobody has may be a small one.
        """
        found = self._new(small) or self._half() or self._stuck(now)
        if found:
            self._ranges.append(found)
        return found

    def begin(self, work: Range, now: float, most: int) -> Piece | None:
        """Begin with a range's next piece of at most so many bytes, or of one unit if that is more; None at its end."""
        if work.piece:  # of a stream that was stuck
            work.seen = work.piece.moves
            return work.piece
        if work.at >= work.end and not work.empty:
            self._ranges.remove(work)
            return None
        piece = Piece(work.file, work.at, min(work.end, work.at + most), work, now)
        work.at, work.piece, work.seen, work.empty = piece.end, piece, 0, False
        self._pieces.append(piece)
        return piece

    def claim(self, work: Range) -> bool:
        """Ask to write what was read of a range's piece; False if another stream was faster."""
        piece = work.piece
        if piece is None or piece.writing or piece.done or piece.moves != work.seen:
            return False
        piece.owner, piece.writing = work, True
        return True

    def moved(self, work: Range, now: float) -> None:
        """Note that a part of a range's piece was written, and that its next part is being read."""
        piece = _claimed(work)
        self._note(now - piece.since)
        piece.moves += 1
        piece.writing, piece.since = False, now
        work.seen = piece.moves

    def written(self, work: Range, now: float) -> bool:
        """Note that a range's piece was written whole; say whether that completes its file."""
        piece = _claimed(work)
        self._note(now - piece.since)
        piece.done, piece.writing, work.piece = True, False, None
        self._pieces.remove(piece)
        size = piece.end - piece.start
        self.left -= size
        self._file_left[piece.file] -= size
        if self._file_left[piece.file]:
            return False
        self._files_left -= 1
        return True

    def abandon(self, work: Range) -> None:
        """Give up a range's piece, which another stream has taken over."""
        work.piece = None

    def give_back(self, work: Range) -> None:
        """Let others have what is left of a range, between two of its pieces."""
        if work.empty:
            self._small.append(work.file)
        elif work.at < work.end:
            self._untaken += work.end - work.at
            self._open.setdefault(work.file, []).append((work.at, work.end))
        self._ranges.remove(work)

    def _note(self, seconds: float) -> None:
        self._seconds += _MEMORY * (seconds - self._seconds)

    def _new(self, small: bool) -> Range | None:
        self._turn += 1
        if small and self._small and (self._turn % 2 or not (self._large or self._open)):
            number = self._small.pop()
            start, end = self._missing[number][0]
            return Range(number, start, end, empty=start == end)
        while self._large and len(self._open) < self._streams:
            number = self._large.pop()
            self._open[number] = self._missing[number]
        if not self._open:
            return None
        busy = Counter(work.file for work in self._ranges)
        number = min(self._open, key=lambda number: busy[number])
        missing, unit = self._open[number], self._units[number]
        start, end = missing[0]
        size = min(RANGE_MAX, self._untaken // (2 * self._streams))
        cut = min(end, -(-max(start + size, start + 1) // unit) * unit)
        self._untaken -= cut - start
        if cut < end:
            missing[0] = (cut, end)
        else:
            del missing[0]
            if not missing:
                del self._open[number]
        return Range(number, start, cut)

    def _half(self) -> Range | None:
        """Return the second half of what is left of the range with most left, all of it if it is one unit."""
        longest = max(self._ranges, key=lambda work: work.end - work.at, default=None)
        if longest is None or longest.at >= longest.end:
            return None
        unit = self._units[longest.file]
        cut = (longest.at + longest.end) // 2 // unit * unit
        if cut <= longest.at:
            if longest.piece is None:  # its stream is about to begin with it
                return None
            cut = longest.at
        longest.end, end = cut, longest.end
        return Range(longest.file, cut, end)

    def _stuck(self, now: float) -> Range | None:
        """Return the piece that has been read for longest of those that take too long."""
        limit = max(STUCK_SECONDS, STUCK_FACTOR * self._seconds)
        late = [piece for piece in self._pieces if not piece.writing and now - piece.since >= limit * 2**piece.rivals]
        if not late:
            return None
        piece = min(late, key=lambda piece: piece.since)
        piece.rivals += 1
        return Range(piece.file, piece.end, piece.end, piece, piece.moves)


def _claimed(work: Range) -> Piece:
    if work.piece is None or not work.piece.writing or work.piece.owner is not work:
        raise AssertionError("a piece that was not claimed")
    return work.piece
