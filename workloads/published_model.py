"""A model on the file system: the Job that publishes one revision of it, and what that Job may read."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra import images, layout, sizing, versions
from infra.iam import pod_role
from infra.instance_types import GIB
from infra.layout import SYSTEM_NAMESPACE
from infra.namespaces import PUBLISH_ACCOUNT
from infra.node_groups import NODE_GROUP_LABEL
from infra.settings import ModelSettings
from workloads import pods, programs

_TOKEN_KEY = "token"  # noqa: S105 - the name of a key
_TEMPORARY_PATH = "/tmp"  # noqa: S108

# What EKS' webhook puts into a pod that it knows to have an identity, and leaves alone where it stands already
# (aws/amazon-eks-pod-identity-webhook: main.go, pkg/handler/handler.go). A pod that is made some seconds after its
# association may not be known to have one, and never gets it: with this it asks the agent itself, again and again.
_IDENTITY = "eks-pod-identity-token"
_IDENTITY_PATH = "/var/run/secrets/pods.eks.amazonaws.com/serviceaccount"
_IDENTITY_ENV = {
    "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": f"{_IDENTITY_PATH}/{_IDENTITY}",
}
_IDENTITY_TOKEN: k8s.core.v1.ServiceAccountTokenProjectionArgsDict = {
    "audience": "pods.eks.amazonaws.com",
    "expiration_seconds": 86400,
    "path": _IDENTITY,
}

# What another try can help (contracts.md, "Exit codes") is tried again inside the pod. A Job that fails by a rule of
# its podFailurePolicy is no failure to pulumi-kubernetes, which then waits until its timeout: it knows
# BackoffLimitExceeded and DeadlineExceeded only (pulumi/cloud-ready-checks, pkg/kubernetes/job/check.go).
_TRIES = 4


@dataclass(frozen=True, kw_only=True)
class PublishedModelArgs:
    """What `PublishedModel` is made of.

    Attributes:
        settings: One entry of the stack's `models` section.
        region: The region of the cluster.
        cluster_name: The EKS cluster.
        node_group: Label value of the CPU nodes in the data zone.
        claim_name: The read-write claim on the file system.
    """

    settings: ModelSettings
    region: str
    cluster_name: pulumi.Input[str]
    node_group: str
    claim_name: pulumi.Input[str]


class PublishedModel(pulumi.ComponentResource):
    """A Job that ends when one revision of a model is sealed on the file system; later runs find it done.

    Attributes:
        job: The Job: what needs the model depends on it.
        path: The model's folder, as pods see it.
    """

    job: k8s.batch.v1.Job
    path: str

    def __init__(self, name: str, args: PublishedModelArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:workloads:PublishedModel", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings = args.settings
        self.path = settings.path(name)
        account, identity = PUBLISH_ACCOUNT, list[pulumi.Resource]()
        if settings.kind == "s3":
            account, identity = _reader(name, args, child)
        pod = publisher_pod(
            _arguments(name, settings),
            account=account,
            region=args.region,
            node_group=args.node_group,
            claim_name=args.claim_name,
            token_secret=settings.token_secret,
            identity=bool(identity),
        )
        labels = {
            "app.kubernetes.io/name": "publish",
            "app.kubernetes.io/instance": object_name(name, settings.revision),
            "app.kubernetes.io/part-of": "faststart",
            "faststart.dev/model": name,
            "faststart.dev/revision": settings.revision,
        }
        moved: k8s.batch.v1.PodFailurePolicyRuleArgsDict = {
            "action": "Ignore",
            "on_pod_conditions": [{"type": "DisruptionTarget", "status": "True"}],
        }
        patience = f"{sizing.publish_seconds(settings.size_gib)}s"
        self.job = k8s.batch.v1.Job(
            f"{name}-publish",
            metadata={
                "name": object_name(name, settings.revision),
                "namespace": SYSTEM_NAMESPACE,
                "labels": labels,
            },
            # No ttl_seconds_after_finished: a refresh would miss the Job, and the next `up` would make it anew.
            spec={
                "backoff_limit": 0,
                "pod_failure_policy": {"rules": [moved]},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
            opts=child.merge(
                pulumi.ResourceOptions(
                    depends_on=identity,
                    replace_on_changes=["spec"],
                    # An update is what waits on for a Job that an interrupted `up` has made.
                    custom_timeouts=pulumi.CustomTimeouts(create=patience, update=patience),
                )
            ),
        )
        self.register_outputs({"path": self.path})


def object_name(model: str, revision: str, task: str = "publish") -> str:
    """Name of the Job that does something with one revision (contracts.md, "Names")."""
    digest = hashlib.sha256(f"{model}@{revision}".encode()).hexdigest()[:8]
    return f"faststart-{task}-{model[:30].replace('.', '-')}-{digest}"


def _reader(name: str, args: PublishedModelArgs, opts: pulumi.ResourceOptions) -> tuple[str, list[pulumi.Resource]]:
    """A service account of the model's own, which may read its prefix and nothing else."""
    account = object_name(name, "")
    k8s.core.v1.ServiceAccount(
        f"{name}-publish",
        metadata={"name": account, "namespace": SYSTEM_NAMESPACE},
        automount_service_account_token=False,
        opts=opts,
    )
    role, policies = pod_role(f"{name}-publish", opts, statements=bucket_statements(args.settings.source))
    association = aws.eks.PodIdentityAssociation(
        f"{name}-publish",
        cluster_name=args.cluster_name,
        namespace=SYSTEM_NAMESPACE,
        service_account=account,
        role_arn=role.arn,
        opts=opts.merge(pulumi.ResourceOptions(depends_on=policies)),
    )
    return account, [association]


