"""The storage-init Job's own command, run with the two capabilities that it has and no more."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import recording

JOB = "kubernetes:batch/v1:Job"
CAPABILITIES = "+chown,+dac_override"


def command(root: Path) -> list[str]:
    (container,) = recording.run("article").one(JOB, "claims-init").inputs["spec"]["template"]["spec"]["containers"]
    return [part.replace("/fsx", str(root)) for part in container["command"]]


def run(root: Path) -> None:
    """Runs the command as uid 0 with CHOWN and DAC_OVERRIDE alone."""
    limited = [
        "setpriv",
        "--bounding-set",
        f"-all,{CAPABILITIES}",
        "--inh-caps",
        f"-all,{CAPABILITIES}",
        "--no-new-privs",
    ]
    subprocess.run([*limited, *command(root)], check=True, capture_output=True, text=True)


@pytest.fixture
def file_system(tmp_path: Path) -> Path:
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("needs root and setpriv to take capabilities away")
    (tmp_path / "fsx").mkdir(mode=0o755)
    return tmp_path / "fsx"


FOLDERS = ["models", ".faststart/staging", ".faststart/compile", "s3"]


def test_the_folders_belong_to_the_publisher_and_anybody_can_read_them(file_system: Path) -> None:
    run(file_system)

    for name in FOLDERS:
        status = (file_system / name).stat()
        assert (status.st_uid, status.st_gid, status.st_mode & 0o7777) == (2000, 0, 0o755), name


def test_a_second_run_changes_nothing_and_keeps_what_is_there(file_system: Path) -> None:
    run(file_system)
    model = file_system / "models" / "m"
    model.mkdir()
    os.chown(model, 2000, 0)

    run(file_system)

    assert model.stat().st_uid == 2000
    assert (file_system / "models").stat().st_uid == 2000


def test_a_file_system_that_cannot_be_written_fails_the_job(file_system: Path) -> None:
    (file_system / "models").write_text("not a folder")

    with pytest.raises(subprocess.CalledProcessError):
        run(file_system)
