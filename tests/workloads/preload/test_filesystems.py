"""preload onto and from other file systems than that of the temp folder, and with the rights that it has in a pod."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.preload.faulty import (
    BIG,
    MIB,
    RATE,
    big_model,
    cut_files,
    differences,
    lost_bytes,
    publish_hashed,
)
from tests.workloads.support import WORKLOADS, is_marked, marker

pytestmark = pytest.mark.processes

IMAGE = 320 * MIB
"""The smallest that mkfs.xfs makes is 300 MiB; the image is sparse."""

WAYS = [
    pytest.param(("--write", "direct"), id="direct"),
    pytest.param(("--write", "buffered", "--verify", "sha256"), id="buffered, sha256"),
]
SHUTDOWN, NO_LOG_FLUSH = 0x8004587D, 2
"""FS_IOC_SHUTDOWN of ext4 and xfs: from now on nothing more reaches the disk."""

ANOTHER_BOOT = "import preload.state; preload.state.boot_id = lambda *_: 'another boot'\n"
SYNC_OFTEN = "from preload import copier; assert copier.SYNC_SECONDS; copier.SYNC_SECONDS = 0.02\n"
POD = {"user": 2000, "group": 0, "extra_groups": []}


def ran(*command: str | Path) -> str | None:
    """Run a command; return None if that went well, else why not, in one line."""
    try:
        ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=60, check=False)
    except OSError as error:
        return str(error)
    return (ended.stderr.strip().splitlines() or ["it failed"])[-1] if ended.returncode else None


@pytest.fixture(scope="module")
def top() -> Iterator[Path]:
    """A folder that any user may reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def source(top: Path) -> Path:
    return publish_hashed(big_model(top / "source"))


@contextlib.contextmanager
def mounted(top: Path, kind: str) -> Iterator[Path]:
    if os.getuid():
        pytest.skip(f"{kind}: only root may mount an image")
    image, folder = top / f"{kind}.image", top / kind
    folder.mkdir()
    image.touch()
    os.truncate(image, IMAGE)
    if why := ran(f"mkfs.{kind}", "-q", image) or ran("mount", "-o", "loop", image, folder):
        pytest.skip(f"{kind}: no image of it can be mounted here: {why}")
    try:
        yield folder
    finally:
        why = ran("umount", folder)
        image.unlink()
    assert why is None


def cut_power(disk: Path) -> None:
    """Lose all that was not yet on a disk made by `mounted`, and mount it again, as after a reset of the node."""
    folder = os.open(disk, os.O_RDONLY)
    try:
        fcntl.ioctl(folder, SHUTDOWN, NO_LOG_FLUSH.to_bytes(4, sys.byteorder))
    finally:
        os.close(folder)
    assert ran("umount", disk) is None
    assert ran("mount", "-o", "loop", disk.with_suffix(".image"), disk) is None


@contextlib.contextmanager
def in_memory(kind: str = "tmpfs") -> Iterator[Path]:
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip(f"{kind}: /dev/shm cannot be written")
    with tempfile.TemporaryDirectory(dir=folder) as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module", params=["ext4", "xfs", "tmpfs"])
def disk(request: pytest.FixtureRequest, top: Path) -> Iterator[Path]:
    with in_memory() if request.param == "tmpfs" else mounted(top, request.param) as folder:
        yield folder


@pytest.fixture
def destination(disk: Path) -> Iterator[Path]:
    yield disk / "destination"
    for path in disk.iterdir():
        if path.is_dir() and path.name != "lost+found":
            shutil.rmtree(path)
        elif path.is_file():
            path.unlink()


# The first one, as a disk may give room back late that other tests have left.
def test_a_disk_that_is_too_full_is_3_before_the_first_byte(faulty, source, disk, destination):
    if disk.is_relative_to("/dev/shm"):
        pytest.skip("tmpfs: it is the machine's memory and is not to be filled")
    room = os.statvfs(disk)
    with (disk / "filler").open("wb") as filler:
        os.posix_fallocate(filler.fileno(), 0, room.f_bavail * room.f_frsize - 15 * MIB)
    for write in ("direct", "buffered"):
        ended = faulty.run(source, destination, "--write", write)
        assert ended.code == 3, ended.said
        assert "no space" in ended.message
        assert not [path for path in destination.rglob("*") if path.is_file() and path.parent.name != ".faststart"]
    (disk / "filler").unlink()
    assert faulty.run(source, destination).code == 0
    assert differences(source, destination) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_arrives_whole_on_each_file_system(faulty, source, destination, way):
    ended = faulty.run(source, destination, *way)
    assert ended.code == 0, ended.said
    assert differences(source, destination) == []
    file = (destination / BIG[0]).stat()
    assert file.st_blocks * 512 >= file.st_size
    again = faulty.run(source, destination, *way)
    assert (again.code, again.termination["copied_bytes"]) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_that_was_killed_twice_is_gone_on_with_on_each_file_system(faulty, source, destination, way):
    flags = ("--parallel", "2", *way)
    for reads in (4, 2):
        ended = faulty.run(source, destination, *flags, kill=reads, rate=RATE, beyond=MIB)
        assert ended.code == -signal.SIGKILL
        assert not is_marked(destination)
        assert cut_files(source, destination) == []
    ended = faulty.run(source, destination, *flags)
    assert ended.code == 0, ended.said
    assert ended.termination["resumed_bytes"] > 0
    assert differences(source, destination) == []


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_from_and_to_the_same_file_system_arrives_whole(faulty, disk, destination, way):
    own = publish_hashed(big_model(disk / "model", (9 * MIB + 777, 4097)))
    ended = faulty.run(own, destination, *way)
    assert ended.code == 0, ended.said
    assert differences(own, destination) == []


