"""What the stand-ins have in common: the gRPC service that the engine calls, and the file that is their cloud.

Two rules keep previews and refreshes true:

- A value is unknown only where the engine's own answer lacks it, or where the change at hand gives it a new value;
  never "because this is a preview".
- The cloud is a file, locked and read anew each time: the engine starts a process for each provider resource, and
  all of them again for the update after a preview.
"""

import abc
import contextlib
import fcntl
import hashlib
import importlib.metadata
import json
import secrets
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, plugin_pb2, provider_pb2_grpc, status_pb2
from pulumi.runtime.proto import provider_pb2 as pb

from lab import files
from lab.rehearsal.providers import sdk_types, wire
from lab.rehearsal.providers.sdk_types import Problem

MAX_MESSAGE = 400 * 1024 * 1024  # the engine's own limit
_WORKERS = 32

World = dict[str, dict[str, Any]]
"""What a cloud holds: `TYPE|ID` → `{"urn", "inputs", "state"}`."""


class RefusedError(Exception):
    """What a service would answer instead of doing what it was asked. Its text reaches the user."""


class HalfMadeError(RefusedError):
    """A resource stands although its creation or change failed: the engine keeps it, with the text as its fault.

    Attributes:
        id: its id.
        state: what is known of it, in wire form.
    """

    def __init__(self, text: str, rid: str, state: dict[str, Any]) -> None:
        super().__init__(text)
        self.id = rid
        self.state = state


@dataclass(frozen=True)
class Resource:
    """The resource that a call is about."""

    urn: str

    @property
    def type(self) -> str:
        """Its type token."""
        return self.urn.split("::")[2].rsplit("$", 1)[-1]

    @property
    def name(self) -> str:
        """Its logical name in the program."""
        return self.urn.split("::", 3)[3]


class Difference(NamedTuple):
    """A change of one input.

    Attributes:
        path: where.
        change: `add`, `delete` or `update`.
        replaces: whether it needs a new resource.
    """

    path: wire.Path
    change: wire.Change
    replaces: bool


class Cloud:
    """The files that stand for the clouds: one a package in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @contextlib.contextmanager
    def open(self, package: str) -> Iterator[World]:
        """The world of one package, for reading and changing. Nobody else changes it meanwhile.

        Raising leaves it as it was. Who opens two opens `aws` first.
        """
        path = self.folder / f"{package}.json"
        with (self.folder / f"{package}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            before = path.read_text(encoding="utf-8") if path.exists() else "{}"
            world: World = json.loads(before)
            yield world
            after = json.dumps(world, indent=1)
            if after != before:
                files.replace(path, after)

    @property
    def api_server(self) -> Path:
        """The file that says where each cluster's API server answers, where there is a real one.

        It holds its address and its authority's certificate in base64, with a blank between.
        """
        return self.folder / "api-server"

    @property
    def judge(self) -> Path:
        """The file that names the provider which checks and plans the resources of AWS; there is none without one."""
        return self.folder / "judge"

    @property
    def account(self) -> Path:
        """The folder of the emulated account; there is none where the cloud is this folder's files alone."""
        return self.folder / "account"

    @property
    def account_endpoint(self) -> Path:
        """The file that says where the emulated account answers, while it does."""
        return self.account / "endpoint"

    @property
    def longest_wait(self) -> float:
        """How many seconds a resource of the emulated account is waited for at most; 0 where nothing limits it."""
        path = self.folder / "longest-wait"
        return float(path.read_text(encoding="utf-8")) if path.exists() else 0

    def look(self, package: str) -> World:
        """The world of one package as it is now, to look at only. Needs no lock: the file is replaced, not written."""
        path = self.folder / f"{package}.json"
        return json.loads(path.read_text()) if path.exists() else {}


def sdk_version(package: str) -> str:
    """The installed SDK's version, which the program's registrations name as well.

    With another one the engine warns, and a component's children come from a second default provider.
    """
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):  # pulumi:providers:NAME has none
        return importlib.metadata.version(f"pulumi_{package}")
    return ""


def new_hex(digits: int) -> str:
    """Part of an id: new each time, so that a replacement never has its predecessor's id."""
    return secrets.token_hex(digits)[:digits]


