"""The charts that stand in for those of others have their names, versions and values."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from infra import versions
from lab.kube.kubelet import CSI_DRIVERS, DEVICE_PLUGINS
from lab.kube.scenario import CHARTS
from tests.infra.test_chart_values import known, unread

ALL = [versions.FSX_CSI_CHART, versions.EFA_CHART, versions.NVIDIA_CHART]


def test_there_is_one_for_each_and_no_other() -> None:
    assert {path.name for path in CHARTS.iterdir()} == {chart.name for chart in ALL}


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_it_has_the_name_and_the_version_of_the_real_one(chart: versions.Chart) -> None:
    found = yaml.safe_load((CHARTS / chart.name / "Chart.yaml").read_text())

    assert (found["name"], found["version"]) == (chart.name, chart.version)


@pytest.mark.parametrize("chart", ALL, ids=lambda chart: chart.name)
def test_it_reads_no_value_that_the_real_one_does_not_have(chart: versions.Chart) -> None:
    values = yaml.safe_load((CHARTS / chart.name / "values.yaml").read_text())

    names = known(chart)["values"]
    # A mapping that is empty and may be filled stands in the list as `name.*`.
    assert [name for name in unread(names, values) if f"{name}.*" not in names] == []


def test_the_labels_by_which_plugins_are_known_stand_in_the_charts() -> None:
    text = "\n".join(path.read_text() for path in Path(CHARTS).glob("*/templates/*"))

    for key, value in [*DEVICE_PLUGINS, *CSI_DRIVERS]:
        # The EFA plugin's label is its release's name.
        assert f"{key}: {value}" in text or (
            f"{key}: {{{{ .Release.Name }}}}" in text and value == versions.EFA_CHART.name
        )
