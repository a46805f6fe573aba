"""What tests of the account make in it before they ask."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from botocore.exceptions import ClientError

from lab.account.process import Account

REGION = "us-east-1"
_numbers = itertools.count()


class Cloud:
    """An account with a network in it; what tests make has names of its own."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.client = account.client
        self.eks, self.fsx, self.ec2, self.iam = (self.client(one) for one in ("eks", "fsx", "ec2", "iam"))
        self.vpc = self.ec2.create_vpc(CidrBlock="10.20.0.0/16")["Vpc"]["VpcId"]
        self.subnets = [
            self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=f"10.20.{number}.0/24", AvailabilityZone=REGION + zone)[
                "Subnet"
            ]["SubnetId"]
            for number, zone in enumerate("ab")
        ]
        self.role = self.add_role(policy="AmazonEKSClusterPolicy")

    def add_role(self, policy: str = "") -> str:
        """A new role; its ARN."""
        name = new("role")
        trust = json.dumps({"Version": "2012-10-17", "Statement": []})
        arn = self.iam.create_role(RoleName=name, AssumeRolePolicyDocument=trust)["Role"]["Arn"]
        if policy:
            self.iam.attach_role_policy(RoleName=name, PolicyArn=f"arn:aws:iam::aws:policy/{policy}")
        return arn

    def add_cluster(self, **more: Any) -> str:
        """A new cluster in state ACTIVE; its name."""
        name, vpc = new("cluster"), {"subnetIds": self.subnets}
        given = {"version": "1.34", "accessConfig": {"authenticationMode": "API"}, **more}
        self.eks.create_cluster(name=name, roleArn=self.role, resourcesVpcConfig=vpc, **given)
        self.eks.get_waiter("cluster_active").wait(name=name)
        return name

    def add_nodes(self, cluster: str, **more: Any) -> str:
        """A new node group, as it was answered at once; its name."""
        name = new("nodes")
        given = {"subnets": self.subnets, "nodeRole": self.role, **more}
        self.eks.create_nodegroup(clusterName=cluster, nodegroupName=name, **given)
        return name

    def add_group(self, *, open_to_itself: bool) -> str:
        """A new security group; its id."""
        group = self.ec2.create_security_group(GroupName=new("group"), Description="of a test", VpcId=self.vpc)
        number = group["GroupId"]
        if open_to_itself:
            rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": number}]}]
            self.ec2.authorize_security_group_ingress(GroupId=number, IpPermissions=rule)
            self.ec2.authorize_security_group_egress(GroupId=number, IpPermissions=rule)
        return number

    def add_file_system(self, **lustre: Any) -> dict[str, Any]:
        """A new file system of 14400 GiB with EFA, as it was answered at once."""
        given = {
            "DeploymentType": "PERSISTENT_2",
            "PerUnitStorageThroughput": 1000,
            "EfaEnabled": True,
            "MetadataConfiguration": {"Mode": "AUTOMATIC"},
            **lustre,
        }
        return self.fsx.create_file_system(
            FileSystemType="LUSTRE",
            StorageCapacity=14400,
            SubnetIds=self.subnets[:1],
            SecurityGroupIds=[self.add_group(open_to_itself=True)],
            LustreConfiguration=given,
            FileSystemTypeVersion="2.15",
            Tags=[{"Key": "Name", "Value": "models"}],
        )["FileSystem"]

    def file_system(self, number: str) -> dict[str, Any]:
        """The file system as it is now."""
        return self.fsx.describe_file_systems(FileSystemIds=[number])["FileSystems"][0]


def new(kind: str) -> str:
    """A name that nothing has."""
    return f"{kind}-{next(_numbers)}"


@contextmanager
def refused(code: str, text: str = "") -> Iterator[None]:
    """Holds that what is inside is refused with this error."""
    try:
        yield
    except ClientError as error:
        told = error.response["Error"]
        assert told["Code"] == code, told
        assert text in told["Message"], told
    else:
        raise AssertionError(f"not refused with {code}")
