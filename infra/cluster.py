"""The EKS control plane, who is let in, and the one Kubernetes provider that everything in it uses."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws
import pulumi_eks as eks
import pulumi_kubernetes as k8s

from infra.iam import pod_role
from infra.settings import SERVICE_CIDR, ClusterSettings

# https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html
_ACCESS_POLICIES = {
    "clusterAdmin": "AmazonEKSClusterAdminPolicy",
    "admin": "AmazonEKSAdminPolicy",
    "edit": "AmazonEKSEditPolicy",
    "view": "AmazonEKSViewPolicy",
}


@dataclass(frozen=True, kw_only=True)
class ClusterArgs:
    """What `Cluster` is made of.

    Attributes:
        settings: The stack's `cluster` section.
        vpc_cidr: IPv4 range of the VPC, from where the private endpoint is reached.
        vpc_id: The VPC.
        subnet_ids: Private subnets in at least two zones, for the control plane's interfaces.
    """

    settings: ClusterSettings
    vpc_cidr: str
    vpc_id: pulumi.Input[str]
    subnet_ids: Sequence[pulumi.Input[str]]


class Cluster(pulumi.ComponentResource):
    """An EKS control plane with encrypted secrets and kept logs, its access entries and its first add-ons.

    `name` and `provider` are known only once the control plane answers: what uses them is made after it and deleted
    before it.
    """

    name: pulumi.Output[str]
    security_group_id: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    provider: k8s.Provider

    def __init__(self, name: str, args: ClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:Cluster", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings, role = args.settings, args.settings.access.deploy_role

        # EKS makes this group itself, without retention, where it is missing, and writes to it until the cluster is
        # gone: made before the cluster and deleted after it, it is ours.
        logs = aws.cloudwatch.LogGroup(
            f"{name}-logs",
            name=f"/aws/eks/{settings.name}/cluster",
            retention_in_days=settings.log_retention_days,
            opts=child,
        )
        key = aws.kms.Key(
            f"{name}-secrets",
            description=f"Kubernetes secrets of {settings.name}",
            enable_key_rotation=True,
            opts=child,
        )
        control_plane = eks.Cluster(
            name,
            name=settings.name,
            version=settings.version,
            vpc_id=args.vpc_id,
            private_subnet_ids=args.subnet_ids,
            kubernetes_service_ip_address_range=SERVICE_CIDR,
            authentication_mode=eks.AuthenticationMode.API,
            provider_credential_opts={"role_arn": role} if role else None,
            endpoint_private_access=True,
            endpoint_public_access=settings.endpoint.public,
            public_access_cidrs=settings.endpoint.cidrs or None,
            encryption_config_key_arn=key.arn,
            enabled_cluster_log_types=["api", "audit", "authenticator", "controllerManager", "scheduler"],
            deletion_protection=settings.deletion_protection,
            upgrade_policy={"support_type": "STANDARD"},
            skip_default_node_group=True,
            skip_default_security_groups=True,
            create_oidc_provider=False,
            # All four add-ons are our own resources: their order against the nodes and their roles are ours to set.
            bootstrap_self_managed_addons=False,
            use_default_vpc_cni=True,
            kube_proxy_addon_options={"enabled": False},
            coredns_addon_options={"enabled": False},
            opts=child.merge(
                pulumi.ResourceOptions(
                    depends_on=[logs],
                    # EKS would refuse after half the stack is gone; `protect` refuses before anything is.
                    protect=settings.deletion_protection,
                )
            ),
        )
        # An output of the control plane, not the name itself: a plain name would let what uses it be made before the
        # control plane, and outlive it at destroy (pulumi/pulumi#9009).
        self.name = control_plane.cluster_security_group_id.apply(lambda _: settings.name)
        self.security_group_id = control_plane.cluster_security_group_id
        self.kubeconfig = pulumi.Output.secret(control_plane.kubeconfig_json)
        # EKS lets in only what carries the cluster's own group: not a VPN, a peering or a runner in the VPC.
        aws.vpc.SecurityGroupIngressRule(
            f"{name}-api",
            security_group_id=self.security_group_id,
            cidr_ipv4=args.vpc_cidr,
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            description="Kubernetes API from inside the VPC",
            opts=child,
        )
        self._let_in(name, args, child)
        self._add_ons(name, child)
        self.provider = k8s.Provider(
            f"{name}-kubernetes",
            kubeconfig=self.kubeconfig,
            # The API server's address tells one cluster from the next; a changed text alone replaces nothing.
            cluster_identifier=control_plane.kubeconfig_json.apply(_api_server),
            enable_config_map_mutable=True,
            opts=child.merge(pulumi.ResourceOptions(depends_on=[control_plane])),
        )
        self.register_outputs({"name": self.name, "kubeconfig": self.kubeconfig})

    def _let_in(self, name: str, args: ClusterArgs, child: pulumi.ResourceOptions) -> None:
        """Entries for roles other than the creator, which EKS makes an admin itself."""
        for entry_name, entry in args.settings.access.entries.items():
            access = aws.eks.AccessEntry(
                f"{name}-access-{entry_name}", cluster_name=self.name, principal_arn=entry.role_arn, opts=child
            )
            scope: aws.eks.AccessPolicyAssociationAccessScopeArgsDict = (
                {"type": "namespace", "namespaces": entry.namespaces} if entry.namespaces else {"type": "cluster"}
            )
            policy = f"arn:aws:eks::aws:cluster-access-policy/{_ACCESS_POLICIES[entry.policy]}"
            aws.eks.AccessPolicyAssociation(
                f"{name}-access-{entry_name}",
                cluster_name=self.name,
                principal_arn=access.principal_arn,
                policy_arn=policy,
                access_scope=scope,
                opts=child,
            )

    def _add_ons(self, name: str, child: pulumi.ResourceOptions) -> None:
        """What a node needs to become Ready, installed before there is one; CoreDNS needs a node and comes with it."""
        agent = add_on(f"{name}-pod-identity-agent", "eks-pod-identity-agent", self.name, child)
        add_on(f"{name}-kube-proxy", "kube-proxy", self.name, child)
        role, policies = pod_role(f"{name}-cni", child, managed_policies=["AmazonEKS_CNI_Policy"])
        add_on(
            f"{name}-vpc-cni",
            "vpc-cni",
            self.name,
            child.merge(pulumi.ResourceOptions(depends_on=[agent, *policies])),
            pod_identity={"service_account": "aws-node", "role_arn": role.arn},
        )


def add_on(
    name: str,
    add_on_name: str,
    cluster_name: pulumi.Input[str],
    opts: pulumi.ResourceOptions,
    pod_identity: aws.eks.AddonPodIdentityAssociationArgsDict | None = None,
) -> aws.eks.Addon:
    """An EKS add-on in the version that AWS recommends for the cluster's when it is made.

    README, "A roll of the nodes", says how it gets another.
    """
    return aws.eks.Addon(
        name,
        addon_name=add_on_name,
        cluster_name=cluster_name,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        pod_identity_associations=[pod_identity] if pod_identity else None,
        # A cluster has an add-on once: a new one cannot stand beside the old one.
        opts=opts.merge(pulumi.ResourceOptions(delete_before_replace=True)),
    )


def _api_server(kubeconfig: str) -> str:
    return json.loads(kubeconfig)["clusters"][0]["cluster"]["server"]
