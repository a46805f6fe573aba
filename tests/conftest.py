"""Fixtures that all tests share: no credentials, one recording a stack, and what the tests of preload copy with."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests import faulty_support, recording

# A failing assertion prints provider inputs: nothing real may be among them.
for variable in [name for name in os.environ if name.startswith(("AWS_", "PULUMI_"))]:
    del os.environ[variable]
os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}

# The same examples on every machine, and no verdict by the clock of a busy one.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True)
hypothesis.settings.load_profile("gate")


@pytest.fixture(scope="session", params=recording.STACKS)
def stack(request: pytest.FixtureRequest) -> recording.Recording:
    """Every stack file through the real program, once."""
    return recording.run(request.param)


@pytest.fixture(scope="session")
def article() -> recording.Recording:
    """The stack with EFA and p5 nodes."""
    return recording.run("article")


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """A folder for preload to copy into; it does not exist yet."""
    return tmp_path / "destination"


@pytest.fixture(scope="session")
def faulty_library() -> Iterator[Path]:
    """The shim of tests/faulty, in a folder that any user may reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield faulty_support.compiled(Path(name))


@pytest.fixture
def faulty(faulty_library: Path) -> Iterator[faulty_support.Faulty]:
    """Starts preload on a mount that fails as asked for."""
    with contextlib.closing(faulty_support.Faulty(faulty_library)) as starter:
        yield starter
