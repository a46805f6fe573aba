"""EC2: capacity reservations and blocks, what may not be deleted, and what moto shows otherwise than AWS.

Functions as in `eks/`; one that returns None leaves the answer to moto.
"""

from __future__ import annotations

import datetime as dt
from typing import Any

from lab.account.place import Place, Record, RefusedError, Values, new_id, now, page, without_none

_LINUX = "Linux/UNIX"
# Hours before a capacity block may begin, and the UTC hour at which all end: EC2 user guide, capacity-blocks-how.html.
_BLOCK_HOUR, _BLOCK_MINUTE = 11, 30


def _tags(place: Place, number: str) -> list[Values]:
    """Those that moto keeps for it, as for all EC2 resources."""
    found = place.ec2.describe_tags(filters={"resource-id": [number]})
    return [{"Key": one["key"], "Value": one["value"]} for one in found]


def _put_tags(place: Place, number: str, asked: Values) -> None:
    tags = {
        tag["Key"]: tag["Value"]
        for one in asked.get("TagSpecifications") or []
        if one.get("ResourceType") == "capacity-reservation"
        for tag in one.get("Tags") or []
    }
    if tags:
        place.ec2.create_tags([number], tags)


def create_tags(place: Place, asked: Values) -> Values | None:
    """Of reservations; moto does not know their ids."""
    if not _are_ours(asked):
        return None
    place.ec2.create_tags(asked["Resources"], {tag["Key"]: tag.get("Value", "") for tag in asked["Tags"]})
    place.changed = True
    return {}


def delete_tags(place: Place, asked: Values) -> Values | None:
    """Of reservations."""
    if not _are_ours(asked):
        return None
    place.ec2.delete_tag_keys(asked["Resources"], [tag["Key"] for tag in asked.get("Tags") or []])
    place.changed = True
    return {}


def _are_ours(asked: Values) -> bool:
    return all(number.startswith("cr-") for number in asked["Resources"])


def _show(place: Place, record: Record) -> Values:
    tags = _tags(place, record.shape["CapacityReservationId"])
    return record.shape | ({"Tags": tags} if tags else {})


def _find(place: Place, number: str, *, look: bool = False) -> Record:
    key = ("reservation", number)
    record = place.look(key) if look else place.records.get(key)
    if record is None:
        text = f"The capacity reservation ID '{number}' does not exist"
        raise RefusedError("InvalidCapacityReservationId.NotFound", text)
    return record


def _zone_id(place: Place, zone: str) -> str:
    for one in place.ec2.describe_availability_zones():
        if one.name == zone:
            return one.zone_id
    raise RefusedError("InvalidParameterValue", f"Invalid availability zone: [{zone}]")


def _reserve(place: Place, asked: Values, **more: object) -> Record:
    number = new_id("cr")
    count = asked["InstanceCount"]
    shape = {
        "CapacityReservationId": number,
        "OwnerId": place.account,
        "CapacityReservationArn": place.arn("ec2", f"capacity-reservation/{number}"),
        "AvailabilityZoneId": _zone_id(place, asked["AvailabilityZone"]),
        "AvailabilityZone": asked["AvailabilityZone"],
        "InstanceType": asked["InstanceType"],
        "InstancePlatform": asked.get("InstancePlatform") or _LINUX,
        "Tenancy": asked.get("Tenancy") or "default",
        "TotalInstanceCount": count,
        "AvailableInstanceCount": count,
        "EbsOptimized": bool(asked.get("EbsOptimized")),
        "EphemeralStorage": False,
        "StartDate": now(),
        "EndDateType": "unlimited",
        "InstanceMatchCriteria": "open",
        "CreateDate": now(),
        "ReservationType": "default",
    }
    parts = ("EndDate", "EndDateType", "InstanceMatchCriteria", "StartDate")
    shape |= without_none({part: asked.get(part) for part in parts}) | more
    _put_tags(place, number, asked)
    return place.add(("reservation", number), shape)


def describe_launch_templates(place: Place, asked: Values) -> None:
    """With the tags of now, where moto shows those of the creation."""
    del asked
    for template in place.ec2.launch_templates.values():
        template.tags = template.get_tags()


