"""What a component sees of the engine while it makes its children."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
from pulumi.runtime.proto import resource_pb2 as rpb
from pulumi.runtime.proto import resource_pb2_grpc

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.protocol import MAX_MESSAGE, RefusedError, sdk_version

Deps = Mapping[str, Sequence[str]]


@dataclass
class Child:
    """A resource that the engine has registered."""

    urn: str
    id: str = ""
    custom: bool = True
    outputs: dict[str, Any] = field(default_factory=dict)

    def out(self, dotted: str) -> Any:
        """One of its outputs; unknown where the engine does not know it (yet)."""
        value = wire.at(wire.plain(self.outputs), dotted)
        return wire.UNKNOWN if value in (None, "") else value

    def ref(self) -> dict[str, Any]:
        """It, as a value."""
        return {wire.SIG: wire.RESOURCE, "urn": self.urn, **({"id": self.id} if self.custom else {})}


class Engine:
    """What a component sees of the engine while its Construct runs."""

    def __init__(self, endpoint: str, providers: dict[str, str]) -> None:
        limits = [("grpc.max_receive_message_length", MAX_MESSAGE)]
        self._channel = grpc.insecure_channel(endpoint, options=limits)
        self._monitor = resource_pb2_grpc.ResourceMonitorStub(self._channel)
        self._providers = providers
        self.protect: bool | None = None

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def register(
        self,
        token: str,
        name: str,
        parent: str,
        inputs: dict[str, Any] | None = None,
        *,
        custom: bool = True,
        depends: Sequence[str] = (),
        of: Deps | None = None,
        **options: Any,
    ) -> Child:
        """Registers a child.

        Args:
            token: Its type.
            name: Its logical name.
            parent: URN of its parent.
            inputs: Its inputs.
            custom: False for a component.
            depends: URNs that it depends on as a whole.
            of: For each input, the URNs that it is made of.
            options: More fields of the request.

        Returns:
            The child, with what the engine knows of it.
        """
        package = token.split(":", maxsplit=1)[0]
        version = sdk_version(token.rsplit(":", 1)[1] if package == "pulumi" else package)
        if self.protect is not None:
            options = {"protect": self.protect, **options}
        made_of = {prop: [urn for urn in urns if urn] for prop, urns in (of or {}).items()}
        answer = self._monitor.RegisterResource(
            rpb.RegisterResourceRequest(
                type=token,
                name=name,
                parent=parent,
                custom=custom,
                object=wire.to_struct({key: value for key, value in (inputs or {}).items() if value is not None}),
                # the version of the SDK: with another, or none, there would be a second default provider
                version=version if custom else "",
                provider=self._providers.get(package, "") if custom else "",
                providers={} if custom else self._providers,
                dependencies=[*depends, *(urn for urns in made_of.values() for urn in urns)],
                propertyDependencies={
                    prop: rpb.RegisterResourceRequest.PropertyDependencies(urns=urns) for prop, urns in made_of.items()
                },
                acceptSecrets=True,
                acceptResources=True,
                supportsPartialValues=True,
                **options,
            )
        )
        return Child(answer.urn, answer.id, custom, wire.from_struct(answer.object))

    def outputs(self, component: Child, outputs: dict[str, Any]) -> None:
        """Ends a component."""
        self._monitor.RegisterResourceOutputs(
            rpb.RegisterResourceOutputsRequest(urn=component.urn, outputs=wire.to_struct(outputs))
        )

    def look_up(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        """Asks a provider for something."""
        package = token.split(":", maxsplit=1)[0]
        answer = self._monitor.Invoke(
            rpb.ResourceInvokeRequest(
                tok=token,
                args=wire.to_struct(args),
                provider=self._providers.get(package, ""),
                version=sdk_version(package),
                acceptResources=True,
            )
        )
        if answer.failures:
            raise RefusedError("; ".join(f"{token}: {one.property} {one.reason}" for one in answer.failures))
        return wire.from_struct(getattr(answer, "return"))
