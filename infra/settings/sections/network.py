"""The VPC's section."""

import ipaddress
import re
from typing import Literal

from pydantic import Field, field_validator, model_validator

from infra.settings.findings import one_of, refuse
from infra.settings.sections import Section

# The range of Kubernetes Services. EKS would choose one by the VPC's own range; naming it keeps the rule checkable.
SERVICE_CIDR = "172.20.0.0/16"

# RFC 1918, the ranges that AWS recommends for a VPC.
_PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")


def is_private(network: ipaddress.IPv4Network) -> bool:
    """Whether a range lies in one of RFC 1918."""
    return any(network.subnet_of(ipaddress.IPv4Network(private)) for private in _PRIVATE_RANGES)


class NetworkSettings(Section):
    """The VPC."""

    cidr: str = Field(
        default="10.20.0.0/16",
        description="IPv4 range of the VPC: a private one, /16 to /20. Fixed once deployed, for a cluster stays in its "
        "VPC.",
    )
    zones: list[str] = Field(
        description="Availability zones with a private subnet each; EKS wants at least two (names end in a to g), and "
        "takes no other once the cluster stands: name each that may ever be the data zone."
    )
    data_zone: str = Field(
        description="The one of `zones` where GPU nodes and Lustre meet: EFA works inside one zone only."
    )
    nat: Literal["single", "perZone"] = Field(
        default="single", description="One NAT gateway, in the data zone, or one in each zone."
    )

    @field_validator("cidr")
    @classmethod
    def _private_range(cls, value: str) -> str:
        try:
            network = ipaddress.IPv4Network(value)
        except ValueError as error:
            raise refuse(f"{value!r} is no IPv4 range: {error}; use one like 10.20.0.0/16") from None
        if not 16 <= network.prefixlen <= 20:
            why = "more than the /16 that EFA and a VPC allow" if network.prefixlen < 16 else "too small for the nodes"
            raise refuse(f"{value} is {why}; use a /16 to /20")
        if not is_private(network):
            raise refuse(f"{value} is no private range; use one inside {one_of(_PRIVATE_RANGES)}")
        if value != str(network):
            raise refuse(f"{value} is not how AWS writes a range; use {network}")
        if network.overlaps(ipaddress.IPv4Network(SERVICE_CIDR)):
            raise refuse(
                f"{value} overlaps {SERVICE_CIDR}, the range of Kubernetes Services; use one like 10.20.0.0/16"
            )
        return value

    @field_validator("zones")
    @classmethod
    def _two_zones(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise refuse("a zone is named twice")
        if len(value) < 2:
            raise refuse("EKS wants subnets in at least two zones; name another one")
        for zone in value:
            if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-g]", zone):
                raise refuse(f"{zone!r} is no availability zone; use names like us-east-1a")
        return value

    @model_validator(mode="after")
    def _data_zone_is_used(self) -> "NetworkSettings":
        if self.data_zone not in self.zones:
            raise refuse(f"{self.data_zone} is none of the zones; use {one_of(self.zones)}", "dataZone")
        return self
