"""One environment: all its sections, and what follows from several of them."""

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from infra import sizing, versions
from infra.settings.sections.aws import AwsSettings
from infra.settings.sections.cluster import ClusterSettings
from infra.settings.sections.models import Models
from infra.settings.sections.network import NetworkSettings
from infra.settings.sections.nodes import NodeGroups, SystemNodesSettings
from infra.settings.sections.plugins import MirrorsSettings, PluginsSettings
from infra.settings.sections.servers import ModelServers, ModelServerSettings, pod_size
from infra.settings.sections.storage import StorageSettings
from infra.settings.values import LabelValue


class Settings(BaseModel):
    """One environment: what its stack file says, checked and frozen."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    stack: str = Field(exclude=True)
    aws: AwsSettings = Field(exclude=True)
    network: NetworkSettings = Field(description="The VPC.")
    cluster: ClusterSettings = Field(description="The EKS control plane.")
    system_nodes: SystemNodesSettings = Field(default=SystemNodesSettings(), description="CPU nodes.")
    node_groups: NodeGroups = Field(default={}, description="GPU nodes, by a name of yours.")
    storage: StorageSettings = Field(description="The file system.")
    models: Models = Field(default={}, description="Models, by name.")
    model_servers: ModelServers = Field(default={}, description="vLLM servers, by name.")
    plugins: PluginsSettings = Field(default=PluginsSettings(), description="Helm releases.")
    mirrors: MirrorsSettings = Field(default=MirrorsSettings(), description="Other sources of charts.")
    team: LabelValue | None = Field(default=None, description="Label `faststart.dev/team` of every pod that serves.")

    def charts(self) -> list[versions.Chart]:
        """The charts that are installed."""
        return self.plugins.charts(self.node_groups)

    def servers_of(self, node_group: str) -> dict[str, ModelServerSettings]:
        """The servers that stand on a node group, by name."""
        return {name: server for name, server in self.model_servers.items() if server.node_group == node_group}

    def nodes_needed(self, node_group: str) -> int:
        """Nodes that the servers of a node group fill. Raises ValueError where a pod fits on no node."""
        pods = [
            pod_size(server, self.models[server.model])
            for server in self.servers_of(node_group).values()
            for _ in range(server.replicas)
        ]
        return sizing.nodes_needed(pods, self.node_groups[node_group].facts)

    def overcommitted(self, node_group: str) -> bool:
        """Whether the group's servers ask for more nodes than run, so that some pods stay Pending."""
        return self.nodes_needed(node_group) > self.node_groups[node_group].size.desired


# The fields that the stack file has keys for, in its order.
SECTIONS = {name: field for name, field in Settings.model_fields.items() if name != "stack"}
