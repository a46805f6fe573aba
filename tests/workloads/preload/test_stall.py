"""A source that hangs: in each phase the program writes what it knows, and leaves with 9."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from podkit.errors import FaststartError
from podkit.options import common
from podkit.patience import STALL_SECONDS, Patience
from podkit.stall import watching
from preload import options, program
from publish import options as publish_options
from tests.workloads.preload.faulty import MIB, big_model, differences, publish_hashed
from tests.workloads.preload.hanging import hanging
from tests.workloads.support import SHARDS, WORKLOADS, write

LIMIT = 0.4
"""Seconds: long enough for a busy machine to answer a request."""

TIMEOUT = 30


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of 20 MiB without a manifest."""
    return big_model(tmp_path_factory.mktemp("plain") / "source")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with one."""
    return publish_hashed(big_model(tmp_path_factory.mktemp("published") / "source"))


def start(name: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-S", "-m", name, *map(str, arguments)],
        env={"PYTHONPATH": str(WORKLOADS), "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


PHASES: dict[str, tuple[dict[str, Any], tuple[str, ...], str, int | set[int] | None]] = {
    "list: the top folder is looked at": ({"kind": "look", "name": ""}, (), "", None),
    "list: the top folder is listed": ({"kind": "list", "name": ""}, (), "", None),
    "list: a folder is listed": ({"kind": "list", "name": "sub/4"}, (), "sub/4", None),
    "list: a file is looked at": ({"kind": "look", "name": "sub/5/*"}, (), "sub/5/small-5.json", None),
    "list: all files are looked at": ({"kind": "look", "name": "*.safetensors"}, (), SHARDS[0], None),
    "list: the manifest is opened": ({"kind": "open", "name": "*/manifest.json"}, (), ".faststart/manifest.json", None),
    "list: the index is read": ({"kind": "read", "name": "*.index.json"}, (), "model.safetensors.index.json", None),
    "header: it is opened": ({"kind": "open", "name": SHARDS[1]}, (), SHARDS[1], None),
    "header: it is read": ({"kind": "read", "name": SHARDS[0]}, (), SHARDS[0], None),
    "copy: a large file is read, direct": (
        {"kind": "read", "name": SHARDS[0], "beyond": MIB},
        ("--write", "direct", "--parallel", "1"),
        SHARDS[0],
        0,
    ),
    "copy: a large file is read, buffered": (
        {"kind": "read", "name": SHARDS[0], "beyond": 9 * MIB},
        ("--write", "buffered", "--parallel", "1"),
        SHARDS[0],
        {4 * MIB, 8 * MIB},  # by how fast the first bytes came
    ),
    "copy: a small file is read": ({"kind": "read", "name": "sub/3/*"}, (), "sub/3/small-3.json", 0),
    "copy: a file is opened": ({"kind": "open", "name": "sub/2/*"}, ("--verify", "none"), "sub/2/small-2.json", 0),
}


@pytest.mark.processes
@pytest.mark.parametrize("phase", PHASES)
def test_a_source_that_hangs_for_ever_is_told_first_and_then_left_with_9_and_the_next_run_goes_on(
    plain, published, tmp_path, phase
):
    hang, flags, file, offset = PHASES[phase]
    source = published if "manifest" in hang["name"] else plain
    destination, log = tmp_path / "destination", tmp_path / "log"
    with hanging(source, tmp_path / "mount", **hang) as mounted:
        process = start("preload", mounted.path, destination, *flags, "--stall", LIMIT, "--termination-log", log)
        assert mounted.said() == "hung"
        said = process.communicate(timeout=TIMEOUT)[1]
    told = json.loads(log.read_bytes())
    report = json.loads((destination / ".faststart/report.json").read_bytes())
    about = file or str(mounted.path)
    assert (process.returncode, told["code"], report["code"]) == (9, 9, 9), said
    assert (told["file"], report["file"]) == (about, about)
    assert report["offset"] in (offset if isinstance(offset, set) else {offset})
    assert said.splitlines()[-1].startswith(f"preload: exit 9: {about}: the source gave nothing for {LIMIT:g} s")
    assert report["copied_bytes"] == told["copied_bytes"] <= (told["bytes"] or 0)
    assert (report["streams"] > 0, "scan" in report["phases"]) == ("copy: " in phase, "list: " not in phase)
    again = start("preload", source, destination, *flags)
    said = again.communicate(timeout=TIMEOUT)[1]
    assert again.returncode == 0, said
    assert differences(source, destination) == []


@pytest.mark.processes
@pytest.mark.parametrize("phase", ["list: a file is looked at", "header: it is read", "copy: a small file is read"])
def test_where_the_kernel_does_not_let_a_thread_go_all_is_told_and_the_process_ends_with_9_once_the_server_does(
    plain, tmp_path, phase
):
    hang, flags, file, _ = PHASES[phase]
    destination, log = tmp_path / "destination", tmp_path / "log"
    with hanging(plain, tmp_path / "mount", **hang, killable=False) as mounted:
        process = start("preload", mounted.path, destination, *flags, "--stall", LIMIT, "--termination-log", log)
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=LIMIT + 1.5)
        process.kill()
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=0.2)
        told = json.loads(log.read_bytes())
        report = json.loads((destination / ".faststart/report.json").read_bytes())
    said = process.communicate(timeout=TIMEOUT)[1]
    assert (told["code"], told["file"], report["file"]) == (9, file, file)
    assert (process.returncode, f"exit 9: {file}: the source gave nothing" in said) == (9, True)


@pytest.mark.processes
def test_a_source_that_hangs_after_the_last_byte_is_left_too(tmp_path):
    source = write(tmp_path / "source", {"config.json": b"{}", "model.bin": os.urandom(3 * MIB)})
    destination = tmp_path / "destination"
    flags = ("--files", "all", "--verify", "none", "--write", "buffered", "--parallel", "1")
    with hanging(source, tmp_path / "mount", kind="look", once=str(destination / "model.bin")) as mounted:
        process = start("preload", mounted.path, destination, *flags, "--stall", LIMIT)
        said = process.communicate(timeout=TIMEOUT)[1]
    report = json.loads((destination / ".faststart/report.json").read_bytes())
    assert (process.returncode, report["code"], report["copied_bytes"] > 3 * MIB) == (9, 9, True), said
    assert not (destination / ".faststart/complete.json").exists()


CHECKS: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "check: list": (("--check",), {"kind": "list", "name": "sub"}, "sub"),
    "check: header": (("--check",), {"kind": "read", "name": SHARDS[0]}, SHARDS[0]),
    "check: hashes": (("--check",), {"kind": "read", "name": SHARDS[0], "beyond": 5 * MIB}, SHARDS[0]),
    "in place: the folder": (("--in-place",), {"kind": "look", "name": ""}, ""),
    "in place: a file": (("--check",), {"kind": "open", "name": "sub/1/*"}, "sub/1/small-1.json"),
    "copied": ((), {"kind": "read", "name": SHARDS[1], "beyond": 2 * MIB}, SHARDS[1]),
}


@pytest.mark.processes
@pytest.mark.parametrize("case", CHECKS)
def test_publishing_leaves_a_folder_that_hangs_at_once_whatever_tries_it_has(published, tmp_path, case):
    flags, hang, file = CHECKS[case]
    log = tmp_path / "log"
    with hanging(published, tmp_path / "mount", **hang) as mounted:
        to = () if flags else (tmp_path / "to",)
        tries = ("--tries", "4") if "--check" not in flags else ()
        process = start("publish", *flags, mounted.path, *to, *tries, "--stall", LIMIT, "--termination-log", log)
        said = process.communicate(timeout=TIMEOUT)[1]
    told = json.loads(log.read_bytes())
    assert (process.returncode, told["code"], told["file"]) == (9, 9, file or str(mounted.path)), said
    assert said.count("the source gave nothing") == 1


STOPS = ["list: a folder is listed", "list: a file is looked at", "header: it is read", *list(PHASES)[9:]]


@pytest.mark.processes
@pytest.mark.parametrize("phase", STOPS)
def test_a_server_that_is_stopped_and_comes_back_within_the_limit_costs_nothing_but_time(plain, tmp_path, phase):
    hang, flags, _, _ = PHASES[phase]
    destination = tmp_path / "destination"
    with hanging(plain, tmp_path / "mount", **hang, stops=True) as mounted:
        process = start("preload", mounted.path, destination, *flags, "--stall", 3)
        assert mounted.said() == "hung"
        with pytest.raises(subprocess.TimeoutExpired):
            process.communicate(timeout=1)
        mounted.process.send_signal(signal.SIGCONT)
        said = process.communicate(timeout=TIMEOUT)[1]
    assert process.returncode == 0, said
    assert "gave nothing" not in said
    assert differences(plain, destination) == []


# The watch


def watched(patience: Patience, until: threading.Event) -> list[FaststartError]:
    """Watch until an event, or until the program would leave; return with what it would."""
    left: list[FaststartError] = []

    def leave(error: FaststartError) -> None:
        left.append(error)
        until.set()

    with watching(patience, leave):
        assert until.wait(TIMEOUT)
    return left


@pytest.fixture
def patience() -> Patience:
    made = Patience()
    made.stall_seconds = 0.05
    return made


@pytest.mark.parametrize("offset", [None, 0, 1, 4096, 1 << 40])
@pytest.mark.parametrize("about", [b"model.safetensors", b"", b"a/b\xff\n"])
def test_the_longest_question_without_an_answer_is_named(patience, about, offset):
    asked, until = threading.Event(), threading.Event()
    threads = [threading.Thread(target=patience.ask, args=(until.wait, about, offset))]

    def ask() -> None:
        patience.ask(lambda: (asked.set(), until.wait()), b"another", 7)

    threads[0].start()
    while patience.waiting() is None:
        pass
    threads.append(threading.Thread(target=ask))
    threads[1].start()
    asked.wait(TIMEOUT)
    (error,) = watched(patience, until)
    for thread in threads:
        thread.join()
    assert (error.code, error.file, error.offset) == (9, about or None, offset)
    assert error.message.startswith("the source gave nothing for 0.05 s (--stall): 2 calls wait, the longest ")


@pytest.mark.parametrize("asks", [True, False])
def test_a_source_that_answers_or_is_not_asked_is_not_left(patience, asks):
    until = threading.Event()

    def ask() -> None:
        while asks and not until.is_set():
            patience.ask(lambda: until.wait(0.01), b"x")

    threads = [
        threading.Thread(target=ask),
        threading.Thread(target=patience.ask if asks else until.wait, args=(until.wait, b"slow") if asks else ()),
    ]
    for thread in threads:
        thread.start()
    threading.Timer(0.4, until.set).start()
    assert watched(patience, until) == []
    for thread in threads:
        thread.join()


def test_what_is_asked_within_another_question_is_named_until_it_is_answered(patience):
    def outer() -> None:
        assert patience.ask(patience.waiting, b"inner", 2) == (b"inner", 2, 1, 0)
        assert patience.waiting() == (b"outer", 1, 1, 1)

    patience.ask(outer, b"outer", 1)
    assert patience.waiting() is None


def test_each_call_to_the_source_is_known_while_it_lasts_however_it_ends(patience):
    known = []

    def call() -> None:
        known.append(patience.waiting())
        raise FileNotFoundError(2, "gone")

    with pytest.raises(FaststartError):
        patience.read(b"file", call, 5)
    with pytest.raises(FileNotFoundError):
        patience.transient(call, b"folder")
    assert known == [(b"file", 5, 1, 0), (b"folder", None, 1, 1)]
    assert patience.waiting() is None


# The option


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        ([], (None, STALL_SECONDS)),
        (["--stall", "30"], (None, 30.0)),
        (["a", "--stall=0.5", "--other", "--termination-log", "log"], ("log", 0.5)),
        (["--stall", "0", "--termination-log", "log"], ("log", STALL_SECONDS)),
        (["--stall", "soon", "--termination-log", "log"], ("log", STALL_SECONDS)),
        (["--stall"], (None, STALL_SECONDS)),
    ],
)
def test_the_limit_is_found_in_a_command_line_that_may_be_wrong(arguments, found):
    assert common(arguments) == found


@pytest.mark.parametrize("given", ["0", "0.0", "-1", "soon", "nan", "inf", ""])
@pytest.mark.parametrize("parse", [options.parse, publish_options.parse])
def test_a_limit_that_is_no_time_is_refused(parse, given):
    with pytest.raises(FaststartError) as caught:
        parse(["source", "destination", "--stall", given])
    assert caught.value.code == 2
    assert program.main(["source", "destination", "--stall", given]) == 2
