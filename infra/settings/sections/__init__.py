"""The sections of the stack file, a subject a module, and what they have in common."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic.alias_generators import to_camel


class Section(BaseModel):
    """A frozen part of the stack file, spelled in camelCase there; unknown keys are refused.

    Attributes:
        misplaced_keys: Unknown keys that people may well look for here, and what they are told instead of the nearest.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    misplaced_keys: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, values: Any) -> Any:
        if values is None:
            return {}
        return (
            {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values
        )
