"""Speaks with a Terraform provider: its process, plugin protocol 5 over gRPC, and the values that travel.

The provider describes its own messages (gRPC server reflection), so nothing is generated. Values travel as MessagePack;
what is not known yet is `Unknown`.
"""

import enum
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

# Fixed by Terraform for all its providers: tells a plugin that no person started it.
_COOKIE = {"TF_PLUGIN_MAGIC_COOKIE": "d602bf8f470bc67ca7faa0386276bbdd4330efaf76d1a219cb4d6991ca9872b2"}
_PROTOCOL = "5"
_SERVICE = "tfplugin5.Provider"
_MAX_MESSAGE_BYTES = 256 * 1024 * 1024  # GetSchema's answer has some 10 MB; gRPC's own limit is 4
_ERROR = 1  # Diagnostic.ERROR

# A plugin does not notice that its owner is gone. The shell does: its stdin ends then.
_GUARD = """
"$0" & plugin=$!
exec >/dev/null
read -r _
kill -9 $plugin
wait $plugin
rm -rf "$PLUGIN_UNIX_SOCKET_DIR"
"""


class ProviderError(Exception):
    """The provider refused a call, or did not start.

    Attributes:
        diagnostics: what it refused, as messages `Diagnostic`.
        answer: all that it answered; after a failed create this holds the state of what was made.
    """

    def __init__(self, text: str, diagnostics: Sequence[Any] = (), answer: Any = None) -> None:
        super().__init__(text)
        self.diagnostics = diagnostics
        self.answer = answer


class Unknown(enum.Enum):
    """The value that is not known yet."""

    UNKNOWN = "unknown"


UNKNOWN = Unknown.UNKNOWN


class Plugin:
    """A provider that runs as a process of this machine, until `stop` or until this process ends.

    Attributes:
        schema: its answer to GetSchema, with `provider` and `resource_schemas`.
    """

    def __init__(self, program: Path, environ: Mapping[str, str]) -> None:
        """Starts it.

        Args:
            program: the executable.
            environ: its whole environment, without what the protocol adds.

        Raises:
            ProviderError: it did not start, or does not speak this protocol.
        """
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, program],
            env={
                **environ,
                **_COOKIE,
                "PLUGIN_PROTOCOL_VERSIONS": _PROTOCOL,
                "PLUGIN_UNIX_SOCKET_DIR": tempfile.mkdtemp(prefix="provider-"),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        self._channel: grpc.Channel | None = None
        try:
            self._channel = self._connected(program)
            self._service = _described(self._channel)
            self.schema = self.call("GetSchema")
        except BaseException:
            self.stop()
            raise

    def _connected(self, program: Path) -> grpc.Channel:
        """The way to the provider, which says in a line where it listens."""
        assert self._process.stdout is not None
        hello = self._process.stdout.readline().strip()
        core, version, network, address, protocol = (*hello.split("|"), "", "", "", "", "")[:5]
        if (core, version, network, protocol) != ("1", _PROTOCOL, "unix", "grpc"):
            raise ProviderError(f"{program} does not speak plugin protocol {_PROTOCOL}: it says {hello!r}")
        options = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.default_authority", "localhost")]
        return grpc.insecure_channel(f"unix:{address}", options=options)

    def call(self, method: str, **fields: Any) -> Any:
        """The answer to a call.

        Args:
            method: as `PlanResourceChange`.
            **fields: of its request; a `DynamicValue` is made of any other value by `packed`.

        Raises:
            ProviderError: the answer has an error among its diagnostics, or the provider ended.
        """
        about = self._service.methods_by_name[method]
        request = message_factory.GetMessageClass(about.input_type)()
        for name, value in fields.items():
            field = about.input_type.fields_by_name[name]
            if field.message_type is not None and field.message_type.name == "DynamicValue":
                getattr(request, name).msgpack = packed(value)
            else:
                setattr(request, name, value)
        assert self._channel is not None
        ask = self._channel.unary_unary(
            f"/{_SERVICE}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=message_factory.GetMessageClass(about.output_type).FromString,
        )
        try:
            answer: Any = ask(request)
        except grpc.RpcError as error:
            told: Any = error  # a Call too, which has the words
            raise ProviderError(f"{method}: {told.details()}") from error
        errors = [one for one in getattr(answer, "diagnostics", ()) if one.severity == _ERROR]
        if errors:
            raise ProviderError("; ".join(sentence(one) for one in errors), errors, answer)
        return answer

    def stop(self) -> None:
        """Ends it; what it waits for is left."""
        if self._channel is not None:
            self._channel.close()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _described(channel: grpc.Channel) -> Any:
    """The descriptor of the provider's service, by its own answer to gRPC's reflection."""
    fields = descriptor_pb2.FieldDescriptorProto
    answer = descriptor_pb2.FileDescriptorProto(name="reflection.proto", package="reflection")  # what we read of it
    files = answer.message_type.add(name="Files")
    files.field.add(name="file", number=1, type=fields.TYPE_BYTES, label=fields.LABEL_REPEATED)
    response = answer.message_type.add(name="Response")
    one = fields.LABEL_OPTIONAL
    response.field.add(name="files", number=4, type=fields.TYPE_MESSAGE, type_name=".reflection.Files", label=one)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(answer)
    ask = channel.stream_stream(
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        response_deserializer=message_factory.GetMessageClass(
            pool.FindMessageTypeByName("reflection.Response")
        ).FromString,
    )
    request = b"\x22" + bytes([len(_SERVICE)]) + _SERVICE.encode()  # file_containing_symbol
    answered: Any = next(iter(ask(iter([request]), wait_for_ready=True)))
    for file in reversed(answered.files.file):  # what a file imports follows it
        pool.AddSerializedFile(file)
    return pool.FindServiceByName(_SERVICE)


def packed(value: Any) -> bytes:
    """A value as it travels."""
    import msgpack

    found = msgpack.packb(value, default=lambda _: msgpack.ExtType(0, b"\x00"))
    assert found is not None
    return found


def unpacked(value: Any) -> Any:
    """The value of a message `DynamicValue`."""
    import msgpack

    return msgpack.unpackb(value.msgpack, strict_map_key=False, ext_hook=lambda *_: UNKNOWN) if value.msgpack else None


def sentence(diagnostic: Any) -> str:
    """What the provider says, in one line."""
    words = f"{diagnostic.summary}: {diagnostic.detail}" if diagnostic.detail else diagnostic.summary
    return " ".join(words.split())


def steps(path: Any) -> tuple[str | int, ...]:
    """An `AttributePath`: names of attributes, keys and indices of elements."""
    return tuple(getattr(step, step.WhichOneof("selector")) for step in path.steps if step.WhichOneof("selector"))
