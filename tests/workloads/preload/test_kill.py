"""preload under kill -9 at random moments; `make soak` does the same for long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workloads.preload.faulty import MIB, big_model, publish_hashed, torment

pytestmark = pytest.mark.processes

HITS = 5


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sizes = (20 * MIB + 1237, 12 * MIB, 8 * MIB + 4096)
    return publish_hashed(big_model(tmp_path_factory.mktemp("killed") / "source", sizes))


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_random_up_to_four_times_no_file_is_ever_cut_and_the_end_is_the_same_tree(
    faulty, source, tmp_path, seed
):
    result = torment(faulty, source, tmp_path / "destination", HITS, seed)
    assert result.wrong == []
    assert result.hits == HITS, f"kills that hit a running copy, of {result.starts} starts"
    assert result.resumed_bytes > 0
