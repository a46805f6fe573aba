"""Rules about Helm releases that are switched off."""

from collections.abc import Iterator

from infra.settings.findings import Finding, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.plugins import PluginsSettings


@rule
def warn_about_plugins_that_are_off(plugins: PluginsSettings) -> Iterator[Finding]:
    """Warns of what fails without the CSI driver or the device plugin, unless something else installs it."""
    if not plugins.fsx_csi:
        text = "without a CSI driver that something else installs, no pod mounts Lustre and `up` fails at its first Job"
        yield Finding(stack_key("plugins", "fsxCsi"), text, refuses=False)
    if not plugins.nvidia:
        text = (
            "without a device plugin that something else installs, no node offers a GPU and every server stays Pending"
        )
        yield Finding(stack_key("plugins", "nvidia"), text, refuses=False)
