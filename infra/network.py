"""The VPC of one environment, and the data zone in it where GPU nodes and Lustre meet."""

from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra import sizing
from infra.settings import NetworkSettings


@dataclass(frozen=True, kw_only=True)
class NetworkArgs:
    """What `Network` is made of.

    Attributes:
        settings: The stack's `network` section.
        region: The region, as the S3 endpoint's service name needs it.
    """

    settings: NetworkSettings
    region: str


class Network(pulumi.ComponentResource):
    """A VPC with a private subnet in each zone, NAT for what must reach out, and an S3 gateway endpoint.

    Everything that touches Lustre lives in `data_subnet_id`: EFA works inside one zone and one /16 only
    (https://docs.aws.amazon.com/fsx/latest/LustreGuide/efa-file-systems.html).
    """

    vpc_id: pulumi.Output[str]
    private_subnet_ids: list[pulumi.Output[str]]
    data_subnet_id: pulumi.Output[str]

    def __init__(self, name: str, args: NetworkArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("faststart:infra:Network", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        settings = args.settings

        vpc = aws.ec2.Vpc(
            f"{name}-vpc",
            cidr_block=settings.cidr,
            enable_dns_support=True,
            enable_dns_hostnames=True,
            tags={"Name": f"{pulumi.get_stack()}-{name}"},
            opts=child,
        )
        internet = aws.ec2.InternetGateway(f"{name}-internet", vpc_id=vpc.id, opts=child)
        public_routes = aws.ec2.RouteTable(f"{name}-public", vpc_id=vpc.id, tags={"Name": f"{name}-public"}, opts=child)
        public_default = aws.ec2.Route(
            f"{name}-public-default",
            route_table_id=public_routes.id,
            destination_cidr_block="0.0.0.0/0",
            gateway_id=internet.id,
            opts=child,
        )

        gateways = {}
        for zone in settings.zones if settings.nat == "perZone" else [settings.data_zone]:
            subnet = aws.ec2.Subnet(
                f"{name}-public-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=sizing.public_subnet_cidr(settings.cidr, zone),
                tags={"Name": f"{name}-public-{zone}"},
                opts=child,
            )
            routed = aws.ec2.RouteTableAssociation(
                f"{name}-public-{zone}", subnet_id=subnet.id, route_table_id=public_routes.id, opts=child
            )
            address = aws.ec2.Eip(f"{name}-nat-{zone}", domain="vpc", tags={"Name": f"{name}-nat-{zone}"}, opts=child)
            gateways[zone] = aws.ec2.NatGateway(
                f"{name}-nat-{zone}",
                subnet_id=subnet.id,
                allocation_id=address.allocation_id,
                tags={"Name": f"{name}-nat-{zone}"},
                opts=child.merge(pulumi.ResourceOptions(depends_on=[public_default, routed])),
            )

        subnets, tables = {}, {}
        for zone in settings.zones:
            subnets[zone] = aws.ec2.Subnet(
                f"{name}-private-{zone}",
                vpc_id=vpc.id,
                availability_zone=zone,
                cidr_block=sizing.private_subnet_cidr(settings.cidr, zone),
                tags={"Name": f"{name}-private-{zone}"},
                opts=child,
            )
            tables[zone] = aws.ec2.RouteTable(
                f"{name}-private-{zone}", vpc_id=vpc.id, tags={"Name": f"{name}-private-{zone}"}, opts=child
            )
            aws.ec2.Route(
                f"{name}-private-{zone}-default",
                route_table_id=tables[zone].id,
                destination_cidr_block="0.0.0.0/0",
                nat_gateway_id=gateways.get(zone, gateways[settings.data_zone]).id,
                opts=child,
            )
            aws.ec2.RouteTableAssociation(
                f"{name}-private-{zone}", subnet_id=subnets[zone].id, route_table_id=tables[zone].id, opts=child
            )
        aws.ec2.VpcEndpoint(
            f"{name}-s3",
            vpc_id=vpc.id,
            vpc_endpoint_type="Gateway",
            service_name=f"com.amazonaws.{args.region}.s3",
            route_table_ids=[table.id for table in tables.values()],
            tags={"Name": f"{name}-s3"},
            opts=child,
        )

        self.vpc_id = vpc.id
        self.private_subnet_ids = [subnet.id for subnet in subnets.values()]
        self.data_subnet_id = subnets[settings.data_zone].id
        self.register_outputs({"vpc_id": self.vpc_id, "data_subnet_id": self.data_subnet_id})
