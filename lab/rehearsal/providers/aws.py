"""The stand-in for AWS: what its services answer and remember.

Account, region, zones and identity come from the provider's configuration. References are true: what names another
resource of this cloud is refused unless that one is there, and what is still in use is not deleted. So a wrong order
of creation or destruction shows.
"""

import datetime as dt
import functools
import re
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lab.provider.provider import Diff, Provider
from lab.provider.provider import RefusedError as PlanRefusedError
from lab.rehearsal.providers import aws_refusals, aws_rules, sdk_types, wire
from lab.rehearsal.providers.aws_rules import Case
from lab.rehearsal.providers.aws_types import CLUSTER, KINDS, LOG_GROUP, OUTPUTS, PARTS, TEMPLATE, kind_of
from lab.rehearsal.providers.protocol import Difference, RefusedError, Resource, ResourceStandIn, World, new_hex
from lab.rehearsal.providers.sdk_types import Problem

NO_ACCOUNT = "000000000000"
"""The account of a provider whose configuration names none."""

_NAMES = ("name", "nodeGroupName")  # properties for which the real provider makes up a name
_SAME_VERSION = {"tags", "defaultVersion", "updateDefaultVersion"}  # what makes no new version of a launch template


class Aws(ResourceStandIn):
    """Stand-in for the aws provider."""

    package = "aws"
    provider: Path | None = None
    """The executable of HashiCorp's provider, where it was built: then that one checks inputs and plans changes."""
    region = ""
    account = NO_ACCOUNT
    identity = ""

    def configure(self) -> None:
        """Takes region, account and identity from the configuration, as the real provider does."""
        region = self.config.get("region")
        if not region:
            raise RefusedError("invalid AWS Region: the provider's configuration has no `aws:region`")
        self.region = region
        allowed = self.config.get("allowedAccountIds") or []
        roles = [role["roleArn"] for role in self.config.get("assumeRoles") or [] if role.get("roleArn")]
        named = re.fullmatch(r"arn:[\w-]+:iam::(\d{12}):.*", roles[-1]) if roles else None
        self.account = named[1] if named else allowed[0] if allowed else NO_ACCOUNT
        if allowed and self.account not in allowed:
            raise RefusedError(f"AWS account ID not allowed: {self.account} (allowed: {', '.join(allowed)})")
        self.identity = roles[-1] if roles else f"arn:{self.partition}:iam::{self.account}:user/rehearsal"

    @property
    def partition(self) -> str:
        """The part of AWS in which the region lies."""
        return "aws-cn" if self.region.startswith("cn-") else "aws-us-gov" if "-gov-" in self.region else "aws"

    def named(self, res: Resource, inputs: dict[str, Any], olds: dict[str, Any], suffix: str) -> dict[str, Any]:
        """A name where the program gives none, the same as before if there was one: as the real provider does."""
        known = sdk_types.input_names(res.type)
        for prop in _NAMES:
            if known.get(prop) is not False or prop in inputs or f"{prop}Prefix" in inputs:
                continue
            old = olds.get(prop) if prop in olds.get("__defaults", ()) else None
            inputs = {**inputs, prop: old or suffix, "__defaults": [prop]}
        return inputs

    @functools.cached_property
    def _judge(self) -> Provider | None:
        """The provider that checks and plans, with this one's configuration; None where it was not built."""
        return Provider.without_account(self.provider, self.config) if self.provider else None

    def close(self) -> None:
        """Ends the provider that checks and plans."""
        if judge := vars(self).get("_judge"):  # only if it was asked
            judge.stop()

    def refusals(self, res: Resource, inputs: dict[str, Any], *, is_new: bool = True) -> Iterable[Problem]:
        """What the provider refuses, and what AWS alone does, as far as it can be seen from the inputs."""
        found = [*self._refused_by_provider(res, inputs, is_new)]
        paths = [one.path for one in found if one.path]
        by_aws = aws_refusals.found("check", Case(res.type, {"region": self.region, **inputs}))
        # Nothing is refused twice.
        return found + [one for one in by_aws if not any(one.path[: len(p)] == p[: len(one.path)] for p in paths)]

    def _refused_by_provider(self, res: Resource, inputs: dict[str, Any], is_new: bool) -> Iterator[Problem]:
        judge = self._judge
        if judge and judge.knows(res.type):
            failures = judge.check_new(res.type, inputs) if is_new else judge.check(res.type, inputs)
            yield from (Problem(one.path, one.reason) for one in failures)

    def differences(
        self, res: Resource, rid: str, old: dict[str, Any], outputs: dict[str, Any], new: dict[str, Any]
    ) -> Iterator[Difference]:
        """By the plan of the provider, where it was built; else by the tables here."""
        judge, kinds = self._judge, dict(wire.changes(old, new))
        if not kinds or judge is None or not judge.knows(res.type):
            yield from super().differences(res, rid, old, outputs, new)
            return
        plan = plan_of(judge, res, rid, old, outputs, new)
        for path in dict.fromkeys((*plan.changed, *plan.replaced)):
            yield Difference(path, kinds.get(path, "update"), path in plan.replaced)

    def replaces(self, res: Resource, path: wire.Path, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """By the type's table, and for what depends on the values."""
        return aws_rules.cannot_change(res.type, path, old, new)

    def name_is_fixed(self, res: Resource, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether the program itself names it, and the same as before."""
        prop = next((name for name in _NAMES if name in sdk_types.input_names(res.type)), None)
        if prop is None or not new.get(prop) or prop in new.get("__defaults", ()):
            return False
        return old.get(prop) == new.get(prop)

    def planned(self, res: Resource, inputs: dict[str, Any]) -> dict[str, Any]:
        """Tags and region are known before anything exists."""
        known, outputs = sdk_types.output_names(res.type), {}
        if "tagsAll" in known:
            tags = inputs.get("tags") or {}
            defaults = (self.config.get("defaultTags") or {}).get("tags") or {}
            outputs["tagsAll"] = tags if tags == wire.UNKNOWN else {**defaults, **tags}
        if "region" in known:
            outputs["region"] = inputs.get("region") or self.region
        return outputs

    def create(self, world: World, res: Resource, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """Makes it, after the questions that the service would ask."""
        aws_refusals.refuse("create", Case(res.type, inputs, world=world))
        logs = f"/aws/eks/{inputs.get('name')}/cluster"
        if res.type == CLUSTER and inputs.get("enabledClusterLogTypes") and f"{LOG_GROUP}|{logs}" not in world:
            aws_rules.put_log_group_of_eks(world, logs)
        kind, outputs = kind_of(res.type), self.planned(res, inputs)
        for prop in _NAMES:
            if f"{prop}Prefix" in inputs and prop not in inputs:
                outputs[prop] = f"{inputs[f'{prop}Prefix']}{new_hex(8)}"
        facts = {
            "account": self.account,
            "region": self.region,
            "partition": self.partition,
            "now": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "apiServer": self.cloud.api_server,
            **_from_neighbours(world, inputs),
        }
        new = {"hex8": new_hex(8), "hex17": new_hex(17), "uuid": str(uuid.uuid4()), "path": "/"}
        values = facts | new | inputs | outputs
        if kind.arn and "{id}" not in kind.arn:
            values["arn"] = f"arn:{self.partition}:{kind.arn}".format_map(values)
        facts["id"] = values["id"] = kind.id.format_map(values)
        if kind.arn:
            outputs["arn"] = values.get("arn") or f"arn:{self.partition}:{kind.arn}".format_map(values)
        if more := OUTPUTS.get(res.type):
            outputs |= more(facts, inputs)
        if res.type not in KINDS:
            missing = sdk_types.output_names(res.type) - outputs.keys() - sdk_types.input_names(res.type).keys()
            self.log(f"{res.type} has no entry in its table: outputs left out: {sorted(missing)}", res.urn)
        return facts["id"], outputs

    def notes(self, res: Resource) -> dict[str, Any]:
        """Who made a cluster is its first admin."""
        return {"creator": self.identity} if res.type == CLUSTER else {}

    def update(
        self, world: World, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """Nearly all that a service computed stays as it is."""
        aws_refusals.refuse("update", Case(res.type, new, old, world=world))
        if _makes_version(res, old, new):
            state["latestVersion"] += 1
            if new.get("updateDefaultVersion"):
                state["defaultVersion"] = state["latestVersion"]
        state |= self.planned(res, new)

    def plan_update(self, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]) -> None:
        """The same; which number the next version gets is not known before."""
        if _makes_version(res, old, new):
            state["latestVersion"] = wire.UNKNOWN
            if new.get("updateDefaultVersion"):
                state["defaultVersion"] = wire.UNKNOWN
        state |= self.planned(res, new)

    def delete(self, world: World, res: Resource, rid: str, state: dict[str, Any]) -> bool:
        """Refuses what is still in use; takes along what goes with it."""
        aws_refusals.refuse("delete", Case(res.type, id=rid, state=state, world=world))
        if res.type == LOG_GROUP and aws_rules.writes_logs(world, rid):
            aws_rules.put_log_group_of_eks(world, rid)
            return False
        prop, parts = PARTS.get(res.type, ("", set()))
        owner = state["name"] if prop == "clusterName" else rid
        for key in [key for key in world if key.split("|", 1)[0] in parts]:
            if wire.plain(world[key]["inputs"]).get(prop) == owner:
                del world[key]
        if res.type == CLUSTER:
            self.forget_objects(state["endpoint"])
        return True

    def forget_objects(self, endpoint: str) -> None:
        """The objects in a cluster go with it."""
        with self.cloud.open("kubernetes") as objects:
            for key in [key for key in objects if key.startswith(f"{endpoint}|")]:
                del objects[key]

    def look_up(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        """What pulumi-eks asks, and what programs ask of their own account."""
        region = args.get("region") or self.region
        name = token.rsplit(":", 1)[-1]
        if name == "getCallerIdentity":
            return {"id": self.account, "accountId": self.account, "arn": self.identity, "userId": "AIDASTANDIN"}
        if name == "getPartition":
            suffix = "amazonaws.com.cn" if self.partition == "aws-cn" else "amazonaws.com"
            return {"id": self.partition, "partition": self.partition, "dnsSuffix": suffix, "reverseDnsPrefix": ""}
        if name == "getRegion":
            return {"id": region, "name": region, "region": region, "description": "", "endpoint": ""}
        return super().look_up(token, args)


def plan_of(
    judge: Provider, res: Resource, rid: str, old: dict[str, Any], outputs: dict[str, Any], new: dict[str, Any]
) -> Diff:
    """What the provider plans for a change; or a `RefusedError` with its sentence."""
    try:
        return judge.diff(res.type, rid, old, outputs, new)
    except PlanRefusedError as refused:
        raise RefusedError(str(refused)) from None


def _makes_version(res: Resource, old: dict[str, Any], new: dict[str, Any]) -> bool:
    return res.type == TEMPLATE and bool({path[0] for path, _ in wire.changes(old, new)} - _SAME_VERSION)


def _from_neighbours(world: World, inputs: dict[str, Any]) -> dict[str, Any]:
    """What outputs take over from the resources that the inputs name."""
    subnets = wire.at(inputs, "vpcConfig.subnetIds") or inputs.get("subnetIds") or []
    subnet = subnets if isinstance(subnets, str) else next(iter(subnets), None)
    return {
        "vpcId": aws_rules.find(world, "subnetId", subnet).get("vpcId", ""),
        "clusterVersion": aws_rules.find(world, "clusterName", inputs.get("clusterName")).get("version", ""),
        "publicIp": aws_rules.find(world, "allocationId", inputs.get("allocationId")).get("publicIp", ""),
    }