def _answering(package: str, call: str, method: Callable[[Any], Any]) -> Callable[[Any, grpc.ServicerContext], Any]:
    """Makes of a refusal an error that shows its text alone, and of a bug one that says whose it is."""

    def answer(request: Any, context: grpc.ServicerContext) -> Any:
        try:
            return method(request)
        except HalfMadeError as half:
            return context.abort_with_status(_half_made(f"stand-in for {package}: {half}", half))
        except RefusedError as refused:
            code, text = grpc.StatusCode.FAILED_PRECONDITION, f"stand-in for {package}: {refused}"
        except grpc.RpcError as error:  # from the engine, while a component registers its children
            said: Any = error
            code, text = grpc.StatusCode.INVALID_ARGUMENT, said.details()
        except Exception as error:  # noqa: BLE001 - or the user reads "Exception calling application" only
            at = traceback.extract_tb(error.__traceback__)[-1]
            code = grpc.StatusCode.INTERNAL
            text = (
                f"a fault of the rehearsal, not of the program: stand-in for {package}, {call}: {error!r} "
                f"({Path(at.filename).name}:{at.lineno})"
            )
        return context.abort(code, text)

    return answer


class _Status(grpc.Status):
    """A status with details, which gRPC has no class for."""

    def __init__(self, status: status_pb2.Status) -> None:
        self.code = grpc.StatusCode.UNKNOWN
        self.details = status.message
        self.trailing_metadata = (("grpc-status-details-bin", status.SerializeToString()),)


def _half_made(text: str, half: HalfMadeError) -> grpc.Status:
    """As pulumi-terraform-bridge says it: pkg/tfbridge/provider.go, initializationError."""
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
    detail = pb.ErrorResourceInitFailed(id=half.id, properties=wire.to_struct(half.state), reasons=[text])
    status.details.add().Pack(detail)
    return _Status(status)


class StandIn:
    """A plugin that stands in for a provider: its configuration and its look-ups."""

    package = ""

    def __init__(self, cloud: Cloud, engine: str = "") -> None:
        self.cloud = cloud
        self.config: dict[str, Any] = {}
        self._engine = engine_pb2_grpc.EngineStub(grpc.insecure_channel(engine)) if engine else None

    # What a subclass says of its cloud.

    def configure(self) -> None:
        """Refuses a configuration with which the provider could not work."""

    def moves(self, old: dict[str, Any], new: dict[str, Any]) -> str:
        """The name of a changed configuration value with which all that the provider made is somewhere else."""
        del old, new
        return ""

    def look_up(self, token: str, args: dict[str, Any]) -> dict[str, Any]:
        """The answer to an invoke; or a `RefusedError`."""
        del args
        raise RefusedError(f"no answer for the look-up {token}")

    def reach(self) -> None:
        """Refuses where the cloud cannot be reached."""

    def log(self, text: str, urn: str = "") -> None:
        """Says something through the engine, beside the resource if one is given."""
        if self._engine:
            request = engine_pb2.LogRequest(severity=engine_pb2.INFO, message=f"stand-in: {text}", urn=urn)
            with contextlib.suppress(grpc.RpcError):  # a message is not worth a failed deployment
                self._engine.Log(request)

    def close(self) -> None:
        """Ends what it has started."""

    # The calls of the engine.

    def calls(self) -> dict[str, Callable[[Any], Any]]:
        """What answers each call of the service."""
        empty, plugin = empty_pb2.Empty(), plugin_pb2.PluginInfo(version=sdk_version(self.package))
        accepts = pb.ProviderHandshakeResponse(accept_secrets=True, accept_resources=True, accept_outputs=True)
        return {
            "Handshake": lambda _: accepts,
            "Cancel": lambda _: empty,
            "GetPluginInfo": lambda _: plugin,
            "CheckConfig": self._check_config,
            "DiffConfig": self._diff_config,
            "Configure": self._configure,
            "Invoke": self._invoke,
        }

    def _check_config(self, request: pb.CheckRequest) -> pb.CheckResponse:
        config, found = self._decoded(wire.from_struct(request.news))
        found += sdk_types.config_problems(self.package, config)
        return pb.CheckResponse(inputs=request.news, failures=_failures(found))

    def _diff_config(self, request: pb.DiffRequest) -> pb.DiffResponse:
        old = wire.plain(wire.from_struct(request.old_inputs) or wire.from_struct(request.olds))
        new = wire.plain(wire.from_struct(request.news))
        names = sorted({str(path[0]) for path, _ in wire.changes(old, new)} - {"version"})
        changes = pb.DiffResponse.DIFF_SOME if names else pb.DiffResponse.DIFF_NONE
        moved = self.moves(old, new) if names else ""
        return pb.DiffResponse(changes=changes, diffs=names, replaces=[moved] if moved else [])

    def _configure(self, request: pb.ConfigureRequest) -> pb.ConfigureResponse:
        self.config, _ = self._decoded(wire.plain(wire.from_struct(request.args)))
        self.configure()
        return pb.ConfigureResponse(acceptSecrets=True, supportsPreview=True, acceptResources=True, acceptOutputs=True)

    def _decoded(self, config: dict[str, Any]) -> tuple[dict[str, Any], list[Problem]]:
        """A provider's configuration travels as text: JSON for all that is not a string."""
        decoded, found = {}, []
        types = sdk_types.config_types(self.package)
        for name, value in config.items():
            if name in ("version", "pluginDownloadURL") or name.startswith("__"):
                continue
            decoded[name] = value
            if isinstance(value, str) and types.get(name, str) is not str and value != wire.UNKNOWN:
                try:
                    decoded[name] = json.loads(value)
                except json.JSONDecodeError:
                    found.append(Problem((name,), f"{value!r} is not JSON"))
        return decoded, found

    def _invoke(self, request: pb.InvokeRequest) -> pb.InvokeResponse:
        answer = self.look_up(request.tok, wire.plain(wire.from_struct(request.args)))
        return with_return(pb.InvokeResponse(), answer)


