"""The AWS provider's own keys: region, accounts, default tags and the deploy role."""

import re
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic.alias_generators import to_camel

from infra.settings.findings import one_of, refuse
from infra.settings.values import AccountId


class AwsSettings(BaseModel):
    """What the stack file says to the AWS provider itself (`aws:` keys), as far as the plan needs it."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)

    region: str = Field(description="Region of everything, in the aws partition.")
    allowed_account_ids: list[AccountId] = Field(
        min_length=1, description="Accounts that the stack may touch; the provider refuses any other."
    )
    default_tags: dict[str, dict[str, str]] = Field(
        default={},
        description="Tags of everything, also of what launch templates make: `tags: {name: value}`. A change rolls all "
        "nodes, one after the other: copies on their NVMe are lost, and they come with the AMI of the day.",
    )
    assume_roles: list[dict[str, Any]] = Field(
        default=[], description="The deploy role, as `[{roleArn: ...}]`: see `cluster.access.deployRole`."
    )

    @model_validator(mode="before")
    @classmethod
    def _no_profile(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("profile") is not None:
            raise refuse("it does not reach the Kubernetes provider; remove it, and export AWS_PROFILE", "profile")
        return values

    @property
    def tags(self) -> dict[str, str]:
        """The default tags, for what they do not reach: instances, volumes and interfaces of launch templates."""
        return self.default_tags.get("tags", {})

    @field_validator("region")
    @classmethod
    def _commercial(cls, value: str) -> str:
        if not re.fullmatch(r"(?!(cn|us-gov|us-iso\w*|eu-isoe|eusc)-)[a-z]{2}(-[a-z]+)+-[1-9]", value):
            raise refuse(
                f"{value!r} is no region of the aws partition, the only one in this version; use us-east-1, ..."
            )
        return value

    @field_validator("default_tags")
    @classmethod
    def _tags_alone(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        if other := sorted(value.keys() - {"tags"}):
            raise refuse(f"{one_of(other)} tags nothing; use tags: {{name: value}}")
        return value
