"""Check and Diff of AWS resources in Pulumi's terms, answered by HashiCorp's provider."""

import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path as File
from typing import Any, Self

from lab.provider import mapping, shape, state
from lab.provider.mapping import Failure, Path, Reading
from lab.provider.protocol import Plugin, ProviderError, sentence, steps, unpacked
from lab.provider.shape import Shape

_TERRAFORM = "1.9.0"  # what the provider is told of its caller; any 1.x does

_KEPT = ("region", "defaultTags", "ignoreTags")
"""The configuration that decides what a plan says. All other keys say how an account is reached."""

NO_ACCOUNT: Mapping[str, Any] = {
    "accessKey": "AKIAIOSFODNN7EXAMPLE",  # of AWS's documentation
    "secretKey": "x" * 40,
    "maxRetries": 1,
    "skipCredentialsValidation": True,
    "skipMetadataApiCheck": "true",
    "skipRegionValidation": True,
    "skipRequestingAccountId": True,
}
"""The configuration of a provider that reaches no account."""


_NOWHERE = "http://127.0.0.1:9"  # nobody listens on the port of `discard`
_NO_LIMITS: Mapping[str, str] = {}


class RefusedError(Exception):
    """The provider refuses to plan.

    Attributes:
        failures: what it refuses.
    """

    def __init__(self, failures: list[Failure]) -> None:
        super().__init__("; ".join(one.reason for one in failures))
        self.failures = failures


@dataclass(frozen=True)
class Diff:
    """What a change of the inputs does to a resource, in Pulumi's names.

    Attributes:
        changed: the inputs that change.
        replaced: those of them that need a new resource.
        outputs: what the provider sets anew by itself; after the change, if it is not known before.
    """

    changed: tuple[Path, ...] = ()
    replaced: tuple[Path, ...] = ()
    outputs: tuple[Path, ...] = ()

    @property
    def action(self) -> str:
        """`none`, `update` or `replace`."""
        return "replace" if self.replaced else "update" if self.changed or self.outputs else "none"


@dataclass(frozen=True)
class Made:
    """A resource of an account.

    Attributes:
        id: its id.
        outputs: all that is known of it, in Pulumi's names.
    """

    id: str
    outputs: dict[str, Any]


class FailedError(RefusedError):
    """A resource was not made or changed as it should be.

    Attributes:
        made: what stands all the same, as after a time-out; None where nothing does.
    """

    def __init__(self, failures: list[Failure], made: Made | None) -> None:
        super().__init__(failures)
        self.made = made


