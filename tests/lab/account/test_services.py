"""The life of each kind of resource that is ours, through boto3, which holds each answer against its own model."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

from lab.account.faults import Fault
from lab.account.process import Account
from tests.lab.account.support import REGION, Cloud, new, refused

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cloud]:
    with Account(tmp_path_factory.mktemp("account"), REGION) as account:
        yield Cloud(account)


@pytest.fixture
def cloud(shared: Cloud) -> Cloud:
    shared.account.set()
    return shared


# Clusters.


def test_a_cluster_has_its_own_group_and_interfaces_and_takes_them_along(cloud: Cloud) -> None:
    before = cloud.account.standing()
    name = cloud.add_cluster(logging={"clusterLogging": [{"types": ["api"], "enabled": True}]})

    vpc = cloud.eks.describe_cluster(name=name)["cluster"]["resourcesVpcConfig"]
    group = cloud.ec2.describe_security_groups(GroupIds=[vpc["clusterSecurityGroupId"]])["SecurityGroups"][0]
    assert vpc["vpcId"] == group["VpcId"] == cloud.vpc
    assert group["IpPermissions"][0]["UserIdGroupPairs"][0]["GroupId"] == group["GroupId"]
    with refused("DependencyViolation"):
        cloud.ec2.delete_security_group(GroupId=group["GroupId"])
    with refused("DependencyViolation"):
        cloud.ec2.delete_subnet(SubnetId=cloud.subnets[0])

    cloud.eks.delete_cluster(name=name)
    cloud.eks.get_waiter("cluster_deleted").wait(name=name)
    assert cloud.account.standing() == before


def test_a_cluster_takes_its_time_by_questions(cloud: Cloud) -> None:
    cloud.account.set(describes=2)
    name = new("cluster")
    vpc = {"subnetIds": cloud.subnets}
    first = cloud.eks.create_cluster(name=name, roleArn=cloud.role, resourcesVpcConfig=vpc)["cluster"]
    with refused("InvalidRequestException", "not in ACTIVE status"):
        cloud.add_nodes(name)

    states = [cloud.eks.describe_cluster(name=name)["cluster"]["status"] for _ in range(3)]
    assert [first["status"], *states] == ["CREATING", "CREATING", "ACTIVE", "ACTIVE"]


def test_a_cluster_takes_its_time_by_seconds(cloud: Cloud) -> None:
    cloud.account.set(describes=1000, seconds=0.01)
    assert cloud.add_cluster()


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"logging": {"clusterLogging": [{"types": ["audit"], "enabled": True}]}}, "LoggingUpdate"),
        ({"resourcesVpcConfig": {"endpointPublicAccess": False}}, "EndpointAccessUpdate"),
        ({"upgradePolicy": {"supportType": "STANDARD"}}, "UpgradePolicyUpdate"),
        ({"deletionProtection": True}, "DeletionProtectionUpdate"),
    ],
)
def test_a_change_of_a_cluster_is_an_update(cloud: Cloud, change: dict[str, object], kind: str) -> None:
    name = cloud.add_cluster()
    cloud.account.set(describes=2)
    update = cloud.eks.update_cluster_config(name=name, **change)["update"]
    with refused("ResourceInUseException", "in progress"):
        cloud.eks.update_cluster_version(name=name, version="1.35")

    asked = {"name": name, "updateId": update["id"]}
    states = [cloud.eks.describe_update(**asked)["update"]["status"] for _ in range(2)]
    assert (update["type"], states) == (kind, ["InProgress", "Successful"])
    assert cloud.eks.list_updates(name=name)["updateIds"] == [update["id"]]
    with refused("InvalidParameterException", "already"):
        cloud.eks.update_cluster_config(name=name, **change)


def test_a_version_goes_up_by_one_and_back_to_where_it_came_from(cloud: Cloud) -> None:
    name = cloud.add_cluster()
    asked = {"clusterName": name, "nodegroupName": cloud.add_nodes(name)}
    with refused("InvalidRequestException", "not in Active State"):
        cloud.eks.update_nodegroup_version(**asked)
    cloud.eks.get_waiter("nodegroup_active").wait(**asked)
    for wrong in ("1.36", "1.33", "1.34"):
        with refused("InvalidParameterException", "Unsupported Kubernetes minor version update"):
            cloud.eks.update_cluster_version(name=name, version=wrong)
    assert cloud.eks.update_cluster_version(name=name, version="1.35")["update"]["type"] == "VersionUpdate"
    assert cloud.eks.describe_cluster(name=name)["cluster"]["version"] == "1.35"
    with refused("InvalidRequestException", "must be updated to match version 1.35"):
        cloud.eks.update_cluster_version(name=name, version="1.36")
    for version in ("1.35", "1.34"):
        cloud.eks.update_nodegroup_version(**asked, version=version)
        assert cloud.eks.describe_nodegroup(**asked)["nodegroup"]["version"] == version
    assert cloud.eks.update_cluster_version(name=name, version="1.34")["update"]["type"] == "VersionRollback"


def test_who_makes_a_cluster_may_do_everything_in_it(cloud: Cloud) -> None:
    name = cloud.add_cluster()
    (creator,) = cloud.eks.list_access_entries(clusterName=name)["accessEntries"]

    asked = {"clusterName": name, "principalArn": creator}
    (policy,) = cloud.eks.list_associated_access_policies(**asked)["associatedAccessPolicies"]
    assert creator == cloud.client("sts").get_caller_identity()["Arn"]
    assert policy["policyArn"].endswith("AmazonEKSClusterAdminPolicy")


def test_a_cluster_wants_a_role_with_permissions_and_two_zones(cloud: Cloud) -> None:
    asked = {"name": new("cluster"), "resourcesVpcConfig": {"subnetIds": cloud.subnets}}
    with refused("InvalidParameterException", "doesn't have the Amazon EKS Managed Policies"):
        cloud.eks.create_cluster(**asked, roleArn=cloud.add_role())
    with refused("InvalidParameterException", "does not exist"):
        cloud.eks.create_cluster(**asked, roleArn=f"{cloud.role}x")
    with refused("InvalidParameterException", "at least two different AZs"):
        cloud.eks.create_cluster(**asked | {"resourcesVpcConfig": {"subnetIds": cloud.subnets[:1]}}, roleArn=cloud.role)


def test_deletion_protection_and_node_groups_keep_a_cluster(cloud: Cloud) -> None:
    protected = cloud.add_cluster(deletionProtection=True)
    with refused("InvalidRequestException", "deletion protection"):
        cloud.eks.delete_cluster(name=protected)
    used = cloud.add_cluster()
    cloud.add_nodes(used)
    with refused("ResourceInUseException", "nodegroups attached"):
        cloud.eks.delete_cluster(name=used)


# Node groups.


def test_a_node_group_lives_and_changes(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    data = {"InstanceType": "p5.48xlarge"}
    template = cloud.ec2.create_launch_template(LaunchTemplateName=new("template"), LaunchTemplateData=data)
    number = template["LaunchTemplate"]["LaunchTemplateId"]
    taint = {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    more = {"launchTemplate": {"id": number, "version": "1"}, "labels": {"a": "1", "b": "2"}, "taints": [taint]}
    name = cloud.add_nodes(cluster, **more, scalingConfig={"minSize": 0, "maxSize": 1, "desiredSize": 1})
    asked = {"clusterName": cluster, "nodegroupName": name}
    cloud.eks.get_waiter("nodegroup_active").wait(**asked)

    update = cloud.eks.update_nodegroup_config(
        **asked,
        labels={"addOrUpdateLabels": {"c": "3"}, "removeLabels": ["a"]},
        taints={"removeTaints": [taint]},
        scalingConfig={"maxSize": 4},
    )["update"]
    seen = cloud.eks.describe_update(name=cluster, nodegroupName=name, updateId=update["id"])["update"]
    shape = cloud.eks.describe_nodegroup(**asked)["nodegroup"]
    assert (seen["type"], seen["status"]) == ("ConfigUpdate", "Successful")
    assert (shape["labels"], shape["taints"]) == ({"b": "2", "c": "3"}, [])
    assert shape["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 1}

    with refused("InvalidRequestException", "was not found"):
        cloud.eks.update_nodegroup_version(**asked, launchTemplate={"id": number, "version": "2"})
    cloud.ec2.create_launch_template_version(LaunchTemplateId=number, LaunchTemplateData=data)
    cloud.eks.update_nodegroup_version(**asked, launchTemplate={"id": number, "version": "2"})
    assert cloud.eks.describe_nodegroup(**asked)["nodegroup"]["launchTemplate"]["version"] == "2"

    cloud.eks.delete_nodegroup(**asked)
    cloud.eks.get_waiter("nodegroup_deleted").wait(**asked)
    assert cloud.eks.list_nodegroups(clusterName=cluster)["nodegroups"] == []


def test_nodes_without_network_plugin_do_not_join(cloud: Cloud) -> None:
    cluster = cloud.add_cluster(bootstrapSelfManagedAddons=False)
    name = cloud.add_nodes(cluster)
    shape = cloud.eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
    assert shape["status"] == "CREATE_FAILED"
    assert shape["health"]["issues"][0]["code"] == "NodeCreationFailure"


# Add-ons.


def test_an_addon_has_its_associations(cloud: Cloud) -> None:
    cluster, role = cloud.add_cluster(), cloud.add_role()
    (known,) = cloud.eks.describe_addon_versions(addonName="vpc-cni", kubernetesVersion="1.34")["addons"]
    links = [{"serviceAccount": "aws-node", "roleArn": role}]
    asked = {"clusterName": cluster, "addonName": "vpc-cni"}
    cloud.eks.create_addon(**asked, podIdentityAssociations=links, tags={"a": "1"})
    cloud.eks.get_waiter("addon_active").wait(**asked)

    addon = cloud.eks.describe_addon(**asked)["addon"]
    (link,) = cloud.eks.list_pod_identity_associations(clusterName=cluster)["associations"]
    assert addon["addonVersion"] == known["addonVersions"][0]["addonVersion"]
    assert addon["podIdentityAssociations"] == [link["associationArn"]]
    assert link["ownerArn"] == addon["addonArn"]

    update = cloud.eks.update_addon(**asked, podIdentityAssociations=[], configurationValues="{}")["update"]
    cloud.eks.describe_update(name=cluster, addonName="vpc-cni", updateId=update["id"])
    addon = cloud.eks.describe_addon(**asked)["addon"]
    assert (addon["configurationValues"], addon["podIdentityAssociations"]) == ("{}", [])

    cloud.eks.delete_addon(**asked)
    cloud.eks.get_waiter("addon_deleted").wait(**asked)
    assert cloud.eks.list_addons(clusterName=cluster)["addons"] == []


def test_coredns_is_degraded_until_there_are_nodes(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    asked = {"clusterName": cluster, "addonName": "coredns"}
    cloud.eks.create_addon(**asked)
    assert cloud.eks.describe_addon(**asked)["addon"]["status"] == "DEGRADED"
    cloud.add_nodes(cluster)
    assert cloud.eks.describe_addon(**asked)["addon"]["status"] == "ACTIVE"


def test_an_addon_that_is_not_known_is_refused(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    with refused("InvalidParameterException", "not supported"):
        cloud.eks.create_addon(clusterName=cluster, addonName="x")
    with refused("InvalidParameterException", "supported here"):
        cloud.eks.create_addon(clusterName=cluster, addonName="coredns", addonVersion="v0")


# Pod identity and access entries.


def test_a_pod_identity_association_lives_and_changes(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    account = {"clusterName": cluster, "namespace": "kube-system", "serviceAccount": "fsx"}
    with refused("InvalidParameterException", "Role provided in the request does not exist"):
        cloud.eks.create_pod_identity_association(**account, roleArn=f"{cloud.role}x")
    made = cloud.eks.create_pod_identity_association(**account, roleArn=cloud.role, tags={"a": "1"})["association"]
    with refused("ResourceInUseException"):
        cloud.eks.create_pod_identity_association(**account, roleArn=cloud.role)
    number = {"clusterName": cluster, "associationId": made["associationId"]}

    other = cloud.add_role()
    cloud.eks.update_pod_identity_association(**number, roleArn=other)
    cloud.eks.tag_resource(resourceArn=made["associationArn"], tags={"b": "2"})
    cloud.eks.untag_resource(resourceArn=made["associationArn"], tagKeys=["a"])
    seen = cloud.eks.describe_pod_identity_association(**number)["association"]
    assert (seen["roleArn"], seen["tags"]) == (other, {"b": "2"})
    assert cloud.eks.list_tags_for_resource(resourceArn=made["associationArn"])["tags"] == {"b": "2"}
    assert not cloud.eks.list_pod_identity_associations(clusterName=cluster, namespace="x")["associations"]

    cloud.eks.delete_pod_identity_association(**number)
    with refused("ResourceNotFoundException"):
        cloud.eks.describe_pod_identity_association(**number)


def test_an_access_entry_has_policies(cloud: Cloud) -> None:
    cluster, role = cloud.add_cluster(), cloud.add_role()
    asked = {"clusterName": cluster, "principalArn": role}
    policy = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy"
    scope = {"type": "namespace", "namespaces": ["default"]}
    with refused("ResourceNotFoundException", "principalArn could not be found"):
        cloud.eks.associate_access_policy(**asked, policyArn=policy, accessScope=scope)
    with refused("InvalidParameterException", "invalid principal"):
        cloud.eks.create_access_entry(clusterName=cluster, principalArn=f"{role}x")
    cloud.eks.create_access_entry(**asked, kubernetesGroups=["readers"])
    cloud.eks.update_access_entry(**asked, kubernetesGroups=["writers"])
    cloud.eks.associate_access_policy(**asked, policyArn=policy, accessScope=scope)

    entry = cloud.eks.describe_access_entry(**asked)["accessEntry"]
    (linked,) = cloud.eks.list_associated_access_policies(**asked)["associatedAccessPolicies"]
    assert (entry["type"], entry["kubernetesGroups"]) == ("STANDARD", ["writers"])
    assert linked["accessScope"] == scope
    assert cloud.eks.list_access_entries(clusterName=cluster, associatedPolicyArn=policy)["accessEntries"] == [role]

    cloud.eks.disassociate_access_policy(**asked, policyArn=policy)
    cloud.eks.delete_access_entry(**asked)
    assert role not in cloud.eks.list_access_entries(clusterName=cluster)["accessEntries"]


# File systems.


def test_a_file_system_lives_with_its_interface(cloud: Cloud) -> None:
    cloud.account.set(describes=2)
    made = cloud.add_file_system()
    number = made["FileSystemId"]
    assert [cloud.file_system(number)["Lifecycle"] for _ in range(2)] == ["CREATING", "AVAILABLE"]
    assert made["LustreConfiguration"]["MetadataConfiguration"] == {"Mode": "AUTOMATIC", "Iops": 12000}
    (interface,) = cloud.ec2.describe_network_interfaces(NetworkInterfaceIds=made["NetworkInterfaceIds"])[
        "NetworkInterfaces"
    ]
    assert interface["SubnetId"] == made["SubnetIds"][0]
    with refused("DependencyViolation"):
        cloud.ec2.delete_security_group(GroupId=interface["Groups"][0]["GroupId"])

    arn = made["ResourceARN"]
    cloud.fsx.tag_resource(ResourceARN=arn, Tags=[{"Key": "a", "Value": "1"}])
    cloud.fsx.untag_resource(ResourceARN=arn, TagKeys=["Name"])
    assert cloud.fsx.list_tags_for_resource(ResourceARN=arn)["Tags"] == [{"Key": "a", "Value": "1"}]

    cloud.fsx.delete_file_system(FileSystemId=number)
    assert cloud.file_system(number)["Lifecycle"] == "DELETING"
    with refused("FileSystemNotFound"):
        cloud.file_system(number)
    cloud.ec2.delete_security_group(GroupId=interface["Groups"][0]["GroupId"])


def test_more_storage_is_optimized_after_the_update(cloud: Cloud) -> None:
    number = cloud.add_file_system()["FileSystemId"]
    assert cloud.file_system(number)["Lifecycle"] == "AVAILABLE"
    answer = cloud.fsx.update_file_system(FileSystemId=number, StorageCapacity=19200)["FileSystem"]
    assert (answer["Lifecycle"], answer["StorageCapacity"]) == ("UPDATING", 14400)

    def actions() -> list[tuple[str, str]]:
        found = cloud.file_system(number)["AdministrativeActions"]
        return [(one["AdministrativeActionType"], one["Status"]) for one in found]

    optimization = "STORAGE_OPTIMIZATION"
    assert actions() == [("FILE_SYSTEM_UPDATE", "UPDATED_OPTIMIZING"), (optimization, "IN_PROGRESS")]
    assert actions() == [("FILE_SYSTEM_UPDATE", "COMPLETED"), (optimization, "COMPLETED")]
    seen = cloud.file_system(number)
    assert (seen["Lifecycle"], seen["StorageCapacity"]) == ("AVAILABLE", 19200)


def test_other_changes_of_a_file_system(cloud: Cloud) -> None:
    number = cloud.add_file_system(EfaEnabled=False)["FileSystemId"]
    cloud.file_system(number)
    cloud.fsx.update_file_system(
        FileSystemId=number,
        LustreConfiguration={
            "PerUnitStorageThroughput": 500,
            "DataCompressionType": "LZ4",
            "MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 24000},
        },
    )
    with refused("BadRequest", "UPDATING"):
        cloud.fsx.update_file_system(FileSystemId=number, StorageCapacity=16800)
    seen = cloud.file_system(number)
    lustre = seen["LustreConfiguration"]
    assert (lustre["PerUnitStorageThroughput"], lustre["DataCompressionType"]) == (500, "LZ4")
    assert lustre["MetadataConfiguration"]["Iops"] == 24000
    assert seen["AdministrativeActions"][0]["Status"] == "COMPLETED"
    with refused("BadRequest", "only be increased"):
        change = {"MetadataConfiguration": {"Mode": "USER_PROVISIONED", "Iops": 12000}}
        cloud.fsx.update_file_system(FileSystemId=number, LustreConfiguration=change)


def test_what_fsx_refuses(cloud: Cloud) -> None:
    number = cloud.add_file_system()["FileSystemId"]
    cloud.file_system(number)
    with refused("BadRequest", "throughput of an EFA-enabled"):
        change = {"PerUnitStorageThroughput": 500}
        cloud.fsx.update_file_system(FileSystemId=number, LustreConfiguration=change)
    with refused("BadRequest", "multiple of 4800"):
        cloud.fsx.update_file_system(FileSystemId=number, StorageCapacity=16800)
    with refused("BadRequest", "greater than the current"):
        cloud.fsx.update_file_system(FileSystemId=number, StorageCapacity=9600)
    with refused("BadRequest", "metadata configuration"):
        cloud.add_file_system(DeploymentType="SCRATCH_2")
    with refused("InvalidPerUnitStorageThroughput"):
        cloud.add_file_system(PerUnitStorageThroughput=77)
    with refused("BadRequest", "security group permissions"):
        cloud.fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=4800,
            SubnetIds=cloud.subnets[:1],
            SecurityGroupIds=[cloud.add_group(open_to_itself=False)],
            LustreConfiguration={
                "DeploymentType": "PERSISTENT_2",
                "PerUnitStorageThroughput": 1000,
                "EfaEnabled": True,
                "MetadataConfiguration": {"Mode": "AUTOMATIC"},
            },
        )


def test_a_token_makes_one_file_system(cloud: Cloud) -> None:
    lustre = {"DeploymentType": "SCRATCH_2"}
    asked = {"FileSystemType": "LUSTRE", "SubnetIds": cloud.subnets[:1], "LustreConfiguration": lustre}
    first, again = (
        cloud.fsx.create_file_system(**asked, StorageCapacity=1200, ClientRequestToken="t") for _ in range(2)
    )
    assert first["FileSystem"]["FileSystemId"] == again["FileSystem"]["FileSystemId"]
    with refused("IncompatibleParameterError"):
        cloud.fsx.create_file_system(**asked, StorageCapacity=2400, ClientRequestToken="t")


# Capacity reservations.


def test_a_capacity_reservation_lives(cloud: Cloud) -> None:
    before = cloud.account.standing()
    tags = [{"ResourceType": "capacity-reservation", "Tags": [{"Key": "a", "Value": "1"}]}]
    made = cloud.ec2.create_capacity_reservation(
        InstanceType="p5.48xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone=f"{REGION}a",
        InstanceCount=2,
        InstanceMatchCriteria="targeted",
        TagSpecifications=tags,
    )["CapacityReservation"]
    number = made["CapacityReservationId"]
    cloud.ec2.create_tags(Resources=[number], Tags=[{"Key": "b", "Value": "2"}])
    (seen,) = cloud.ec2.describe_capacity_reservations(CapacityReservationIds=[number])["CapacityReservations"]
    assert (made["State"], seen["State"], seen["AvailableInstanceCount"]) == ("pending", "active", 2)
    assert {tag["Key"]: tag["Value"] for tag in seen["Tags"]} == {"a": "1", "b": "2"}

    cloud.ec2.delete_tags(Resources=[number], Tags=[{"Key": "a"}])
    cloud.ec2.modify_capacity_reservation(CapacityReservationId=number, InstanceCount=1)
    active = [{"Name": "state", "Values": ["active"]}]
    found = cloud.ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"]
    assert [one["TotalInstanceCount"] for one in found] == [1]
    assert set(cloud.account.standing()) > set(before)

    cloud.ec2.cancel_capacity_reservation(CapacityReservationId=number)
    assert not cloud.ec2.describe_capacity_reservations(Filters=active)["CapacityReservations"]
    assert cloud.account.standing() == before
    with refused("InvalidCapacityReservationId.NotFound"):
        cloud.ec2.cancel_capacity_reservation(CapacityReservationId="cr-0123456789abcdef0")


def test_a_capacity_block_is_bought(cloud: Cloud) -> None:
    asked = {"InstanceType": "p5.48xlarge", "InstanceCount": 4, "CapacityDurationHours": 48}
    (offer,) = cloud.ec2.describe_capacity_block_offerings(**asked)["CapacityBlockOfferings"]
    assert offer["EndDate"] - offer["StartDate"] == dt.timedelta(hours=48)
    buy = {"CapacityBlockOfferingId": offer["CapacityBlockOfferingId"], "InstancePlatform": "Linux/UNIX"}
    made = cloud.ec2.purchase_capacity_block(**buy)["CapacityReservation"]
    assert (made["ReservationType"], made["State"]) == ("capacity-block", "payment-pending")
    number = made["CapacityReservationId"]
    (seen,) = cloud.ec2.describe_capacity_reservations(CapacityReservationIds=[number])["CapacityReservations"]
    assert (seen["State"], seen["TotalInstanceCount"]) == ("scheduled", 4)
    with refused("InvalidCapacityBlockOfferingId.NotFound"):
        cloud.ec2.purchase_capacity_block(**buy)


# What is ours only in part, or not at all.


def test_the_rest_is_motos(cloud: Cloud) -> None:
    for service, operation in (("s3", "list_buckets"), ("kms", "list_keys"), ("logs", "describe_log_groups")):
        assert getattr(cloud.client(service), operation)()
    offered = cloud.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=[{"Name": "instance-type", "Values": ["p5.48xlarge"]}]
    )
    assert offered["InstanceTypeOfferings"]
    stored = cloud.client("s3")
    stored.create_bucket(Bucket="models")
    stored.put_object(Bucket="models", Key="a/b", Body=b"x" * 100_000)
    assert stored.head_object(Bucket="models", Key="a/b")["ContentLength"] == 100_000
    assert stored.get_object(Bucket="models", Key="a/b")["Body"].read() == b"x" * 100_000


def test_a_rule_that_names_a_group_keeps_its_description(cloud: Cloud) -> None:
    group = cloud.add_group(open_to_itself=False)
    pair = {"GroupId": group, "Description": "inside"}
    port = {"IpProtocol": "tcp", "FromPort": 988, "ToPort": 988, "UserIdGroupPairs": [pair]}
    tags = [{"ResourceType": "security-group-rule", "Tags": [{"Key": "a", "Value": "1"}]}]
    cloud.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=[port], TagSpecifications=tags)
    filters = [{"Name": "group-id", "Values": [group]}]
    found = cloud.ec2.describe_security_group_rules(Filters=filters)["SecurityGroupRules"]
    (rule,) = [one for one in found if not one["IsEgress"]]
    assert (rule["Description"], rule["ReferencedGroupInfo"]["GroupId"]) == ("inside", group)
    assert (rule["FromPort"], rule["Tags"]) == (988, [{"Key": "a", "Value": "1"}])


def test_a_network_is_taken_down_in_its_order(cloud: Cloud) -> None:
    before, ec2 = cloud.account.standing(), cloud.ec2
    vpc = ec2.create_vpc(CidrBlock="10.99.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.99.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=subnet, AllocationId=address)["NatGateway"]["NatGatewayId"]

    with refused("DependencyViolation"):
        ec2.delete_subnet(SubnetId=subnet)
    with refused("DependencyViolation", "mapped public address"):
        ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    with refused("NatGatewayNotFound"):
        ec2.delete_nat_gateway(NatGatewayId="nat-0123456789abcdef0")
    for _ in range(2):
        ec2.delete_nat_gateway(NatGatewayId=nat)
    ec2.release_address(AllocationId=address)
    ec2.delete_subnet(SubnetId=subnet)
    with refused("DependencyViolation"):
        ec2.delete_vpc(VpcId=vpc)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    ec2.delete_vpc(VpcId=vpc)
    assert cloud.account.standing() == before


def test_what_nobody_answers_is_named(cloud: Cloud) -> None:
    with refused("NotImplemented", "fsx.DescribeBackups"):
        cloud.fsx.describe_backups()


# Failures.


def test_throttling_hits_every_nth_call_with_the_code_of_its_service(cloud: Cloud) -> None:
    for service, operation, code in (
        ("eks", "ListClusters", "ThrottlingException"),
        ("ec2", "DescribeVpcs", "RequestLimitExceeded"),
        ("iam", "ListRoles", "Throttling"),
        ("logs", "DescribeLogGroups", "ThrottlingException"),
        ("s3", "ListBuckets", "SlowDown"),
    ):
        cloud.account.set(faults=[Fault(f"{service}.{operation}", "throttled", times=1)])
        before = cloud.account.calls().get(f"{service}.{operation}", 0)
        method = "".join(f"_{one.lower()}" if one.isupper() else one for one in operation).strip("_")
        getattr(cloud.client(service), method)()  # boto3 tries again, as it does for these codes
        assert cloud.account.calls()[f"{service}.{operation}"] == before + 2, code


def test_a_role_that_is_not_there_yet(cloud: Cloud) -> None:
    cloud.account.set(faults=[Fault("eks.CreateCluster", "role_missing", times=1)])
    with refused("InvalidParameterException", f"roleArn, {cloud.role}, does not exist"):
        cloud.add_cluster()
    assert cloud.add_cluster()


def test_what_fails_in_the_end(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    kinds = ("fsx.CreateFileSystem", "eks.CreateNodegroup", "eks.CreateAddon")
    cloud.account.set(faults=[Fault(kind, "fails", times=1) for kind in kinds])

    files = cloud.file_system(cloud.add_file_system()["FileSystemId"])
    assert files["Lifecycle"] == "FAILED"
    assert "Insufficient capacity" in files["FailureDetails"]["Message"]
    name = cloud.add_nodes(cluster)
    nodes = cloud.eks.describe_nodegroup(clusterName=cluster, nodegroupName=name)["nodegroup"]
    assert (nodes["status"], nodes["health"]["issues"][0]["code"]) == ("CREATE_FAILED", "AsgInstanceLaunchFailures")
    cloud.eks.create_addon(clusterName=cluster, addonName="kube-proxy")
    addon = cloud.eks.describe_addon(clusterName=cluster, addonName="kube-proxy")["addon"]
    assert (addon["status"], addon["health"]["issues"][0]["code"]) == ("DEGRADED", "InsufficientNumberOfReplicas")


def test_updates_that_fail_change_nothing(cloud: Cloud) -> None:
    cluster = cloud.add_cluster()
    number = cloud.add_file_system()["FileSystemId"]
    cloud.file_system(number)
    cloud.account.set(faults=[Fault("*.Update*", "fails")])

    update = cloud.eks.update_cluster_version(name=cluster, version="1.35")["update"]
    seen = cloud.eks.describe_update(name=cluster, updateId=update["id"])["update"]
    assert (seen["status"], len(seen["errors"])) == ("Failed", 1)
    assert cloud.eks.describe_cluster(name=cluster)["cluster"]["version"] == "1.34"
    cloud.fsx.update_file_system(FileSystemId=number, StorageCapacity=19200)
    files = cloud.file_system(number)
    assert (files["Lifecycle"], files["StorageCapacity"]) == ("AVAILABLE", 14400)
    assert files["AdministrativeActions"][0]["Status"] == "FAILED"


def test_what_never_ends_and_what_answers_late(cloud: Cloud) -> None:
    hang = Fault("fsx.DescribeFileSystems", "hangs", times=1, seconds=0.2)
    cloud.account.set(faults=[Fault("fsx.CreateFileSystem", "stays"), hang])
    number = cloud.add_file_system()["FileSystemId"]
    begun = dt.datetime.now(dt.UTC)
    assert {cloud.file_system(number)["Lifecycle"] for _ in range(5)} == {"CREATING"}
    assert dt.datetime.now(dt.UTC) - begun > dt.timedelta(seconds=0.2)


def test_no_capacity_for_a_reservation(cloud: Cloud) -> None:
    cloud.account.set(faults=[Fault("ec2.CreateCapacityReservation", "fails")])
    with refused("InsufficientInstanceCapacity"):
        cloud.ec2.create_capacity_reservation(
            InstanceType="p5.48xlarge", InstancePlatform="Linux/UNIX", AvailabilityZone=f"{REGION}a", InstanceCount=1
        )


def test_only_errors_that_the_operation_has(cloud: Cloud) -> None:
    with pytest.raises(ValueError, match=r"eks.CreateCluster has no error Nonsense; it has .*ResourceLimitExceeded"):
        cloud.account.set(faults=[Fault("eks.CreateCluster", "refused", code="Nonsense")])
    cloud.account.set(faults=[Fault("eks.CreateCluster", "refused", code="ResourceLimitExceededException")])
    with refused("ResourceLimitExceededException"):
        cloud.add_cluster()


def test_a_launch_template_s_own_tags_are_shown_as_they_are_now_and_are_no_data_of_its_versions(cloud: Cloud) -> None:
    own = [{"ResourceType": "launch-template", "Tags": [{"Key": "team", "Value": "one"}]}]
    data = {"TagSpecifications": [{"ResourceType": "volume", "Tags": [{"Key": "disk", "Value": "fast"}]}]}
    made = cloud.ec2.create_launch_template(
        LaunchTemplateName=new("template"), LaunchTemplateData=data, TagSpecifications=own
    )
    number = made["LaunchTemplate"]["LaunchTemplateId"]
    cloud.ec2.create_tags(Resources=[number], Tags=[{"Key": "team", "Value": "two"}, {"Key": "cost", "Value": "42"}])

    (version,) = cloud.ec2.describe_launch_template_versions(LaunchTemplateId=number)["LaunchTemplateVersions"]
    (shown,) = cloud.ec2.describe_launch_templates(LaunchTemplateIds=[number])["LaunchTemplates"]

    assert version["LaunchTemplateData"]["TagSpecifications"] == data["TagSpecifications"]
    assert {one["Key"]: one["Value"] for one in shown["Tags"]} == {"team": "two", "cost": "42"}
