"""The provider for AWS that was built: tests of several rooms ask it."""

import importlib.util
import os

import pytest

from lab.provider import tool
from lab.provider.tool import ProviderTool


@pytest.fixture(scope="session")
def built() -> ProviderTool:
    found = tool.find()
    reason = "no provider for AWS in the cache: `python -m lab.provider.tool` builds it"
    if found is not None and importlib.util.find_spec("msgpack") is None:
        found, reason = None, "no msgpack in this environment: `make .venv/dev` installs it"
    if found is not None:
        return found
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)
