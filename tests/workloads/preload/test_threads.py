"""Threads of a copy that are late, hang or meet in one call: what they may not do, and who is not held up by them."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import threading
from pathlib import Path

import pytest

from modelfolder.manifest import ManifestFile
from modelfolder.source import NOT_DIRECT, SourceFile
from podkit import program
from podkit.patience import Patience
from preload import copier, work
from preload.destination import Destination, Part, locked
from preload.state import Identity, Past
from tests.workloads.publish import support as published
from tests.workloads.support import is_marked, preload, publish, safetensors, tree, use_small_pieces, write

PAGE = 4096
MIB = 1 << 20
IDENTITY = Identity("sha256:0", "sha256:0", "size", None)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", {"config.json": b"{}", "big.bin": bytes(20 * PAGE)})


def test_a_thread_that_comes_after_the_journal_s_end_writes_to_no_file(tmp_path):
    root = os.fsencode(tmp_path / "destination")
    with locked(root, 0, Patience(), lambda _: None) as destination:
        with destination.journal(IDENTITY, Past(), Patience(), sync=False) as journal:
            pass
        taken = [os.open(tmp_path / f"another-{n}", os.O_RDWR | os.O_CREAT) for n in range(50)]
        journal.add(b"late\n")
        journal.flush()
        journal.sync([])
        assert [os.fstat(fd).st_size for fd in taken] == [0] * 50
        for fd in taken:
            os.close(fd)
    assert b"late" not in (tmp_path / "destination/.faststart/work/journal.jsonl").read_bytes()


@pytest.mark.parametrize("number", NOT_DIRECT)
def test_streams_that_are_refused_direct_writes_at_once_all_go_on_through_the_cache(tmp_path, monkeypatch, number):
    streams = 4
    real = write(tmp_path, {"x": bytes(streams * PAGE)}) / "x"
    status = real.stat()
    file = SourceFile(
        b"x", os.fsencode(real), status.st_size, status.st_mtime_ns, status.st_mode, ManifestFile(b"x", 0)
    )
    meeting = threading.Barrier(streams)
    pwrite, refused = os.pwrite, threading.local()

    def refusing(fd, data, at):
        if not getattr(refused, "once", False):
            refused.once = True
            meeting.wait(20)
            raise OSError(number, os.strerror(number))
        return pwrite(fd, data, at)

    monkeypatch.setattr(os, "pwrite", refusing)
    errors: list[BaseException] = []

    def stream(page: int, part: Part) -> None:
        buffer = memoryview(mmap.mmap(-1, PAGE))
        buffer[:] = bytes([page + 1]) * PAGE
        try:
            part.write(buffer, page * PAGE, PAGE)
        except OSError as error:
            errors.append(error)

    root = os.fsencode(tmp_path / "destination")
    with (
        locked(root, 0, Patience(), lambda _: None) as destination,
        destination.journal(IDENTITY, Past(), Patience(), sync=False) as journal,
    ):
        part = Part(destination, 0, file, direct=True, resumed=False)
        part.open(journal)
        threads = [threading.Thread(target=stream, args=(n, part)) for n in range(streams)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        part.finish(sync=False, drop=False)
    assert errors == []
    assert (tmp_path / "destination/x").read_bytes() == b"".join(bytes([n + 1]) * PAGE for n in range(streams))


def is_locked(destination: Path) -> bool:
    with (destination / ".faststart/lock").open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.parametrize("call", ["pwrite", "fsync"])
def test_while_a_write_hangs_after_the_end_nobody_else_gets_the_destination(source, tmp_path, monkeypatch, call):
    use_small_pieces(monkeypatch)
    destination = tmp_path / "destination"
    hanging, free = threading.Event(), threading.Event()
    real, main = getattr(os, call), threading.current_thread()

    def hang(*arguments):
        if threading.current_thread() is not main and not hanging.is_set():
            hanging.set()
            free.wait(30)
        return real(*arguments)

    def stop(patience: Patience) -> None:
        hanging.wait(20)
        patience.stopped = True

    made: list[Patience] = []
    patience = program.Patience

    def noted(*arguments):
        made.append(patience(*arguments))
        threading.Thread(target=stop, args=(made[-1],), daemon=True).start()
        return made[-1]

    monkeypatch.setattr(program, "Patience", noted)
    monkeypatch.setattr(os, call, hang)
    threads = set(threading.enumerate())
    try:
        assert preload(source, destination, "--write", "direct", "--files", "all").code == 143
        assert is_locked(destination)
    finally:
        free.set()
        for thread in set(threading.enumerate()) - threads:
            thread.join(20)
    assert not is_marked(destination)


def test_a_read_that_hangs_after_the_end_holds_nobody_up(source, tmp_path, monkeypatch):
    use_small_pieces(monkeypatch)
    monkeypatch.setattr(work, "STUCK_SECONDS", 0.05)
    destination = tmp_path / "destination"
    hanging, free = threading.Event(), threading.Event()
    real = os.preadv

    def hang(*arguments):
        if not hanging.is_set():
            hanging.set()
            free.wait(30)
        return real(*arguments)

    monkeypatch.setattr(os, "preadv", hang)
    try:
        assert preload(source, destination, "--files", "all").code == 0
        assert not is_locked(destination)
    finally:
        free.set()
    assert tree(destination) == tree(source)


def test_two_streams_of_which_one_hangs_in_a_block_that_the_other_helped_with_come_to_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr(copier, "STUCK_SECONDS", 0.05)
    monkeypatch.setattr(work, "STUCK_SECONDS", 0.05)
    source = write(tmp_path / "source", {"config.json": b"{}", "model.safetensors": safetensors(os.urandom(7 * MIB))})
    publish(source)
    helped, free = threading.Event(), threading.Event()
    read_ahead, read = copier.Copy._read_ahead, copier._Reader.read
    hung: list[int] = []

    def noted(copy, share, reader):
        helped.set()
        return read_ahead(copy, share, reader)

    def hang(reader, file, at, length):
        if not hung:
            hung.append(at)
            assert helped.wait(20)
            assert free.wait(30), "nobody else read it"
        return read(reader, file, at, length)

    monkeypatch.setattr(copier.Copy, "_read_ahead", noted)
    monkeypatch.setattr(copier._Reader, "read", hang)
    try:
        result = preload(source, tmp_path / "destination", "--verify", "sha256", "--parallel", "2")
    finally:
        free.set()
    assert (result.code, hung) == (0, [0])
    assert tree(tmp_path / "destination") == tree(source)


def flock_fails(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("program", ["preload", "publish", "publish --in-place", "publish --remove"])
def test_a_file_system_without_locks_is_10_and_it_is_said_how_to_mount_lustre(
    source, tmp_path, monkeypatch, number, program
):
    published.publish("--in-place", write(source, published.MODEL))
    assert published.publish(source, tmp_path / "sealed").code == 0
    flock_fails(monkeypatch, number)
    to = tmp_path / "destination"
    message = {
        "preload": lambda: preload(source, to).termination,
        "publish": lambda: published.publish(source, to).message,
        "publish --in-place": lambda: published.publish("--in-place", source).message,
        "publish --remove": lambda: published.publish("--remove", tmp_path / "sealed").message,
    }[program]()
    assert message["code"] == 10
    assert f"no locks (flock: {os.strerror(number)}): mount Lustre with the option flock" in message["message"]
    assert "mountOptions: [flock]" in message["message"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EIO])
def test_a_lock_that_fails_in_another_way_is_9_and_no_traceback(source, tmp_path, monkeypatch, number):
    flock_fails(monkeypatch, number)
    result = preload(source, tmp_path / "destination")
    assert (result.code, result.file) == (9, str(tmp_path / "destination"))


def test_the_destination_is_free_again_after_each_usual_end(source, tmp_path):
    destination = tmp_path / "destination"
    preload(source, destination)
    assert not is_locked(destination)
    assert Destination(b"", -1, -1, -1).in_use is False
