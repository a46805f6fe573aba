"""How the bytes of a copy are shared out among streams: any files, any interleaving, hung streams and rivals too."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preload import work as works
from preload.work import FileWork, Piece, Range, Work

BEGIN, READ, WRITE = "begin", "read", "write"


@st.composite
def all_files(draw: st.DrawFn, unit: int) -> dict[int, FileWork]:
    found = {}
    for number in range(draw(st.integers(1, 6))):
        size = draw(st.sampled_from([0, 1, unit, unit + 1, 100]) | st.integers(0, 400))
        missing, at = [], 0
        while at < size:
            end = min(size, at + unit * draw(st.integers(1, 20)))
            if draw(st.booleans()):
                missing.append((at, end))
            at = end + unit * draw(st.integers(0, 2))
        if missing or not size:
            found[number] = FileWork(size, missing or [(0, 0)], unit)
    return found or {0: FileWork(0, [(0, 0)], unit)}


@dataclass
class Copying:
    """All streams of one copy, one step of one of them at a time.

    Attributes:
        hung: streams that never come back from a read.
        longest: the most seconds of one step.
    """

    files: dict[int, FileWork]
    streams: int
    most: int
    small: int
    chance: random.Random
    hung: set[int] = field(default_factory=set)
    longest: float = 0.4

    def __post_init__(self) -> None:
        self.work = Work({n: FileWork(f.size, list(f.missing), f.unit) for n, f in self.files.items()}, *self._how())
        self.now = 0.0
        self.held: list[tuple[Range, str] | None] = [None] * self.streams
        self.written = {number: [0] * file.size for number, file in self.files.items()}
        self.whole: list[int] = []
        self.rivals = 0

    def _how(self) -> tuple[int, int]:
        return self.streams, self.small

    def run(self) -> None:
        for _ in range(200_000):
            if self.work.finished:
                return
            self.now += self.chance.random() * self.longest
            self.step(self.chance.randrange(self.streams))
        raise AssertionError("it does not come to an end")

    def step(self, stream: int) -> None:
        held = self.held[stream]
        if held is None:
            taken = self.work.take(self.now)
            if taken is None:
                self.assert_that_no_stream_has_much_left()
            else:
                self.rivals += taken.piece is not None
                self.held[stream] = (taken, BEGIN)
            return
        mine, state = held
        if state == BEGIN:
            if mine.piece is None and self.chance.random() < 0.1:
                self.work.give_back(mine)
                self.held[stream] = None
                return
            piece = self.work.begin(mine, self.now, self.most)
            self.held[stream] = (mine, READ) if piece else None
            if piece:
                self.assert_that_a_piece_lies_on_units(piece)
        elif state == READ:
            if stream in self.hung or self.chance.random() < 0.3:
                return
            if self.work.claim(mine):
                self.assert_that_nobody_else_writes_there(stream, mine)
                self.held[stream] = (mine, WRITE)
            else:
                self.work.abandon(mine)
                self.held[stream] = (mine, BEGIN)
        elif self.chance.random() < 0.2:
            self.work.moved(mine, self.now)
            self.held[stream] = (mine, READ)
        else:
            self.write(mine)
            self.held[stream] = (mine, BEGIN)

    def write(self, mine: Range) -> None:
        piece = mine.piece
        assert piece
        for at in range(piece.start, piece.end):
            self.written[piece.file][at] += 1
        if self.work.written(mine, self.now):
            assert self.written[piece.file] == self.wanted(piece.file), "whole too early"
            self.whole.append(piece.file)

    def wanted(self, number: int) -> list[int]:
        file = self.files[number]
        return [int(any(start <= at < end for start, end in file.missing)) for at in range(file.size)]

    def assert_that_a_piece_lies_on_units(self, piece: Piece) -> None:
        file = self.files[piece.file]
        starts, ends = zip(*file.missing, strict=True)
        assert piece.start in starts or piece.start % file.unit == 0
        assert piece.end in ends or piece.end % file.unit == 0
        assert piece.end - piece.start <= max(self.most, file.unit)

    def assert_that_nobody_else_writes_there(self, stream: int, mine: Range) -> None:
        piece = mine.piece
        assert piece
        for other, held in enumerate(self.held):
            if held and other != stream and held[1] == WRITE and held[0].piece and held[0].file == piece.file:
                theirs = held[0].piece
                assert theirs.end <= piece.start or piece.end <= theirs.start

    def assert_that_no_stream_has_much_left(self) -> None:
        """Hold that a stream has nothing to do only while others are at their last pieces."""
        for held in self.held:
            left = held[0].end - held[0].at if held else 0
            if held and held[0].piece is None:
                assert left < 2 * self.files[held[0].file].unit  # about to become one piece
            else:
                assert left <= 0
        pieces = {id(held[0].piece): held[0].piece for held in self.held if held}
        open_pieces = sum(piece.end - piece.start for piece in pieces.values() if piece and not piece.done)
        about_to_begin = sum(held[0].end - held[0].at for held in self.held if held and held[0].piece is None)
        assert self.work.left == open_pieces + about_to_begin, "bytes that nobody has"


@st.composite
def copies(draw: st.DrawFn) -> Copying:
    unit = draw(st.sampled_from([1, 4, 16]))
    return Copying(
        files=draw(all_files(unit)),
        streams=draw(st.integers(1, 6)),
        most=unit * draw(st.integers(1, 3)),
        small=draw(st.sampled_from([0, 10, 60])),
        chance=random.Random(draw(st.integers(0, 2**32))),
    )


@settings(max_examples=150, deadline=None, database=None)
@given(copies())
def test_each_missing_byte_is_written_once_and_each_file_is_whole_once_whatever_the_order(copying):
    copying.run()
    assert copying.written == {number: copying.wanted(number) for number in copying.files}
    assert sorted(copying.whole) == sorted(copying.files)
    assert copying.work.left == 0
    assert all(copying.work.take(copying.now) is None for _ in range(3))


@settings(max_examples=60, deadline=None, database=None)
@given(copies(), st.data())
def test_streams_that_hang_in_a_read_for_ever_do_not_keep_the_others_from_the_end(copying, data):
    copying.hung = data.draw(st.sets(st.integers(0, copying.streams - 1), max_size=copying.streams - 1))
    copying.longest = 2.0
    copying.run()
    assert copying.written == {number: copying.wanted(number) for number in copying.files}
    assert sorted(copying.whole) == sorted(copying.files)


def test_the_simulation_does_meet_rivals():
    rivals = 0
    for seed in range(20):
        copying = Copying({0: FileWork(100, [(0, 100)], 4)}, 3, 8, 0, random.Random(seed), {0}, 2.0)
        copying.run()
        rivals += copying.rivals
    assert rivals >= 10


def taken(work: Work, now: float = 0.0) -> Range:
    found = work.take(now)
    assert found
    return found


def test_a_file_larger_than_small_is_shared_by_all_streams_from_the_start():
    work = Work({0: FileWork(1000, [(0, 1000)], 10)}, 4, 100)
    parts = [taken(work) for _ in range(4)]
    assert {part.file for part in parts} == {0}
    assert sum(part.end - part.at for part in parts) < 1000


def test_small_files_and_large_ones_take_turns_and_small_ones_come_in_order():
    files = {n: FileWork(10, [(0, 10)], 10) for n in range(3)} | {3: FileWork(1000, [(0, 1000)], 10)}
    work = Work(files, 4, 100)
    order = [taken(work).file for _ in range(6)]
    assert order[0] == 0
    assert [n for n in order if n < 3] == [0, 1, 2]
    assert order.count(3) == 3


def test_an_idle_stream_takes_the_second_half_of_what_another_has_not_begun():
    work = Work({0: FileWork(800, [(0, 800)], 10)}, 2, 800)
    whole = taken(work)
    work.begin(whole, 0.0, 100)
    half = taken(work)
    assert (whole.at, whole.end, half.at, half.end) == (100, 450, 450, 800)


@pytest.mark.parametrize("seconds", [0.0, works.STUCK_SECONDS - 0.01])
def test_a_read_in_its_time_has_no_rival(seconds):
    work = Work({0: FileWork(10, [(0, 10)], 10)}, 2, 0)
    work.begin(taken(work), 0.0, 10)
    assert work.take(seconds) is None


def test_a_read_that_takes_too_long_gets_a_rival_and_the_one_that_comes_second_writes_nothing():
    work = Work({0: FileWork(10, [(0, 10)], 10)}, 3, 0)
    first = taken(work)
    work.begin(first, 0.0, 10)
    second = taken(work, works.STUCK_SECONDS)
    assert work.take(works.STUCK_SECONDS) is None, "one at a time"
    work.begin(second, 1.0, 10)
    assert work.claim(second)
    assert not work.claim(first)
    assert work.written(second, 1.0)
    assert not work.claim(first)
    work.abandon(first)
    assert work.begin(first, 2.0, 10) is None
    assert work.finished


def test_where_all_reads_are_slow_a_slow_read_is_not_taken_for_a_stuck_one():
    work = Work({0: FileWork(400, [(0, 400)], 10)}, 1, 0)
    now = 0.0
    mine = taken(work)
    for _ in range(30):
        if work.begin(mine, now, 10) is None:
            mine = taken(work, now)
            work.begin(mine, now, 10)
        now += 3.0
        assert work.claim(mine)
        work.written(mine, now)
    while mine.piece is None:
        if work.begin(mine, now, 10) is None:
            mine = taken(work, now)
    others = []
    while (found := work.take(now)) is not None:
        others.append(found)
    assert work.take(now + 2 * works.STUCK_SECONDS) is None
