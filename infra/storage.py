"""Shared model storage: FSx for Lustre, and the claims through which pods see it.

A second kind of storage is a second class beside `LustreFileSystem` with the same outputs.
"""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra import images, layout, versions
from infra.layout import MODELS_NAMESPACE, SYSTEM_NAMESPACE
from infra.namespaces import STORAGE_INIT_ACCOUNT
from infra.settings import StorageSettings

# What a claim and its volume agree on to be bound; nothing measures it. It is no fact of the file system, which can
# grow: a claim without a storage class cannot.
_CLAIM_SIZE = "1200Gi"


@dataclass(frozen=True, kw_only=True)
class LustreFileSystemArgs:
    """What `LustreFileSystem` is made of.

    Attributes:
        settings: The stack's `storage` section.
        vpc_id: The VPC.
        subnet_id: The data subnet; Lustre takes exactly one.
    """

    settings: StorageSettings
    vpc_id: pulumi.Input[str]
    subnet_id: pulumi.Input[str]


class LustreFileSystem(pulumi.ComponentResource):
    """A PERSISTENT_2 file system, and the security group that it shares with every node that mounts it."""

    file_system_id: pulumi.Output[str]
    dns_name: pulumi.Output[str]
    mount_name: pulumi.Output[str]
    security_group_id: pulumi.Output[str]

    def __init__(self, name: str, args: LustreFileSystemArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:LustreFileSystem", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings = args.settings

        group = aws.ec2.SecurityGroup(
            f"{name}-lustre",
            vpc_id=args.vpc_id,
            description="Lustre servers and the nodes that mount them",
            tags={"Name": f"{pulumi.get_stack()}-lustre"},
            opts=child,
        )
        # EFA's traffic is let through by a rule that names the group, not by 0.0.0.0/0; the file system is refused, or
        # silently slow, where the rules come after it (FSx guide, "EFA-enabled file systems").
        rules = [
            aws.vpc.SecurityGroupIngressRule(
                f"{name}-lustre-in",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol="-1",
                description="Lustre and EFA inside the group",
                opts=child,
            ),
            aws.vpc.SecurityGroupEgressRule(
                f"{name}-lustre-out",
                security_group_id=group.id,
                referenced_security_group_id=group.id,
                ip_protocol="-1",
                description="Lustre and EFA inside the group",
                opts=child,
            ),
        ]
        file_system = aws.fsx.LustreFileSystem(
            f"{name}-fsx",
            subnet_ids=args.subnet_id,
            security_group_ids=[group.id],
            deployment_type="PERSISTENT_2",
            storage_type="SSD",
            storage_capacity=settings.capacity_gib,
            per_unit_storage_throughput=settings.throughput,
            file_system_type_version="2.15",  # what a metadata configuration needs
            metadata_configuration={"mode": "AUTOMATIC"},  # cannot be added later, and EFA needs it
            efa_enabled=settings.efa,  # fixed at creation
            data_compression_type="NONE",  # weights hardly compress
            automatic_backup_retention_days=0,  # models are published again, not restored
            tags={"Name": f"{pulumi.get_stack()}-{name}"},
            opts=child.merge(
                pulumi.ResourceOptions(
                    protect=settings.protect,
                    depends_on=rules,
                    # An EFA-enabled file system takes 10 to 30 minutes.
                    custom_timeouts=pulumi.CustomTimeouts(create="60m", update="60m", delete="30m"),
                )
            ),
        )

        self.file_system_id = file_system.id
        self.dns_name = file_system.dns_name
        self.mount_name = file_system.mount_name
        self.security_group_id = group.id
        self.register_outputs({"file_system_id": self.file_system_id, "mount_name": self.mount_name})


@dataclass(frozen=True, kw_only=True)
class ModelClaimsArgs:
    """What `ModelClaims` is made of.

    Attributes:
        file_system: The file system.
        data_zone: The zone outside of which a mount would cross zones.
    """

    file_system: LustreFileSystem
    data_zone: str


class ModelClaims(pulumi.ComponentResource):
    """The claims on the file system: read-write in faststart-system, read-only where servers run, and its folders.

    Another file system goes through in one `up`: it is made first and the old one deleted last. In between, each
    volume takes all that hangs on it along, from the pods down, and they are made anew from the volume up: a claim in
    use and a bound volume would not go before (pvc-protection, pv-protection). The engine deletes, before a volume,
    what it finds by two options:

    - `replace_with` the volume: what is changed in place otherwise and has pods, such as a server. It goes first.
    - `replace_on_changes` of `spec`: what names the volume or its claim there and must go between the two.

    The new one is empty: servers wait for their models. A pod that a person left on a claim holds the `up` up; with the
    pod gone the next one goes on.

    Attributes:
        read_only: Name of the read-only claim in the models namespace.
        read_only_volume: Its volume: what runs pods on the claim has it in `replace_with`.
        read_write: Name of the read-write claim in faststart-system.
    """

    read_only: pulumi.Output[str]
    read_only_volume: pulumi.Resource
    read_write: pulumi.Output[str]

    def __init__(self, name: str, args: ModelClaimsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:ModelClaims", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        _, read_write = _claim(f"{name}-rw", args, layout.READ_WRITE_CLAIM, SYSTEM_NAMESPACE, child)
        self.read_only_volume, read_only = _claim(f"{name}-ro", args, layout.READ_ONLY_CLAIM, MODELS_NAMESPACE, child)
        _storage_init(f"{name}-init", read_write.metadata.name, child)
        self.read_write = read_write.metadata.name
        self.read_only = read_only.metadata.name
        self.register_outputs({"read_only": self.read_only, "read_write": self.read_write})


def _claim(
    name: str, args: ModelClaimsArgs, claim_name: str, namespace: str, opts: pulumi.ResourceOptions
) -> tuple[k8s.core.v1.PersistentVolume, k8s.core.v1.PersistentVolumeClaim]:
    """A volume and its claim. `ro` is an option of the mount, so that no pod can ask for more."""
    read_only = claim_name == layout.READ_ONLY_CLAIM
    size = {"storage": _CLAIM_SIZE}
    zone: k8s.core.v1.NodeSelectorRequirementArgsDict = {
        "key": "topology.kubernetes.io/zone",
        "operator": "In",
        "values": [args.data_zone],
    }
    # Two volumes with one handle leave a pod in ContainerCreating (kubernetes/kubernetes#132921); the driver's node
    # part mounts by dnsname and mountname alone.
    handle = args.file_system.file_system_id
    if read_only:
        handle = pulumi.Output.concat(handle, ".", namespace)
    volume = k8s.core.v1.PersistentVolume(
        f"{name}-volume",
        metadata={"name": layout.volume_name(claim_name, namespace)},
        spec={
            "capacity": size,
            "access_modes": ["ReadWriteMany"],
            "persistent_volume_reclaim_policy": "Retain",
            "storage_class_name": "",
            "mount_options": ["flock", "ro"] if read_only else ["flock"],
            "claim_ref": {"namespace": namespace, "name": claim_name},
            "csi": {
                "driver": "fsx.csi.aws.com",
                "volume_handle": handle,
                "volume_attributes": {
                    "dnsname": args.file_system.dns_name,
                    "mountname": args.file_system.mount_name,
                },
            },
            "node_affinity": {"required": {"node_selector_terms": [{"match_expressions": [zone]}]}},
        },
        opts=opts,
    )
    claim = k8s.core.v1.PersistentVolumeClaim(
        f"{name}-claim",
        metadata={"name": claim_name, "namespace": namespace},
        spec={
            "access_modes": ["ReadWriteMany"],
            "storage_class_name": "",  # bind to the volume above, never provision another
            "volume_name": volume.metadata.name,
            "resources": {"requests": size},
        },
        opts=opts.merge(pulumi.ResourceOptions(replace_on_changes=["spec"])),
    )
    return volume, claim


def _storage_init(name: str, claim_name: pulumi.Input[str], opts: pulumi.ResourceOptions) -> k8s.batch.v1.Job:
    """Makes the folders that publishing writes to, once.

    A new file system's root belongs to root: the Job is uid 0 with two capabilities, and nothing else is.
    """
    return k8s.batch.v1.Job(
        name,
        metadata={"name": "faststart-storage-init", "namespace": SYSTEM_NAMESPACE},
        spec={
            "backoff_limit": 3,
            "template": {
                "metadata": {
                    "labels": {"app.kubernetes.io/name": "storage-init", "app.kubernetes.io/part-of": "faststart"}
                },
                "spec": {
                    "restart_policy": "Never",
                    "service_account_name": STORAGE_INIT_ACCOUNT,
                    "automount_service_account_token": False,
                    "security_context": {"seccomp_profile": {"type": "RuntimeDefault"}},
                    "containers": [
                        {
                            "name": "storage-init",
                            "image": images.applied(versions.TOOLS_IMAGE),
                            "command": [
                                "sh",
                                "-euc",
                                'owner=$1; shift; umask 022; mkdir -p -- "$@"; chown -- "$owner" "$@"',
                                "storage-init",
                                f"{layout.UID}:{layout.GID}",
                                *layout.FOLDERS,
                            ],
                            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "64Mi"}},
                            "security_context": {
                                "run_as_user": 0,
                                "run_as_group": 0,
                                "allow_privilege_escalation": False,
                                "read_only_root_filesystem": True,
                                "capabilities": {"drop": ["ALL"], "add": ["CHOWN", "DAC_OVERRIDE"]},
                            },
                            "volume_mounts": [{"name": "models", "mount_path": layout.LUSTRE}],
                        }
                    ],
                    "volumes": [{"name": "models", "persistent_volume_claim": {"claim_name": claim_name}}],
                },
            },
        },
        opts=opts.merge(
            pulumi.ResourceOptions(
                replace_on_changes=["spec"], custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m")
            )
        ),
    )