class ResourceStandIn(StandIn, abc.ABC):
    """A stand-in that makes resources, in a cloud that is a file. Subclasses say what their cloud answers."""

    @abc.abstractmethod
    def named(self, res: Resource, inputs: dict[str, Any], olds: dict[str, Any], suffix: str) -> dict[str, Any]:
        """`inputs` with the name that the provider makes up where the program gives none."""

    @abc.abstractmethod
    def refusals(self, res: Resource, inputs: dict[str, Any], *, is_new: bool = True) -> Iterable[Problem]:
        """What the service would refuse in plain inputs, beside the SDK's types; `is_new`: of one to be made."""

    @abc.abstractmethod
    def replaces(self, res: Resource, path: wire.Path, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether a change at `path` cannot be made in place."""

    def differences(
        self, res: Resource, rid: str, old: dict[str, Any], outputs: dict[str, Any], new: dict[str, Any]
    ) -> Iterator[Difference]:
        """What changes between plain inputs, and whether it can be made in place."""
        del rid, outputs
        for path, change in wire.changes(old, new):
            yield Difference(path, change, self.replaces(res, path, old, new))

    @abc.abstractmethod
    def name_is_fixed(self, res: Resource, old: dict[str, Any], new: dict[str, Any]) -> bool:
        """Whether old and new one cannot stand side by side, so that the old one must go first."""

    def key(self, res: Resource, rid: str) -> str:
        """Where a resource is in the world."""
        return f"{res.type}|{rid}"

    @abc.abstractmethod
    def create(self, world: World, res: Resource, inputs: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The id, and what the cloud adds to the (plain) inputs; or a `RefusedError`."""

    def planned(self, res: Resource, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs that a preview of a creation knows already, beside the inputs."""
        del res, inputs
        return {}

    def notes(self, res: Resource) -> dict[str, Any]:
        """What the cloud remembers of a creation without showing it."""
        del res
        return {}

    def update(
        self, world: World, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]
    ) -> None:
        """Sets in the new `state` what only the cloud sets anew in an update; or a `RefusedError`."""

    def plan_update(self, res: Resource, old: dict[str, Any], new: dict[str, Any], state: dict[str, Any]) -> None:
        """The same for a preview: sets what it can know, and `UNKNOWN` for the rest."""

    @abc.abstractmethod
    def delete(self, world: World, res: Resource, rid: str, state: dict[str, Any]) -> bool:
        """Whether it is gone then (something else may make it anew at once); or a `RefusedError`."""

    # The calls of the engine.

    def calls(self) -> dict[str, Callable[[Any], Any]]:
        """What answers each call of the service."""
        return {
            **super().calls(),
            "Check": self._check,
            "Diff": self._diff,
            "Create": self._create,
            "Read": self._read,
            "Update": self._update,
            "Delete": self._delete,
        }

    def _check(self, request: pb.CheckRequest) -> pb.CheckResponse:
        res, news = Resource(request.urn), wire.from_struct(request.news)
        olds = wire.from_struct(request.olds)
        seed = request.randomSeed or secrets.token_bytes(32)
        suffix = "-" + hashlib.sha256(seed + request.urn.encode()).hexdigest()[:8]
        news = self.named(res, news, olds, res.name + suffix)
        found = sdk_types.find(res.type, news)
        if not found:  # a rule may rely on the types
            found += self.refusals(res, wire.plain(news), is_new=not olds)
        return pb.CheckResponse(inputs=wire.to_struct(news), failures=_failures(found))

    def _diff(self, request: pb.DiffRequest) -> pb.DiffResponse:
        # Inputs against inputs: what only the cloud sets is no change.
        res = Resource(request.urn)
        old = wire.plain(wire.from_struct(request.old_inputs) or wire.from_struct(request.olds))
        new = wire.plain(wire.from_struct(request.news))
        outputs = wire.plain(wire.from_struct(request.olds))
        detail, replaces, names = {}, [], set()
        for path, change, replaced in self.differences(res, request.id, old, outputs, new):
            text = wire.path_text(path)
            if any(text == skip or text.startswith((f"{skip}.", f"{skip}[")) for skip in request.ignoreChanges):
                continue
            names.add(str(path[0]))
            kind = change.upper()
            if replaced:
                replaces.append(text)
                kind += "_REPLACE"
            detail[text] = pb.PropertyDiff(kind=pb.PropertyDiff.Kind.Value(kind), inputDiff=True)
        return pb.DiffResponse(
            changes=pb.DiffResponse.DIFF_SOME if detail else pb.DiffResponse.DIFF_NONE,
            diffs=sorted(names),
            replaces=replaces,
            detailedDiff=detail,
            hasDetailedDiff=True,
            deleteBeforeReplace=bool(replaces) and self.name_is_fixed(res, old, new),
        )

    def _create(self, request: pb.CreateRequest) -> pb.CreateResponse:
        res, inputs = Resource(request.urn), wire.from_struct(request.properties)
        if request.preview:
            known = shown(inputs) | self.planned(res, wire.plain(inputs))
            wire.seal(known, inputs)
            return pb.CreateResponse(properties=wire.to_struct(known))
        with self.cloud.open(self.package) as world:
            rid, more = self.create(world, res, wire.plain(inputs))
            state = wire.carried(more, {}, shown(inputs))
            wire.seal(state, inputs)
            world[self.key(res, rid)] = {"urn": res.urn, "inputs": inputs, "state": state, **self.notes(res)}
        return pb.CreateResponse(id=rid, properties=wire.to_struct(state))

    def _read(self, request: pb.ReadRequest) -> pb.ReadResponse:
        self.reach()
        found = self.cloud.look(self.package).get(self.key(Resource(request.urn), request.id))
        if not found:
            return pb.ReadResponse()  # gone: the engine drops it from the state
        inputs = wire.asked(found["state"], wire.from_struct(request.inputs) or found["inputs"])
        return pb.ReadResponse(id=request.id, properties=wire.to_struct(found["state"]), inputs=wire.to_struct(inputs))

    def _update(self, request: pb.UpdateRequest) -> pb.UpdateResponse:
        res, news = Resource(request.urn), wire.from_struct(request.news)
        olds, old_inputs = wire.from_struct(request.olds), wire.from_struct(request.old_inputs)
        old, new = wire.plain(old_inputs), wire.plain(news)
        if request.preview:
            state = wire.carried(olds, shown(old_inputs), shown(news))
            self.plan_update(res, old, new, state)
            wire.seal(state, news)
            return pb.UpdateResponse(properties=wire.to_struct(state))
        with self.cloud.open(self.package) as world:
            self.reach()
            found = world.get(self.key(res, request.id))
            if found is None:
                raise RefusedError(f"{res.type} {request.id} is not there (any more): try `pulumi refresh`")
            state = wire.carried(found["state"], shown(old_inputs), shown(news))
            self.update(world, res, old, new, state)
            wire.seal(state, news)
            world[self.key(res, request.id)] = {**found, "inputs": news, "state": state}
        return pb.UpdateResponse(properties=wire.to_struct(state))

    def _delete(self, request: pb.DeleteRequest) -> empty_pb2.Empty:
        res = Resource(request.urn)
        with self.cloud.open(self.package) as world:
            self.reach()
            found = world.get(self.key(res, request.id))
            if found and self.delete(world, res, request.id, wire.plain(found["state"])):
                world.pop(self.key(res, request.id), None)
        return empty_pb2.Empty()


def shown(inputs: dict[str, Any]) -> dict[str, Any]:
    """Inputs as outputs: without the notes that Check leaves in them."""
    return {name: value for name, value in inputs.items() if not name.startswith("__")}


def with_return(response: Any, answer: dict[str, Any]) -> Any:
    """Sets the field `return`, whose name Python reserves."""
    getattr(response, "return").CopyFrom(wire.to_struct(answer))
    return response


def _failures(found: Iterable[Problem]) -> list[pb.CheckFailure]:
    return [pb.CheckFailure(property=wire.path_text(one.path), reason=one.reason) for one in found]


def serve(stand_in: StandIn, port: int = 0) -> tuple[grpc.Server, int]:
    """Starts the service on loopback; port 0 takes a free one.

    Returns:
        The server and its port.
    """
    limits = [("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=_WORKERS), options=limits)
    servicer = provider_pb2_grpc.ResourceProviderServicer()
    for call, method in stand_in.calls().items():
        setattr(servicer, call, _answering(stand_in.package, call, method))
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    return server, port
