"""The stand-in for the aws provider whose resources are real in an emulated account.

HashiCorp's provider does there what it does in AWS: it checks and plans, makes, reads, changes and deletes, and waits
(lab/provider). What it answers becomes Pulumi's as in pulumi-terraform-bridge, pkg/tfbridge/provider.go. A record of
each resource stays in the stand-ins' file, where the stand-in for Kubernetes looks clusters and nodes up.
"""

import functools
from collections.abc import Iterable, Iterator
from typing import Any

from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as pb

from lab.provider.protocol import Plugin
from lab.provider.provider import NO_ACCOUNT, FailedError, Made, Provider, environment
from lab.rehearsal.providers import sdk_types, wire
from lab.rehearsal.providers.aws import Aws, plan_of
from lab.rehearsal.providers.aws_types import CLUSTER
from lab.rehearsal.providers.protocol import Difference, HalfMadeError, RefusedError, Resource, shown
from lab.rehearsal.providers.sdk_types import Problem

_RETRIES = 25  # pulumi-aws' own default
_ELSEWHERE = (
    "profile",
    "sharedConfigFiles",
    "sharedCredentialsFiles",
    "token",
    "endpoints",
    "assumeRoleWithWebIdentities",
)


class AwsInAccount(Aws):
    """Stand-in for the aws provider, with an account behind it."""

    @functools.cached_property
    def _judge(self) -> Provider:
        """The provider, configured as the program says, for the account."""
        assert self.provider is not None, "an account is of no use without the provider"
        endpoint = self.cloud.account_endpoint.read_text(encoding="utf-8").strip()
        kept = {name: value for name, value in self.config.items() if name not in _ELSEWHERE}
        credentials = {name: NO_ACCOUNT[name] for name in ("accessKey", "secretKey")}
        config = {**kept, **credentials, "maxRetries": _RETRIES, "skipMetadataApiCheck": "true"}
        return Provider(Plugin(self.provider, environment(endpoint)), config)

    def refusals(self, res: Resource, inputs: dict[str, Any], *, is_new: bool = True) -> Iterable[Problem]:
        """What the provider refuses. The account says the rest when it is asked to make it."""
        if not self._judge.knows(res.type):
            where = "SERVICES in lab/provider/trimmed_module.py"
            return [Problem((), f"the provider that is built here has no {res.type}: a service is missing in {where}")]
        return self._refused_by_provider(res, inputs, is_new)

    def differences(
        self, res: Resource, rid: str, old: dict[str, Any], outputs: dict[str, Any], new: dict[str, Any]
    ) -> Iterator[Difference]:
        """By the provider's plan, which compares with what was read, too: what changed in the account shows."""
        kinds = dict(wire.changes(old, new))
        plan = plan_of(self._judge, res, rid, old, outputs, new)
        for path in dict.fromkeys((*plan.changed, *plan.replaced, *(() if plan.changed else plan.outputs))):
            yield Difference(path, kinds.get(path, "update"), path in plan.replaced)

    def _create(self, request: pb.CreateRequest) -> pb.CreateResponse:
        if request.preview:
            return super()._create(request)
        res, inputs = Resource(request.urn), wire.from_struct(request.properties)
        try:
            made = self._judge.create(res.type, wire.plain(inputs), _names(res), self._patience(request.timeout))
        except FailedError as failed:
            raise self._half_made(res, inputs, failed, "creating") from None
        return pb.CreateResponse(id=made.id, properties=wire.to_struct(self._kept(res, inputs, made)))

    def _read(self, request: pb.ReadRequest) -> pb.ReadResponse:
        res, inputs = Resource(request.urn), wire.from_struct(request.inputs)
        outputs = wire.plain(wire.from_struct(request.properties))
        try:
            found = self._judge.look(res.type, request.id, wire.plain(inputs), outputs, _names(res))
        except FailedError as failed:
            raise RefusedError(f"reading {res.urn}: {failed}") from None
        if found is None:
            with self.cloud.open(self.package) as world:
                world.pop(self.key(res, request.id), None)
            return pb.ReadResponse()
        state = self._kept(res, inputs, found)
        asked = wire.asked(state, inputs)
        return pb.ReadResponse(id=found.id, properties=wire.to_struct(state), inputs=wire.to_struct(asked))

    def _update(self, request: pb.UpdateRequest) -> pb.UpdateResponse:
        if request.preview:
            return super()._update(request)
        res, news = Resource(request.urn), wire.from_struct(request.news)
        olds, old_inputs = wire.from_struct(request.olds), wire.from_struct(request.old_inputs)
        before = (wire.plain(old_inputs), wire.plain(olds), wire.plain(news))
        if plan_of(self._judge, res, request.id, *before).action == "none":
            return pb.UpdateResponse(properties=request.olds)
        try:
            made = self._judge.update(res.type, request.id, *before, _names(res), self._patience(request.timeout))
        except FailedError as failed:
            raise self._half_made(res, news, failed, "updating") from None
        return pb.UpdateResponse(properties=wire.to_struct(self._kept(res, news, made)))

    def _delete(self, request: pb.DeleteRequest) -> empty_pb2.Empty:
        res, inputs = Resource(request.urn), wire.plain(wire.from_struct(request.old_inputs))
        outputs = wire.plain(wire.from_struct(request.properties))
        try:
            self._judge.delete(res.type, request.id, inputs, outputs, self._patience(request.timeout))
        except FailedError as failed:
            raise RefusedError(f"deleting {res.urn}: {failed}") from None
        with self.cloud.open(self.package) as world:
            world.pop(self.key(res, request.id), None)
        if res.type == CLUSTER:
            self.forget_objects(str(outputs["endpoint"]))
        return empty_pb2.Empty()

    def _patience(self, seconds: float) -> float:
        """How long to wait at most: the program's time-out, or less where the rehearsal has no time for it."""
        limit = self.cloud.longest_wait
        return min(seconds or limit, limit) if limit else seconds

    def _half_made(self, res: Resource, inputs: dict[str, Any], failed: FailedError, doing: str) -> RefusedError:
        """The error of a failed creation or change; it carries the state of what stands all the same."""
        if failed.made is None:
            return RefusedError(str(failed))
        state = self._kept(res, inputs, failed.made)
        return HalfMadeError(f"{doing} {res.urn}: {failed}", failed.made.id, state)

    def _kept(self, res: Resource, inputs: dict[str, Any], made: Made) -> dict[str, Any]:
        """The state of a resource in wire form, and its record in the file."""
        unknown = {str(path[0]) for path in self._judge.read(res.type, wire.plain(inputs)).unmapped if len(path) == 1}
        state = {**made.outputs, **{name: value for name, value in shown(inputs).items() if name in unknown}}
        for name in state.keys() & inputs.keys():
            if wire.has_secret(inputs[name]):
                state[name] = wire.secret(wire.plain(state[name]))
        wire.seal(state, inputs)
        with self.cloud.open(self.package) as world:
            record = world.get(self.key(res, made.id)) or self.notes(res)
            world[self.key(res, made.id)] = {**record, "urn": res.urn, "inputs": inputs, "state": state}
        return state


def _names(res: Resource) -> set[str]:
    return sdk_types.output_names(res.type)
