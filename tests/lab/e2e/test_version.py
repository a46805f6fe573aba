"""The vLLM that pods run by default is the one that `make e2e` proves."""

from __future__ import annotations

import re

import pytest

from infra import versions
from lab import ROOT
from lab.e2e.vllm_environment import vllm_version


def test_the_default_image_is_of_the_version_that_e2e_runs():
    assert versions.VLLM_IMAGE.rpartition(":")[2] == f"v{vllm_version()}"


@pytest.mark.parametrize("page", ["docs/preload.md", "docs/publish.md", "stacks/README.md"])
def test_the_docs_name_that_version_and_no_other(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"vllm-openai:v([0-9.]+[0-9])|vLLM (0\.[0-9]+\.[0-9]+)", text))
    assert {one or other for one, other in named} == {vllm_version()}
