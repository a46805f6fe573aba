"""Fixtures that all tests share: no credentials, and one recording a stack."""

import gc
import os
import signal

import hypothesis
import pytest

from tests import recording

# A failing assertion prints provider inputs: nothing real may be among them.
for variable in [name for name in os.environ if name.startswith(("AWS_", "PULUMI_"))]:
    del os.environ[variable]
os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}

# A shell that starts the tests in the background lets them, and what they start, ignore SIGINT (POSIX, Shell Command
# Language, "Asynchronous Lists").
signal.signal(signal.SIGINT, signal.default_int_handler)

# The same examples on every machine, and no verdict by the clock of a busy one.
hypothesis.settings.register_profile("gate", deadline=None, derandomize=True)
hypothesis.settings.load_profile("gate")


def pytest_collection_finish() -> None:
    """What is imported stays: Python's collector, which goes through all of it again and again, leaves it out."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", params=recording.STACKS)
def stack(request: pytest.FixtureRequest) -> recording.Recording:
    """Every stack file through the real program, once."""
    return recording.run(request.param)


@pytest.fixture(scope="session")
def article() -> recording.Recording:
    """The stack with EFA and p5 nodes."""
    return recording.run("article")
