"""The file system's section."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from infra import sizing
from infra.settings.findings import refuse
from infra.settings.sections import Section
from infra.settings.values import Flag, Whole, no_bool_as_number


class StorageSettings(Section):
    """The FSx for Lustre file system, PERSISTENT_2 on SSD, that holds the models."""

    capacity_gib: Whole = Field(description="Capacity in GiB; it can grow, never shrink.")
    throughput: Annotated[Literal[125, 250, 500, 1000], BeforeValidator(no_bool_as_number)] = Field(
        description="Tier in MB/s per TiB. Fixed at creation where `efa` is true."
    )
    efa: Flag = Field(description="EFA-enabled. Fixed at creation.")
    protect: Flag = Field(default=True, description="`destroy` stops before it starts while this is true.")

    @property
    def mib_per_second(self) -> int:
        """What the file system's disks give all clients together, in MiB/s."""
        return sizing.lustre_mib_per_second(self.capacity_gib, self.throughput)

    @property
    def least_mib_per_second(self) -> int:
        """What the smallest such file system gives: bounds that rest on it stay as they are when this one grows."""
        smallest = sizing.smallest_lustre_gib(self.throughput, efa=self.efa)
        return sizing.lustre_mib_per_second(smallest, self.throughput)

    @model_validator(mode="after")
    def _whole_steps(self) -> "StorageSettings":
        if why := sizing.lustre_capacity_problem(self.capacity_gib, self.throughput, efa=self.efa):
            raise refuse(why, "capacityGib")
        return self
