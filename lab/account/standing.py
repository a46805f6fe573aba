"""What stands in an account, by the services' own lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import jmespath

_OVER = "['cancelled', 'expired', 'failed', 'payment-failed']"

# Service, operation of boto3, what it is asked, and where the names are in its answer. What is only the record of
# something that is gone is left out: AWS shows it for a while.
_LISTS: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("ec2", "describe_vpcs", {}, "Vpcs[].VpcId"),
    ("ec2", "describe_subnets", {}, "Subnets[].SubnetId"),
    ("ec2", "describe_route_tables", {}, "RouteTables[].RouteTableId"),
    ("ec2", "describe_internet_gateways", {}, "InternetGateways[].InternetGatewayId"),
    ("ec2", "describe_nat_gateways", {}, "NatGateways[?State!='deleted'].NatGatewayId"),
    ("ec2", "describe_addresses", {}, "Addresses[].AllocationId"),
    ("ec2", "describe_network_acls", {}, "NetworkAcls[].NetworkAclId"),
    ("ec2", "describe_security_groups", {}, "SecurityGroups[].GroupId"),
    ("ec2", "describe_network_interfaces", {}, "NetworkInterfaces[].NetworkInterfaceId"),
    ("ec2", "describe_vpc_endpoints", {}, "VpcEndpoints[?State!='deleted'].VpcEndpointId"),
    ("ec2", "describe_flow_logs", {}, "FlowLogs[].FlowLogId"),
    ("ec2", "describe_dhcp_options", {}, "DhcpOptions[].DhcpOptionsId"),
    ("ec2", "describe_launch_templates", {}, "LaunchTemplates[].LaunchTemplateId"),
    ("ec2", "describe_key_pairs", {}, "KeyPairs[].KeyPairId"),
    ("ec2", "describe_volumes", {}, "Volumes[].VolumeId"),
    ("ec2", "describe_instances", {}, "Reservations[].Instances[?State.Name!='terminated'].InstanceId[]"),
    (
        "ec2",
        "describe_capacity_reservations",
        {},
        f"CapacityReservations[?!contains({_OVER}, State)].CapacityReservationId",
    ),
    ("eks", "list_clusters", {}, "clusters[]"),
    ("fsx", "describe_file_systems", {}, "FileSystems[].FileSystemId"),
    ("iam", "list_roles", {}, "Roles[].Arn"),
    ("iam", "list_policies", {"Scope": "Local"}, "Policies[].Arn"),
    ("iam", "list_users", {}, "Users[].Arn"),
    ("iam", "list_instance_profiles", {}, "InstanceProfiles[].Arn"),
    ("iam", "list_open_id_connect_providers", {}, "OpenIDConnectProviderList[].Arn"),
    ("kms", "list_aliases", {}, "Aliases[].AliasArn"),
    ("logs", "describe_log_groups", {}, "logGroups[].arn"),
    ("s3", "list_buckets", {}, "Buckets[].Name"),
)


def everything(client: Callable[[str], Any]) -> list[str]:
    """The names of all that stands, each with its kind, sorted.

    Args:
        client: makes the boto3 client of a service.
    """
    return sorted({*_listed(client), *_keys(client("kms"))})


def _listed(client: Callable[[str], Any]) -> Iterator[str]:
    clients = {service: client(service) for service in {row[0] for row in _LISTS}}
    for service, operation, asked, names in _LISTS:
        one = clients[service]
        if one.can_paginate(operation):
            pages = list(one.get_paginator(operation).paginate(**asked))
        else:
            pages = [getattr(one, operation)(**asked)]
        kind = operation.partition("_")[2]
        yield from (f"{service} {kind}: {name}" for page in pages for name in jmespath.search(names, page) or [])
    eks = clients["eks"]
    for cluster in eks.list_clusters()["clusters"]:
        for kind, member in (("nodegroups", "nodegroups"), ("addons", "addons")):
            for name in getattr(eks, f"list_{kind}")(clusterName=cluster)[member]:
                yield f"eks {kind}: {cluster}/{name}"


def _keys(kms: Any) -> Iterator[str]:
    """Keys that wait for their deletion are as good as gone: AWS makes everybody wait a week and more."""
    for page in kms.get_paginator("list_keys").paginate():
        for key in page["Keys"]:
            about = kms.describe_key(KeyId=key["KeyId"])["KeyMetadata"]
            if about["KeyState"] != "PendingDeletion" and about["KeyManager"] == "CUSTOMER":
                yield f"kms keys: {key['KeyArn']}"