class Provider:
    """A running provider that is configured. Its methods may be called by several threads."""

    def __init__(self, plugin: Plugin, config: Mapping[str, Any]) -> None:
        """Configures it.

        Args:
            plugin: its process.
            config: the whole configuration in Pulumi's names, plain.

        Raises:
            ProviderError: it refuses the configuration.
        """
        self.plugin = plugin
        self._shapes: dict[str, tuple[str, Shape]] = {}
        arguments = mapping.read(shape.of_block(plugin.schema.provider.block), config).arguments
        plugin.call("Configure", terraform_version=_TERRAFORM, config=arguments)

    @classmethod
    def without_account(cls, program: File, config: Mapping[str, Any]) -> Self:
        """Starts one that reaches no account.

        Args:
            program: the executable.
            config: the configuration of the program's provider in Pulumi's names, plain; of it counts what decides a
                plan.

        Raises:
            ProviderError: it does not start, or refuses the configuration.
        """
        kept = {name: config[name] for name in _KEPT if name in config}
        return cls(Plugin(program, environment(_NOWHERE)), {**NO_ACCOUNT, **kept})

    def stop(self) -> None:
        """Ends its process."""
        self.plugin.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def knows(self, token: str) -> bool:
        """Whether it has a type of Pulumi."""
        return mapping.resource_type(token, self.plugin.schema.resource_schemas) is not None

    def shape(self, token: str) -> Shape:
        """What the provider knows of a type of Pulumi's, one that it `knows`."""
        return self._type(token)[1]

    def read(self, token: str, properties: Mapping[str, Any]) -> Reading:
        """The arguments of a resource, and which properties have none.

        Args:
            token: Pulumi's type, one that it `knows`.
            properties: in Pulumi's names, plain.
        """
        return mapping.read(self.shape(token), properties)

    def check(self, token: str, inputs: Mapping[str, Any]) -> list[Failure]:
        """What the provider refuses of the inputs of a resource; unknown values pass.

        Args:
            token: Pulumi's type, one that it `knows`.
            inputs: in Pulumi's names, plain.
        """
        name, kind = self._type(token)
        reading = mapping.read(kind, inputs)
        if reading.failures:
            return reading.failures
        try:
            self.plugin.call("ValidateResourceTypeConfig", type_name=name, config=reading.arguments)
        except ProviderError as error:
            return _failures(error, kind, inputs)
        return []

    def check_new(self, token: str, inputs: Mapping[str, Any]) -> list[Failure]:
        """What it refuses of a resource that is to be made: as `check`, and what its plan of the creation refuses."""
        found = self.check(token, inputs)
        if not found:
            name, kind = self._type(token)
            try:
                self._plan(name, kind, None, mapping.read(kind, inputs).arguments)
            except ProviderError as error:
                return _failures(error, kind, inputs)
        return found

    def diff(
        self,
        token: str,
        rid: str,
        old_inputs: Mapping[str, Any],
        old_outputs: Mapping[str, Any],
        new_inputs: Mapping[str, Any],
    ) -> Diff:
        """What new inputs change in a resource.

        Args:
            token: Pulumi's type, one that it `knows`.
            rid: the resource's id.
            old_inputs: what it was made with, in Pulumi's names, plain.
            old_outputs: what is known of it.
            new_inputs: what it shall be made with. What is unknown there counts as changed.

        Raises:
            RefusedError: the provider refuses the change.
        """
        name, kind = self._type(token)
        old, new = mapping.read(kind, old_inputs), mapping.read(kind, new_inputs)
        if new.failures:
            raise RefusedError(new.failures)
        prior, private = self._prior(name, kind, rid, old, mapping.read(kind, old_outputs))
        try:
            answer = self._plan(name, kind, prior, new.arguments, private)
        except ProviderError as error:
            raise RefusedError(_failures(error, kind, new_inputs)) from None
        planned = unpacked(answer.planned_state)
        changed: list[Path] = []
        outputs: list[Path] = []
        different = [*state.differences(kind, prior, planned)]
        for path in different:
            before, after = state.at(prior, path), state.at(planned, path)
            if state.is_zero(before) and state.is_zero(after) and state.at(new.arguments, path) is None:
                continue  # the older kind of resource has no other value for none
            configured = any(state.at(one.arguments, path[:1]) not in (None, [], {}) for one in (old, new))
            (changed if configured else outputs).append(_property(kind, path, new_inputs, old_inputs))
        replaced = [
            _property(kind, path, new_inputs, old_inputs)
            for path in map(steps, answer.requires_replace)
            if any(_within(path, one) or _within(one, path) for one in different)  # providers also name what stays
        ]
        unjudged = dict.fromkeys(old.unmapped + new.unmapped)  # of a later release: it changes, more nobody says
        changed += [path for path in unjudged if state.at(old_inputs, path) != state.at(new_inputs, path)]
        return Diff(*(tuple(sorted({*paths}, key=str)) for paths in (changed, replaced, outputs)))

    # In an account.

    def create(self, token: str, inputs: Mapping[str, Any], names: Collection[str], wait_seconds: float = 0) -> Made:
        """Makes a resource, and waits for it.

        Args:
            token: Pulumi's type, one that it `knows`.
            inputs: in Pulumi's names, plain, all known.
            names: the outputs that Pulumi's SDK has for the type.
            wait_seconds: how long at most, where the type has time-outs; 0 for the provider's own limit.

        Raises:
            FailedError: the provider or the account refuses, or the time is up.
        """
        name, kind = self._type(token)
        return self._applied(name, kind, None, b"", inputs, names, _limits("create", wait_seconds))

    def update(
        self,
        token: str,
        rid: str,
        old_inputs: Mapping[str, Any],
        old_outputs: Mapping[str, Any],
        new_inputs: Mapping[str, Any],
        names: Collection[str],
        wait_seconds: float = 0,
    ) -> Made:
        """Changes a resource; arguments as for `diff` and `create`.

        Raises:
            FailedError: the provider or the account refuses, or the time is up.
        """
        name, kind = self._type(token)
        prior, private = self._prior(name, kind, rid, mapping.read(kind, old_inputs), mapping.read(kind, old_outputs))
        return self._applied(name, kind, prior, private, new_inputs, names, _limits("update", wait_seconds))

    def look(
        self, token: str, rid: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], names: Collection[str]
    ) -> Made | None:
        """A resource as the account has it now; None where it is gone. Arguments as for `diff` and `create`.

        Raises:
            FailedError: the provider or the account refuses.
        """
        name, kind = self._type(token)
        state_now, private = self._prior(name, kind, rid, mapping.read(kind, inputs), mapping.read(kind, outputs))
        try:
            answer = self.plugin.call("ReadResource", type_name=name, current_state=state_now, private=private)
        except ProviderError as error:
            raise FailedError(_failures(error, kind, inputs), None) from None
        return _made(kind, unpacked(answer.new_state), inputs, names)

    def delete(
        self, token: str, rid: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any], wait_seconds: float = 0
    ) -> None:
        """Deletes a resource, and waits until it is gone. Arguments as for `diff` and `create`.

        Raises:
            FailedError: the provider or the account refuses, or the time is up.
        """
        name, kind = self._type(token)
        old, limits = mapping.read(kind, inputs), _limits("delete", wait_seconds)
        prior, private = self._prior(name, kind, rid, old, mapping.read(kind, outputs), limits)
        nothing = {"config": None, "planned_state": None, "planned_private": private}
        try:
            self.plugin.call("ApplyResourceChange", type_name=name, prior_state=prior, **nothing)
        except ProviderError as error:
            raise FailedError(_failures(error, kind, inputs), Made(rid, dict(outputs))) from None

    def _applied(
        self,
        name: str,
        kind: Shape,
        prior: Any,
        private: bytes,
        inputs: Mapping[str, Any],
        names: Collection[str],
        limits: Mapping[str, str],
    ) -> Made:
        config = _limited(kind, mapping.read(kind, inputs).arguments, limits)
        try:
            plan = self._plan(name, kind, prior, config, private)
            answer = self.plugin.call(
                "ApplyResourceChange",
                type_name=name,
                prior_state=prior,
                config=config,
                planned_state=unpacked(plan.planned_state),
                planned_private=plan.planned_private,
            )
        except ProviderError as error:
            left = getattr(error.answer, "new_state", None)
            stands = _made(kind, unpacked(left), inputs, names) if left is not None else None
            raise FailedError(_failures(error, kind, inputs), stands) from None
        made = _made(kind, unpacked(answer.new_state), inputs, names)
        assert made is not None
        return made

    def _type(self, token: str) -> tuple[str, Shape]:
        """The provider's name of a type, and its shape."""
        if token not in self._shapes:
            schemas = self.plugin.schema.resource_schemas
            name = mapping.resource_type(token, schemas)
            if name is None:
                raise ProviderError(f"the provider has no type for {token}")
            self._shapes[token] = (name, shape.of_block(schemas[name].block))
        return self._shapes[token]

    def _plan(self, name: str, kind: Shape, prior: Any, config: Any, private: bytes = b"") -> Any:
        return self.plugin.call(
            "PlanResourceChange",
            type_name=name,
            prior_state=prior,
            config=config,
            proposed_new_state=state.proposed(kind, prior, config),
            prior_private=private,
        )

    def _prior(
        self, name: str, kind: Shape, rid: str, old: Reading, known: Reading, limits: Mapping[str, str] = _NO_LIMITS
    ) -> tuple[Any, bytes]:
        """The state of a resource that exists, and the provider's own notes on it, which hold its time-outs.

        Pulumi's outputs may lack what the provider adds by itself (defaults): the plan of its creation says it.
        """
        try:
            answer = self._plan(name, kind, None, _limited(kind, old.arguments, limits))
            planned, private = unpacked(answer.planned_state), answer.planned_private
        except ProviderError:  # today's provider refuses what an older one took
            planned, private = old.arguments, b""
        prior = state.settled(kind, planned, known.arguments)
        return {**prior, "id": rid} if "id" in prior else prior, private