@pytest.mark.parametrize("write", ["direct", "buffered"])
@pytest.mark.parametrize("reads", [None, 2, 6], ids=["complete", "begun", "half way"])
def test_after_a_power_cut_what_the_disk_lost_is_copied_again_and_all_bytes_are_right(
    faulty, source, disk, destination, reads, write
):
    if disk.is_relative_to("/dev/shm"):
        pytest.skip("tmpfs: nothing of it outlives the machine")
    assert ran("sync", "--file-system", disk) is None, "what other tests have removed stays so"
    flags = ("--parallel", "2", "--write", write)
    faults = {"kill": reads} if reads else {}
    ended = faulty.run(source, destination, *flags, rate=RATE, beyond=MIB, **faults)
    assert ended.code == (-signal.SIGKILL if reads else 0)
    cut_power(disk)
    is_synced = is_marked(destination) and marker(destination)["synced"]
    lost = lost_bytes(source, destination)
    ended = faulty.run(source, destination, *flags, before=ANOTHER_BOOT)
    assert ended.code == 0, ended.said
    assert differences(source, destination) == []
    assert reads or ended.termination["copied_bytes"] == lost, "what the disk has kept is not copied again"
    assert not (is_synced and lost)
    assert is_synced == (write == "direct" and not reads), "direct writes are on disk at the end"


@pytest.mark.parametrize("write", ["direct", "buffered"])
def test_after_a_power_cut_half_a_copy_that_was_synced_on_the_way_is_built_upon(
    faulty, source, disk, destination, write
):
    if disk.is_relative_to("/dev/shm"):
        pytest.skip("tmpfs: nothing of it outlives the machine")
    assert ran("sync", "--file-system", disk) is None, "what other tests have removed stays so"
    flags = ("--parallel", "2", "--write", write)
    ended = faulty.run(source, destination, *flags, before=SYNC_OFTEN, rate=RATE / 2, beyond=MIB, kill=6)
    assert ended.code == -signal.SIGKILL
    cut_power(disk)
    ended = faulty.run(source, destination, *flags, before=ANOTHER_BOOT)
    assert ended.code == 0, ended.said
    assert differences(source, destination) == []
    if write == "direct":
        assert ended.termination["resumed_bytes"] > MIB


# As in a pod: uid 2000, gid 0, source and program read-only


@pytest.fixture(scope="module")
def python() -> str:
    """A Python that uid 2000 may run: ours may lie in a closed folder."""
    if os.getuid():
        pytest.skip("only root may become uid 2000")
    for found in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        code = "import sys, json, hashlib, mmap, fcntl; sys.exit(sys.version_info < (3, 10))"
        with contextlib.suppress(OSError):
            if not subprocess.run([found, "-S", "-c", code], capture_output=True, check=False, **POD).returncode:
                return found
    pytest.skip("uid 2000 may run no Python 3.10 or newer here")


@contextlib.contextmanager
def read_only(folder: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    if why := ran("mount", "--bind", "-o", "ro", folder, at):
        pytest.skip(f"no folder can be mounted read-only here: {why}")
    try:
        assert os.statvfs(at).f_flag & os.ST_RDONLY
        yield at
    finally:
        assert ran("umount", at) is None


@pytest.fixture(scope="module")
def sealed(top: Path, source: Path) -> Iterator[tuple[Path, Path]]:
    """The source and the program, each as a read-only mount."""
    if os.getuid():
        pytest.skip("only root may mount a folder read-only")
    shutil.copytree(WORKLOADS, top / "program", ignore=shutil.ignore_patterns("__pycache__"))
    for path in (top / "program").rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o444)
    with read_only(source, top / "sealed-source") as model, read_only(top / "program", top / "sealed-program") as code:
        yield model, code


@pytest.mark.parametrize("way", WAYS)
def test_uid_2000_with_a_read_only_source_and_program_copies_resumes_and_finds_it_complete(
    faulty, sealed, disk, destination, python, way
):
    model, program = sealed
    faulty.python, faulty.program, faulty.more = python, program, {**POD, "umask": 0o077, "cwd": "/"}
    folder = disk / "scratch"
    folder.mkdir()
    os.chown(folder, 2000, 0)
    flags = ("--parallel", "2", *way)
    ended = faulty.run(model, folder / "current", *flags, kill=4, rate=RATE, beyond=MIB)
    assert ended.code == -signal.SIGKILL
    ended = faulty.run(model, folder / "current", *flags)
    assert ended.code == 0, ended.said
    assert ended.termination["resumed_bytes"] > 0
    assert differences(model, folder / "current") == []
    again = faulty.run(model, folder / "current", *flags)
    assert (again.code, again.termination["copied_bytes"]) == (0, 0)
    for path in [folder / "current", *(folder / "current").rglob("*")]:
        status = path.stat()
        assert (status.st_uid, status.st_gid) == (2000, 0), path
        if ".faststart" not in path.parts:
            assert stat.S_IMODE(status.st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_uid_2000_that_may_not_write_the_destination_is_7(faulty, sealed, disk, destination, python):
    model, program = sealed
    faulty.python, faulty.program, faulty.more = python, program, {**POD, "cwd": "/"}
    ended = faulty.start(model, disk / "not-mine").end()
    assert (ended.code, (disk / "not-mine").exists()) == (7, False), ended.said
