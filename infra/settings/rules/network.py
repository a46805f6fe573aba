"""Rules about the network."""

from collections.abc import Iterator

from infra.settings.findings import Finding, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.aws import AwsSettings
from infra.settings.sections.network import NetworkSettings


@rule
def zones_are_in_the_region(aws: AwsSettings, network: NetworkSettings) -> Iterator[Finding]:
    """Refuses a zone whose name does not begin with the region's."""
    region = aws.region
    for zone in network.zones:
        if zone[:-1] != region:
            text = f"{zone} is not in aws:region {region}; use {region}a, {region}b, ..."
            yield Finding(stack_key("network", "zones"), text)
