"""The namespaces of faststart, their service accounts, and the programs that pods mount."""

from collections.abc import Mapping
from dataclasses import dataclass

import pulumi
import pulumi_kubernetes as k8s

from infra.layout import MODELS_NAMESPACE, SYSTEM_NAMESPACE, program_config_map

STORAGE_INIT_ACCOUNT = "faststart-storage-init"
PUBLISH_ACCOUNT = "faststart-publish"
MODEL_SERVER_ACCOUNT = "faststart-model-server"


@dataclass(frozen=True, kw_only=True)
class NamespacesArgs:
    """What `Namespaces` is made of.

    Attributes:
        preload_program: The preload program's files by ConfigMap key.
        publish_program: Those of the publish program.
    """

    preload_program: Mapping[str, str]
    publish_program: Mapping[str, str]


class Namespaces(pulumi.ComponentResource):
    """Namespace faststart-system for what prepares the storage; models, Pod Security restricted, for the servers."""

    def __init__(self, name: str, args: NamespacesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:Namespaces", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        accounts = {
            SYSTEM_NAMESPACE: (STORAGE_INIT_ACCOUNT, PUBLISH_ACCOUNT),
            MODELS_NAMESPACE: (MODEL_SERVER_ACCOUNT,),
        }
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
            for account in accounts[namespace]:
                k8s.core.v1.ServiceAccount(
                    f"{name}-{account}",
                    metadata={"name": account, "namespace": made[namespace].metadata.name},
                    automount_service_account_token=False,
                    opts=child,
                )
        # A fixed name, updated in place: a changed program takes effect at the next pod start and rolls nothing.
        for logical_name, program, namespace, files in (
            (f"{name}-faststart-preload", "preload", MODELS_NAMESPACE, args.preload_program),
            (f"{name}-system-preload", "preload", SYSTEM_NAMESPACE, args.preload_program),
            (f"{name}-system-publish", "publish", SYSTEM_NAMESPACE, args.publish_program),
        ):
            k8s.core.v1.ConfigMap(
                logical_name,
                metadata={"name": program_config_map(program), "namespace": made[namespace].metadata.name},
                data=dict(files),
                opts=child,
            )
        self.register_outputs({})
