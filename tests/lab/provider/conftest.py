"""The provider that was built, and the states that released versions left."""

import json
import lzma
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from lab.provider.provider import Provider
from lab.provider.tool import ProviderTool
from lab.rehearsal.release import Released, released


@dataclass(frozen=True)
class Stack:
    """A stack as a released version left it.

    Attributes:
        provider: the configuration of its provider for AWS, in Pulumi's names.
        resources: those of AWS, as the engine keeps them.
    """

    provider: dict[str, Any]
    resources: list[dict[str, Any]]

    def one(self, kind: str, number: int = 0) -> dict[str, Any]:
        """A resource by the last part of its type."""
        return [one for one in self.resources if one["type"].endswith(f":{kind}")][number]


def stack_of(old: Released) -> Stack:
    resources = json.loads(lzma.decompress(old.state.read_bytes()))["deployment"]["resources"]
    (config,) = (one["outputs"] for one in resources if one["type"] == "pulumi:providers:aws")
    decoded = {name: json.loads(text) if text[:1] in ("{", "[") else text for name, text in config.items()}
    return Stack(decoded, [one for one in resources if one["type"].startswith("aws:")])


@pytest.fixture(scope="session", params=released(), ids=lambda one: f"{one.version}-{one.stack}")
def stack(request: pytest.FixtureRequest) -> Stack:
    return stack_of(request.param)


@pytest.fixture(scope="session")
def article() -> Stack:
    return stack_of(next(one for one in released() if one.stack == "article"))


@pytest.fixture(scope="session")
def provider(built: ProviderTool, article: Stack) -> Iterator[Provider]:
    with Provider.without_account(built.program, article.provider) as running:
        yield running
