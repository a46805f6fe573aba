"""The sections of nodes: CPU nodes of the system, and groups of GPU nodes."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator, model_validator

from infra.instance_types import CPU_TYPES, GPU_TYPES, INSTANCE_TYPES, InstanceType
from infra.settings.findings import one_of, refuse
from infra.settings.sections import Section
from infra.settings.values import Flag, NodeGroupName, Whole, one_type_of


class SizeSettings(Section):
    """How many nodes. Nothing scales them: `desired` is what runs."""

    min: Whole = Field(default=0, ge=0, description="Fewest nodes.")
    desired: Whole = Field(ge=0, description="Nodes that run.")
    max: Whole = Field(ge=1, description="Most nodes; in a GPU group what its servers' GPUs are held against.")

    @model_validator(mode="after")
    def _in_order(self) -> "SizeSettings":
        if not self.min <= self.desired <= self.max:
            raise refuse(f"min {self.min}, desired {self.desired}, max {self.max} are not in this order")
        return self


class SystemNodesSettings(Section):
    """The CPU nodes for CoreDNS, the CSI controller and publishing, in the data zone."""

    instance_type: Annotated[str, one_type_of(CPU_TYPES, "x86_64 CPU type")] = Field(
        default="m7i.xlarge",
        description="EC2 type.",
        json_schema_extra={"values": ", ".join(f"`{name}`" for name in CPU_TYPES)},
    )
    size: SizeSettings = Field(
        default=SizeSettings.model_validate({"min": 1, "desired": 2, "max": 3}), description="How many."
    )
    root_gib: Whole = Field(
        default=100,
        ge=100,
        le=16384,
        description="Root volume in GiB; publishing pulls an image of 10 GB there.",
    )

    @field_validator("size")
    @classmethod
    def _never_none(cls, value: SizeSettings) -> SizeSettings:
        if value.desired < 1:
            raise refuse("desired must be at least 1: CoreDNS and the CSI controller run there")
        return value


class NodeGroupSettings(Section):
    """A group of GPU nodes in the data zone."""

    misplaced_keys: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("zone", "zones", "dataZone", "availabilityZone", "subnetId", "subnetIds"),
        "GPU nodes always stand in network.dataZone, where Lustre is; leave it out",
    )

    instance_type: Annotated[str, one_type_of(GPU_TYPES, "GPU type")] = Field(
        description="EC2 type with GPUs and local NVMe.",
        json_schema_extra={"values": ", ".join(f"`{name}`" for name in GPU_TYPES)},
    )
    capacity: Literal["onDemand", "spot"] = Field(
        default="onDemand",
        description="How the instances are bought; on demand, an open capacity reservation in the data zone is used.",
    )
    size: SizeSettings = Field(description="How many.")
    efa: Flag | None = Field(
        default=None,
        description="EFA interfaces on every network card.",
        json_schema_extra={"default": "`true` where the type has EFA"},
    )

    @property
    def facts(self) -> InstanceType:
        """The row of the instance table."""
        return INSTANCE_TYPES[self.instance_type]

    @property
    def efa_interfaces(self) -> int:
        """EFA interfaces of one node; 0 where EFA is off or the type has none."""
        return 0 if self.efa is False else self.facts.efa

    @model_validator(mode="after")
    def _efa_exists(self) -> "NodeGroupSettings":
        if self.efa and not self.facts.efa:
            capable = [name for name in GPU_TYPES if INSTANCE_TYPES[name].efa]
            raise refuse(f"{self.instance_type} has no EFA; leave it out or use {one_of(capable)}", "efa")
        return self


NodeGroups = dict[NodeGroupName, NodeGroupSettings]
