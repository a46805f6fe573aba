"""Rules about the EKS control plane: who reaches it, who is let in, and its version."""

import ipaddress
from collections.abc import Iterator

from infra import versions
from infra.settings.findings import Finding, one_of, stack_key
from infra.settings.rules.rule import rule
from infra.settings.sections.aws import AwsSettings
from infra.settings.sections.cluster import ClusterSettings
from infra.settings.sections.network import is_private


@rule
def the_deploy_role_runs_the_stack(aws: AwsSettings, cluster: ClusterSettings) -> Iterator[Finding]:
    """Refuses a deploy role that the provider does not assume, or that is of another account or named a second time."""
    key, role = stack_key("cluster", "access", "deployRole"), cluster.access.deploy_role
    assumed = [entry.get("roleArn") for entry in aws.assume_roles]
    if role is None:
        if assumed:
            yield Finding(key, f"aws:assumeRoles names {assumed[-1]}; set it here too, so that the kubeconfig does")
        else:
            text = "not set: whoever runs the first `up` is the cluster's only admin, and nobody else can run the next"
            yield Finding(key, text, refuses=False)
        return
    if assumed[-1:] != [role]:
        yield Finding(key, f"aws:assumeRoles must end in the same role; use [{{roleArn: {role}}}] there")
    if (account := role.split(":")[4]) not in aws.allowed_account_ids:
        text = f"its account {account} is none of aws:allowedAccountIds; use {one_of(aws.allowed_account_ids)}"
        yield Finding(key, text)
    for name, entry in cluster.access.entries.items():
        if entry.role_arn == role:
            text = "the deploy role, which EKS makes an admin itself; leave this entry out"
            yield Finding(stack_key("cluster", "access", "entries", name, "roleArn"), text)


@rule
def two_entries_name_two_roles(cluster: ClusterSettings) -> Iterator[Finding]:
    """Refuses two access entries for one role."""
    owners: dict[str, str] = {}
    for name, entry in cluster.access.entries.items():
        if (other := owners.setdefault(entry.role_arn, name)) != name:
            text = f"{entry.role_arn} is the role of {other} already; EKS takes one entry a role"
            yield Finding(stack_key("cluster", "access", "entries", name, "roleArn"), text)


@rule
def warn_about_the_reach_of_the_api_server(cluster: ClusterSettings) -> Iterator[Finding]:
    """Warns where `up` must run inside the VPC, and of ranges that are very wide or private."""
    endpoint = cluster.endpoint
    if not endpoint.public:
        text = "only what is inside the VPC, or joined to it, reaches the API server: `up` must run there"
        yield Finding(stack_key("cluster", "endpoint", "public"), text, refuses=False)
    for cidr in map(ipaddress.IPv4Network, endpoint.cidrs):
        key = stack_key("cluster", "endpoint", "cidrs")
        if cidr.prefixlen < 8:
            text = f"{cidr} is a large part of the internet; who is let in is then IAM's word alone"
            yield Finding(key, text, refuses=False)
        elif is_private(cidr):
            yield Finding(
                key, f"{cidr} is a private range: nobody comes from there to a public endpoint", refuses=False
            )


@rule
def warn_about_versions(cluster: ClusterSettings) -> Iterator[Finding]:
    """Warns that AWS chooses node and add-on releases, and of a Kubernetes version that is not the default."""
    key = stack_key("cluster", "version")
    text = "AWS chooses the releases of node images and add-ons; this version cannot name them"
    yield Finding(key, text, refuses=False)
    if cluster.version != versions.KUBERNETES:
        text = f"{cluster.version} is not what this version is tried with ({versions.KUBERNETES})"
        yield Finding(key, text, refuses=False)
