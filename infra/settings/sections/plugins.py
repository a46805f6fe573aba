"""The sections of Helm releases: which are installed, and where their charts come from."""

import re
from pathlib import Path

from pydantic import Field, field_validator

from infra import versions
from infra.settings.findings import refuse
from infra.settings.sections import Section
from infra.settings.sections.nodes import NodeGroups
from infra.settings.values import Flag


class PluginsSettings(Section):
    """Helm releases in kube-system, each of which can be switched off where the cluster has it already."""

    fsx_csi: Flag = Field(default=True, description="FSx for Lustre CSI driver.")
    efa: Flag = Field(default=True, description="EFA device plugin, where a node group has EFA interfaces.")
    nvidia: Flag = Field(default=True, description="NVIDIA device plugin.")

    def charts(self, node_groups: NodeGroups) -> list[versions.Chart]:
        """The charts that are installed beside these node groups."""
        any_efa = any(group.efa_interfaces for group in node_groups.values())
        wanted = {
            versions.FSX_CSI_CHART: self.fsx_csi,
            versions.EFA_CHART: self.efa and any_efa,
            versions.NVIDIA_CHART: self.nvidia,
        }
        return [chart for chart, is_wanted in wanted.items() if is_wanted]


class MirrorsSettings(Section):
    """Where charts come from instead of their own repositories."""

    charts: str | None = Field(
        default=None,
        description="A folder (`./charts`, `/srv/charts`) with a chart a subfolder, or a repository "
        "(`https://...`, `oci://...`).",
    )

    @field_validator("charts")
    @classmethod
    def _folder_or_repository(cls, value: str | None) -> str | None:
        if value is None or re.match(r"(https|oci)://.", value):
            return value
        if not value.startswith(("/", "./", "../")):
            raise refuse(f"{value!r} is neither; use a folder (./charts) or a repository (https://... or oci://...)")
        if not Path(value).is_dir():
            raise refuse(f"{value!r} is no folder here")
        return value

    @property
    def charts_folder(self) -> str | None:
        """The folder, where `charts` names one."""
        return None if self.charts is None or "://" in self.charts else self.charts
