"""Blocks that several streams read at once: which bytes are shared out, and that the copy stays right."""

from __future__ import annotations

import itertools
import os
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preload import copier
from preload.shares import SHARE_MIN, Shares
from preload.work import Piece, Range
from tests.workloads.support import preload, publish, safetensors, tree, write

MIB = 1 << 20


def piece(start: int, end: int, reached: int) -> Piece:
    one = Piece(0, start, end, Range(0, end, end), 0.0)
    one.reached = reached
    return one


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 70), st.integers(0, 4095)), min_size=1, max_size=5),
    st.integers(1, 16),
    st.data(),
)
def test_shares_lie_apart_behind_what_the_own_stream_reads_and_begin_on_the_grid(blocks, most, data):
    pieces = []
    for number, (start, length, odd) in enumerate(blocks):
        end = start * MIB + length * MIB + odd
        pieces.append(piece(start * MIB, end, data.draw(st.integers(start * MIB, end), label=f"reached {number}")))
    shares, found = Shares(), []
    while share := shares.offer(pieces, 0.0, most * MIB):
        found.append(share)
    for share in found:
        assert max(share.piece.reached, share.piece.start) <= share.start < share.end <= share.piece.end
        assert share.start % SHARE_MIN == 0
        assert share.end - share.start <= most * MIB
    for one in pieces:
        mine = sorted((share.start, share.end) for share in found if share.piece is one)
        assert all(before[1] == after[0] for before, after in itertools.pairwise(mine))
        if mine:
            assert mine[-1][1] == one.end
            assert mine[0][0] - one.reached < 2 * SHARE_MIN
            assert shares.limit(one, one.reached) == mine[0][0]
        elif one.reached:
            assert one.end - one.reached < 2 * SHARE_MIN


def test_a_block_whose_own_stream_has_not_begun_is_not_shared():
    assert Shares().offer([piece(0, 64 * MIB, 0)], 0.0, 8 * MIB) is None


def test_a_share_that_is_over_is_read_by_the_block_s_own_stream():
    shares, one = Shares(), piece(0, 8 * MIB, 4 * MIB)
    share = shares.offer([one], 0.0, 8 * MIB)
    assert share
    assert shares.at(one, 4 * MIB) is share
    share.over = True
    assert (shares.at(one, 4 * MIB), shares.limit(one, 4 * MIB)) == (None, 8 * MIB)
    other = shares.offer([one], 0.0, 8 * MIB)
    assert other
    shares.forget(one)
    assert other.over


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """One file of two blocks: whoever copies with more than two streams has some that read ahead."""
    root = write(tmp_path / "source", {"config.json": b"{}", "model.safetensors": safetensors(os.urandom(15 * MIB))})
    publish(root)
    return root


class Meeting:
    """Lets the first read of a block go on only when another stream reads ahead in it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.begun = threading.Event()
        self.ahead: list[tuple[int, int]] = []
        self._reading = threading.local()
        read_ahead, read = copier.Copy._read_ahead, copier._Reader.read

        def noted(copy, share, reader):
            self.ahead.append((share.start, share.end))
            self.begun.set()
            self._reading.ahead = True
            try:
                return read_ahead(copy, share, reader)
            finally:
                self._reading.ahead = False

        def met(reader, file, at, length):
            if length and at % (8 * MIB) == 0:
                assert self.begun.wait(20)
            return read(reader, file, at, length)

        monkeypatch.setattr(copier.Copy, "_read_ahead", noted)
        monkeypatch.setattr(copier._Reader, "read", met)

    def reads_ahead(self) -> bool:
        """Say whether the calling stream reads ahead for another."""
        return getattr(self._reading, "ahead", False)


def test_a_copy_whose_blocks_are_read_by_several_streams_is_right(source, tmp_path, monkeypatch):
    meeting = Meeting(monkeypatch)
    result = preload(source, tmp_path / "destination", "--verify", "sha256", "--parallel", "8")
    assert (result.code, result.termination["retries"]) == (0, 0)
    assert tree(tmp_path / "destination") == tree(source)
    assert meeting.ahead


def test_wrong_bytes_in_a_share_are_found_and_read_again(source, tmp_path, monkeypatch):
    meeting = Meeting(monkeypatch)
    read = copier._Reader.read
    spoilt: list[int] = []

    def spoiling(reader, file, at, length):
        read(reader, file, at, length)
        if meeting.reads_ahead() and not spoilt:
            spoilt.append(at)
            reader.buffer[0] ^= 1

    monkeypatch.setattr(copier._Reader, "read", spoiling)
    result = preload(source, tmp_path / "destination", "--verify", "sha256", "--parallel", "8")
    assert (result.code, result.termination["retries"]) == (0, 1)
    assert tree(tmp_path / "destination") == tree(source)
    assert meeting.ahead


def test_a_stream_that_fails_to_read_ahead_leaves_it_to_the_block_s_own_stream(source, tmp_path, monkeypatch):
    meeting = Meeting(monkeypatch)
    read = copier._Reader.read

    def failing(reader, file, at, length):
        if meeting.reads_ahead():
            raise copier._changed(file)
        return read(reader, file, at, length)

    monkeypatch.setattr(copier._Reader, "read", failing)
    assert preload(source, tmp_path / "destination", "--verify", "sha256", "--parallel", "8").code == 0
    assert tree(tmp_path / "destination") == tree(source)
    assert meeting.ahead


def test_streams_of_many_files_that_are_more_than_system_calls_use_all_processors(tmp_path, monkeypatch):
    monkeypatch.setattr(copier, "MANY_TINY_FILES", 10)
    large = copier.TINY + 1
    files: dict[str | bytes, bytes | None] = {f"{n}.bin": os.urandom(large) for n in range(20)}
    source = write(tmp_path / "source", {"config.json": b"{}"} | files)
    widths: set[int] = set()
    read = copier._Reader.read_whole

    def noted(reader, file):
        widths.add(len(os.sched_getaffinity(0)))
        return read(reader, file)

    monkeypatch.setattr(copier._Reader, "read_whole", noted)
    assert preload(source, tmp_path / "destination", "--files", "all").code == 0
    assert widths == {len(os.sched_getaffinity(0))}


def test_many_small_files_arrive_and_their_streams_are_free_again_for_large_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(copier, "MANY_TINY_FILES", 10)
    files: dict[str | bytes, bytes | None] = {f"d{n % 7}/{n}.json": b"%d" % n for n in range(300)}
    files |= {"config.json": b"{}", "model.safetensors": safetensors(os.urandom(6 * MIB))}
    source = write(tmp_path / "source", files)
    widths: set[int] = set()
    read = copier._Reader.read

    def noted(reader, file, at, length):
        widths.add(len(os.sched_getaffinity(0)))
        return read(reader, file, at, length)

    monkeypatch.setattr(copier._Reader, "read", noted)
    assert preload(source, tmp_path / "destination", "--files", "all", "--parallel", "4").code == 0
    assert tree(tmp_path / "destination") == tree(source)
    assert widths == {len(os.sched_getaffinity(0))}
