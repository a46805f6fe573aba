"""The facts about AWS types that the stand-in needs, one entry a type.

A type without an entry still works, by the generic rule of `kind_of`: a new id, an `arn` and `tagsAll` if the SDK's
class has them, no other outputs, and every change made in place. The stand-in says so in the engine's log.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lab.rehearsal.providers import sdk_types
from lab.rehearsal.providers.protocol import new_hex

ADDON = "aws:eks/addon:Addon"
CLUSTER = "aws:eks/cluster:Cluster"
EGRESS = "aws:vpc/securityGroupEgressRule:SecurityGroupEgressRule"
GATEWAY = "aws:ec2/internetGateway:InternetGateway"
GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
LUSTRE = "aws:fsx/lustreFileSystem:LustreFileSystem"
NAT = "aws:ec2/natGateway:NatGateway"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
ROLE = "aws:iam/role:Role"
ROUTE_TABLE = "aws:ec2/routeTable:RouteTable"
SUBNET = "aws:ec2/subnet:Subnet"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
VPC = "aws:ec2/vpc:Vpc"

Facts = dict[str, Any]
"""What ids, ARNs and outputs are made of: account, region, partition, now, id, and what neighbours give."""


@dataclass(frozen=True)
class Kind:
    """One type of resource, as its service keeps it.

    Attributes:
        id: Template of its id; `{hex17}`, `{hex8}` and `{uuid}` are new each time, the rest are inputs.
        arn: Template of its ARN after `arn:PARTITION:`; none if the SDK's class has no `arn`.
        replaces: Properties that cannot change in place; a test compares with the provider's own plan.
        unique: Properties of which no two resources may have the same.
        taken: The service's error code for that.
    """

    id: str
    arn: str = ""
    replaces: str = ""
    unique: str = ""
    taken: str = "ResourceAlreadyExistsException"


def kind_of(token: str) -> Kind:
    """The facts of a type; for one without an entry the generic rule."""
    if token in KINDS:
        return KINDS[token]
    service, _, short = token.split(":")[1].partition("/")
    has_arn = "arn" in sdk_types.output_names(token)
    return Kind(f"{short}-{{hex17}}", f"{service}:{{region}}:{{account}}:{short}/{{id}}" if has_arn else "")


def _arn(facts: Facts, service: str, rest: str) -> str:
    return f"arn:{facts['partition']}:{service}:{facts['region']}:{facts['account']}:{rest}"


def _vpc(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    table = f"rtb-{new_hex(17)}"
    return {
        "ownerId": facts["account"],
        "defaultSecurityGroupId": f"sg-{new_hex(17)}",
        "defaultNetworkAclId": f"acl-{new_hex(17)}",
        "defaultRouteTableId": table,
        "mainRouteTableId": table,
        "dhcpOptionsId": f"dopt-{new_hex(17)}",
    }


def _eip(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    address = f"203.0.113.{int(new_hex(2), 16)}"  # TEST-NET-3: never anybody's
    name = f"ec2-{address.replace('.', '-')}.compute.amazonaws.com"
    return {"allocationId": facts["id"], "publicIp": address, "publicDns": name, "domain": "vpc"}


def _nat(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    interface = f"eni-{new_hex(17)}"
    return {"networkInterfaceId": interface, "publicIp": facts["publicIp"], "connectivityType": "public"}


def _cluster(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    host = new_hex(32).upper()
    url, authority = f"https://{host}.gr7.{facts['region']}.eks.amazonaws.com", "c3RhbmQtaW4="  # "stand-in"
    if facts["apiServer"].exists():
        url, authority = facts["apiServer"].read_text(encoding="utf-8").split()
    return {
        "endpoint": url,
        "status": "ACTIVE",
        "createdAt": facts["now"],
        "platformVersion": "eks.1",
        "version": "1.34",  # for inputs that name none; which one EKS would give is its own choice
        "certificateAuthority": {"data": authority},
        "identities": [{"oidcs": [{"issuer": f"https://oidc.eks.{facts['region']}.amazonaws.com/id/{host}"}]}],
        "accessConfig": {"authenticationMode": "CONFIG_MAP", "bootstrapClusterCreatorAdminPermissions": True},
        "kubernetesNetworkConfig": {"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16"},
        "upgradePolicy": {"supportType": "EXTENDED"},
        "vpcConfig": {
            "clusterSecurityGroupId": f"sg-{new_hex(17)}",
            "endpointPublicAccess": True,
            "endpointPrivateAccess": False,
            "publicAccessCidrs": ["0.0.0.0/0"],
            "vpcId": facts["vpcId"],
        },
    }


def _node_group(facts: Facts, inputs: dict[str, Any]) -> dict[str, Any]:
    scaling = {"name": f"eks-{inputs.get('nodeGroupName')}-{new_hex(8)}"}
    return {
        "status": "ACTIVE",
        "version": facts["clusterVersion"],
        "resources": [{"autoscalingGroups": [scaling], "remoteAccessSecurityGroupId": ""}],
    }


def _addon(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    version = f"v{facts['clusterVersion']}.0-eksbuild.1"  # looks like one; no statement about real ones
    return {"addonVersion": version, "createdAt": facts["now"], "modifiedAt": facts["now"]}


def _access_entry(facts: Facts, inputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "accessEntryArn": _arn(facts, "eks", f"access-entry/{inputs.get('clusterName')}/{new_hex(32)}"),
        "createdAt": facts["now"],
        "modifiedAt": facts["now"],
        "type": "STANDARD",
        "userName": inputs.get("principalArn"),
    }


def _pod_identity(facts: Facts, inputs: dict[str, Any]) -> dict[str, Any]:
    arn = _arn(facts, "eks", f"podidentityassociation/{inputs.get('clusterName')}/{facts['id']}")
    return {"associationId": facts["id"], "associationArn": arn}


def _lustre(facts: Facts, _: dict[str, Any]) -> dict[str, Any]:
    return {
        "dnsName": f"{facts['id']}.fsx.{facts['region']}.amazonaws.com",
        "mountName": new_hex(8),
        "networkInterfaceIds": [f"eni-{new_hex(17)}" for _ in range(2)],
        "ownerId": facts["account"],
        "vpcId": facts["vpcId"],
    }


_EC2, _EKS, _IAM = "ec2:{region}:{account}:", "eks:{region}:{account}:", "iam::{account}:"
_ROUTE = "routeTableId destinationCidrBlock destinationIpv6CidrBlock destinationPrefixListId"
_RULE_OF_ONE = "securityGroupId ipProtocol fromPort toPort cidrIpv4 cidrIpv6 prefixListId referencedSecurityGroupId"
_ONE_RULE = Kind(
    "sgr-{hex17}", _EC2 + "security-group-rule/{id}", "securityGroupId", _RULE_OF_ONE, "InvalidPermission.Duplicate"
)
_ATTACHED = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
_EIP = "aws:ec2/eip:Eip"
_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
_ENTRY = "aws:eks/accessEntry:AccessEntry"
_ENTRY_POLICY = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
_KEY = "aws:kms/key:Key"
_POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
_ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
_ROUTE_OF_TABLE = "aws:ec2/route:Route"
_TABLE_OF_SUBNET = "aws:ec2/routeTableAssociation:RouteTableAssociation"


def _in_cluster(rid: str, arn: str, names: str, replaces: str = "") -> Kind:
    """What EKS keeps for a cluster under names of its own."""
    names = f"clusterName {names}"
    return Kind(rid, arn, f"{names} {replaces}", names, "ResourceInUseException")


KINDS: dict[str, Kind] = {
    VPC: Kind("vpc-{hex17}", _EC2 + "vpc/{id}", "cidrBlock instanceTenancy ipv4IpamPoolId ipv4NetmaskLength"),
    SUBNET: Kind(
        "subnet-{hex17}",
        _EC2 + "subnet/{id}",
        "vpcId cidrBlock availabilityZone availabilityZoneId outpostArn ipv6Native ipv4IpamPoolId ipv4NetmaskLength "
        "ipv6IpamPoolId ipv6NetmaskLength",
    ),
    GATEWAY: Kind("igw-{hex17}", _EC2 + "internet-gateway/{id}"),
    _EIP: Kind(
        "eipalloc-{hex17}", _EC2 + "elastic-ip/{id}", "domain networkBorderGroup publicIpv4Pool address ipamPoolId"
    ),
    NAT: Kind("nat-{hex17}", "", "allocationId subnetId connectivityType privateIp availabilityMode vpcId"),
    ROUTE_TABLE: Kind("rtb-{hex17}", _EC2 + "route-table/{id}", "vpcId"),
    _ROUTE_OF_TABLE: Kind("r-{routeTableId}{hex8}", "", _ROUTE, _ROUTE, "RouteAlreadyExists"),
    _TABLE_OF_SUBNET: Kind(
        "rtbassoc-{hex17}", "", "subnetId gatewayId", "subnetId gatewayId", "Resource.AlreadyAssociated"
    ),
    _ENDPOINT: Kind(
        "vpce-{hex17}",
        _EC2 + "vpc-endpoint/{id}",
        "vpcId serviceName vpcEndpointType serviceRegion resourceConfigurationArn serviceNetworkArn",
    ),
    GROUP: Kind(
        "sg-{hex17}",
        _EC2 + "security-group/{id}",
        "vpcId description name namePrefix",
        "vpcId name",
        "InvalidGroup.Duplicate",
    ),
    INGRESS: _ONE_RULE,
    EGRESS: _ONE_RULE,
    TEMPLATE: Kind(
        "lt-{hex17}",
        _EC2 + "launch-template/{id}",
        "name namePrefix",
        "name",
        "InvalidLaunchTemplateName.AlreadyExistsException",
    ),
    ROLE: Kind("{name}", _IAM + "role{path}{name}", "name namePrefix path", "name", "EntityAlreadyExists"),
    _ROLE_POLICY: Kind("{role}:{name}", "", "name namePrefix role", "role name", "EntityAlreadyExists"),
    _ATTACHED: Kind("{role}-{hex17}", "", "role policyArn"),
    _KEY: Kind(
        "{uuid}",
        "kms:{region}:{account}:key/{id}",
        "customKeyStoreId customerMasterKeySpec keyUsage multiRegion xksKeyId",
    ),
    LOG_GROUP: Kind("{name}", "logs:{region}:{account}:log-group:{name}", "name namePrefix logGroupClass", "name"),
    CLUSTER: Kind(
        "{name}",
        _EKS + "cluster/{name}",
        "name roleArn bootstrapSelfManagedAddons outpostConfig remoteNetworkConfig "
        "accessConfig.bootstrapClusterCreatorAdminPermissions kubernetesNetworkConfig.serviceIpv4Cidr "
        "kubernetesNetworkConfig.ipFamily",
        "name",
        "ResourceInUseException",
    ),
    NODE_GROUP: _in_cluster(
        "{clusterName}:{nodeGroupName}",
        _EKS + "nodegroup/{clusterName}/{nodeGroupName}/{uuid}",
        "nodeGroupName",
        "nodeGroupNamePrefix nodeRoleArn subnetIds instanceTypes capacityType amiType diskSize remoteAccess "
        "launchTemplate.id launchTemplate.name",
    ),
    ADDON: _in_cluster(
        "{clusterName}:{addonName}", _EKS + "addon/{clusterName}/{addonName}/{uuid}", "addonName", "namespaceConfig"
    ),
    _ENTRY: _in_cluster("{clusterName}:{principalArn}", "", "principalArn", "type"),
    _ENTRY_POLICY: _in_cluster("{clusterName}#{principalArn}#{policyArn}", "", "principalArn policyArn", "accessScope"),
    _POD_IDENTITY: _in_cluster("a-{hex17}", "", "namespace serviceAccount"),
    LUSTRE: Kind(
        "fs-{hex17}",
        "fsx:{region}:{account}:file-system/{id}",
        "backupId copyTagsToBackups deploymentType driveCacheType efaEnabled exportPath "
        "importPath importedFileChunkSize kmsKeyId securityGroupIds storageType subnetIds",
    ),
}

OUTPUTS: dict[str, Callable[[Facts, dict[str, Any]], dict[str, Any]]] = {
    VPC: _vpc,
    SUBNET: lambda facts, _: {"ownerId": facts["account"], "availabilityZone": f"{facts['region']}a"},
    GATEWAY: lambda facts, _: {"ownerId": facts["account"]},
    _EIP: _eip,
    NAT: _nat,
    ROUTE_TABLE: lambda facts, _: {"ownerId": facts["account"]},
    _ROUTE_OF_TABLE: lambda _facts, _inputs: {"origin": "CreateRoute", "state": "active"},
    _ENDPOINT: lambda facts, _: {"ownerId": facts["account"], "state": "available"},
    GROUP: lambda facts, _: {"ownerId": facts["account"], "description": "Managed by Pulumi"},
    **dict.fromkeys((INGRESS, EGRESS), lambda facts, _: {"securityGroupRuleId": facts["id"]}),
    TEMPLATE: lambda _facts, _inputs: {"latestVersion": 1, "defaultVersion": 1},
    ROLE: lambda facts, _: {"uniqueId": f"AROA{new_hex(17).upper()}", "createDate": facts["now"]},
    _KEY: lambda facts, _: {"keyId": facts["id"]},
    CLUSTER: _cluster,
    NODE_GROUP: _node_group,
    ADDON: _addon,
    _ENTRY: _access_entry,
    _ENTRY_POLICY: lambda facts, _: {"associatedAt": facts["now"], "modifiedAt": facts["now"]},
    _POD_IDENTITY: _pod_identity,
    LUSTRE: _lustre,
}
"""What a service adds to the inputs, beside id and ARN."""


@dataclass(frozen=True)
class Reference:
    """A property whose value names another resource.

    Attributes:
        type: The type that is named.
        by: Its properties (or `id`) of which one must have the value.
        missing: What the service says where there is none; `{}` is the value.
    """

    type: str
    by: str
    missing: str


_SUBNET_ID = Reference(SUBNET, "id", "InvalidSubnetID.NotFound: The subnet ID '{}' does not exist")
_GROUP_ID = Reference(GROUP, "id", "InvalidGroup.NotFound: The security group '{}' does not exist")
_TABLE_ID = Reference(ROUTE_TABLE, "id", "InvalidRouteTableID.NotFound: The routeTable ID '{}' does not exist")
_ROLE_ARN = Reference(ROLE, "arn", "InvalidParameterException: Role with arn: {} could not be found")
_KEY_ID = Reference(_KEY, "id arn", "NotFoundException: Key '{}' does not exist")

REFERENCES: dict[str, Reference] = {
    "vpcId": Reference(VPC, "id", "InvalidVpcID.NotFound: The vpc ID '{}' does not exist"),
    **dict.fromkeys(("subnetId", "subnetIds"), _SUBNET_ID),
    **dict.fromkeys(("securityGroupId", "securityGroupIds", "securityGroups", "referencedSecurityGroupId"), _GROUP_ID),
    **dict.fromkeys(("routeTableId", "routeTableIds"), _TABLE_ID),
    "natGatewayId": Reference(NAT, "id", "InvalidNatGatewayID.NotFound: NatGateway '{}' was not found"),
    "gatewayId": Reference(
        GATEWAY, "id", "InvalidInternetGatewayID.NotFound: The internetGateway ID '{}' does not exist"
    ),
    "allocationId": Reference(_EIP, "id", "InvalidAllocationID.NotFound: The allocation ID '{}' does not exist"),
    "launchTemplate.id": Reference(
        TEMPLATE, "id", "InvalidRequestException: The specified launch template, with template ID {}, does not exist"
    ),
    **dict.fromkeys(("roleArn", "nodeRoleArn", "serviceAccountRoleArn"), _ROLE_ARN),
    "role": Reference(ROLE, "name", "NoSuchEntity: The role with name {} cannot be found."),
    **dict.fromkeys(("kmsKeyId", "keyArn", "targetKeyId"), _KEY_ID),
    "clusterName": Reference(CLUSTER, "name", "ResourceNotFoundException: No cluster found for name: {}"),
}
"""By the end of the property's path, wherever it lies in the inputs."""

