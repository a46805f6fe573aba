"""Helm ignores values that a chart does not know: each that we set must be a name that the chart at the pin reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import versions
from infra.plugins import chart_values

CHARTS = [versions.FSX_CSI_CHART, versions.EFA_CHART, versions.NVIDIA_CHART]
LISTS = Path(__file__).parent / "chart_values"


def known(chart: versions.Chart) -> dict[str, Any]:
    return yaml.safe_load((LISTS / f"{chart.name}.yaml").read_text())


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def unread(names: list[str], values: dict[str, Any]) -> list[str]:
    """The values that a chart does not read; `name.*` in the list is a mapping that may be extended freely."""
    free = tuple(name.removesuffix("*") for name in names if name.endswith(".*"))
    return [leaf for leaf in leaves(values) if leaf not in names and not leaf.startswith(free)]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_the_list_is_of_the_version_that_is_installed_and_says_where_it_is_from(chart: versions.Chart) -> None:
    source = known(chart)

    assert (source["chart"], source["version"]) == (chart.name, chart.version)
    assert len(source["commit"]) == 40
    assert source["repository"].count("/") == 1


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
@pytest.mark.parametrize("region", ["us-east-1", "af-south-1"])
def test_every_value_that_is_set_is_one_that_the_chart_reads(chart: versions.Chart, region: str) -> None:
    assert unread(known(chart)["values"], chart_values(chart, region)) == []


def test_a_misspelt_value_is_found() -> None:
    names = known(versions.FSX_CSI_CHART)["values"]

    assert unread(names, {"controller": {"regoin": "x", "region": "y", "resources": {"limits": {"cpu": 1}}}}) == [
        "controller.regoin"
    ]


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_no_value_is_set_that_no_template_reads(chart: versions.Chart) -> None:
    dead = {
        line.split("#")[0].strip().removeprefix("- ")
        for line in (LISTS / f"{chart.name}.yaml").read_text().splitlines()
        if "setting it does nothing" in line
    }

    assert not dead & set(leaves(chart_values(chart, "us-east-1")))


def test_plugins_on_gpu_nodes_tolerate_their_taint() -> None:
    for chart in (versions.EFA_CHART, versions.NVIDIA_CHART):
        (toleration,) = chart_values(chart, "us-east-1")["tolerations"]
        assert (toleration["key"], toleration["effect"]) == ("nvidia.com/gpu", "NoSchedule")


@pytest.mark.parametrize(
    ("region", "host"),
    [
        ("us-east-1", "602401143452.dkr.ecr.us-east-1.amazonaws.com"),
        ("eu-west-1", "602401143452.dkr.ecr.eu-west-1.amazonaws.com"),
        (
            "af-south-1",
            "602401143452.dkr.ecr.us-west-2.amazonaws.com",
        ),  # another account there: the chart's own default
    ],
)
def test_the_efa_image_comes_from_the_region_s_registry_where_that_is_certain(region: str, host: str) -> None:
    assert chart_values(versions.EFA_CHART, region)["image"]["repository"] == f"{host}/eks/aws-efa-k8s-device-plugin"
