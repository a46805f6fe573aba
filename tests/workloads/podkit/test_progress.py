"""How far a task is, as a person reads it."""

from __future__ import annotations

from podkit.progress import Progress


def test_progress_is_said_every_few_seconds_with_rate_remaining_time_and_streams():
    said: list[str] = []
    times = iter([0.0, 2.0, 5.0, 7.0, 10.0])
    progress = Progress(40_000_000_000, said.append, clock=lambda: next(times))
    for done in (0, 0, 14_000_000_000, 20_000_000_000):
        progress.update(done, 24)
    assert said == [
        "0 bytes of 40.00 GB copied, 0 bytes/s, no end in sight, 24 streams",
        "20.00 GB of 40.00 GB copied, 2.00 GB/s, 10 s left, 24 streams",
    ]


def test_on_a_terminal_progress_is_a_bar_that_is_drawn_anew_several_times_a_second():
    drawn: list[str] = []
    times = iter([0.0, 0.1, 0.3, 0.4, 0.6])
    progress = Progress(100, lambda _: None, drawn.append, lambda: next(times))
    for done in (10, 50, 60, 100):
        progress.update(done, 8)
    assert [text[:34] for text in drawn] == [f"[{'#' * 15}{'.' * 15}] 5", f"[{'#' * 30}] 1"]
