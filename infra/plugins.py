"""Other people's Helm charts: the FSx CSI driver and the device plugins of EFA and NVIDIA.

A chart's version is a row in `infra/versions.py`; Helm ignores values that a chart does not know, so every value set
here is held against the chart's own list (`tests/infra/chart_values/`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_aws as aws
import pulumi_kubernetes as k8s

from infra import versions
from infra.iam import pod_role
from infra.node_groups import GPU_TAINT
from infra.settings import MirrorsSettings

_NAMESPACE = "kube-system"
_CSI_CONTROLLER_ACCOUNT = "fsx-csi-controller-sa"
_GPU_TOLERATION = {"key": GPU_TAINT, "operator": "Exists", "effect": "NoSchedule"}


@dataclass(frozen=True, kw_only=True)
class ClusterPluginsArgs:
    """What `ClusterPlugins` is made of.

    Attributes:
        charts: The charts to install.
        mirrors: The stack's `mirrors` section.
        region: The region, so that no plugin asks the metadata service for it.
        cluster_name: The EKS cluster, known once it answers.
    """

    charts: list[versions.Chart]
    mirrors: MirrorsSettings
    region: str
    cluster_name: pulumi.Input[str]


class ClusterPlugins(pulumi.ComponentResource):
    """The Helm releases that the stack asks for, each with the permissions it needs and no more.

    Attributes:
        csi: The release that mounts Lustre; empty where something else brings it.
    """

    csi: list[pulumi.Resource]

    def __init__(self, name: str, args: ClusterPluginsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:ClusterPlugins", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        self.csi = []
        for chart in args.charts:
            depends_on: list[pulumi.Resource] = []
            if chart == versions.FSX_CSI_CHART:
                depends_on = [_csi_identity(f"{name}-fsx-csi", args, child)]
            release = _release(
                f"{name}-{chart.name}",
                chart,
                chart_values(chart, args.region),
                args.mirrors,
                child.merge(pulumi.ResourceOptions(depends_on=depends_on)),
            )
            if chart == versions.FSX_CSI_CHART:
                self.csi.append(release)
        self.register_outputs({})


def _csi_identity(name: str, args: ClusterPluginsArgs, opts: pulumi.ResourceOptions) -> pulumi.Resource:
    """What the CSI controller may do: look. Volumes are static, so it makes and deletes none."""
    look = {"Effect": "Allow", "Action": "fsx:DescribeFileSystems", "Resource": "*"}
    role, policies = pod_role(name, opts, statements=[look])
    return aws.eks.PodIdentityAssociation(
        name,
        cluster_name=args.cluster_name,
        namespace=_NAMESPACE,
        service_account=_CSI_CONTROLLER_ACCOUNT,
        role_arn=role.arn,
        opts=opts.merge(pulumi.ResourceOptions(depends_on=policies)),
    )


def _resources(cpu: str, memory: str) -> dict[str, Any]:
    return {"requests": {"cpu": cpu, "memory": memory}, "limits": {"memory": memory}}


def chart_values(chart: versions.Chart, region: str) -> dict[str, Any]:
    """The values that a chart is installed with.

    The CSI driver is told the region: none of its pods reaches the metadata service past hop limit 1.
    """
    if chart == versions.FSX_CSI_CHART:
        return {
            "controller": {
                "region": region,
                "serviceAccount": {"create": True, "name": _CSI_CONTROLLER_ACCOUNT},
                "resources": _resources("50m", "256Mi"),
            },
            "node": {"region": region, "tolerateAllTaints": True, "resources": _resources("50m", "256Mi")},
        }
    if chart == versions.EFA_CHART:
        return {
            "image": {"repository": versions.efa_image_repository(region)},
            "tolerations": [_GPU_TOLERATION],
            "resources": _resources("10m", "64Mi"),
        }
    return {"tolerations": [_GPU_TOLERATION], "resources": _resources("50m", "128Mi")}


def _release(
    name: str, chart: versions.Chart, values: Mapping[str, Any], mirrors: MirrorsSettings, opts: pulumi.ResourceOptions
) -> k8s.helm.v3.Release:
    source: dict[str, Any] = {"chart": chart.name, "repository_opts": {"repo": chart.repository}}
    if mirrors.charts_folder:
        source = {"chart": f"{mirrors.charts_folder}/{chart.name}"}
    elif mirrors.charts and mirrors.charts.startswith("oci://"):
        source = {"chart": f"{mirrors.charts}/{chart.name}"}
    elif mirrors.charts:
        source["repository_opts"] = {"repo": mirrors.charts}
    return k8s.helm.v3.Release(
        name,
        name=chart.name,
        namespace=_NAMESPACE,
        version=chart.version,
        values=values,
        atomic=True,
        cleanup_on_fail=True,
        timeout=600,
        opts=opts,
        **source,
    )
