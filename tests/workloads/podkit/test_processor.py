"""Threads that share one processor."""

from __future__ import annotations

import os
import threading

import pytest

from podkit import processor
from podkit.processor import SharedProcessor


def in_a_thread(work) -> set[int]:
    found: list[set[int]] = []
    thread = threading.Thread(target=lambda: found.append(work()))
    thread.start()
    thread.join()
    return found[0]


def test_a_thread_that_joins_the_shared_processor_stays_on_it_until_it_leaves_and_no_other_thread_moves():
    before = os.sched_getaffinity(0)
    shared = SharedProcessor()

    def joined() -> set[int]:
        shared.join()
        return os.sched_getaffinity(0)

    def left() -> set[int]:
        shared.join()
        shared.leave()
        return os.sched_getaffinity(0)

    assert in_a_thread(joined) <= before
    assert len(in_a_thread(joined)) == 1
    assert in_a_thread(left) == before
    assert os.sched_getaffinity(0) == before


def test_programs_with_the_same_process_number_do_not_all_share_the_same_processor(monkeypatch):
    """As they have in containers."""
    used: list[set[int]] = []
    monkeypatch.setattr(processor.os, "getpid", lambda: 1)
    monkeypatch.setattr(processor.os, "sched_getaffinity", lambda _: {3, 5, 8, 9})
    monkeypatch.setattr(processor.os, "sched_setaffinity", lambda _, processors: used.append(processors))
    for drawn in range(8):
        monkeypatch.setattr(processor.os, "urandom", lambda size, drawn=drawn: bytes([drawn] * size))
        SharedProcessor().join()
    assert {next(iter(one)) for one in used} == {3, 5, 8, 9}


@pytest.mark.parametrize("error", [OSError(1, "not permitted"), AttributeError("no such call here")])
def test_where_threads_cannot_be_moved_they_stay(monkeypatch, error):
    def refuse(*_):
        raise error

    monkeypatch.setattr(processor.os, "sched_getaffinity", refuse)
    shared = SharedProcessor()
    shared.join()
    shared.leave()
