"""Rules about where charts come from."""

from collections.abc import Iterator
from pathlib import Path

from infra.settings.findings import Finding, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.nodes import NodeGroups
from infra.settings.sections.plugins import MirrorsSettings, PluginsSettings


@rule
def mirrored_charts_are_there(
    plugins: PluginsSettings, mirrors: MirrorsSettings, node_groups: NodeGroups
) -> Iterator[Finding]:
    """Refuses a mirror folder without a chart that is installed."""
    if (folder := mirrors.charts_folder) is None:
        return
    for chart in plugins.charts(node_groups):
        if not (Path(folder) / chart.name / "Chart.yaml").is_file():
            text = f"{folder} has no {chart.name}/Chart.yaml ({chart.version}); put the chart there"
            yield Finding(stack_key("mirrors", "charts"), text)
