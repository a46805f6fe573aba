"""The rules with numbers, over their whole domain."""

import ipaddress

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from infra import sizing, versions
from infra.instance_types import GPU_TYPES, INSTANCE_TYPES
from infra.plugins import chart_values

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


@pytest.fixture(scope="module")
def most_pods() -> dict[str, int]:
    """The most pods of a node with addresses of the VPC's: (IPv4 an interface - 1) for each that card 0 takes, and 2.

    awslabs/amazon-eks-ami: nodeadm/internal/kubelet/maxpods; the facts are EC2's own, as moto recorded them.
    """
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        pages = [ec2.describe_instance_types(InstanceTypes=[name])["InstanceTypes"] for name in GPU_TYPES]
    networks = {one["InstanceType"]: one["NetworkInfo"] for (one,) in pages}
    return {
        name: network["NetworkCards"][network.get("DefaultNetworkCardIndex", 0)]["MaximumNetworkInterfaces"]
        * (network["Ipv4AddressesPerInterface"] - 1)
        + 2
        for name, network in networks.items()
    }


def reserved_cpu_m(vcpus: int) -> int:
    """What nodeadm keeps for the kubelet: 6 % of a first core, 1 % of the second, 0.5 % of two more, 0.25 % beyond."""
    steps = ((0, 1, 60), (1, 2, 10), (2, 4, 5), (4, vcpus, 2.5))
    return sum(int(max(0, min(vcpus, end) - start) * millicores) for start, end, millicores in steps)


def reserved_memory_mib(pods: int) -> int:
    """What nodeadm keeps for the kubelet, 11 MiB a pod and 255 MiB, and the hard eviction threshold of 100 MiB."""
    return 11 * pods + 255 + 100


# An allowance for all DaemonSets of a node: ours (the test below) and aws-node, kube-proxy and the pod identity agent.
DAEMONS_CPU_M, DAEMONS_MEMORY_MIB = 400, 1024
# The kernel's own, between what EC2 sells and what a node reports: Karpenter's default (vm-memory-overhead-percent).
KERNEL_SHARE = 0.075


def test_what_our_plugins_ask_for_leaves_half_of_the_allowance_to_eks_s_own() -> None:
    """Of the CSI driver the pods on every node; its controller runs on system nodes."""
    asked = [
        chart_values(versions.FSX_CSI_CHART, "us-east-1")["node"]["resources"]["requests"],
        *(
            chart_values(chart, "us-east-1")["resources"]["requests"]
            for chart in (versions.EFA_CHART, versions.NVIDIA_CHART)
        ),
    ]

    assert sum(int(one["cpu"].removesuffix("m")) for one in asked) <= DAEMONS_CPU_M / 2
    assert sum(int(one["memory"].removesuffix("Mi")) for one in asked) <= DAEMONS_MEMORY_MIB / 2


@pytest.mark.parametrize(("vcpus", "millicores"), [(4, 80), (8, 90), (16, 110), (192, 550)])
def test_the_kubelet_s_share_is_nodeadm_s(vcpus: int, millicores: int) -> None:
    assert reserved_cpu_m(vcpus) == millicores


@pytest.mark.parametrize(
    ("name", "gpus"), [(name, n) for name in GPU_TYPES for n in range(1, INSTANCE_TYPES[name].gpus + 1)]
)
def test_servers_that_fill_a_node_s_gpus_fit_beside_kubelet_and_daemons(
    most_pods: dict[str, int], name: str, gpus: int
) -> None:
    """One that asks for more than is allocatable stays Pending on a node that is paid for."""
    facts = INSTANCE_TYPES[name]
    servers = facts.gpus // gpus
    cpu_m = facts.vcpus * 1000 - reserved_cpu_m(facts.vcpus) - DAEMONS_CPU_M
    memory_mib = (
        facts.memory_gib * 1024 * (1 - KERNEL_SHARE) - reserved_memory_mib(most_pods[name]) - DAEMONS_MEMORY_MIB
    )

    assert servers * sizing.cpu_request(facts, gpus) * 1000 <= cpu_m
    assert servers * sizing.memory_request_gib(facts, gpus) * 1024 <= memory_mib


