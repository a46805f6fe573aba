"""Runs the real `__main__.py` on a recording monitor: every registration is kept with its options."""

import asyncio
import contextvars
import functools
import gc
import json
import logging
import runpy
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import pulumi.runtime
import yaml
from google.protobuf import json_format
from pulumi.runtime import mocks, rpc

from infra import stack_files
from infra.settings import Settings, check
from lab import ROOT

STACKS = stack_files.every()
STACK_TYPE = "pulumi:pulumi:Stack"


class StrictLoader(yaml.SafeLoader):
    """YAML as the Pulumi CLI reads it: a key that stands twice in a mapping is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if twice := {str(key) for key in keys if keys.count(key) > 1}:
            raise yaml.constructor.ConstructorError(None, None, f"{sorted(twice)} twice", node.start_mark)
        return super().construct_mapping(node, deep)


def stack_config(stack: str) -> dict[str, Any]:
    """The `config` of a stack file, as plain values by full key."""
    return yaml.load(STACKS[stack].read_text(), StrictLoader)["config"]


@functools.cache
def stack_settings(stack: str) -> Settings:
    """What a stack file says once it is checked, defaults included: where tests take what they expect of a stack."""
    return checked(stack_config(stack), stack)


def checked(config: Mapping[str, Any], stack: str) -> Settings:
    """The settings of a configuration that is good."""
    settings, findings = check(config, stack)
    mistakes = "\n".join(str(finding) for finding in findings if finding.refuses)
    assert settings is not None, f"stack {stack} is refused:\n{mistakes}"
    return settings


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One registration: what the program asked for, with its options."""

    urn: str
    type: str
    name: str
    parent: str
    custom: bool
    remote: bool
    inputs: dict[str, Any]
    secret_inputs: frozenset[str]
    depends_on: frozenset[str]
    provider: str
    protect: bool
    delete_before_replace: bool
    ignore_changes: tuple[str, ...]
    timeouts: dict[str, str]


@dataclass
class Recording:
    """All that a run of the program registered, in order; `outputs` are the stack's, `settings` what it ran with."""

    stack: str
    config: Mapping[str, Any]
    resources: list[Registered] = field(default_factory=list)
    outputs: dict[str, Any] = field(default_factory=dict)
    secret_outputs: set[str] = field(default_factory=set)
    warnings: list[str] = field(default_factory=list)

    @functools.cached_property
    def settings(self) -> Settings:
        """The settings of the configuration that was run, defaults included."""
        return checked(self.config, self.stack)

    def of(self, token: str) -> list[Registered]:
        """The registrations of a type."""
        return [resource for resource in self.resources if resource.type == token]

    def one(self, token: str, name: str | None = None) -> Registered:
        """The only registration of a type (and logical name)."""
        (found,) = [resource for resource in self.of(token) if name in (None, resource.name)]
        return found

    def kubernetes(self) -> list[Registered]:
        """Kubernetes objects, without Helm releases and the provider."""
        return [
            resource
            for resource in self.resources
            if resource.type.startswith("kubernetes:") and not resource.type.startswith("kubernetes:helm.sh")
        ]

    def before(self, resource: Registered) -> set[str]:
        """URNs of all that must be done before `resource` starts, and outlives it at destroy.

        Its dependencies and its parent, theirs in turn, and all that a packaged component among them made. A component
        waits for what it depends on, and its children wait for it.
        """
        children: dict[str, set[str]] = {}
        by_urn = {one.urn: one for one in self.resources}
        for one in self.resources:
            children.setdefault(one.parent, set()).add(one.urn)
        seen: set[str] = set()
        todo = [resource.urn]
        while todo:
            urn = todo.pop()
            one = by_urn.get(urn)
            if one is None:
                continue
            near = {*one.depends_on, one.parent, one.provider.rpartition("::")[0]}
            if one.remote:
                near |= children.get(urn, set())
            todo += near - seen
            seen |= near
        return seen & by_urn.keys()


