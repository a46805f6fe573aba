"""What the specs of all pods here share."""

from collections.abc import Mapping

import pulumi_kubernetes as k8s


def restricted(*, read_only_root: bool = False) -> k8s.core.v1.SecurityContextArgsDict:
    """A container's security context as Pod Security `restricted` wants it.

    Args:
        read_only_root: Whether the container can write into its volumes only.
    """
    context: k8s.core.v1.SecurityContextArgsDict = {
        "allow_privilege_escalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    return {**context, "read_only_root_filesystem": True} if read_only_root else context


def env(values: Mapping[str, str]) -> list[k8s.core.v1.EnvVarArgsDict]:
    """Environment variables of a container."""
    return [{"name": name, "value": value} for name, value in values.items()]