ALIASES: dict[str, tuple[tuple[str, str], ...]] = {
    GROUP: ((CLUSTER, "vpcConfig.clusterSecurityGroupId"), (VPC, "defaultSecurityGroupId")),
    ROUTE_TABLE: ((VPC, "mainRouteTableId"),),
}
"""Resources that another one brings along: its type, and the output with the id."""

_DEPENDENT = "DependencyViolation: {} has dependencies and cannot be deleted"

BLOCKS: dict[str, tuple[str, set[str] | None]] = {
    VPC: (_DEPENDENT, None),
    SUBNET: (_DEPENDENT, {NAT, _ENDPOINT, CLUSTER, NODE_GROUP, LUSTRE}),
    GROUP: (_DEPENDENT, {GROUP, INGRESS, EGRESS, _ENDPOINT, CLUSTER, LUSTRE}),
    ROUTE_TABLE: (_DEPENDENT, {_TABLE_OF_SUBNET}),
    _EIP: ("InvalidIPAddress.InUse: {} is in use", {NAT}),
    ROLE: (
        "DeleteConflict: Cannot delete entity, must detach all policies first ({})",
        {_ATTACHED, _ROLE_POLICY},
    ),
    CLUSTER: ("ResourceInUseException: Cluster has nodegroups attached ({})", {NODE_GROUP}),
}
"""Which types that name a resource keep it from being deleted, and what the service says then; None: any."""

PARTS: dict[str, tuple[str, set[str]]] = {
    GROUP: ("securityGroupId", {INGRESS, EGRESS}),
    ROUTE_TABLE: ("routeTableId", {_ROUTE_OF_TABLE}),
    CLUSTER: ("clusterName", {ADDON, _ENTRY, _ENTRY_POLICY, _POD_IDENTITY}),
}
"""What goes away with a resource: the property with which it is named, and the types."""
