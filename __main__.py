"""One environment, top to bottom: settings, infrastructure, workloads, outputs."""

import pulumi

from infra import settings as stack_settings
from infra.cluster import Cluster, ClusterArgs
from infra.namespaces import Namespaces, NamespacesArgs
from infra.network import Network, NetworkArgs
from infra.node_groups import (
    SYSTEM_GROUP,
    GpuNodeGroup,
    GpuNodeGroupArgs,
    NodeGroupWires,
    NodeRole,
    SystemNodeGroup,
    SystemNodeGroupArgs,
)
from infra.plugins import ClusterPlugins, ClusterPluginsArgs
from infra.storage import LustreFileSystem, LustreFileSystemArgs, ModelClaims, ModelClaimsArgs
from workloads import programs
from workloads.model_server import ModelServer, ModelServerArgs
from workloads.next_commands import next_commands
from workloads.published_model import PublishedModel, PublishedModelArgs

settings = stack_settings.load()

network = Network("network", NetworkArgs(settings=settings.network, region=settings.aws.region))
file_system = LustreFileSystem(
    "models",
    LustreFileSystemArgs(settings=settings.storage, vpc_id=network.vpc_id, subnet_id=network.data_subnet_id),
)
cluster = Cluster(
    "cluster",
    ClusterArgs(
        settings=settings.cluster,
        vpc_cidr=settings.network.cidr,
        vpc_id=network.vpc_id,
        subnet_ids=network.private_subnet_ids,
    ),
)

wires = NodeGroupWires(
    cluster_name=cluster.name,
    kubernetes_version=settings.cluster.version,
    role=NodeRole("nodes"),
    subnet_id=network.data_subnet_id,
    security_group_ids=[cluster.security_group_id, file_system.security_group_id],
    tags=settings.aws.tags,
)
system_nodes = SystemNodeGroup(
    SYSTEM_GROUP,
    SystemNodeGroupArgs(settings=settings.system_nodes, wires=wires),
    pulumi.ResourceOptions(depends_on=[network, cluster]),
)

plugins = ClusterPlugins(
    "plugins",
    ClusterPluginsArgs(
        charts=settings.charts(),
        mirrors=settings.mirrors,
        region=settings.aws.region,
        cluster_name=cluster.name,
    ),
    pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[system_nodes]),
)
namespaces = Namespaces(
    "namespaces",
    NamespacesArgs(
        preload_program=programs.config_map_data("preload"),
        publish_program=programs.config_map_data("publish"),
    ),
    pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[cluster]),
)
claims = ModelClaims(
    "claims",
    ModelClaimsArgs(
        file_system=file_system,
        data_zone=settings.network.data_zone,
    ),
    # Of the plugins only what mounts: publishing, which waits for the claims, needs no GPU's.
    pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[system_nodes, namespaces, *plugins.csi]),
)
published = {
    name: PublishedModel(
        name,
        PublishedModelArgs(
            settings=model,
            region=settings.aws.region,
            cluster_name=cluster.name,
            node_group=SYSTEM_GROUP,
            claim_name=claims.read_write,
        ),
        pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[claims, namespaces]),
    )
    for name, model in settings.models.items()
}

node_groups = {
    name: GpuNodeGroup(
        name,
        GpuNodeGroupArgs(settings=group, lustre_efa=settings.storage.efa, wires=wires),
        pulumi.ResourceOptions(
            depends_on=[
                plugins,
                claims,
                # A node that waits for a download is paid for.
                *(published[server.model].job for server in settings.servers_of(name).values()),
            ]
        ),
    )
    for name, group in settings.node_groups.items()
}
servers = {
    name: ModelServer(
        name,
        ModelServerArgs(
            settings=server,
            model=settings.models[server.model],
            model_path=published[server.model].path,
            instance_type=settings.node_groups[server.node_group].facts,
            file_system_mib_per_second=settings.storage.least_mib_per_second,
            claim_name=claims.read_only,
            volume=claims.read_only_volume,
            team=settings.team,
            awaited=not settings.overcommitted(server.node_group),
        ),
        pulumi.ResourceOptions(providers=[cluster.provider], depends_on=[node_groups[server.node_group]]),
    )
    for name, server in settings.model_servers.items()
}

pulumi.export("kubeconfig", cluster.kubeconfig)
pulumi.export("clusterName", cluster.name)
pulumi.export("region", settings.aws.region)
pulumi.export("dataZone", settings.network.data_zone)
pulumi.export("vpcId", network.vpc_id)
pulumi.export("dataSubnetId", network.data_subnet_id)
pulumi.export("fileSystemId", file_system.file_system_id)
pulumi.export("fileSystemDnsName", file_system.dns_name)
pulumi.export("mountName", file_system.mount_name)
pulumi.export("nodeGroups", {name: group.node_group_name for name, group in node_groups.items()})
pulumi.export(
    "models",
    {name: {"revision": model.revision, "path": published[name].path} for name, model in settings.models.items()},
)
pulumi.export(
    "servers",
    {name: {"url": servers[name].url, "model": server.model} for name, server in settings.model_servers.items()},
)
pulumi.export("nextCommands", next_commands(settings))
