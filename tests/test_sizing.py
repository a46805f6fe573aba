"""The rules with numbers, over their whole domain."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra import sizing
from infra.instance_types import GPU_TYPES, INSTANCE_TYPES

VPCS = st.builds(
    lambda prefix, number: str(ipaddress.IPv4Network((number << (32 - prefix), prefix))),
    st.integers(16, 20),
    st.integers(0, 2**16 - 1),
)


@given(VPCS)
def test_subnets_of_all_zones_are_in_the_vpc_and_never_overlap(vpc: str) -> None:
    zones = [f"us-east-1{letter}" for letter in sizing.ZONE_LETTERS]
    subnets = [
        ipaddress.IPv4Network(subnet(vpc, zone))
        for zone in zones
        for subnet in (sizing.private_subnet_cidr, sizing.public_subnet_cidr)
    ]

    assert all(subnet.subnet_of(ipaddress.IPv4Network(vpc)) for subnet in subnets)
    assert not any(one.overlaps(other) for i, one in enumerate(subnets) for other in subnets[i + 1 :])


@pytest.mark.parametrize("name", GPU_TYPES)
def test_servers_that_fill_a_node_s_gpus_ask_for_less_cpu_and_memory_than_it_has(name: str) -> None:
    facts = INSTANCE_TYPES[name]
    # nodeadm's kubeReserved: 11 MiB a pod and 255 MiB; 737 pods is the most that a node of the table takes.
    for gpus in range(1, facts.gpus + 1):
        servers = facts.gpus // gpus
        assert servers * sizing.cpu_request(facts, gpus) < facts.vcpus
        assert servers * sizing.memory_request_gib(facts, gpus) < facts.memory_gib - 1


@pytest.mark.parametrize(
    ("model_gib", "failures"),
    [
        (1, 61),  # at least 60
        (65, 71),  # 70 GB
        (756, 182),  # 405B in bf16, 812 GB: half an hour
    ],
)
def test_the_startup_probe_waits_600_seconds_and_one_and_a_half_a_gigabyte(model_gib: int, failures: int) -> None:
    assert sizing.startup_probe_failures(model_gib) == failures


@given(st.integers(1, 5000))
def test_the_progress_deadline_covers_copy_and_startup(model_gib: int) -> None:
    budget = sizing.copy_seconds(model_gib) + 10 * sizing.startup_probe_failures(model_gib)

    assert sizing.progress_deadline_seconds(model_gib) >= budget + 600


@given(st.integers(1, 5000))
def test_a_copy_is_given_more_disk_than_the_model_has_bytes(model_gib: int) -> None:
    assert sizing.copy_space_gib(model_gib) >= model_gib * 1.05


def test_a_pod_that_fits_no_node_is_an_error_and_not_a_number() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        sizing.nodes_needed([sizing.PodSize(gpus=9, nvme_gib=1)], INSTANCE_TYPES["p5.48xlarge"])


def test_pods_that_share_a_node_are_counted_by_gpu_and_by_disk() -> None:
    facts = INSTANCE_TYPES["g6.12xlarge"]  # 4 GPUs
    small, wide = sizing.PodSize(gpus=1, nvme_gib=10), sizing.PodSize(gpus=1, nvme_gib=sizing.model_space_gib(facts))

    assert sizing.nodes_needed([small] * 4, facts) == 1
    assert sizing.nodes_needed([small] * 5, facts) == 2
    assert sizing.nodes_needed([wide] * 2, facts) == 2
    assert sizing.nodes_needed([], facts) == 0
