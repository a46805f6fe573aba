"""A system that gives a process no more threads: fewer streams, then exit 9 with the name of the limit."""

from __future__ import annotations

import errno
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from podkit import pool, threads
from podkit.patience import Patience
from podkit.threads import NoThreadError
from preload import copier
from tests.workloads.publish import support as published
from tests.workloads.support import WORKLOADS, preload, tree, write

WATCH = 1
"""The thread in which a program looks whether its source hangs; it does without, if it must."""

SOURCE = {**published.MODEL, **{f"sub/{n}.json": random.Random(n).randbytes(3000) for n in range(40)}}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", SOURCE)


@pytest.fixture
def give(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets so many threads be alive at once from then on, beside those that are."""

    def limited(most: int) -> None:
        start = threading.Thread.start
        before = threading.active_count()

        def refusing(thread: threading.Thread) -> None:
            if threading.active_count() - before >= most:
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", refusing)

    return limited


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the streams of a copy begin once all are started, so that none has ended before."""
    began = threading.Event()
    started, serve = copier.Copy._start, copier.Copy._serve

    def then_begin(copy: copier.Copy, known: list[threading.Thread]) -> None:
        try:
            started(copy, known)
        finally:
            began.set()

    def waiting(copy: copier.Copy, *about: Any) -> None:
        began.wait()
        serve(copy, *about)

    monkeypatch.setattr(copier.Copy, "_start", then_begin)
    monkeypatch.setattr(copier.Copy, "_serve", waiting)


FLAGS = [
    ("--write", "buffered"),
    ("--write", "direct"),
    ("--write", "direct", "--verify", "sha256"),
    ("--write", "buffered", "--verify", "sha256"),
]


@pytest.mark.usefixtures("together")
@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("most", [3, 4, 7, 20])
def test_a_copy_with_fewer_threads_than_streams_is_whole_and_tells_how_many_it_had(source, tmp_path, give, flags, most):
    assert published.publish("--in-place", source, "--files", "all").code == 0
    give(most + WATCH)
    ended = preload(source, tmp_path / "copy", "--files", "all", *flags)
    assert ended.code == 0, ended.message
    assert tree(tmp_path / "copy") == tree(source)
    assert ended.termination["streams"] == most - ("direct" in flags) - ("sha256" in flags)


@pytest.mark.parametrize("flags", FLAGS, ids=" ".join)
@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_copy_without_the_threads_of_one_stream_is_9_with_the_limit_and_no_marker(
    source, tmp_path, give, flags, most
):
    assert published.publish("--in-place", source, "--files", "all").code == 0
    needed = 1 + ("direct" in flags) + ("sha256" in flags)
    give(most + WATCH)
    ended = preload(source, tmp_path / "copy", "--files", "all", *flags)
    assert ended.code == (0 if most >= needed else 9)
    assert most >= needed or "no further thread can be started: " in ended.message


@pytest.mark.parametrize("verify", ["size", "sha256"])
@pytest.mark.parametrize("most", [0, 1, 2, 3, 10])
def test_a_copy_has_as_many_streams_as_get_memory(source, tmp_path, monkeypatch, most, verify):
    published.publish("--in-place", source, "--files", "all")
    given = iter(range(most))
    real = copier.page_buffer

    def refusing(size: int) -> memoryview:
        if next(given, None) is None:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return real(size)

    monkeypatch.setattr(copier, "page_buffer", refusing)
    ended = preload(source, tmp_path / "copy", "--files", "all", "--verify", verify)
    streams = most if verify == "size" else most // 2
    assert (ended.code, ended.termination["streams"] if streams else 0) == (0 if streams else 9, streams)
    assert streams or "no memory for a stream's buffers" in ended.message


@pytest.mark.parametrize("most", [2, 3, 5])
@pytest.mark.parametrize("flag", ["--check", "--in-place"])
def test_publishing_a_folder_needs_two_threads(source, give, flag, most):
    give(most + WATCH)
    assert published.publish(flag, source).code == 0


@pytest.mark.parametrize("flag", ["--check", "--in-place", "--remove"])
def test_publish_without_any_thread_is_9_with_the_limit(source, give, flag):
    published.publish("--in-place", source)
    give(WATCH)
    ended = published.publish(flag, source)
    assert ended.code == 9
    assert "no further thread can be started: " in ended.message["message"]


@pytest.mark.parametrize("number", [None, 1, 5])
def test_a_pool_does_all_of_its_work_with_the_threads_that_it_gets(give, number):
    give(1)
    done: list[int] = []
    pool.each(range(100), done.append, Patience(), number)
    assert sorted(done) == list(range(100))


@pytest.mark.parametrize(("most", "wanted"), [(0, 5), (3, 5), (5, 5), (9, 5)])
def test_so_many_threads_are_possible_as_can_be_started_and_none_is_left(give, most, wanted):
    before = threading.active_count()
    give(most)
    assert threads.possible(wanted) == min(most, wanted)
    assert threading.active_count() == before


def cgroup(top: Path, lines: str, **files: str) -> dict[str, str]:
    """Make a stand-in for proc and sysfs; keys of files are paths with `__` for a slash."""
    (top / "proc/self").mkdir(parents=True)
    (top / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = top / "sys/fs/cgroup" / name.replace("__", "/").replace("pids_", "pids.")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return {"proc": str(top / "proc"), "sysfs": str(top / "sys")}


@pytest.mark.parametrize(
    ("lines", "files", "named", "reached"),
    [
        ("0::/\n", {"pids_max": "64\n", "pids_current": "64\n"}, "the container may have 64 processes", True),
        ("0::/a/b\n", {"a__pids_max": "9\n", "a__pids_current": "9\n"}, "the container may have 9 processes", True),
        ("8:pids:/x\n", {"pids__x__pids_max": "7\n", "pids__x__pids_current": "8\n"}, "have 7 processes", True),
        ("0::/\n", {"pids_max": "64\n", "pids_current": "3\n"}, "64 processes and threads (pids.max", False),
        ("0::/\n", {"pids_max": "max\n", "pids_current": "3\n"}, "(kernel.threads-max)", False),
        ("", {}, "(kernel.threads-max)", False),
    ],
)
def test_the_limit_is_named_and_alone_where_it_is_reached(tmp_path, lines, files, named, reached):
    said = threads.limit(**cgroup(tmp_path, lines, **files))
    assert named in said
    assert ("kernel.threads-max" in said) != reached


@pytest.mark.processes
@pytest.mark.parametrize(
    ("limit", "user", "named"),
    [
        ("RLIMIT_NPROC", 2017, "the user 2017 may have 3 processes and threads (ulimit -u, RLIMIT_NPROC)"),
        ("RLIMIT_AS", 0, "bytes of address space (ulimit -v, RLIMIT_AS)"),
    ],
)
def test_a_real_limit_of_the_system_is_named(tmp_path, limit, user, named):
    if os.getuid():
        pytest.skip("only root may become another user")
    code = (
        f"import resource, threading; from podkit import threads; limit, event = resource.{limit}, threading.Event()\n"
        "now = int(open('/proc/self/statm').read().split()[0]) * 4096\n"
        f"number = {{resource.RLIMIT_NPROC: 3, resource.RLIMIT_AS: now + (60 << 20)}}[limit]\n"
        "resource.setrlimit(limit, (number, number))\n"
        f"import os; os.setuid({user})\n"
        "try: threads.start([event.wait] * 500, [], needed=500)\n"
        "except threads.NoThreadError as error: print(int(error.code), error.message, flush=True)\n"
        "os._exit(0)"
    )
    environment = {"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run(
        [sys.executable, "-S", "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.startswith("9 no further thread can be started: ")
    assert named in ended.stdout
    assert NoThreadError().code == 9
