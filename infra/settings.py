"""The stack file as frozen, validated values: the only reader of `pulumi.Config`.

`load()` hands out `Settings`, or stops the run with every mistake of the stack file in one message, each by its stack
key with what would be accepted. What rests on an API model or a primary document refuses; what is field knowledge or
inference warns.

A new key is a field here with a description (the key reference in `stacks/README.md` is made from it); a rule that
looks at several sections is a function under `@_rule`.
"""

import difflib
import ipaddress
import json
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import pulumi
import pulumi.runtime
from pulumi.runtime.config import CONFIG
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails, PydanticCustomError

from infra import images, sizing, versions
from infra.instance_types import CPU_TYPES, GPU_TYPES, INSTANCE_TYPES, InstanceType

PROJECT = "faststart"

# The range of Kubernetes Services. EKS would choose one by the VPC's own range; naming it keeps the rule checkable.
SERVICE_CIDR = "172.20.0.0/16"

# RFC 1918, the ranges that AWS recommends for a VPC.
_PRIVATE_RANGES = ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")

# https://docs.aws.amazon.com/AmazonCloudWatchLogs/latest/APIReference/API_PutRetentionPolicy.html
LogRetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]

# What `models.<model>.files` may be but a list of globs.
_FILE_WORDS = ("auto", "all")

# Flags of `vllm serve` that other keys decide, that need what the pod has not, or that would blind its probes.
_OWN_SERVER_FLAGS = {
    "--model": "models.<model> decides it",
    "--served-model-name": "modelServers.<server>.model decides it",
    "--host": "pods listen on all their addresses",
    "--port": "it is 8000, by contract",
    "--uds": "the probes need the port",
    "--tensor-parallel-size": "modelServers.<server>.gpus decides it",
    "-tp": "modelServers.<server>.gpus decides it",
    "--pipeline-parallel-size": "it takes more GPUs than the pod has",
    "-pp": "it takes more GPUs than the pod has",
    "--data-parallel-size": "it takes more GPUs than the pod has; use replicas",
    "-dp": "it takes more GPUs than the pod has; use replicas",
    "--nnodes": "a server is one pod in this version",
    "--shutdown-timeout": "it is part of the drain",
    "--config": "its file is not in the pod; write the flags here",
    "--ssl-keyfile": "the probes speak HTTP",
    "--ssl-certfile": "the probes speak HTTP",
    "--api-key": "a key in arguments is a key in the state and in every process list",
}


def _is_private(network: ipaddress.IPv4Network) -> bool:
    return any(network.subnet_of(ipaddress.IPv4Network(private)) for private in _PRIVATE_RANGES)


def _refuse(text: str, field: str = "") -> PydanticCustomError:
    """A mistake in words; `field` names the key of a section that a rule over the whole section found wrong."""
    return PydanticCustomError("faststart", "{text}", {"text": text, "field": field})


def _named(pattern: str, what: str) -> AfterValidator:
    """A check that a text matches `pattern` as a whole; `what` is the pattern in words."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            date = "; put the date in quotes" if value.endswith(" +0000 UTC") else ""
            raise _refuse(f"{value!r} is no {what} ({pattern}){date}")
        return value

    return AfterValidator(check)


def _one_type_of(names: tuple[str, ...], kind: str) -> AfterValidator:
    def check(value: str) -> str:
        if value not in names:
            raise _refuse(f"{value!r} is no {kind} in this version; use {_one_of(names)}")
        return value

    return AfterValidator(check)


def _one_of(names: tuple[Any, ...] | list[Any]) -> str:
    words = [str(name) for name in names]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _no_bool_as_number(value: Any) -> Any:
    if isinstance(value, bool):
        raise _refuse(f"a whole number is wanted, not {_shown(value)}")
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) else value


def _only_true_or_false(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise _refuse(f"true or false is wanted, not {_shown(value)}")
    return value == "true"


def _files_as_list(value: Any) -> Any:
    """A list as it is, and one of the words as a list of it."""
    if isinstance(value, list):
        return value
    if value not in _FILE_WORDS:
        raise _refuse(f"{_shown(value)} is not accepted; use {_one_of((*_FILE_WORDS, 'a list of globs'))}")
    return [value]


def _inside_the_folder(glob: str) -> str:
    """A glob that can match a path inside a model's folder, and that neither kubelet nor argparse takes for more."""
    if {"", ".", ".."} & set(glob.removesuffix("/").split("/")):
        raise _refuse(f"{_shown(glob)} is no path inside the model's folder; use one like *.safetensors or folder/")
    if glob.startswith("-"):
        raise _refuse(f"{_shown(glob)} would be a flag of preload; use ? for its first character")
    if "$" in glob or not glob.isprintable():
        raise _refuse(f"{_shown(glob)} would not reach preload as it is; use ? for $ and for control characters")
    return glob


# `pulumi config set` without --path stores numbers and booleans as texts: those are read, guesses are not.
Whole = Annotated[int, BeforeValidator(_no_bool_as_number)]
Flag = Annotated[bool, BeforeValidator(_only_true_or_false)]

