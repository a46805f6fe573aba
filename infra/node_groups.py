"""Managed node groups with our own launch templates: CPU nodes for the system, GPU nodes for the servers."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import sizing
from infra.bootstrap import Bootstrap, user_data
from infra.cluster import add_on
from infra.iam import service_role
from infra.settings import NodeGroupSettings, SizeSettings, SystemNodesSettings

GPU_TAINT = "nvidia.com/gpu"
SYSTEM_GROUP = "system"
NODE_GROUP_LABEL = "faststart.dev/node-group"

# AL2023's root device (https://docs.aws.amazon.com/eks/latest/userguide/launch-templates.html).
_ROOT_DEVICE = "/dev/xvda"
_GPU_ROOT_GIB = 50


class NodeRole(pulumi.ComponentResource):
    """The IAM role of every node: join the cluster, pull images, and nothing that pods could borrow."""

    arn: pulumi.Output[str]

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:NodeRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        policies = ["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"]
        role, _ = service_role(f"{name}-role", "ec2.amazonaws.com", policies, child)
        self.arn = role.arn
        self.register_outputs({"arn": self.arn})


@dataclass(frozen=True, kw_only=True)
class NodeGroupWires:
    """What both kinds of node groups get from other components.

    Attributes:
        cluster_name: The EKS cluster, known once it answers.
        kubernetes_version: Version of control plane and nodes.
        role: The nodes' IAM role.
        subnet_id: The data subnet.
        security_group_ids: Groups of every network interface: the cluster's own and Lustre's.
        tags: Tags of instances, volumes and interfaces, which the provider's default tags do not reach.
    """

    cluster_name: pulumi.Input[str]
    kubernetes_version: str
    role: NodeRole
    subnet_id: pulumi.Input[str]
    security_group_ids: Sequence[pulumi.Input[str]]
    tags: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class SystemNodeGroupArgs:
    """What `SystemNodeGroup` is made of: the stack's `systemNodes` section and the wires."""

    settings: SystemNodesSettings
    wires: NodeGroupWires


