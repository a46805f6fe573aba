"""Pulumi's properties as Terraform's arguments and back, and values as Terraform's core handles them."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime import rpc

from lab.provider import mapping, state
from lab.provider.mapping import Failure
from lab.provider.protocol import UNKNOWN, packed, unpacked
from lab.provider.shape import Shape

TEXT, NUMBER, TRUTH = Shape("string"), Shape("number"), Shape("bool")
RULE = Shape(
    "object", fields={"port": NUMBER, "cidr_blocks": Shape("list", TEXT), "rule_id": Shape("string", computed=True)}
)
THING = Shape(
    "object",
    fields={
        "id": Shape("string", computed=True),
        "policy": TEXT,
        "size": NUMBER,
        "open": TRUTH,
        "subnet_ids": Shape("list", TEXT),
        "zone": Shape("string", computed=True),
        "labels": Shape("map", TEXT),
        "egress": Shape("set", RULE),
        "log_policy": Shape("list", RULE, is_block=True),
        "vpc_config": Shape("list", RULE, is_block=True, holds_one=True),
        "rule": Shape("set", RULE, is_block=True),
    },
)
NOTHING = {name: inner.absent for name, inner in THING.fields.items()}


@pytest.mark.parametrize(
    ("token", "name"),
    [
        ("aws:ec2/vpc:Vpc", "aws_vpc"),
        ("aws:ec2/capacityReservation:CapacityReservation", "aws_ec2_capacity_reservation"),
        ("aws:eks/nodeGroup:NodeGroup", "aws_eks_node_group"),
        ("aws:cloudwatch/logGroup:LogGroup", "aws_cloudwatch_log_group"),
        ("aws:s3/bucket:Bucket", None),
        ("aws:index:Provider", None),
    ],
)
def test_a_type_of_pulumi_is_one_of_the_provider(token: str, name: str | None) -> None:
    known = ["aws_vpc", "aws_ec2_capacity_reservation", "aws_eks_node_group", "aws_cloudwatch_log_group"]

    assert mapping.resource_type(token, known) == name


@pytest.mark.parametrize(
    ("properties", "arguments"),
    [
        ({"subnetIds": ["a"]}, {"subnet_ids": ["a"]}),
        ({"subnetIds": "a"}, {"subnet_ids": ["a"]}),
        ({"policy": {"a": 1}}, {"policy": '{"a": 1}'}),
        ({"policy": True}, {"policy": "true"}),
        ({"policy": 2.0}, {"policy": "2"}),
        ({"size": 2.0}, {"size": 2}),
        ({"size": "3"}, {"size": 3}),
        ({"size": 2.5}, {"size": 2.5}),
        ({"open": "true"}, {"open": True}),
        ({"labels": {"a": "b", "__defaults": []}}, {"labels": {"a": "b"}}),
        ({"size": rpc.UNKNOWN, "subnetIds": [rpc.UNKNOWN]}, {"size": UNKNOWN, "subnet_ids": [UNKNOWN]}),
        ({"policy": f"arn:{rpc.UNKNOWN}"}, {"policy": UNKNOWN}),
        ({"rules": rpc.UNKNOWN}, {"rule": UNKNOWN}),
        (
            {"vpcConfig": {"port": 1}, "egress": [{"cidrBlocks": ["x"]}], "logPolicies": [{"port": 2}]},
            {
                "vpc_config": [{"port": 1, "cidr_blocks": None, "rule_id": None}],
                "egress": [{"port": None, "cidr_blocks": ["x"], "rule_id": None}],
                "log_policy": [{"port": 2, "cidr_blocks": None, "rule_id": None}],
            },
        ),
        ({"size": None, "__defaults": ["size"]}, {}),
    ],
    ids=str,
)
def test_properties_become_arguments_by_the_schema(properties: dict[str, Any], arguments: dict[str, Any]) -> None:
    reading = mapping.read(THING, properties)

    assert reading.arguments == {**NOTHING, **arguments}
    assert (reading.unmapped, reading.failures) == ([], [])


def test_a_property_without_an_argument_is_named_with_its_path() -> None:
    assert mapping.read(THING, {"sise": 1, "vpcConfig": {"prot": 1}}).unmapped == [("vpcConfig", "prot"), ("sise",)]


@pytest.mark.parametrize(
    ("properties", "failure"),
    [
        ({"size": "much"}, Failure(("size",), "a number is needed, not 'much'")),
        ({"open": 3}, Failure(("open",), "a bool is needed, not 3")),
        ({"labels": "a"}, Failure(("labels",), "a mapping is needed, not 'a'")),
        ({"vpcConfig": {"port": []}}, Failure(("vpcConfig", "port"), "a number is needed, not []")),
        ({"rules": [{}, 4]}, Failure(("rules", 1), "a mapping is needed, not 4")),
    ],
    ids=str,
)
def test_a_value_that_no_argument_of_that_type_can_have_is_a_failure(
    properties: dict[str, Any], failure: Failure
) -> None:
    assert mapping.read(THING, properties).failures == [failure]


@pytest.mark.parametrize(
    ("arguments", "names", "inputs", "properties"),
    [
        ({"size": 1, "zone": UNKNOWN}, ["size", "zone"], {}, {"size": 1, "zone": rpc.UNKNOWN}),
        ({"subnet_ids": ["a"]}, ["subnetIds"], {}, {"subnetIds": ["a"]}),
        ({"subnet_ids": ["a"]}, ["subnetIds"], {"subnetIds": "b"}, {"subnetIds": "a"}),
        ({"subnet_ids": [], "labels": {}, "rule": []}, [], {}, {}),
        ({"labels": {}}, ["labels"], {"labels": {}}, {"labels": {}}),
        ({"vpc_config": [{"port": 1}]}, ["vpcConfig"], {}, {"vpcConfig": {"port": 1}}),
        ({"log_policy": [{"port": 1}]}, ["logPolicies"], {}, {"logPolicies": [{"port": 1}]}),
        ({"log_policy": [{"port": 1}]}, ["logPolicy"], {}, {"logPolicy": {"port": 1}}),
        ({"egress": [{"port": 1}]}, ["egress"], {}, {"egress": [{"port": 1}]}),
    ],
    ids=str,
)
def test_a_state_becomes_properties_as_the_sdk_and_the_inputs_have_them(
    arguments: dict[str, Any], names: list[str], inputs: dict[str, Any], properties: dict[str, Any]
) -> None:
    assert mapping.written(THING, arguments, names, inputs) == properties


@pytest.mark.parametrize(
    ("steps", "properties", "path"),
    [
        (("size",), {}, ("size",)),
        (("subnet_ids", 0), {"subnetIds": "a"}, ("subnetIds",)),
        (("subnet_ids", 1), {"subnetIds": ["a", "b"]}, ("subnetIds", 1)),
        (("vpc_config", 0, "port"), {"vpcConfig": {"port": 1}}, ("vpcConfig", "port")),
        (("vpc_config",), {}, ("vpcConfig",)),
        (
            ("log_policy", 1, "cidr_blocks", 0),
            {"logPolicies": [{}, {"cidrBlocks": ["a"]}]},
            ("logPolicies", 1, "cidrBlocks", 0),
        ),
        (("rule", 12345, "port"), {"rules": [{}]}, ("rules",)),
        (("egress",), {"egress": [{}]}, ("egress",)),
        (("labels", "a"), {}, ("labels", "a")),
        ((), {}, ()),
    ],
    ids=str,
)
def test_a_path_of_terraform_has_its_place_among_the_properties(
    steps: tuple[str | int, ...], properties: dict[str, Any], path: tuple[str | int, ...]
) -> None:
    assert mapping.property_path(THING, steps, properties) == path


def rule(port: int | None, rule_id: str | None = None) -> dict[str, Any]:
    return {"port": port, "cidr_blocks": None, "rule_id": rule_id}


def test_what_the_configuration_leaves_out_keeps_its_computed_value() -> None:
    prior = {
        **NOTHING,
        "id": "i",
        "size": 1,
        "zone": "a",
        "log_policy": [rule(1, "x")],
        "rule": [rule(1, "y"), rule(2, "z")],
    }
    config = {**NOTHING, "log_policy": [rule(7), rule(8)], "rule": [rule(2), rule(3)]}

    assert state.proposed(THING, prior, config) == {
        **NOTHING,
        "id": "i",
        "zone": "a",
        "log_policy": [rule(7, "x"), rule(8)],
        "rule": [rule(2, "z"), rule(3)],
    }


def test_a_state_has_what_is_known_before_what_was_planned_and_no_unknown() -> None:
    planned = {**NOTHING, "id": UNKNOWN, "size": 3, "open": False, "zone": UNKNOWN, "log_policy": [rule(1, "x")]}
    known = {**NOTHING, "size": 4, "zone": "a", "log_policy": [rule(2)]}

    assert state.settled(THING, planned, known) == {
        **NOTHING,
        "id": "",
        "size": 4,
        "open": False,
        "zone": "a",
        "log_policy": [rule(2, "x")],
    }


def test_differences_go_as_deep_as_they_can_be_said() -> None:
    before = {
        **NOTHING,
        "labels": {"a": "1"},
        "log_policy": [rule(1), rule(2)],
        "rule": [rule(1), rule(2)],
        "policy": None,
    }
    after = {
        **before,
        "labels": {"a": "2", "b": "3"},
        "log_policy": [rule(1), rule(5), rule(6)],
        "rule": [rule(2), rule(1)],
        "policy": "",
        "zone": UNKNOWN,
    }

    assert set(state.differences(THING, before, after)) == {
        ("labels", "a"),
        ("labels", "b"),
        ("log_policy", 1, "port"),
        ("log_policy", 2),
        ("zone",),
    }


def test_values_travel_with_what_is_not_known_yet() -> None:
    pytest.importorskip("msgpack")
    value = {"a": [1, 2.5, None, True, UNKNOWN], "b": {"c": "d"}}

    assert unpacked(type("Dynamic", (), {"msgpack": packed(value)})) == value