def describe_launch_template_versions(place: Place, asked: Values) -> None:
    """A template's own tags are none of its versions' data, where moto has them, too."""
    del asked
    for template in place.ec2.launch_templates.values():
        for version in template.versions:
            specs = version.data.get("TagSpecifications") or []
            version.data["TagSpecifications"] = [one for one in specs if one["ResourceType"] != "launch-template"]


def create_capacity_reservation(place: Place, asked: Values) -> Values:
    """Active as soon as it is asked about; the fault `fails` is AWS's refusal for lack of capacity."""
    if place.faults.end_of("ec2.CreateCapacityReservation") == "fails":
        # EC2 API reference, errors-overview.html
        text = "There is not enough capacity available for the requested instance type"
        raise RefusedError("InsufficientInstanceCapacity", text)
    record = _reserve(place, asked, State="pending")
    number = record.shape["CapacityReservationId"]
    place.later(("reservation", number), "ec2.CapacityReservation", {"State": "active"}, {"State": "failed"})
    return {"CapacityReservation": _show(place, record)}


def describe_capacity_reservations(place: Place, asked: Values) -> Values:
    """Those that are named, else all, cancelled ones included; filters by what the answer shows under their name."""
    numbers = asked.get("CapacityReservationIds") or [key[1] for key, _ in place.under("reservation")]
    found = [_show(place, _find(place, number, look=True)) for number in numbers]
    for one in asked.get("Filters") or []:
        name = "".join(word.capitalize() for word in one["Name"].split("-"))
        found = [shape for shape in found if str(shape.get(name)) in one["Values"]]
    return page("CapacityReservations", found, asked)


def modify_capacity_reservation(place: Place, asked: Values) -> Values:
    """Its count and its end."""
    shape = _find(place, asked["CapacityReservationId"]).shape
    if shape["State"] != "active":
        raise RefusedError("IncorrectState", f"The capacity reservation is {shape['State']}")
    if count := asked.get("InstanceCount"):
        shape |= {"TotalInstanceCount": count, "AvailableInstanceCount": count}
    parts = ("EndDate", "EndDateType", "InstanceMatchCriteria")
    shape |= without_none({part: asked.get(part) for part in parts})
    if shape["EndDateType"] == "unlimited":
        shape.pop("EndDate", None)
    place.changed = True
    return {"Return": True}


def cancel_capacity_reservation(place: Place, asked: Values) -> Values:
    """It stays in sight as cancelled."""
    shape = _find(place, asked["CapacityReservationId"]).shape
    if shape["ReservationType"] == "capacity-block":  # EC2 user guide, capacity-blocks.html
        raise RefusedError("OperationNotPermitted", "A Capacity Block cannot be cancelled")
    shape |= {"State": "cancelled", "AvailableInstanceCount": 0}
    place.records["reservation", asked["CapacityReservationId"]].pending.clear()
    place.changed = True
    return {"Return": True}


def describe_capacity_block_offerings(place: Place, asked: Values) -> Values:
    """One offering in the region's first zone, from tomorrow on; its fee is made up."""
    hours, count = asked["CapacityDurationHours"], asked.get("InstanceCount") or 1
    first = asked.get("StartDateRange") or now()
    begin = (first + dt.timedelta(days=1)).replace(hour=_BLOCK_HOUR, minute=_BLOCK_MINUTE, second=0, microsecond=0)
    offering = {
        "CapacityBlockOfferingId": new_id("cb"),
        "InstanceType": asked.get("InstanceType") or "p5.48xlarge",
        "AvailabilityZone": place.ec2.describe_availability_zones()[0].name,
        "InstanceCount": count,
        "StartDate": begin,
        "EndDate": begin + dt.timedelta(hours=hours),
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": f"{hours * count}.00",
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }
    place.add(("offering", offering["CapacityBlockOfferingId"]), offering)
    return {"CapacityBlockOfferings": [offering]}


