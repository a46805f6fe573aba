"""Fixtures of the programs that run in pods: where they copy to, and a mount that fails."""

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.workloads.preload.faulty import Faulty, compiled


@pytest.fixture
def destination(tmp_path: Path) -> Path:
    """A folder for preload to copy into; it does not exist yet."""
    return tmp_path / "destination"


@pytest.fixture(scope="session")
def faulty_library() -> Iterator[Path]:
    """The shim faulty.c, in a folder that any user may reach; pytest's own are closed to others."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield compiled(Path(name))


@pytest.fixture
def faulty(faulty_library: Path) -> Iterator[Faulty]:
    """Starts preload on a mount that fails as asked for."""
    with contextlib.closing(Faulty(faulty_library)) as starter:
        yield starter
