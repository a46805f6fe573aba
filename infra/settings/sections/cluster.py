"""The EKS control plane's section: its endpoint, and who is let in."""

import ipaddress
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, field_validator, model_validator

from infra import versions
from infra.settings.findings import refuse
from infra.settings.sections import Section
from infra.settings.values import ClusterName, EntryName, Flag, NamespaceName, RoleArn, no_bool_as_number

# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
LogRetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]


# https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html
AccessPolicy = Literal["clusterAdmin", "admin", "edit", "view"]


class EndpointSettings(Section):
    """Who reaches the API server of Kubernetes."""

    public: Flag = Field(default=False, description="Also reachable from `cidrs`; false = from inside the VPC only.")
    cidrs: list[str] = Field(default=[], description="IPv4 ranges that reach the public endpoint.")

    @field_validator("cidrs")
    @classmethod
    def _ranges(cls, value: list[str]) -> list[str]:
        networks = []
        for text in value:
            try:
                networks.append(ipaddress.IPv4Network(text))
            except ValueError as error:
                raise refuse(f"{text!r} is no IPv4 range: {error}; use one like 203.0.113.0/24") from None
        for i, one in enumerate(networks):
            for other in networks[i + 1 :]:
                if one.overlaps(other):
                    raise refuse(f"{one} and {other} overlap; keep the wider one")
        return value

    @model_validator(mode="after")
    def _public_is_named(self) -> "EndpointSettings":
        if self.public and not self.cidrs:
            raise refuse(
                "a public endpoint needs the ranges that may reach it; name them, like [203.0.113.0/24]",
                "cidrs",
            )
        if self.cidrs and not self.public:
            raise refuse("of no use without public: true; leave them out or set it", "cidrs")
        return self


class AccessEntrySettings(Section):
    """One more IAM role that may use the cluster's Kubernetes API."""

    role_arn: RoleArn = Field(description="The role.")
    policy: AccessPolicy = Field(description="What it may do: EKS's own access policy of that name.")
    namespaces: list[NamespaceName] = Field(default=[], description="Only in these namespaces; empty = in all.")

    @model_validator(mode="after")
    def _cluster_admin_is_everywhere(self) -> "AccessEntrySettings":
        if self.policy == "clusterAdmin" and self.namespaces:
            raise refuse(
                "clusterAdmin is for the whole cluster; leave them out or use admin, edit or view",
                "namespaces",
            )
        return self


class AccessSettings(Section):
    """Who is let in to Kubernetes."""

    deploy_role: RoleArn | None = Field(
        default=None,
        description="The role that runs `up`: creator and admin of the cluster, and the one the kubeconfig names. "
        "`aws:assumeRoles` must name it too.",
    )
    entries: dict[EntryName, AccessEntrySettings] = Field(default={}, description="Other roles, by a name of yours.")


class ClusterSettings(Section):
    """The EKS control plane."""

    name: ClusterName = Field(
        description="Name of the EKS cluster. Fixed at creation.", json_schema_extra={"default": "`faststart-<stack>`"}
    )
    version: Literal["1.35", "1.36"] = Field(
        default=versions.KUBERNETES, description="Kubernetes version of control plane and nodes, in quotes."
    )
    endpoint: EndpointSettings = Field(default=EndpointSettings(), description="Who reaches the API server.")
    access: AccessSettings = Field(default=AccessSettings(), description="Who is let in.")
    deletion_protection: Flag = Field(
        default=True, description="EKS refuses to delete the cluster, and `destroy` stops before it starts."
    )
    log_retention_days: Annotated[LogRetentionDays, BeforeValidator(no_bool_as_number)] = Field(
        default=90, description="Days for which CloudWatch keeps the control plane's logs."
    )