def purchase_capacity_block(place: Place, asked: Values) -> Values:
    """The offering is used up."""
    offering = place.records.pop(("offering", asked["CapacityBlockOfferingId"]), None)
    if offering is None:
        text = f"The Capacity Block offering {asked['CapacityBlockOfferingId']} does not exist"
        raise RefusedError("InvalidCapacityBlockOfferingId.NotFound", text)
    known = ("InstanceType", "AvailabilityZone", "InstanceCount", "StartDate", "EndDate")
    values = {**asked, **{part: offering.shape[part] for part in known}}
    values |= {"EndDateType": "limited", "InstanceMatchCriteria": "targeted"}
    record = _reserve(place, values, State="payment-pending", ReservationType="capacity-block")
    key = ("reservation", record.shape["CapacityReservationId"])
    place.later(key, "ec2.PurchaseCapacityBlock", {"State": "scheduled"}, {"State": "payment-failed"})
    return {"CapacityReservation": _show(place, record)}


def describe_security_group_rules(place: Place, asked: Values) -> Values:
    """Moto's, with the description of a rule that names another group: moto keeps it, and does not show it."""
    filters = {one["Name"]: one["Values"] for one in asked.get("Filters") or []}
    rules = place.ec2.describe_security_group_rules(asked.get("SecurityGroupRuleIds") or [], filters)
    return page("SecurityGroupRules", [_show_rule(place, rule) for rule in rules], asked)


def _show_rule(place: Place, rule: Any) -> Values:
    other = rule.source_group
    shape = {
        "SecurityGroupRuleId": rule.id,
        "GroupId": rule.group_id,
        "GroupOwnerId": place.account,
        "IsEgress": rule.is_egress,
        "IpProtocol": rule.ip_protocol,
        "FromPort": rule.from_port,
        "ToPort": rule.to_port,
        "CidrIpv4": rule.cidr_ipv4,
        "CidrIpv6": rule.cidr_ipv6,
        "PrefixListId": rule.prefix_list_id,
        "ReferencedGroupInfo": {"GroupId": other["GroupId"], "UserId": place.account} if other else None,
        "Description": rule.description or other.get("Description"),
        "Tags": _tags(place, rule.id) or None,
    }
    return without_none(shape)


def delete_nat_gateway(place: Place, asked: Values) -> None:
    """Moto would leave its interface, and its address associated."""
    gateway = place.ec2.nat_gateways.get(asked["NatGatewayId"])
    if gateway is None:
        raise RefusedError("NatGatewayNotFound", f"The Nat Gateway {asked['NatGatewayId']} was not found")
    for address in gateway.address_set if gateway.state != "deleted" else []:
        if place.ec2.address_by_association([address.get("associationId")]):
            place.ec2.disassociate_address(association_id=address["associationId"])
        place.ec2.delete_network_interface(address["networkInterfaceId"])


def delete_subnet(place: Place, asked: Values) -> None:
    """Refused while a network interface is in it; moto would delete it."""
    number = asked["SubnetId"]
    _refuse_used(f"The subnet '{number}'", any(one.subnet.id == number for one in place.ec2.enis.values()))


def delete_security_group(place: Place, asked: Values) -> None:
    """Refused while a network interface is in it; moto would delete it."""
    number = asked.get("GroupId")
    used = any(number in [group.id for group in one.group_set] for one in place.ec2.enis.values())
    _refuse_used(f"resource {number}", used)


def detach_internet_gateway(place: Place, asked: Values) -> None:
    """Refused while an interface in the VPC has an Elastic IP address; moto would detach it."""
    number = asked["VpcId"]
    mapped = any(one.subnet.vpc_id == number and one.public_ip for one in place.ec2.enis.values())
    _refuse_used(f"Network {number} has some mapped public address(es), it", mapped)


def delete_vpc(place: Place, asked: Values) -> None:
    """Refused while something is in it; with it goes its network ACL, which moto would leave."""
    number = asked["VpcId"]
    here = {"vpc-id": [number]}
    groups = [one for one in place.ec2.groups.get(number, {}).values() if one.name != "default"]
    gateways = [one for one in place.ec2.internet_gateways.values() if one.vpc and one.vpc.id == number]
    tables = place.ec2.describe_route_tables(filters=here)[1:]  # the first is the VPC's own
    used = bool(groups or gateways or tables or place.ec2.describe_subnets(filters=here))
    _refuse_used(f"The vpc '{number}'", used)
    for acl in [one for one in place.ec2.network_acls.values() if one.vpc_id == number]:
        del place.ec2.network_acls[acl.id]


def _refuse_used(what: str, used: bool) -> None:
    if used:
        raise RefusedError("DependencyViolation", f"{what} has dependencies and cannot be deleted.")
