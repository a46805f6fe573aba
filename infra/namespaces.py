"""The namespaces of faststart, their service accounts, and the programs that pods mount."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

SYSTEM_NAMESPACE = "faststart-system"
MODELS_NAMESPACE = "models"

STORAGE_INIT_ACCOUNT = "faststart-storage-init"
MODEL_SERVER_ACCOUNT = "faststart-model-server"
PRELOAD_PROGRAM = "faststart-preload"


@dataclass(frozen=True, kw_only=True)
class NamespacesArgs:
    """What `Namespaces` is made of.

    Attributes:
        preload_program: The preload program's files by ConfigMap key.
    """

    preload_program: Mapping[str, str]


class Namespaces(pulumi.ComponentResource):
    """Namespace faststart-system for what prepares the storage; models, Pod Security restricted, for the servers."""

    def __init__(self, name: str, args: NamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:Namespaces", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        accounts = {SYSTEM_NAMESPACE: STORAGE_INIT_ACCOUNT, MODELS_NAMESPACE: MODEL_SERVER_ACCOUNT}
        levels = {SYSTEM_NAMESPACE: "privileged", MODELS_NAMESPACE: "restricted"}
        made = {}
        for namespace, level in levels.items():
            made[namespace] = k8s.core.v1.Namespace(
                f"{name}-{namespace}",
                metadata={
                    "name": namespace,
                    "labels": {
                        "app.kubernetes.io/part-of": "faststart",
                        "pod-security.kubernetes.io/enforce": level,
                        "pod-security.kubernetes.io/warn": "restricted",
                        "pod-security.kubernetes.io/audit": "restricted",
                    },
                },
                opts=child,
            )
            k8s.core.v1.ServiceAccount(
                f"{name}-{accounts[namespace]}",
                metadata={"name": accounts[namespace], "namespace": made[namespace].metadata.name},
                automount_service_account_token=False,
                opts=child,
            )
        # A fixed name, updated in place: a changed program takes effect at the next pod start and rolls nothing.
        k8s.core.v1.ConfigMap(
            f"{name}-{PRELOAD_PROGRAM}",
            metadata={"name": PRELOAD_PROGRAM, "namespace": made[MODELS_NAMESPACE].metadata.name},
            data=dict(args.preload_program),
            opts=child,
        )
        self.register_outputs({})
