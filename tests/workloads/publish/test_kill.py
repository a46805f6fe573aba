"""publish killed and stopped: at each change that it makes to the file system, and at random moments."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import pytest

from tests.workloads.publish.support import MODEL, differences, start
from tests.workloads.publish.torment import CONTENT, PLACES
from tests.workloads.support import MORTAL, write

pytestmark = pytest.mark.processes

HITS = 10

# A folder stands in for a bucket; each call that may change the file system.
DIE = f"""{MORTAL}
import shutil
from pathlib import Path
from publish import publishing, remote
class Shelf:
    def __init__(self, address, *_):
        self.root = Path("/" + address.removeprefix("s3://"))
    def listing(self):
        files = [remote.RemoteFile(os.fsencode(path.relative_to(self.root)), path.stat().st_size, "1")
                 for path in self.root.rglob("*") if path.is_file()]
        return remote.Listing("s3:/" + str(self.root), remote.listed(files))
    def fetch(self, file, folder, progress):
        target = folder + "/data"
        shutil.copyfile(self.root / os.fsdecode(file.path), target)
        progress(file.size)
        return target
publishing.open_s3 = Shelf
for name in ("rename", "unlink", "rmdir", "mkdir", "fsync", "fchmod", "posix_fadvise"):
    mortal(os, name)
"""
COUNT = """
leave = os._exit
def count(code):
    print(next(numbers), flush=True)
    leave(code)
os._exit = count
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(tmp_path / "source", MODEL)


def test_killed_at_any_change_of_the_file_system_a_model_is_there_whole_or_not_and_the_next_run_completes(
    source, tmp_path
):
    address = f"s3:/{source}"
    counted = start(address, tmp_path / "counted/r1", "--parallel", "2", before=DIE + COUNT)
    number = int(counted.communicate(timeout=60)[0].split()[-1])
    assert number > 40
    for at in range(1, number, 3):
        destination = tmp_path / f"models-{at}/r1"
        for kill in (at, at + 1):
            killed = start(address, destination, "--parallel", "2", before=DIE, environment={"KILL_AT": str(kill)})
            said = killed.communicate(timeout=60)
            assert killed.returncode in (-signal.SIGKILL, 0), said
        last = start(address, destination, "--parallel", "2", before=DIE)
        said = last.communicate(timeout=60)
        assert last.returncode == 0, (at, said)
        assert differences(destination, CONTENT) == [], at


@pytest.mark.parametrize("place", PLACES)
def test_killed_at_random_while_it_fetches_the_model_is_the_same_in_the_end(tmp_path, place):
    result = PLACES[place](tmp_path, HITS, 1)
    assert result.wrong == []
    assert result.hits >= HITS, result


HANG = """
import time
from modelfolder import source
from publish import verdict
from publish import sealing
def hanging(*_, **__):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("where", ["source._look", "verdict._judge", "sealing.Hashing._read"])
def test_sigterm_ends_it_within_a_second_with_143_and_the_next_run_completes(source, tmp_path, where):
    destination = tmp_path / "models/r1"
    process = start(source, destination, before=f"{HANG}\n{where} = hanging\n")
    assert process.stdout
    assert process.stdout.readline().startswith("begun")
    sent = time.monotonic()
    process.send_signal(signal.SIGTERM)
    said = process.communicate(timeout=30)[1]
    assert process.returncode == 143, said
    assert "exit 143: stopped by SIGTERM" in said
    assert time.monotonic() - sent < 1.5, "one second, and a share for a busy machine"
    assert not destination.exists()
    again = start(source, destination)
    said = again.communicate(timeout=30)[1]
    assert again.returncode == 0, said
    assert differences(destination, CONTENT) == []