ServerName = Annotated[str, _named(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", "server name")]
ModelName = Annotated[str, _named(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "model name")]
Revision = Annotated[str, _named(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "revision")]
NodeGroupName = Annotated[str, _named(r"(?!system$)[a-z]([a-z0-9-]{0,30}[a-z0-9])?", "node group name")]
EntryName = Annotated[str, _named(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", "name of an access entry")]
# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
ClusterName = Annotated[str, _named(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", "EKS cluster name")]
LabelValue = Annotated[str, _named(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "label value")]
RoleArn = Annotated[str, _named(r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]+", "ARN of an IAM role")]
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
SecretName = Annotated[str, _named(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "name of a Secret")]
NamespaceName = Annotated[str, _named(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "namespace")]
AccountId = Annotated[str, _named(r"\d{12}", "account id of twelve digits")]


class Section(BaseModel):
    """A frozen part of the stack file, spelled in camelCase there; unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, values: Any) -> Any:
        if values is None:
            return {}
        return (
            {key: value for key, value in values.items() if value is not None} if isinstance(values, dict) else values
        )


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
            raise _refuse("it does not reach the Kubernetes provider; remove it, and export AWS_PROFILE", "profile")
        return values

    @property
    def tags(self) -> dict[str, str]:
        """The default tags, for what they do not reach: instances, volumes and interfaces of launch templates."""
        return self.default_tags.get("tags", {})

    @field_validator("region")
    @classmethod
    def _commercial(cls, value: str) -> str:
        if not re.fullmatch(r"(?!(cn|us-gov|us-iso\w*|eu-isoe|eusc)-)[a-z]{2}(-[a-z]+)+-[1-9]", value):
            raise _refuse(
                f"{value!r} is no region of the aws partition, the only one in this version; use us-east-1, ..."
            )
        return value

    @field_validator("default_tags")
    @classmethod
    def _tags_alone(cls, value: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
        if other := sorted(value.keys() - {"tags"}):
            raise _refuse(f"{_one_of(other)} tags nothing; use tags: {{name: value}}")
        return value


class NetworkSettings(Section):
    """The VPC."""

    cidr: str = Field(default="10.20.0.0/16", description="IPv4 range of the VPC: a private one, /16 to /20.")
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
            raise _refuse(f"{value!r} is no IPv4 range: {error}; use one like 10.20.0.0/16") from None
        if not 16 <= network.prefixlen <= 20:
            why = "more than the /16 that EFA and a VPC allow" if network.prefixlen < 16 else "too small for the nodes"
            raise _refuse(f"{value} is {why}; use a /16 to /20")
        if not _is_private(network):
            raise _refuse(f"{value} is no private range; use one inside {_one_of(_PRIVATE_RANGES)}")
        if value != str(network):
            raise _refuse(f"{value} is not how AWS writes a range; use {network}")
        if network.overlaps(ipaddress.IPv4Network(SERVICE_CIDR)):
            raise _refuse(
                f"{value} overlaps {SERVICE_CIDR}, the range of Kubernetes Services; use one like 10.20.0.0/16"
            )
        return value

    @field_validator("zones")
    @classmethod
    def _two_zones(cls, value: list[str]) -> list[str]:
        if len(set(value)) != len(value):
            raise _refuse("a zone is named twice")
        if len(value) < 2:
            raise _refuse("EKS wants subnets in at least two zones; name another one")
        for zone in value:
            if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-g]", zone):
                raise _refuse(f"{zone!r} is no availability zone; use names like us-east-1a")
        return value

    @model_validator(mode="after")
    def _data_zone_is_used(self) -> "NetworkSettings":
        if self.data_zone not in self.zones:
            raise _refuse(f"{self.data_zone} is none of the zones; use {_one_of(self.zones)}", "dataZone")
        return self


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
                raise _refuse(f"{text!r} is no IPv4 range: {error}; use one like 203.0.113.0/24") from None
        for i, one in enumerate(networks):
            for other in networks[i + 1 :]:
                if one.overlaps(other):
                    raise _refuse(f"{one} and {other} overlap; keep the wider one")
        return value

    @model_validator(mode="after")
    def _public_is_named(self) -> "EndpointSettings":
        if self.public and not self.cidrs:
            raise _refuse(
                "a public endpoint needs the ranges that may reach it; name them, like [203.0.113.0/24]",
                "cidrs",
            )
        if self.cidrs and not self.public:
            raise _refuse("of no use without public: true; leave them out or set it", "cidrs")
        return self


# https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html
AccessPolicy = Literal["clusterAdmin", "admin", "edit", "view"]


class AccessEntrySettings(Section):
    """One more IAM role that may use the cluster's Kubernetes API."""

    role_arn: RoleArn = Field(description="The role.")
    policy: AccessPolicy = Field(description="What it may do: EKS's own access policy of that name.")
    namespaces: list[NamespaceName] = Field(default=[], description="Only in these namespaces; empty = in all.")

    @model_validator(mode="after")
    def _cluster_admin_is_everywhere(self) -> "AccessEntrySettings":
        if self.policy == "clusterAdmin" and self.namespaces:
            raise _refuse(
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
    log_retention_days: Annotated[LogRetentionDays, BeforeValidator(_no_bool_as_number)] = Field(
        default=90, description="Days for which CloudWatch keeps the control plane's logs."
    )


class SizeSettings(Section):
    """How many nodes. Nothing scales them: `desired` is what runs."""

    min: Whole = Field(default=0, ge=0, description="Fewest nodes.")
    desired: Whole = Field(ge=0, description="Nodes that run.")
    max: Whole = Field(ge=1, description="Most nodes; in a GPU group what its servers' GPUs are held against.")

    @model_validator(mode="after")
    def _in_order(self) -> "SizeSettings":
        if not self.min <= self.desired <= self.max:
            raise _refuse(f"min {self.min}, desired {self.desired}, max {self.max} are not in this order")
        return self


class SystemNodesSettings(Section):
    """The CPU nodes for CoreDNS, the CSI controller and publishing, in the data zone."""

    instance_type: Annotated[str, _one_type_of(CPU_TYPES, "x86_64 CPU type")] = Field(
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
            raise _refuse("desired must be at least 1: CoreDNS and the CSI controller run there")
        return value


class NodeGroupSettings(Section):
    """A group of GPU nodes in the data zone."""

    instance_type: Annotated[str, _one_type_of(GPU_TYPES, "GPU type")] = Field(
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
            raise _refuse(f"{self.instance_type} has no EFA; leave it out or use {_one_of(capable)}", "efa")
        return self


class StorageSettings(Section):
    """The FSx for Lustre file system, PERSISTENT_2 on SSD, that holds the models."""

    capacity_gib: Whole = Field(description="Capacity in GiB; it can grow, never shrink.")
    throughput: Annotated[Literal[125, 250, 500, 1000], BeforeValidator(_no_bool_as_number)] = Field(
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
            raise _refuse(why, "capacityGib")
        return self


# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html, and the characters that are safe in keys
# (object-keys.html there).
_S3_SOURCE = r"s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]((/[\w!*'()@+=,.-]+)+)?/?"
_HUB_SOURCE = r"hf://([\w.-]+/)?[\w.-]+@[\w.-]+(/[\w.-]+)*"
_PATH_SOURCE = r"path:/fsx(/[\w@+=,-][\w@+=,.-]*)+"
_SOURCES = "s3://bucket/prefix, hf://org/name@revision or path:/fsx/<folder>"


class ModelSettings(Section):
    """A model: where it comes from, and what of it is published on the file system and copied to the nodes."""

    source: str = Field(
        description="`s3://bucket/prefix`, `hf://org/name@revision` (a commit; a branch or tag can move), or "
        "`path:/fsx/...`: a folder that is on the file system already.",
    )
    revision: Revision = Field(
        description="Which one: a label of yours. It is published once and never changed; another is another folder."
    )
    size_gib: Whole = Field(
        ge=1, description="Upper bound in GiB of what is published and copied: disk, probes and time-outs follow it."
    )
    files: Annotated[list[Annotated[str, AfterValidator(_inside_the_folder)]], BeforeValidator(_files_as_list)] = Field(
        default=["auto"],
        description="What of the folder is copied: the one set of weights that vLLM loads and what belongs to it, "
        "everything, or what globs name (in quotes, like `hf download --include`; `folder/` is all that lies in it).",
        json_schema_extra={"values": "`auto`, `all`, list of globs", "default": "`auto`"},
    )
    allow_pickle: Flag = Field(
        default=False,
        description="Also publish Python pickles (`.bin`, `.pt`), whose author can run code in the server.",
    )
    token_secret: SecretName | None = Field(
        default=None,
        description="Secret in faststart-system whose key `token` is a token for Hugging Face; you make it, so that "
        "the token is in no state.",
    )
    in_place: Flag = Field(
        default=False, description="Seal the folder of a `path:` source where it is, instead of a copy of it."
    )

    @field_validator("source")
    @classmethod
    def _of_a_kind(cls, value: str) -> str:
        kind = value.partition(":")[0]
        if kind not in ("s3", "hf", "path"):
            raise _refuse(f"{value!r} is not in this version; use {_SOURCES}")
        if kind == "s3" and (not re.fullmatch(_S3_SOURCE, value, re.ASCII) or {".", ".."} & set(value.split("/"))):
            raise _refuse(f"{value!r} is no prefix in a bucket; use s3://bucket/prefix")
        if kind == "hf" and not re.fullmatch(_HUB_SOURCE, value, re.ASCII):
            raise _refuse(f"{value!r} is no revision of a repository; use hf://org/name@revision, best with a commit")
        if kind == "path" and (
            not re.fullmatch(_PATH_SOURCE, value, re.ASCII) or value in ("path:/fsx/models", "path:/fsx/s3")
        ):
            raise _refuse(f"{value!r} is no model's folder; use path:/fsx/<folder>, such as path:/fsx/s3/<name>")
        return value

    @model_validator(mode="after")
    def _each_key_has_its_source(self) -> "ModelSettings":
        if self.in_place and self.kind != "path":
            raise _refuse(f"of no use for {self.source}; leave it out, or use path:/fsx/<folder>", "inPlace")
        if self.token_secret and self.kind != "hf":
            raise _refuse(f"of no use for {self.source}; leave it out, or use hf://org/name@revision", "tokenSecret")
        return self

    @field_validator("files")
    @classmethod
    def _words_stand_alone(cls, value: list[str]) -> list[str]:
        if not value:
            raise _refuse(f"names nothing; use {_one_of((*_FILE_WORDS, 'a list of globs'))}")
        if len(value) > 1 and (words := [one for one in value if one in _FILE_WORDS]):
            raise _refuse(f"{words[0]} stands alone; use it without globs, or globs without it")
        return value

    @property
    def kind(self) -> str:
        """What kind of source it has: `s3`, `hf` or `path`."""
        return self.source.partition(":")[0]

    def path(self, name: str) -> str:
        """The sealed folder of the model of that name, as pods see it under /fsx."""
        return self.source.removeprefix("path:") if self.in_place else f"/fsx/models/{name}/{self.revision}"


class PreloadSettings(Section):
    """The copy from Lustre to NVMe at a pod's start."""

    parallel_copies: Whole = Field(default=32, ge=1, le=256, description="Files that are copied at the same time.")
    write: Literal["auto", "direct", "buffered"] = Field(
        default="auto",
        description="Past the page cache or through it; `auto` = through it where the node's memory holds the model.",
    )
    cache: Literal["auto", "keep", "drop"] = Field(
        default="auto", description="Whether the copy is left in the page cache, from where vLLM then reads it."
    )
    verify: Literal["none", "size", "sha256"] = Field(
        default="size",
        description="What is checked: nothing, the model's structure and the sizes in the copy, or the content too.",
    )

    @model_validator(mode="after")
    def _something_is_there_to_keep(self) -> "PreloadSettings":
        if self.write == "direct" and self.cache == "keep":
            raise _refuse("write: direct leaves nothing in the page cache; use auto or drop, or another write", "cache")
        return self


class ModelServerSettings(Section):
    """A vLLM Deployment and its Service."""

    model: str = Field(description="A name under `models`.")
    node_group: str = Field(description="A name under `nodeGroups`.")
    replicas: Whole = Field(default=1, ge=0, le=1000, description="Pods.")
    gpus: Whole = Field(ge=1, description="GPUs of one pod, and vLLM's tensor-parallel size.")
    image: str = Field(
        default=versions.VLLM_IMAGE,
        description="Image with vLLM that runs as uid 2000: with a tag, whose digest `make pin-images` looks up, or "
        "with a digest of your own.",
    )
    args: list[Annotated[str, StringConstraints(min_length=1)]] = Field(
        default=[], description="Further arguments of `vllm serve`."
    )
    preload: PreloadSettings = Field(default=PreloadSettings(), description="The copy to NVMe.")

    @field_validator("image")
    @classmethod
    def _tagged(cls, value: str) -> str:
        found = images.parse(value)
        if not found:
            raise _refuse(f"{value!r} is no image reference; use one like {versions.VLLM_IMAGE}")
        if not found.digest and found.tag in ("", "latest"):
            raise _refuse(f"{value!r} has no fixed tag; use one like {versions.VLLM_IMAGE}")
        release = re.match(r"v(\d+)\.(\d+)", found.tag)
        if found.repository.endswith("vllm/vllm-openai") and release and (int(release[1]), int(release[2])) < (0, 25):
            raise _refuse(f"{value!r} runs as root; vllm-openai images run as uid 2000 from v0.25 on")
        return value

    @field_validator("args")
    @classmethod
    def _not_ours(cls, value: list[str]) -> list[str]:
        for arg in value:
            given = arg.partition("=")[0]
            # vLLM's parser takes `_` for `-`, and argparse takes any beginning of a flag.
            flag = given.replace("_", "-")
            ours = (
                why for name, why in _OWN_SERVER_FLAGS.items() if flag == name or (flag[4:] and name.startswith(flag))
            )
            if why := next(ours, None):
                raise _refuse(f"{given} is not taken here: {why}")
        return value


def pod_size(server: ModelServerSettings, model: ModelSettings) -> sizing.PodSize:
    """What one pod of a server takes of its node."""
    return sizing.PodSize(gpus=server.gpus, nvme_gib=sizing.copy_space_gib(model.size_gib))


class PluginsSettings(Section):
    """Helm releases in kube-system, each of which can be switched off where the cluster has it already."""

    fsx_csi: Flag = Field(default=True, description="FSx for Lustre CSI driver.")
    efa: Flag = Field(default=True, description="EFA device plugin, where a node group has EFA interfaces.")
    nvidia: Flag = Field(default=True, description="NVIDIA device plugin.")


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
            raise _refuse(f"{value!r} is neither; use a folder (./charts) or a repository (https://... or oci://...)")
        if not Path(value).is_dir():
            raise _refuse(f"{value!r} is no folder here")
        return value

    @property
    def charts_folder(self) -> str | None:
        """The folder, where `charts` names one."""
        return None if self.charts is None or "://" in self.charts else self.charts


class Settings(BaseModel):
    """One environment: what its stack file says, checked and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    stack: str = Field(exclude=True)
    aws: AwsSettings = Field(exclude=True)
    network: NetworkSettings = Field(description="The VPC.")
    cluster: ClusterSettings = Field(description="The EKS control plane.")
    system_nodes: SystemNodesSettings = Field(default=SystemNodesSettings(), description="CPU nodes.")
    node_groups: dict[NodeGroupName, NodeGroupSettings] = Field(
        default={}, description="GPU nodes, by a name of yours."
    )
    storage: StorageSettings = Field(description="The file system.")
    models: dict[ModelName, ModelSettings] = Field(default={}, description="Models, by name.")
    model_servers: dict[ServerName, ModelServerSettings] = Field(default={}, description="vLLM servers, by name.")
    plugins: PluginsSettings = Field(default=PluginsSettings(), description="Helm releases.")
    mirrors: MirrorsSettings = Field(default=MirrorsSettings(), description="Other sources of charts.")
    team: LabelValue | None = Field(default=None, description="Label `faststart.dev/team` of every pod that serves.")

    def charts(self) -> list[versions.Chart]:
        """The charts that are installed."""
        any_efa = any(group.efa_interfaces for group in self.node_groups.values())
        wanted = {
            versions.FSX_CSI_CHART: self.plugins.fsx_csi,
            versions.EFA_CHART: self.plugins.efa and any_efa,
            versions.NVIDIA_CHART: self.plugins.nvidia,
        }
        return [chart for chart, is_wanted in wanted.items() if is_wanted]

    def servers_of(self, node_group: str) -> dict[str, ModelServerSettings]:
        """The servers that stand on a node group, by name."""
        return {name: server for name, server in self.model_servers.items() if server.node_group == node_group}

    def nodes_needed(self, node_group: str) -> int:
        """Nodes that the servers of a node group fill. Raises ValueError where a pod fits on no node."""
        pods = [
            pod_size(server, self.models[server.model])
            for server in self.servers_of(node_group).values()
            for _ in range(server.replicas)
        ]
        return sizing.nodes_needed(pods, self.node_groups[node_group].facts)

    def overcommitted(self, node_group: str) -> bool:
        """Whether the group's servers ask for more nodes than run, so that some pods stay Pending."""
        return self.nodes_needed(node_group) > self.node_groups[node_group].size.desired


class Finding(NamedTuple):
    """A mistake (`refuses`) or a warning, by stack key."""

    key: str
    text: str
    refuses: bool = True

    def __str__(self) -> str:
        """The line a person reads."""
        return f"{self.key}: {self.text}"


class Draft(Settings):
    """What of a stack file could be read, for the rules: sections with a mistake are absent, such entries left out.

    Attributes:
        declared: The names that the stack file gives its node groups, models and servers, mistaken ones too.
    """

    declared: dict[str, list[str]] = Field(exclude=True)


_Rule = Callable[[Draft], Iterator[Finding]]
_RULES: list[tuple[tuple[str, ...], _Rule]] = []


def _rule(*sections: str) -> Callable[[_Rule], _Rule]:
    """A rule over several sections; it is asked when all of them could be read, and reads no other."""

    def register(function: _Rule) -> _Rule:
        _RULES.append((sections, function))
        return function

    return register


def _key(*parts: str) -> str:
    return f"{PROJECT}:{'.'.join(parts)}"


@_rule("aws", "network")
def _zones_are_in_the_region(draft: Draft) -> Iterator[Finding]:
    region = draft.aws.region
    for zone in draft.network.zones:
        if zone[:-1] != region:
            text = f"{zone} is not in aws:region {region}; use {region}a, {region}b, ..."
            yield Finding(_key("network", "zones"), text)


@_rule("aws", "cluster")
def _the_deploy_role_runs_the_stack(draft: Draft) -> Iterator[Finding]:
    key, role = _key("cluster", "access", "deployRole"), draft.cluster.access.deploy_role
    assumed = [entry.get("roleArn") for entry in draft.aws.assume_roles]
    if role is None:
        if assumed:
            yield Finding(key, f"aws:assumeRoles names {assumed[-1]}; set it here too, so that the kubeconfig does")
        else:
            text = "not set: whoever runs the first `up` is the cluster's only admin, and nobody else can run the next"
            yield Finding(key, text, refuses=False)
        return
    if assumed[-1:] != [role]:
        yield Finding(key, f"aws:assumeRoles must end in the same role; use [{{roleArn: {role}}}] there")
    if (account := role.split(":")[4]) not in draft.aws.allowed_account_ids:
        text = f"its account {account} is none of aws:allowedAccountIds; use {_one_of(draft.aws.allowed_account_ids)}"
        yield Finding(key, text)
    for name, entry in draft.cluster.access.entries.items():
        if entry.role_arn == role:
            text = "the deploy role, which EKS makes an admin itself; leave this entry out"
            yield Finding(_key("cluster", "access", "entries", name, "roleArn"), text)


@_rule("cluster")
def _two_entries_name_two_roles(draft: Draft) -> Iterator[Finding]:
    owners: dict[str, str] = {}
    for name, entry in draft.cluster.access.entries.items():
        if (other := owners.setdefault(entry.role_arn, name)) != name:
            text = f"{entry.role_arn} is the role of {other} already; EKS takes one entry a role"
            yield Finding(_key("cluster", "access", "entries", name, "roleArn"), text)


@_rule("cluster")
def _who_reaches_the_api_server_is_said(draft: Draft) -> Iterator[Finding]:
    endpoint = draft.cluster.endpoint
    if not endpoint.public:
        text = "only what is inside the VPC, or joined to it, reaches the API server: `up` must run there"
        yield Finding(_key("cluster", "endpoint", "public"), text, refuses=False)
    for cidr in map(ipaddress.IPv4Network, endpoint.cidrs):
        key = _key("cluster", "endpoint", "cidrs")
        if cidr.prefixlen < 8:
            text = f"{cidr} is a large part of the internet; who is let in is then IAM's word alone"
            yield Finding(key, text, refuses=False)
        elif _is_private(cidr):
            yield Finding(
                key, f"{cidr} is a private range: nobody comes from there to a public endpoint", refuses=False
            )


@_rule("cluster")
def _what_aws_chooses_is_said(draft: Draft) -> Iterator[Finding]:
    key = _key("cluster", "version")
    text = "AWS chooses the releases of node images and add-ons; this version cannot name them"
    yield Finding(key, text, refuses=False)
    if draft.cluster.version != versions.KUBERNETES:
        text = f"{draft.cluster.version} is not what this version is tried with ({versions.KUBERNETES})"
        yield Finding(key, text, refuses=False)


@_rule("storage", "node_groups")
def _mounts_that_ride_tcp_are_said(draft: Draft) -> Iterator[Finding]:
    if not draft.storage.efa:
        return
    text = "the file system can do EFA, but this version does not prepare the nodes' Lustre client: mounts ride TCP"
    yield Finding(_key("storage", "efa"), text, refuses=False)
    for name, group in draft.node_groups.items():
        key = _key("nodeGroups", name, "instanceType")
        if group.facts.lustre_efa == "no":
            yield Finding(key, f"{group.instance_type} is no EFA client of Lustre: its mounts ride TCP", refuses=False)
        elif group.facts.lustre_efa == "derived":
            text = f"EFA to Lustre on {group.instance_type} follows from AWS's rule but is on no list of AWS's"
            yield Finding(key, text, refuses=False)


@_rule("storage", "models", "model_servers")
def _a_slow_copy_is_said(draft: Draft) -> Iterator[Finding]:
    for name, server in draft.model_servers.items():
        if model := draft.models.get(server.model):
            seconds = sizing.copy_seconds(model.size_gib, draft.storage.mib_per_second, server.replicas)
            if seconds > 1800:
                text = f"at {draft.storage.mib_per_second} MiB/s server {name} may copy for {seconds // 60} minutes"
                yield Finding(_key("storage", "throughput"), text, refuses=False)


@_rule("storage", "models")
def _the_models_fit_on_the_file_system(draft: Draft) -> Iterator[Finding]:
    capacity, total = draft.storage.capacity_gib, sum(model.size_gib for model in draft.models.values())
    if total > capacity:
        text = f"{capacity} is less than the {total} GiB of all models; grow it by whole steps"
        yield Finding(_key("storage", "capacityGib"), text)


@_rule("models")
def _no_model_lies_in_another_one(draft: Draft) -> Iterator[Finding]:
    for name, model in draft.models.items():
        own, source = model.path(name), model.source.removeprefix("path:")
        if model.kind == "path" and not model.in_place and _lie_in_one_another(own, source):
            text = f"{source} is, lies in or holds the model's own folder {own}; set inPlace: true, or use another"
            yield Finding(_key("models", name, "source"), text)
        for other, outer in draft.models.items():
            if name != other and f"{own}/".startswith(f"{outer.path(other)}/"):
                text = f"{own} is, or lies in, the folder of {other}; use a folder of its own"
                yield Finding(_key("models", name, "source"), text)


def _lie_in_one_another(one: str, other: str) -> bool:
    return f"{one}/".startswith(f"{other}/") or f"{other}/".startswith(f"{one}/")


@_rule("models")
def _sources_that_can_move_are_said(draft: Draft) -> Iterator[Finding]:
    for name, model in draft.models.items():
        revision = model.source.partition("@")[2]
        if model.kind == "hf" and not re.fullmatch(r"[0-9a-f]{40}", revision):
            text = (
                f"{revision} can come to mean another commit, which only another revision would publish; name a commit"
            )
            yield Finding(_key("models", name, "source"), text, refuses=False)


@_rule("models", "model_servers")
def _images_that_run_by_their_tag_are_said(draft: Draft) -> Iterator[Finding]:
    used = {_key("storage"): versions.TOOLS_IMAGE}
    if draft.models:
        used[_key("models")] = versions.VLLM_IMAGE
    used |= {_key("modelServers", name, "image"): server.image for name, server in draft.model_servers.items()}
    try:
        for key, image in used.items():
            if "@" not in images.applied(image):
                text = f"{image} runs by its tag, which can come to mean another image; run `make pin-images`"
                yield Finding(key, text, refuses=False)
    except images.LockError as error:
        yield Finding(images.LOCK_NAME, str(error))


@_rule("plugins")
def _what_a_missing_plugin_costs_is_said(draft: Draft) -> Iterator[Finding]:
    if not draft.plugins.fsx_csi:
        text = "without a CSI driver that something else installs, no pod mounts Lustre and `up` fails at its first Job"
        yield Finding(_key("plugins", "fsxCsi"), text, refuses=False)
    if not draft.plugins.nvidia:
        text = (
            "without a device plugin that something else installs, no node offers a GPU and every server stays Pending"
        )
        yield Finding(_key("plugins", "nvidia"), text, refuses=False)


@_rule("models", "node_groups", "model_servers")
def _every_server_fits(draft: Draft) -> Iterator[Finding]:
    pods: dict[str, list[sizing.PodSize]] = {name: [] for name in draft.node_groups}
    for name, server in draft.model_servers.items():
        yield from _unknown(name, "model", "models", server.model, draft.declared["models"])
        yield from _unknown(name, "nodeGroup", "nodeGroups", server.node_group, draft.declared["node_groups"])
        model, group = draft.models.get(server.model), draft.node_groups.get(server.node_group)
        if model is None or group is None:
            continue
        found = list(_pod_problems(name, server, model, group))
        yield from found
        if not any(finding.refuses for finding in found):
            pods[server.node_group] += [pod_size(server, model)] * server.replicas
    for name, group in draft.node_groups.items():
        gpus = sum(pod.gpus for pod in pods[name])
        what = f"its servers' {len(pods[name])} pods with {gpus} GPUs"
        if (fewest := sizing.fewest_nodes(pods[name], group.facts)) > group.size.max:
            text = f"{group.size.max}, but {what} need at least {fewest} nodes; raise it, or lower replicas or gpus"
            yield Finding(_key("nodeGroups", name, "size", "max"), text)
        elif (need := sizing.nodes_needed(pods[name], group.facts)) > group.size.desired:
            text = (
                f"{group.size.desired}, but {what} fill {need} nodes: the others stay Pending, and `up` waits for none"
            )
            yield Finding(_key("nodeGroups", name, "size", "desired"), text, refuses=False)


def _unknown(server: str, field: str, section: str, value: str, declared: list[str]) -> Iterator[Finding]:
    if value not in declared:
        use = f"use {_one_of(declared)}" if declared else "nothing is"
        yield Finding(_key("modelServers", server, field), f"{value!r} is not under {_key(section)}; {use}")


def _pod_problems(
    name: str, server: ModelServerSettings, model: ModelSettings, group: NodeGroupSettings
) -> Iterator[Finding]:
    facts, gib, size = group.facts, model.size_gib, _key("models", server.model, "sizeGib")
    if server.gpus > facts.gpus:
        text = f"{server.gpus}, but a {facts.name} has {facts.gpus}; use 1 to {facts.gpus}, or another node group"
        yield Finding(_key("modelServers", name, "gpus"), text)
    if (need := sizing.copy_space_gib(gib)) > (room := sizing.model_space_gib(facts)):
        text = f"{gib}, whose copy takes {need} GiB, but a {facts.name} (server {name}) has {room} GiB of NVMe for it"
        yield Finding(size, f"{text}; use a type with more NVMe, or a smaller model")
    if (need := sizing.page_cache_memory_gib(gib)) > facts.memory_gib:
        text = (
            f"wants {need} GiB of memory for a model of {gib} GiB, but a {facts.name} has {facts.memory_gib}; use auto"
        )
        if server.preload.write == "buffered":
            yield Finding(_key("modelServers", name, "preload", "write"), f"buffered {text}", refuses=False)
        if server.preload.cache == "keep":
            yield Finding(_key("modelServers", name, "preload", "cache"), f"keep {text}", refuses=False)
    # vLLM takes 90 % of a GPU's memory by default (--gpu-memory-utilization): weights and KV cache share it.
    usable = min(server.gpus, facts.gpus)
    memory = usable * facts.gpu_memory_gib
    gpus = f"the {memory:.0f} GiB of {usable} {facts.gpu} (server {name})"
    if gib > 0.9 * memory:
        text = f"{gib}, but of {gpus} weights can have {int(0.9 * memory)}; use more or larger GPUs"
        yield Finding(size, text)
    elif gib > 0.8 * memory:
        yield Finding(size, f"{gib} of {gpus}: little is left for the KV cache", refuses=False)


@_rule("plugins", "mirrors", "node_groups")
def _mirrored_charts_are_there(draft: Draft) -> Iterator[Finding]:
    if (folder := draft.mirrors.charts_folder) is None:
        return
    for chart in draft.charts():
        if not (Path(folder) / chart.name / "Chart.yaml").is_file():
            text = f"{folder} has no {chart.name}/Chart.yaml ({chart.version}); put the chart there"
            yield Finding(_key("mirrors", "charts"), text)


_ENTRIES = ("node_groups", "models", "model_servers")
_SECTIONS = {name: field for name, field in Settings.model_fields.items() if name != "stack"}
_READERS: dict[str, TypeAdapter[Any]] = {
    name: TypeAdapter[Any](field.annotation or Any) for name, field in _SECTIONS.items()
}


def check(config: Mapping[str, Any], stack: str) -> tuple[Settings | None, list[Finding]]:
    """Checks a stack file's values.

    Args:
        config: The stack's configuration by full key (`faststart:storage`, `aws:region`), as plain JSON values.
        stack: The stack's name, for the default cluster name.

    Returns:
        The settings (None where something refuses) and all findings, in the order of the sections.
    """
    keys = {name: "aws" if name == "aws" else _key(str(field.alias)) for name, field in _SECTIONS.items()}
    values = {name: config.get(key) for name, key in keys.items()}
    values["aws"] = {key.partition(":")[2]: value for key, value in config.items() if key.startswith("aws:")}
    # An empty section is null in YAML, and an empty text where the engine hands it over.
    values = {name: None if value == "" else value for name, value in values.items()}
    if isinstance(cluster := values["cluster"] or {}, Mapping):
        default = "faststart-" + re.sub(r"[^0-9A-Za-z_-]", "-", stack)
        values["cluster"] = {"name": default[:100], **cluster}
    findings = list(_unknown_keys(config, [key for key in keys.values() if key != "aws"]))
    sections: dict[str, Any] = {}
    declared: dict[str, list[str]] = {}
    for name, field in _SECTIONS.items():
        value, key = values[name], keys[name]
        if value is None and not field.is_required():
            sections[name] = field.get_default(call_default_factory=True)
        elif name in _ENTRIES and isinstance(value, Mapping):
            sections[name] = {}
            for entry, content in value.items():
                read, wrong = _read(name, {entry: content}, key)
                sections[name] |= read or {}
                findings += wrong
        else:
            read, wrong = _read(name, {} if value is None else value, key)
            findings += wrong
            if not wrong:
                sections[name] = read
        declared[name] = list(value) if isinstance(value, Mapping) else []
    draft = Draft.model_construct(stack=stack, declared=declared, **sections)
    for needs, rule in _RULES:
        if all(name in sections for name in needs):
            findings += rule(draft)
    if any(finding.refuses for finding in findings):
        return None, findings
    return Settings.model_construct(stack=stack, **sections), findings


# Namespaces of configuration that other packages read.
_OTHER_NAMESPACES = ("aws", "pulumi", "eks", "kubernetes")


def _unknown_keys(config: Mapping[str, Any], known: list[str]) -> Iterator[Finding]:
    for key in config:
        namespace, _, name = key.partition(":")
        if namespace == PROJECT and key not in known:
            yield Finding(key, _no_such_key(name, [one.partition(":")[2] for one in known]))
        elif namespace not in (PROJECT, *_OTHER_NAMESPACES):
            yield Finding(key, f"nothing reads the namespace {namespace}; use {PROJECT}:{name}, or leave it out")


def load() -> Settings:
    """Reads the stack's configuration.

    Returns:
        The settings. Warnings are shown by the engine.

    Raises:
        pulumi.RunError: The stack file has mistakes; the message names all of them, and nothing was created.
    """
    raw = {**pulumi.runtime.get_config_env(), **CONFIG.get()}
    texts = {key: pulumi.Config(key.partition(":")[0]).get(key.partition(":")[2]) for key in raw}
    stack = pulumi.get_stack()
    settings, findings = check({key: _value(text) for key, text in texts.items()}, stack)
    for finding in findings:
        if not finding.refuses:
            pulumi.log.warn(str(finding))
    if settings is None:
        mistakes = [f"  {finding}" for finding in findings if finding.refuses]
        count = "1 mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"
        raise pulumi.RunError("\n".join([f"stack {stack} has {count}; nothing was created or changed:", *mistakes]))
    return settings


def _value(text: str | None) -> Any:
    """The value of a key: mappings and lists come as JSON, and everything else is a text."""
    return json.loads(text) if text and text[0] in "{[" else text


def _read(section: str, value: Any, prefix: str) -> tuple[Any, list[Finding]]:
    try:
        return _READERS[section].validate_python(value), []
    except ValidationError as error:
        details = error.errors(include_url=False)
        return None, [_finding(detail, prefix, _SECTIONS[section].annotation) for detail in details]


def _finding(detail: ErrorDetails, prefix: str, annotation: Any) -> Finding:
    """A mistake that pydantic found, in words for the person who wrote the stack file."""
    where = [part for part in detail["loc"] if part != "[key]"]
    context = detail.get("ctx", {})
    given = detail["input"]
    match detail["type"]:
        case "extra_forbidden":
            text = _no_such_key(str(where[-1]), _keys(annotation, where[:-1]))
            if _section_at(annotation, where[:-1]) is NodeGroupSettings and where[-1] in _PLACES:
                text = "GPU nodes always stand in network.dataZone, where Lustre is; leave it out"
        case "missing":
            text = f"is missing: {_description(annotation, where)}"
        case "literal_error":
            text = f"{_shown(given)} is not accepted; use {context['expected']}".replace("'", '"')
        case "string_type":
            quotes = "; put it in quotes" if isinstance(given, (int, float)) else ""
            text = f"a text is wanted, not {_shown(given)}{quotes}"
        case "int_type" | "int_parsing" | "int_from_float":
            text = f"a whole number is wanted, not {_shown(given)}"
        case "model_type" | "model_attributes_type" | "dict_type":
            keys = _keys(annotation, where)
            text = f"a mapping is wanted, not {_shown(given)}" + (f"; keys: {', '.join(keys)}" if keys else "")
        case "list_type":
            text = f"a list is wanted, not {_shown(given)}"
        case "greater_than_equal":
            text = f"{given} is too small; use {context['ge']} or more"
        case "less_than_equal":
            text = f"{given} is too large; use {context['le']} or less"
        case "faststart":
            text = context["text"]
            where += [context["field"]] if context["field"] else []
        case _:
            text = f"{detail['msg']} (given: {_shown(given)})"
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in where)
    return Finding(f"aws:{path[1:]}" if prefix == "aws" else f"{prefix}{path}", text)


_PLACES = ("zone", "zones", "dataZone", "availabilityZone", "subnetId", "subnetIds")


def _shown(value: Any) -> str:
    """A value as a stack file would hold it."""
    return json.dumps(value, ensure_ascii=False, default=str)


def _section_at(annotation: Any, where: list[Any]) -> type[BaseModel] | None:
    """The section that stands at a path below `annotation`; None where the path ends in a plain value."""
    for part in [*where, None]:
        if get_origin(annotation) in (Annotated, Union, UnionType):
            annotation = get_args(annotation)[0]
        if part is None:
            break
        if get_origin(annotation) is dict:
            annotation = get_args(annotation)[1]
        elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {field.alias: field.annotation for field in annotation.model_fields.values()}
            annotation = fields.get(part)
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _keys(annotation: Any, where: list[Any]) -> list[str]:
    section = _section_at(annotation, where)
    return [str(field.alias) for field in section.model_fields.values()] if section else []


def _description(annotation: Any, where: list[Any]) -> str:
    section = _section_at(annotation, where[:-1])
    fields = section.model_fields.values() if section else ()
    return next((field.description or "" for field in fields if field.alias == where[-1]), "")


def _no_such_key(key: str, known: list[str]) -> str:
    near = difflib.get_close_matches(key, known, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"no such key in this version{meant}; use {_one_of(known)}"