def bucket_statements(source: str) -> list[Mapping[str, Any]]:
    """What reads one prefix of a bucket, also where its objects are encrypted with a key of their own.

    The key is not known; that it is used through S3 alone, and for this bucket alone, is
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html, "Encryption context": the object's
    ARN, with a bucket key the bucket's).
    """
    bucket, _, prefix = source.removeprefix("s3://").partition("/")
    folder = prefix.strip("/") + "/" if prefix.strip("/") else ""
    objects = f"arn:aws:s3:::{bucket}/{folder}*"
    return [
        {
            "Effect": "Allow",
            "Action": "s3:ListBucket",
            "Resource": f"arn:aws:s3:::{bucket}",
            "Condition": {"StringEquals": {"s3:prefix": folder}},
        },
        {"Effect": "Allow", "Action": "s3:GetObject", "Resource": objects},
        {
            "Effect": "Allow",
            "Action": "kms:Decrypt",
            "Resource": "*",
            "Condition": {
                "StringLike": {
                    "kms:ViaService": "s3.*.amazonaws.com",
                    "kms:EncryptionContext:aws:s3:arn": [objects, f"arn:aws:s3:::{bucket}"],
                }
            },
        },
    ]


def publisher_pod(
    arguments: Sequence[str],
    *,
    account: str,
    region: str,
    node_group: str,
    claim_name: pulumi.Input[str],
    token_secret: str | None = None,
    identity: bool = False,
) -> k8s.core.v1.PodSpecArgsDict:
    """A pod on a CPU node that runs publish once, as the owner of what is published.

    Args:
        arguments: Its command line.
        account: Its service account.
        region: The region of the cluster.
        node_group: Label value of the CPU nodes in the data zone.
        claim_name: The read-write claim on the file system.
        token_secret: The Secret that is mounted at `infra.layout.TOKEN_FOLDER`.
        identity: Whether its service account has a role, by EKS pod identity.

    Returns:
        The pod's spec; without outputs where the claim's name is none.
    """
    return {
        # A failed pod stays, with its termination message.
        "restart_policy": "Never",
        "service_account_name": account,
        "automount_service_account_token": False,
        "enable_service_links": False,
        "node_selector": {NODE_GROUP_LABEL: node_group},
        "security_context": {
            "run_as_non_root": True,
            "run_as_user": layout.UID,
            "run_as_group": layout.GID,
            "seccomp_profile": {"type": "RuntimeDefault"},
        },
        "containers": [_publish(arguments, region, token_secret, identity=identity)],
        "volumes": _volumes(claim_name, token_secret, identity=identity),
    }


