"""IAM roles in the two shapes that the components need: for a service of AWS's, and for a pod."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_aws as aws


def service_role(
    name: str, service: str, managed_policies: Sequence[str], opts: pulumi.ResourceOptions
) -> tuple[aws.iam.Role, list[aws.iam.RolePolicyAttachment]]:
    """A role that a service of AWS's assumes, with AWS-managed policies.

    Args:
        name: Logical name of the role.
        service: Service principal, such as `ec2.amazonaws.com`.
        managed_policies: Names of AWS-managed policies.
        opts: Options of all resources made.

    Returns:
        The role, and the attachments that its users must wait for.
    """
    return _role(name, service, ["sts:AssumeRole"], managed_policies, opts)


def pod_role(
    name: str,
    opts: pulumi.ResourceOptions,
    *,
    managed_policies: Sequence[str] = (),
    statements: Sequence[Mapping[str, Any]] = (),
) -> tuple[aws.iam.Role, list[pulumi.Resource]]:
    """A role that pods get through EKS Pod Identity (https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html).

    Args:
        name: Logical name of the role.
        opts: Options of all resources made.
        managed_policies: Names of AWS-managed policies.
        statements: Statements of an inline policy.

    Returns:
        The role, and the policies that its users must wait for.
    """
    actions = ["sts:AssumeRole", "sts:TagSession"]
    role, attached = _role(name, "pods.eks.amazonaws.com", actions, managed_policies, opts)
    policies: list[pulumi.Resource] = [*attached]
    if statements:
        policy = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
        policies.append(aws.iam.RolePolicy(name, role=role.name, policy=policy, opts=opts))
    return role, policies


def _role(
    name: str,
    service: str,
    actions: Sequence[str],
    managed_policies: Sequence[str],
    opts: pulumi.ResourceOptions,
) -> tuple[aws.iam.Role, list[aws.iam.RolePolicyAttachment]]:
    trust = {"Effect": "Allow", "Principal": {"Service": service}, "Action": list(actions)}
    role = aws.iam.Role(name, assume_role_policy=json.dumps({"Version": "2012-10-17", "Statement": [trust]}), opts=opts)
    attached = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy}", role=role.name, policy_arn=f"arn:aws:iam::aws:policy/{policy}", opts=opts
        )
        for policy in managed_policies
    ]
    return role, attached
