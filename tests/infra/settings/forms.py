"""Sections whose values have several forms, for tests: words or a mapping, told apart by a key or by shape."""

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, ValidationError

from infra.settings import messages, schema
from infra.settings.sections import Section
from infra.settings.values import Whole


class Window(Section):
    """When a block runs."""

    first_day: str = Field(description="First day.")
    days: Whole = Field(default=1, ge=1, description="How many days.")


class Block(Section):
    """A capacity block."""

    kind: Literal["block"] = Field(description="How the instances are bought.")
    reservation_id: str = Field(description="The block's id.")
    window: Window | None = Field(default=None, description="When it runs.")


class Spot(Section):
    """Spot instances."""

    kind: Literal["spot", "spotFleet"] = Field(description="How the instances are bought.")
    max_price: Whole = Field(default=3, description="Most dollars an hour.")


class Shelf(Section):
    """A slow disk on a shelf."""

    disk_kind: Literal["slow"]
    where: Literal["shelf"] = Field(description="Where the slow disk is.")
    number: Whole = Field(default=1, description="The place there.")


class Rack(Section):
    """A slow disk in a rack."""

    disk_kind: Literal["slow"]
    where: Literal["rack"]


class Fast(Section):
    """A fast disk, which has a capacity of its own."""

    disk_kind: Literal["fast"] = Field(description="Which disk.")
    capacity: Annotated[Block | Spot, Discriminator("kind")]


Slow = Annotated[Shelf | Rack, Field(discriminator="where")]


def word_or_block(value: Any) -> str:
    return "block" if isinstance(value, dict) else "word"


class Group(Section):
    """Values of several forms, wherever such a value may stand."""

    capacity: Literal["onDemand", "spot"] | Annotated[Block | Spot, Field(discriminator="kind")] = Field(
        default="onDemand", description="How it is bought."
    )
    bought: Block | Spot | None = Field(default=None, discriminator="kind", description="How it was bought.")
    disks: dict[str, Annotated[Slow | Fast, Field(discriminator="disk_kind")]] = Field(default={}, description="Disks.")
    wishes: list[Annotated[Block | Spot, Discriminator("kind")]] = Field(default=[], description="Next ones.")
    block: Literal["none"] | Block = Field(default="none", description="Its block.")
    tagged: Annotated[
        Annotated[Literal["none"], Tag("word")] | Annotated[Block, Tag("block")], Discriminator(word_or_block)
    ] = Field(default="none", description="The same, by a function.")
    windows: Literal["none"] | list[Window] = Field(default="none", description="When.")
    by_day: Literal["none"] | dict[str, Window] = Field(default="none", description="When, by day.")
    count: Whole | Literal["auto"] | None = Field(default=None, description="How many.")
    names: list[str] | str = Field(default=[], description="One or several.")


def found(section: type[Section], value: Any) -> list[tuple[str, str]]:
    """The findings of a section that the stack file has at `x`, by key; none where the value is good."""
    try:
        section.model_validate(value)
    except ValidationError as error:
        listed = messages.findings(error, "x", schema.of_section(section), value)
        return [(one.key, one.text) for one in listed]
    return []