def plain(value: Any) -> Any:
    """A value of the wire as plain JSON: secrets opened, whole numbers as ints."""
    if isinstance(value, dict):
        if value.get(rpc._special_sig_key) == rpc._special_secret_sig:
            return plain(value["value"])
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _is_secret(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get(rpc._special_sig_key) == rpc._special_secret_sig or any(map(_is_secret, value.values()))
    return isinstance(value, list) and any(map(_is_secret, value))


class Engine(mocks.MockMonitor):
    """Keeps every registration with its options, refuses a repeated URN, and knows the types of all parents."""

    def __init__(self, cloud: mocks.Mocks, recording: Recording) -> None:
        super().__init__(cloud)
        self.recording = recording

    def make_urn(self, parent: str, type_: str, name: str) -> str:
        if parent and not parent.split("::")[2].endswith(STACK_TYPE):
            type_ = f"{parent.split('::')[2]}${type_}"
        return f"urn:pulumi:{pulumi.get_stack()}::{pulumi.get_project()}::{type_}::{name}"

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802
        urn = self.make_urn(request.parent, request.type, request.name)
        assert urn not in self.resources, f"two resources share {urn}"
        if request.type != STACK_TYPE:
            inputs = json_format.MessageToDict(request.object)
            timeouts = json_format.MessageToDict(request.customTimeouts)
            self.recording.resources.append(
                Registered(
                    urn=urn,
                    type=request.type,
                    name=request.name,
                    parent=request.parent,
                    custom=request.custom,
                    remote=request.remote,
                    inputs=plain(inputs),
                    secret_inputs=frozenset(key for key, value in inputs.items() if _is_secret(value)),
                    depends_on=frozenset(
                        {*request.dependencies, *(u for d in request.propertyDependencies.values() for u in d.urns)}
                    ),
                    provider=request.provider,
                    protect=request.protect,
                    delete_before_replace=request.deleteBeforeReplace,
                    ignore_changes=tuple(request.ignoreChanges),
                    timeouts={key: value for key, value in timeouts.items() if value},
                )
            )
        return super().RegisterResource(request)

    def RegisterResourceOutputs(self, request: Any) -> Any:  # noqa: N802
        if request.urn.split("::")[2] == STACK_TYPE:
            outputs = json_format.MessageToDict(request.outputs)
            self.recording.outputs = plain(outputs)
            self.recording.secret_outputs = {key for key, value in outputs.items() if _is_secret(value)}
        return super().RegisterResourceOutputs(request)


class Cloud(mocks.Mocks):
    """Echoes inputs and adds the few computed outputs that the program reads; it has no look-ups."""

    def new_resource(self, args: mocks.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        outputs = dict(args.inputs)
        identity = f"{args.name}-id"
        match args.typ:
            case "eks:index:Cluster":
                server = {"name": "kubernetes", "cluster": {"server": "https://api.example"}}
                outputs |= {
                    "kubeconfigJson": json.dumps({"clusters": [server]}),
                    "clusterSecurityGroupId": "sg-cluster",
                }
            case "aws:fsx/lustreFileSystem:LustreFileSystem":
                outputs |= {"dnsName": f"{identity}.fsx.example", "mountName": "abcd1234"}
            case "aws:ec2/launchTemplate:LaunchTemplate":
                outputs |= {"latestVersion": 1}
            case "aws:ec2/eip:Eip":
                outputs |= {"allocationId": f"eipalloc-{args.name}"}
            case "aws:eks/nodeGroup:NodeGroup":
                outputs |= {"nodeGroupName": f"{args.name}-1234567"}
            case _ if args.typ.startswith("aws:"):
                outputs = {"arn": f"arn:aws:test:::{args.name}", "name": args.name} | outputs
        return identity, outputs

    def call(self, args: mocks.MockCallArgs) -> Any:
        raise AssertionError(f"no AWS call shapes a resource, but {args.token} was asked")


def _execute(program: Path) -> None:
    runpy.run_path(str(program), run_name="__main__")


class _Warnings(logging.Handler):
    def __init__(self, texts: list[str]) -> None:
        super().__init__(logging.WARNING)
        self.texts = texts

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def run(stack: str, config: Mapping[str, Any] | None = None, program: Path = ROOT / "__main__.py") -> Recording:
    """Runs the program as an `up` would.

    Args:
        stack: Name of the stack.
        config: Values by full key; without it, those of the stack file (run once, and shared).
        program: The program's file.

    Returns:
        What the program registered.

    Raises:
        pulumi.RunError: The program refused.
    """
    return _run_stack_file(stack, program) if config is None else _run(stack, config, program)


@functools.cache
def _run_stack_file(stack: str, program: Path) -> Recording:
    return _run(stack, stack_config(stack), program)


def _run(stack: str, values: Mapping[str, Any], program: Path) -> Recording:
    recording = Recording(stack, values)
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}

    def in_context() -> None:
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        logger = logging.Logger("engine")  # noqa: LOG001 - one of its own, not a shared one
        logger.addHandler(_Warnings(recording.warnings))
        pulumi.runtime.set_all_config(texts, [])
        monitor = Engine(Cloud(), recording)
        # Not set_mocks: it makes a root stack of its own, which never registers the stack's outputs.
        pulumi.runtime.configure(
            mocks.MockSettings(
                monitor=monitor,
                monitor_features=set(monitor.GetDeploymentInfo(None).supportedFeatures),
                engine=mocks.MockEngine(logger),
                project="faststart",
                stack=stack,
                dry_run=False,
                organization="organization",
                callbacks=None,
            )
        )
        try:
            loop.run_until_complete(pulumi.runtime.run_in_stack(lambda: _execute(program)))
        finally:
            loop.close()
            asyncio.set_event_loop(None)

    contextvars.copy_context().run(in_context)
    _keep_what_is_imported()
    return recording


@functools.cache
def _keep_what_is_imported() -> None:
    """Once, after a first run: without it half of each run's time is Python's collector going through the SDKs."""
    gc.collect()
    gc.freeze()