def _publish(
    arguments: Sequence[str], region: str, token_secret: str | None, *, identity: bool
) -> k8s.core.v1.ContainerArgsDict:
    """Publishes; without a memory limit, which would throw out pages that are hashed a moment later."""
    env = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "AWS_DEFAULT_REGION": region,  # as boto3 reads it; no pod reaches the metadata service past hop limit 1
        "HOME": _TEMPORARY_PATH,
        "HF_HOME": f"{_TEMPORARY_PATH}/huggingface",
        "HF_HUB_DISABLE_TELEMETRY": "1",
        # Over plain HTTP an interrupted file is gone on with, and that way is tested (workloads/publish/hub.py).
        "HF_HUB_DISABLE_XET": "1",
        **(_IDENTITY_ENV if identity else {}),
    }
    mounts: list[k8s.core.v1.VolumeMountArgsDict] = [
        {"name": "models", "mount_path": layout.LUSTRE},
        {"name": "program", "mount_path": layout.PROGRAMS, "read_only": True},
        {"name": "temporary", "mount_path": _TEMPORARY_PATH},
    ]
    if token_secret:
        mounts.append({"name": "token", "mount_path": layout.TOKEN_FOLDER, "read_only": True})
    if identity:
        mounts.append({"name": _IDENTITY, "mount_path": _IDENTITY_PATH, "read_only": True})
    return {
        "name": "publish",
        "image": images.applied(versions.VLLM_IMAGE),
        "command": ["python3", layout.START, "publish"],
        "termination_message_policy": "FallbackToLogsOnError",  # for a crash, which writes none
        "args": list(arguments),
        "env": pods.env(env),
        "resources": {"requests": {"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1Gi"}},
        "security_context": pods.restricted(read_only_root=True),
        "volume_mounts": mounts,
    }


def _arguments(name: str, settings: ModelSettings) -> list[str]:
    path = settings.path(name)
    staging = ["--staging", layout.staging_path(name, settings.revision)]
    where = ["--in-place", path] if settings.in_place else [settings.source, path, *staging]
    return [
        *where,
        "--model",
        name,
        "--revision",
        settings.revision,
        "--max-bytes",
        str(settings.size_gib * GIB),
        "--tries",
        str(_TRIES),
        *(["--allow-pickle"] if settings.allow_pickle else []),
        *(["--tokenizer", settings.tokenizer] if settings.tokenizer != "required" else []),
        *(["--token-file", f"{layout.TOKEN_FOLDER}/{_TOKEN_KEY}"] if settings.token_secret else []),
        "--termination-log",
        layout.TERMINATION_LOG,
        "--files",
        *settings.files,
    ]


def _volumes(
    claim_name: pulumi.Input[str], token_secret: str | None, *, identity: bool
) -> list[k8s.core.v1.VolumeArgsDict]:
    program: list[k8s.core.v1.VolumeProjectionArgsDict] = [
        {"config_map": {"name": name}} for name in programs.mounted("publish")
    ]
    volumes: list[k8s.core.v1.VolumeArgsDict] = [
        {"name": "models", "persistent_volume_claim": {"claim_name": claim_name}},
        {"name": "program", "projected": {"sources": program}},
        {"name": "temporary", "empty_dir": {"size_limit": "1Gi"}},
    ]
    if token_secret:
        wanted: list[k8s.core.v1.KeyToPathArgsDict] = [{"key": _TOKEN_KEY, "path": _TOKEN_KEY}]
        secret: k8s.core.v1.SecretVolumeSourceArgsDict = {"secret_name": token_secret, "items": wanted}
        volumes.append({"name": "token", "secret": secret})
    if identity:
        volumes.append({"name": _IDENTITY, "projected": {"sources": [{"service_account_token": _IDENTITY_TOKEN}]}})
    return volumes
