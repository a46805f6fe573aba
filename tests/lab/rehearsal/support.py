"""Drives the stand-in providers over loopback with the engine's own calls, and is the engine where they call it."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc, resource_pb2, resource_pb2_grpc

from lab.rehearsal.providers import aws, eks, kubernetes, protocol, wire

REGION, ACCOUNT = "eu-west-1", "111122223333"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/deploy"
KINDS = {"aws": aws.Aws, "eks": eks.Eks, "kubernetes": kubernetes.Kubernetes}


def urn(token: str, name: str = "thing") -> str:
    return f"urn:pulumi:test::faststart::faststart:infra:Any${token}::{name}"


@dataclass
class Made:
    """A resource as the engine's state has it."""

    token: str
    name: str
    id: str
    inputs: dict[str, Any]
    outputs: dict[str, Any]


@dataclass
class Client:
    """One provider, called as the engine calls it."""

    stub: Any
    seed: int = 0

    def configure(self, **config: Any) -> None:
        self.stub.Configure(pb.ConfigureRequest(args=wire.to_struct(config), acceptSecrets=True))

    def check(self, token: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None, name: str = "thing") -> Any:
        self.seed += 1  # the engine's seed is another in each run
        return self.stub.Check(
            pb.CheckRequest(
                urn=urn(token, name),
                news=wire.to_struct(inputs),
                olds=wire.to_struct(olds or {}),
                randomSeed=bytes([self.seed % 256] * 32),
            )
        )

    def failures(self, token: str, inputs: dict[str, Any]) -> list[str]:
        return [f"{one.property}: {one.reason}" for one in self.check(token, inputs).failures]

    def checked(
        self, token: str, inputs: dict[str, Any], olds: dict[str, Any] | None = None, name: str = "thing"
    ) -> dict[str, Any]:
        answer = self.check(token, inputs, olds, name)
        assert [f"{one.property}: {one.reason}" for one in answer.failures] == []
        return wire.from_struct(answer.inputs)

    def create(self, token: str, inputs: dict[str, Any], name: str = "thing") -> Made:
        checked = self.checked(token, inputs, name=name)
        answer = self.stub.Create(pb.CreateRequest(urn=urn(token, name), properties=wire.to_struct(checked)))
        return Made(token, name, answer.id, checked, wire.from_struct(answer.properties))

    def plan(self, token: str, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        request = pb.CreateRequest(urn=urn(token), properties=wire.to_struct(inputs), preview=True)
        answer = self.stub.Create(request)
        return answer.id, wire.from_struct(answer.properties)

    def diff(self, made: Made, inputs: dict[str, Any], ignore: tuple[str, ...] = ()) -> Any:
        return self.stub.Diff(
            pb.DiffRequest(
                id=made.id,
                urn=urn(made.token, made.name),
                olds=wire.to_struct(made.outputs),
                old_inputs=wire.to_struct(made.inputs),
                news=wire.to_struct(self.checked(made.token, inputs, made.inputs, made.name)),
                ignoreChanges=ignore,
            )
        )

    def update(self, made: Made, inputs: dict[str, Any], *, preview: bool = False) -> dict[str, Any]:
        news = self.checked(made.token, inputs, made.inputs, made.name)
        answer = self.stub.Update(
            pb.UpdateRequest(
                id=made.id,
                urn=urn(made.token, made.name),
                olds=wire.to_struct(made.outputs),
                old_inputs=wire.to_struct(made.inputs),
                news=wire.to_struct(news),
                preview=preview,
            )
        )
        outputs = wire.from_struct(answer.properties)
        if not preview:
            made.inputs, made.outputs = news, outputs
        return outputs

    def read(self, made: Made) -> Any:
        return self.stub.Read(
            pb.ReadRequest(
                id=made.id,
                urn=urn(made.token, made.name),
                properties=wire.to_struct(made.outputs),
                inputs=wire.to_struct(made.inputs),
            )
        )

    def delete(self, made: Made) -> None:
        self.stub.Delete(
            pb.DeleteRequest(
                id=made.id,
                urn=urn(made.token, made.name),
                properties=wire.to_struct(made.outputs),
                old_inputs=wire.to_struct(made.inputs),
            )
        )

    def look_up(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        return wire.from_struct(
            getattr(self.stub.Invoke(pb.InvokeRequest(tok=token, args=wire.to_struct(args))), "return")
        )


@contextmanager
def serving(package: str, folder: Path, provider: Path | None = None) -> Iterator[Client]:
    """A stand-in on loopback; `provider` is what checks and plans for the one for AWS."""
    stand_in = KINDS[package](protocol.Cloud(folder))
    if isinstance(stand_in, aws.Aws):
        stand_in.provider = provider
    with served(stand_in) as client:
        yield client


@contextmanager
def served(stand_in: protocol.StandIn) -> Iterator[Client]:
    """A stand-in on loopback."""
    server, port = protocol.serve(stand_in)
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield Client(provider_pb2_grpc.ResourceProviderStub(channel))
    server.stop(None).wait()
    stand_in.close()


def why(error: grpc.RpcError) -> str:
    """What the engine would show."""
    said: Any = error
    return str(said.details())


@dataclass
class Network:
    """A VPC with two subnets, and what a cluster needs beside them."""

    vpc: Made
    subnets: list[Made]
    role: Made
    attachment: Made


def network(client: Client) -> Network:
    vpc = client.create("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16"})
    subnets = [
        client.create(
            "aws:ec2/subnet:Subnet",
            {"vpcId": vpc.id, "cidrBlock": f"10.0.{i}.0/24", "availabilityZone": f"{REGION}{zone}"},
            f"subnet-{zone}",
        )
        for i, zone in enumerate("ab")
    ]
    role = client.create("aws:iam/role:Role", {"assumeRolePolicy": "{}"})
    policy = "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    inputs = {"role": role.outputs["name"], "policyArn": policy}
    return Network(vpc, subnets, role, client.create("aws:iam/rolePolicyAttachment:RolePolicyAttachment", inputs))


def cluster_inputs(net: Network, **more: Any) -> dict[str, Any]:
    return {
        "name": "lab",
        "version": "1.35",
        "roleArn": net.role.outputs["arn"],
        "vpcConfig": {"subnetIds": [subnet.id for subnet in net.subnets]},
        "accessConfig": {"authenticationMode": "API"},
        **more,
    }


def node_group_inputs(net: Network, **more: Any) -> dict[str, Any]:
    return {
        "clusterName": "lab",
        "nodeRoleArn": net.role.outputs["arn"],
        "subnetIds": [net.subnets[0].id],
        "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 2},
        **more,
    }


@dataclass
class Monitor(resource_pb2_grpc.ResourceMonitorServicer):
    """The engine, as a component sees it: keeps what is registered, and answers with what it is told to."""

    outputs: dict[str, dict[str, Any]] = field(default_factory=dict)
    registered: list[resource_pb2.RegisterResourceRequest] = field(default_factory=list)
    look_ups: list[str] = field(default_factory=list)

    def RegisterResource(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.registered.append(request)
        known = self.outputs.get(request.type, {})
        return resource_pb2.RegisterResourceResponse(
            urn=urn(request.type, request.name),
            id=known.get("id", ""),
            object=wire.to_struct({**wire.from_struct(request.object), **known}),
        )

    def RegisterResourceOutputs(self, request: Any, context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def Invoke(self, request: Any, context: Any) -> Any:  # noqa: N802
        self.look_ups.append(request.tok)
        return protocol.with_return(resource_pb2.ResourceInvokeResponse(), {"partition": "aws"})

    def named(self, name: str) -> resource_pb2.RegisterResourceRequest:
        return next(one for one in self.registered if one.name == name)


@contextmanager
def monitoring(monitor: Monitor) -> Iterator[str]:
    """The monitor's address."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4))
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(monitor, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait()