class SystemNodeGroup(pulumi.ComponentResource):
    """CPU nodes in the data zone, and CoreDNS on them: publishing and the CSI controller run there too."""

    def __init__(self, name: str, args: SystemNodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:SystemNodeGroup", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings, wires = args.settings, args.wires
        template = _launch_template(
            name,
            wires,
            child,
            instance_type=settings.instance_type,
            root_gib=settings.root_gib,
            interfaces=_interfaces(1, 0, wires.security_group_ids),
        )
        nodes = _node_group(
            name,
            wires,
            template,
            settings.size,
            child,
            ami_type="AL2023_x86_64_STANDARD",
            update_config={"max_unavailable": 1},
            labels={NODE_GROUP_LABEL: name},
        )
        add_on(
            f"{name}-coredns",
            "coredns",
            wires.cluster_name,
            child.merge(pulumi.ResourceOptions(depends_on=[nodes])),
        )
        self.register_outputs({})


@dataclass(frozen=True, kw_only=True)
class GpuNodeGroupArgs:
    """What `GpuNodeGroup` is made of.

    Attributes:
        settings: One entry of the stack's `nodeGroups` section.
        lustre_efa: Whether the file system is EFA-enabled.
        wires: What comes from other components.
    """

    settings: NodeGroupSettings
    lustre_efa: bool
    wires: NodeGroupWires


class GpuNodeGroup(pulumi.ComponentResource):
    """GPU nodes in the data zone, with their NVMe under the kubelet and EFA on every network card that has it.

    Node repair acts on what the kubelet reports. GPU faults it sees only with EKS's node monitoring agent, which is not
    installed yet.
    """

    node_group_name: pulumi.Output[str]

    def __init__(self, name: str, args: GpuNodeGroupArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:GpuNodeGroup", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings, wires, facts = args.settings, args.wires, args.settings.facts
        over_efa = args.lustre_efa and settings.efa_interfaces > 0 and facts.lnet > 0
        bootstrap = Bootstrap(instance_type=facts, lustre_net="efa" if over_efa else "tcp")
        template = _launch_template(
            name,
            wires,
            child,
            instance_type=settings.instance_type,
            root_gib=_GPU_ROOT_GIB,
            interfaces=_interfaces(facts.network_cards, settings.efa_interfaces, wires.security_group_ids),
            user_data=user_data(bootstrap),
        )
        nodes = _node_group(
            name,
            wires,
            template,
            settings.size,
            # A replacement beside the old group would wait for capacity that the old one holds.
            child.merge(pulumi.ResourceOptions(delete_before_replace=True)),
            ami_type="AL2023_x86_64_NVIDIA",
            capacity_type={"onDemand": "ON_DEMAND", "spot": "SPOT"}[settings.capacity],
            # The default starts new nodes before it ends old ones: on full reserved capacity that never finishes.
            update_config={"max_unavailable": 1, "update_strategy": "MINIMAL"},
            labels={
                NODE_GROUP_LABEL: name,
                "faststart.dev/lustre-expected": bootstrap.lustre_net,
                "nvidia.com/gpu.present": "true",
            },
            taints=[{"key": GPU_TAINT, "value": "true", "effect": "NO_SCHEDULE"}],
        )
        self.node_group_name = nodes.node_group_name
        self.register_outputs({"node_group_name": self.node_group_name})


def _interfaces(
    cards: int, efa: int, security_group_ids: Sequence[pulumi.Input[str]]
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgsDict]:
    """The network interfaces of a node.

    Card 0 carries the node's address; every card that has EFA carries one `efa-only` interface, which takes none. Where
    one card fewer has EFA than there are cards, card 0 is the one without
    (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/efa-acc-inst-types.html).
    """

    def interface(card: int, device: int, kind: str) -> aws.ec2.LaunchTemplateNetworkInterfaceArgsDict:
        return {
            "network_card_index": card,
            "device_index": device,
            "interface_type": kind,
            # A managed node group takes security groups inside the interfaces only, and no subnet.
            "security_groups": list(security_group_ids),
            "delete_on_termination": "true",
        }

    with_efa = range(cards - efa, cards) if efa else ()
    return [
        interface(0, 0, "interface"),
        *(interface(card, 1 if card == 0 else 0, "efa-only") for card in with_efa),
    ]


def _launch_template(
    name: str,
    wires: NodeGroupWires,
    opts: pulumi.ResourceOptions,
    *,
    instance_type: str,
    root_gib: int,
    interfaces: list[aws.ec2.LaunchTemplateNetworkInterfaceArgsDict],
    user_data: str | None = None,
) -> aws.ec2.LaunchTemplate:
    """A template without an image id: EKS keeps choosing the AMI and merges its own part into the user data."""
    tags = {"Name": f"{pulumi.get_stack()}-{name}", **wires.tags}
    return aws.ec2.LaunchTemplate(
        name,
        instance_type=instance_type,
        user_data=base64.b64encode(user_data.encode()).decode() if user_data else None,
        network_interfaces=interfaces,
        block_device_mappings=[
            {
                "device_name": _ROOT_DEVICE,
                "ebs": {
                    "volume_size": root_gib,
                    "volume_type": "gp3",
                    "encrypted": "true",
                    "delete_on_termination": "true",
                },
            }
        ],
        # One hop keeps the node's role from every pod that is not on the host's network.
        metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1, "http_endpoint": "enabled"},
        tag_specifications=[
            {"resource_type": kind, "tags": tags} for kind in ("instance", "volume", "network-interface")
        ],
        opts=opts,
    )


def _node_group(
    name: str,
    wires: NodeGroupWires,
    template: aws.ec2.LaunchTemplate,
    size: SizeSettings,
    opts: pulumi.ResourceOptions,
    *,
    ami_type: str,
    update_config: aws.eks.NodeGroupUpdateConfigArgsDict,
    labels: Mapping[str, str],
    capacity_type: str | None = None,
    taints: Sequence[aws.eks.NodeGroupTaintArgsDict] | None = None,
) -> aws.eks.NodeGroup:
    """A managed node group in the data subnet. What its launch template says, EKS takes from nowhere else."""
    return aws.eks.NodeGroup(
        name,
        cluster_name=wires.cluster_name,
        version=wires.kubernetes_version,
        node_role_arn=wires.role.arn,
        subnet_ids=[wires.subnet_id],
        ami_type=ami_type,
        capacity_type=capacity_type,
        launch_template={
            "id": template.id,
            "version": template.latest_version.apply(lambda version: str(int(version))),
        },
        scaling_config={"min_size": size.min, "desired_size": size.desired, "max_size": size.max},
        update_config=update_config,
        node_repair_config={"enabled": True},
        labels=labels,
        taints=taints,
        opts=opts.merge(
            pulumi.ResourceOptions(
                depends_on=[wires.role],
                custom_timeouts=pulumi.CustomTimeouts(
                    create="60m", update=f"{sizing.node_roll_minutes(size.max)}m", delete="60m"
                ),
            )
        ),
    )
