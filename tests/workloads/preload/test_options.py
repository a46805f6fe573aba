"""The command line of preload as what is asked of the copy engine."""

from __future__ import annotations

import dataclasses

import pytest

from preload import options
from preload.request import CopyRequest

POD = {options.POD_UID: "0c3b7b8e-6d0c-4f5e-9a53-0d8f4c8a1f10"}
PLAIN = CopyRequest(
    source=b"/source", destination=b"/destination", files=("auto",), verify="size", streams=32, wait=3600.0
)


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        ([], {}),
        (["--files", "*.json", "*.py"], {"files": ("*.json", "*.py")}),
        (["--verify", "sha256"], {"verify": "sha256"}),
        (["--parallel", "7"], {"streams": 7}),
        (["--wait", "1.5"], {"wait": 1.5}),
        (["--write", "direct"], {"write": "direct"}),
        (["--cache", "drop"], {"cache": "drop"}),
        (["--max-bytes", "9"], {"max_bytes": 9}),
        (["--manifest-digest", f"sha256:{'a' * 64}"], {"manifest_digest": f"sha256:{'a' * 64}"}),
        (["--require-local-disk"], {"require_local_disk": True}),
        (["--stay"], {"pod_uid": POD[options.POD_UID]}),
        (["--termination-log", "/log"], {}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_each_flag_asks_for_one_thing(flags: list[str], changed: dict[str, object]) -> None:
    asked = options.parse(["/source", "/destination", *flags], POD)

    assert dataclasses.asdict(asked.request) == dataclasses.asdict(PLAIN) | changed
    assert not asked.plan


def test_a_plan_is_announced_to_no_pod() -> None:
    asked = options.parse(["/source", "/destination", "--plan", "--stay"], POD)

    assert (asked.request, asked.plan) == (PLAIN, True)
