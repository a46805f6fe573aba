"""The nodes that stand-in node groups stand for: what they are called, carry and offer."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from infra import sizing
from infra.bootstrap import Bootstrap, user_data
from infra.instance_types import GIB, INSTANCE_TYPES
from lab.kube import cloud_nodes
from lab.kube.quantities import quantity
from tests.recording import Recording


def world(recorded: Recording) -> dict[str, Any]:
    """What the stand-in for AWS would remember of a recorded run."""
    kinds = (cloud_nodes.NODE_GROUP, cloud_nodes.TEMPLATE, cloud_nodes.SUBNET)
    return {
        f"{kind}|{one.name}-id": {
            "inputs": one.inputs,
            "state": {"nodeGroupName": one.name} if kind == cloud_nodes.NODE_GROUP else {},
        }
        for kind in kinds
        for one in recorded.of(kind)
    }


def test_each_group_has_the_nodes_that_it_asks_for_in_the_data_zone(stack: Recording) -> None:
    found = cloud_nodes.nodes(world(stack))
    wanted = {name: group.size.desired for name, group in stack.settings.node_groups.items()}
    wanted["system"] = stack.settings.system_nodes.size.desired

    assert {name: sum(node.group == name for node in found) for name in wanted} == wanted
    assert {node.labels["topology.kubernetes.io/zone"] for node in found} == {stack.settings.network.data_zone}
    assert len({node.name for node in found}) == len(found)


def test_gpu_nodes_carry_the_labels_the_taint_and_the_devices_of_their_group(stack: Recording) -> None:
    for node in cloud_nodes.nodes(world(stack)):
        group = stack.settings.node_groups.get(node.group)
        if group is None:
            assert (node.gpus, node.efa, node.taints) == (0, 0, ())
            continue
        assert node.gpus == group.facts.gpus
        assert node.efa == group.efa_interfaces
        assert node.labels["nvidia.com/gpu.present"] == "true"
        assert node.labels["node.kubernetes.io/instance-type"] == group.instance_type
        assert node.taints == ({"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"},)


def template(name: str, *, nvme: bool) -> dict[str, Any]:
    node = Bootstrap(instance_type=INSTANCE_TYPES[name], lustre_net="tcp")
    data = base64.b64encode(user_data(node).encode()).decode() if nvme else ""
    mappings = [{"ebs": {"volumeSize": 50}}]
    return {"instanceType": name, "userData": data, "blockDeviceMappings": mappings}


@pytest.mark.parametrize("name", [name for name, facts in INSTANCE_TYPES.items() if facts.nvme_gb])
def test_a_node_offers_no_less_disk_than_the_program_plans_with(name: str) -> None:
    _, allocatable = cloud_nodes._offers(INSTANCE_TYPES[name], template(name, nvme=True))

    assert quantity(allocatable["ephemeral-storage"]) >= INSTANCE_TYPES[name].allocatable_nvme_gib * GIB


@pytest.mark.parametrize("name", list(INSTANCE_TYPES))
def test_without_the_set_up_in_its_user_data_a_node_offers_its_root_disk_alone(name: str) -> None:
    capacity, _ = cloud_nodes._offers(INSTANCE_TYPES[name], template(name, nvme=False))

    assert quantity(capacity["ephemeral-storage"]) <= 50 * GIB


@pytest.mark.parametrize("name", [name for name, facts in INSTANCE_TYPES.items() if facts.gpus])
def test_a_node_offers_the_cpus_and_the_memory_that_its_servers_ask_for(name: str) -> None:
    facts = INSTANCE_TYPES[name]
    _, allocatable = cloud_nodes._offers(facts, template(name, nvme=True))
    cpu, memory = sizing.cpu_request(facts, facts.gpus), sizing.memory_request_gib(facts, facts.gpus)

    assert float(allocatable["cpu"].removesuffix("m")) > 1000 * cpu
    assert quantity(allocatable["memory"]) > memory * GIB


def test_user_data_without_a_node_config_sets_nothing_up() -> None:
    assert cloud_nodes.node_config("") == {}
    assert cloud_nodes.node_config(base64.b64encode(b"#!/bin/sh\necho\n").decode()) == {}
