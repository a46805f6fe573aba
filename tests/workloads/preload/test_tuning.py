"""How the number of streams is found, on sources that are only formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preload.tuning import STREAMS_MIN, Tuner

STEP = 0.05
"""Seconds between two looks, as in the copy."""

Source = Callable[[int, float], float]
"""Bytes per second, for a number of streams at a moment."""


class Transfer:
    """A copy of so many bytes from a source, with a clock of its own."""

    def __init__(self, source: Source, total: float, streams: int = 32):
        self.now = 0.0
        self.copied = 0.0
        self.total = total
        self.source = source
        self.seen: list[int] = [streams]
        self.tuner = Tuner(streams, lambda: self.now)

    def run(self, seconds: float = float("inf")) -> None:
        end = self.now + seconds
        while self.copied < self.total and self.now < end:
            self.now += STEP
            self.copied += STEP * self.source(self.tuner.streams, self.now)
            if self.tuner.update(int(self.copied), int(self.total - self.copied)):
                self.seen.append(self.tuner.streams)


def capped(each: float) -> Source:
    """A source that gives each stream so much and no more."""
    return lambda streams, _: streams * each


def saturated(by: int, each: float = 100e6) -> Source:
    """A source that gives no more to more streams than these."""
    return lambda streams, _: min(streams, by) * each


@pytest.mark.parametrize("seconds", [5, 19, 21, 25, 30, 40, 60, 100, 300, 1000])
@pytest.mark.parametrize("streams", [5, 32, 1024])
def test_where_each_stream_is_limited_all_are_kept_and_trials_cost_less_than_3_percent(streams, seconds):
    transfer = Transfer(capped(100e6), streams * 100e6 * seconds, streams)
    transfer.run()
    assert transfer.now < 1.03 * seconds + STEP
    assert transfer.tuner.streams >= 0.75 * streams - 1


@pytest.mark.parametrize("by", [4, 6, 8, 13, 16, 24, 31])
def test_where_fewer_are_as_fast_it_comes_down_to_about_as_many_as_are_needed(by):
    source = saturated(by)
    transfer = Transfer(source, source(by, 0) * 300)
    transfer.run()
    assert transfer.now < 1.03 * 300
    settled = transfer.seen[-1]
    assert by * 0.7 - 1 <= settled <= by / 0.7 + 1
    assert min(transfer.seen) >= by * 0.7 - 1


@pytest.mark.parametrize("streams", [1, 2, 3, 4, 5, 32, 1024])
@pytest.mark.parametrize("by", [1, 3, 2000])
def test_it_never_goes_below_4_nor_above_what_is_allowed(streams, by):
    transfer = Transfer(saturated(by), min(by, streams) * 100e6 * 400, streams)
    transfer.run()
    assert min(transfer.seen) >= min(STREAMS_MIN, streams)
    assert max(transfer.seen) <= streams


def test_it_comes_back_up_when_the_source_gives_more():
    def source(streams: int, now: float) -> float:
        return min(streams, 8 if now < 60 else 32) * 100e6

    transfer = Transfer(source, 3.2e9 * 1000)
    transfer.run(60)
    assert transfer.tuner.streams <= 12
    transfer.run(400)
    assert transfer.tuner.streams >= 24


def test_a_copy_that_will_soon_be_over_makes_no_trial():
    transfer = Transfer(capped(100e6), 32 * 100e6 * 19)
    transfer.run()
    assert transfer.seen == [32]


def test_a_source_that_stands_still_makes_no_trial_that_divides_by_zero():
    transfer = Transfer(lambda *_: 0.0, 1e9)
    transfer.run(60)
    assert 4 <= transfer.tuner.streams <= 32


@pytest.mark.parametrize("begin", [0, 0.4, 3, 20, 60])
@pytest.mark.parametrize("stall", [1, 5, 15, 60])
def test_a_source_that_stalls_for_a_while_costs_little_more_than_the_stall(begin, stall):
    def source(streams: int, now: float) -> float:
        return 0.0 if begin <= now < begin + stall else streams * 100e6

    transfer = Transfer(source, 32 * 100e6 * 120)
    transfer.run()
    assert transfer.now < 1.06 * 120 + stall
    assert transfer.tuner.streams > 16


def test_after_coming_down_to_the_least_it_goes_up_again_when_more_are_faster():
    def source(streams: int, now: float) -> float:
        return (min(streams, 4) if now < 60 else streams) * 100e6

    transfer = Transfer(source, 1e15)
    transfer.run(59)
    assert transfer.tuner.streams < 8
    transfer.run(120)
    assert transfer.tuner.streams > 16