@pytest.mark.parametrize("name", GPU_TYPES)
def test_servers_ask_for_what_the_copy_and_vllm_need_where_the_node_has_it(name: str) -> None:
    """Requests of nothing would fit, too: vLLM wants a core a GPU and one for its API server."""
    facts = INSTANCE_TYPES[name]

    for gpus in range(1, facts.gpus + 1):
        assert sizing.cpu_request(facts, gpus) >= min(gpus + 2, facts.vcpus // 2)
        assert sizing.memory_request_gib(facts, gpus) >= min(8 * gpus, facts.memory_gib // 2)


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


@given(st.integers(1, 5000), st.integers(1, 400_000), st.integers(0, 64))
def test_a_copy_is_given_more_time_than_tcp_from_three_servers_takes_and_than_the_disks_do(
    model_gib: int, mib_per_second: int, pods: int
) -> None:
    """1.9 GB/s is what one client of the article's file system gets over TCP, by a field figure: twice its time."""
    bound = sizing.copy_seconds(model_gib, mib_per_second, pods)

    assert bound >= 2 * model_gib * 2**30 / 1.9e9
    assert bound >= model_gib * 1024 / mib_per_second * pods
    assert sizing.progress_deadline_seconds(model_gib, mib_per_second, pods) >= (
        1200 + bound + 600 + 1.5 * model_gib * 2**30 / 1e9
    )


@given(st.integers(1, 5000), st.integers(1, 400_000), st.integers(0, 64), st.integers(0, 600))
def test_a_roll_out_is_given_the_time_of_each_pod_s_end_and_start(
    model_gib: int, mib_per_second: int, pods: int, grace: int
) -> None:
    bound = sizing.roll_out_seconds(model_gib, mib_per_second, pods, grace)

    assert bound >= sizing.progress_deadline_seconds(model_gib, mib_per_second, pods)
    assert bound >= pods * (grace + sizing.progress_deadline_seconds(model_gib, mib_per_second, 1))


@given(st.integers(1, 5000))
def test_a_copy_is_given_more_disk_than_the_model_has_bytes(model_gib: int) -> None:
    assert sizing.copy_space_gib(model_gib) >= model_gib * 1.05


@pytest.mark.parametrize(("model_gib", "memory_gib"), [(1, 6), (10, 17), (15, 24), (440, 576), (1000, 1304)])
def test_a_copy_goes_through_the_page_cache_from_1_3_times_the_model_and_4_gib_on(
    model_gib: int, memory_gib: int
) -> None:
    assert sizing.page_cache_memory_gib(model_gib) == memory_gib


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


@given(st.integers(-5000, 400_000), st.sampled_from([125, 250, 500, 1000]), st.booleans())
def test_a_capacity_is_accepted_where_its_suggestions_say_so(capacity: int, throughput: int, efa: bool) -> None:
    problem = sizing.lustre_capacity_problem(capacity, throughput, efa=efa)
    if problem:
        for size in problem.partition("; use ")[2].removesuffix(", ...").split(", "):
            assert sizing.lustre_capacity_problem(int(size), throughput, efa=efa) is None
    else:
        assert capacity == 1200 or capacity % (sizing._EFA_STEP_GIB[throughput] if efa else 2400) == 0


@given(
    st.lists(st.tuples(st.integers(1, 8), st.integers(1, 6000)), max_size=12),
    st.sampled_from([name for name in GPU_TYPES if INSTANCE_TYPES[name].gpus == 8]),
)
def test_the_nodes_that_pods_need_hold_them_and_no_fewer_than_their_gpus_fill(
    wanted: list[tuple[int, int]], name: str
) -> None:
    facts = INSTANCE_TYPES[name]
    pods = [sizing.PodSize(gpus=gpus, nvme_gib=min(gib, sizing.model_space_gib(facts))) for gpus, gib in wanted]

    need = sizing.nodes_needed(pods, facts)

    assert need * facts.gpus >= sum(pod.gpus for pod in pods)
    assert need * sizing.model_space_gib(facts) >= sum(pod.nvme_gib for pod in pods)
    assert need <= len(pods)