def environment(endpoint: str) -> dict[str, str]:
    """The whole environment of a provider that reaches one endpoint of this machine, and nothing and nobody else.

    Args:
        endpoint: of every service.
    """
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": "/nonexistent",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": endpoint,
        "HTTP_PROXY": _NOWHERE,
        "HTTPS_PROXY": _NOWHERE,
        "NO_PROXY": "127.0.0.1",
    }


def _limits(operation: str, seconds: float) -> Mapping[str, str]:
    """The block `timeouts` with one limit, in Go's notation of durations."""
    return {operation: f"{seconds:.0f}s"} if seconds else _NO_LIMITS


def _limited(kind: Shape, arguments: Mapping[str, Any], limits: Mapping[str, str]) -> dict[str, Any]:
    """Arguments with limits, as far as the type has them."""
    block = kind.fields.get("timeouts")
    known = {name: limits.get(name) for name in block.fields} if block else {}
    return {**arguments, "timeouts": known} if any(known.values()) else {**arguments}


def _made(kind: Shape, values: Any, inputs: Mapping[str, Any], names: Collection[str]) -> Made | None:
    """A state as a resource of Pulumi's; None where there is nothing."""
    if not values or not values.get("id", True):
        return None
    outputs = mapping.written(kind, {**values, "id": None, "timeouts": None}, names, inputs)
    return Made(str(values.get("id", "")), outputs)


def _failures(error: ProviderError, kind: Shape, inputs: Mapping[str, Any]) -> list[Failure]:
    return [
        Failure(mapping.property_path(kind, steps(one.attribute), dict(inputs)), sentence(one))
        for one in error.diagnostics
    ]


def _property(kind: Shape, path: Path, new: Mapping[str, Any], old: Mapping[str, Any]) -> Path:
    """A path of Terraform in Pulumi's names; a property that is gone has the spelling that it had."""
    return mapping.property_path(kind, path, {**old, **new})


def _within(path: Path, other: Path) -> bool:
    return path[: len(other)] == other
