"""A vLLM server: a Deployment whose pods get their model by a `Delivery` and serve it, and its Service."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra import images, layout, sizing
from infra.instance_types import InstanceType
from infra.layout import MODELS_NAMESPACE
from infra.namespaces import MODEL_SERVER_ACCOUNT
from infra.node_groups import GPU_TAINT, NODE_GROUP_LABEL
from infra.settings import ModelServerSettings, ModelSettings
from workloads import delivery, pods, programs
from workloads.delivery import PROGRAM_VOLUME, Delivery

PORT = 8000

# Drain: endpoints forget the pod while it still listens, then vLLM finishes what it has; the kubelet's patience is
# longer than both together.
_PRE_STOP_SECONDS = 15
_SHUTDOWN_SECONDS = 60
_GRACE_SECONDS = _PRE_STOP_SECONDS + _SHUTDOWN_SECONDS + 15


@dataclass(frozen=True, kw_only=True)
class ModelServerArgs:
    """What `ModelServer` is made of.

    Attributes:
        settings: One entry of the stack's `modelServers` section.
        model: The model that it serves.
        model_path: The model's folder, as pods see it.
        instance_type: The type of the nodes that it runs on.
        file_system_mib_per_second: What the file system gives all clients together, in MiB/s, at the least.
        claim_name: The read-only claim on the models.
        volume: The claim's volume: the pods go before it where it is replaced (see `infra.storage.ModelClaims`).
        team: The stack's `team`, where it has one.
        awaited: Whether `up` waits for the pods: not where some of them have no node to run on.
    """

    settings: ModelServerSettings
    model: ModelSettings
    model_path: str
    instance_type: InstanceType
    file_system_mib_per_second: int
    claim_name: pulumi.Input[str]
    volume: pulumi.Resource
    team: str | None
    awaited: bool


class ModelServer(pulumi.ComponentResource):
    """A Deployment that serves a model with vLLM, behind a Service.

    Attributes:
        url: Where the OpenAI API answers inside the cluster.
        object_name: Name of the Deployment and the Service.
    """

    url: pulumi.Output[str]
    object_name: str

    def __init__(self, name: str, args: ModelServerArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:workloads:ModelServer", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings, model = args.settings, args.model
        self.object_name = f"faststart-{name}"
        selector = {"app.kubernetes.io/name": "vllm", "app.kubernetes.io/instance": name}
        labels = {
            **selector,
            "app.kubernetes.io/part-of": "faststart",
            "faststart.dev/server": name,
            "faststart.dev/model": settings.model,
            "faststart.dev/revision": model.revision,
            **({"faststart.dev/team": args.team} if args.team else {}),
        }
        metadata: k8s.meta.v1.ObjectMetaArgsDict = {
            "name": self.object_name,
            "namespace": MODELS_NAMESPACE,
            "labels": labels,
            "annotations": {} if args.awaited else {"pulumi.com/skipAwait": "true"},
        }
        rate, replicas = args.file_system_mib_per_second, settings.replicas
        deadline = sizing.progress_deadline_seconds(model.size_gib, rate, replicas)
        roll_out = sizing.roll_out_seconds(model.size_gib, rate, replicas, _GRACE_SECONDS)
        deployment = k8s.apps.v1.Deployment(
            f"{name}-vllm",
            metadata=metadata,
            spec={
                "replicas": settings.replicas,
                "selector": {"match_labels": selector},
                # A new pod beside the old one would wait for GPUs that the old one holds: one goes, then one comes.
                "strategy": {"type": "RollingUpdate", "rolling_update": {"max_surge": 0, "max_unavailable": 1}},
                "progress_deadline_seconds": deadline,
                "template": {"metadata": {"labels": labels}, "spec": _pod(args)},
            },
            opts=child.merge(
                pulumi.ResourceOptions(
                    replace_with=[args.volume],
                    delete_before_replace=True,
                    custom_timeouts=pulumi.CustomTimeouts(create=f"{deadline + 300}s", update=f"{roll_out + 300}s"),
                )
            ),
        )
        if settings.replicas > 1:
            # A roll of the nodes drains one after the other, and asks nothing of pods but this.
            k8s.policy.v1.PodDisruptionBudget(
                f"{name}-budget",
                metadata={"name": self.object_name, "namespace": MODELS_NAMESPACE, "labels": labels},
                spec={
                    "max_unavailable": 1,
                    "selector": {"match_labels": selector},
                    "unhealthy_pod_eviction_policy": "AlwaysAllow",
                },
                opts=child,
            )
        service = k8s.core.v1.Service(
            f"{name}-service",
            metadata=metadata,
            spec={
                "type": "ClusterIP",
                "selector": selector,
                "ports": [{"name": "http", "port": PORT, "target_port": "http"}],
            },
            # A Service is awaited, for ten minutes, until none of its endpoints is pending.
            opts=child.merge(pulumi.ResourceOptions(depends_on=[deployment])),
        )
        self.url = pulumi.Output.format("http://{0}.{1}.svc:{2}/v1", service.metadata.name, MODELS_NAMESPACE, PORT)
        self.register_outputs({"url": self.url})


def _pod(args: ModelServerArgs) -> k8s.core.v1.PodSpecArgsDict:
    requests = {
        "cpu": str(sizing.cpu_request(args.instance_type, args.settings.gpus)),
        "memory": f"{sizing.memory_request_gib(args.instance_type, args.settings.gpus)}Gi",
    }
    delivered = delivery.to_pod(
        args.settings, args.model, model_path=args.model_path, claim_name=args.claim_name, requests=requests
    )
    return {
        "service_account_name": MODEL_SERVER_ACCOUNT,
        "automount_service_account_token": False,
        "enable_service_links": False,
        "node_selector": {NODE_GROUP_LABEL: args.settings.node_group},
        "tolerations": [{"key": GPU_TAINT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}],
        "termination_grace_period_seconds": _GRACE_SECONDS,
        "security_context": {
            "run_as_non_root": True,
            "run_as_user": layout.UID,
            "run_as_group": layout.GID,
            "fs_group": layout.GID,
            "seccomp_profile": {"type": "RuntimeDefault"},
        },
        "init_containers": [*delivered.init_containers, *delivered.sidecars],
        "containers": [_serve(args, delivered, requests)],
        "volumes": _volumes(args, delivered),
    }


def _serve(args: ModelServerArgs, delivered: Delivery, requests: Mapping[str, str]) -> k8s.core.v1.ContainerArgsDict:
    """Serves the model with vLLM."""
    health: k8s.core.v1.HTTPGetActionArgsDict = {"path": "/health", "port": "http"}
    settings = args.settings
    gpus = {"nvidia.com/gpu": str(settings.gpus)}
    return {
        "name": "vllm",
        "image": images.applied(settings.image),
        "command": [*delivered.wait, "vllm", "serve"],
        "args": [
            layout.MODEL,
            "--served-model-name",
            settings.model,
            "--port",
            str(PORT),
            "--tensor-parallel-size",
            str(settings.gpus),
            "--shutdown-timeout",
            str(_SHUTDOWN_SECONDS),
            *settings.args,
        ],
        "env": pods.env(
            {
                "HF_HUB_OFFLINE": "1",
                "TRANSFORMERS_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
                "DO_NOT_TRACK": "1",
                "VLLM_CACHE_ROOT": f"{layout.CACHE}/vllm",
                # vLLM's own patience must not end before the startup probe's.
                "VLLM_ENGINE_READY_TIMEOUT_S": str(10 * sizing.startup_probe_failures(args.model.size_gib)),
            }
        ),
        "ports": [{"name": "http", "container_port": PORT}],
        "resources": {"requests": {**requests, **delivered.requests, **gpus}, "limits": gpus},
        "security_context": pods.restricted(),
        "startup_probe": {
            "http_get": health,
            "period_seconds": 10,
            "timeout_seconds": 5,
            "failure_threshold": sizing.startup_probe_failures(args.model.size_gib),
        },
        "readiness_probe": {"http_get": health, "period_seconds": 5, "timeout_seconds": 5, "failure_threshold": 2},
        "liveness_probe": {"http_get": health, "period_seconds": 10, "timeout_seconds": 5, "failure_threshold": 6},
        "lifecycle": {"pre_stop": {"sleep": {"seconds": _PRE_STOP_SECONDS}}},
        "volume_mounts": [
            *delivered.mounts,
            {"name": "cache", "mount_path": layout.CACHE},
            {"name": "shared-memory", "mount_path": "/dev/shm"},  # noqa: S108
        ],
    }


def _volumes(args: ModelServerArgs, delivered: Delivery) -> list[k8s.core.v1.VolumeArgsDict]:
    shared_memory_gib = sizing.shared_memory_gib(args.instance_type)
    program: list[k8s.core.v1.VolumeArgsDict] = []
    if delivered.program:
        (config_map,) = programs.mounted(delivered.program)
        program = [{"name": PROGRAM_VOLUME, "config_map": {"name": config_map}}]
    return [
        *delivered.volumes,
        {"name": "cache", "empty_dir": {"size_limit": f"{sizing.SERVER_FILES_GIB}Gi"}},
        {"name": "shared-memory", "empty_dir": {"medium": "Memory", "size_limit": f"{shared_memory_gib}Gi"}},
        *program,
    ]
