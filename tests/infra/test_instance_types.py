"""The instance table against a second source: DescribeInstanceTypes as moto recorded it."""

import inspect
import re
from typing import Any

import boto3
import pytest
from moto import mock_aws

from infra import instance_types
from infra.instance_types import CPU_TYPES, GPU_TYPES, INSTANCE_TYPES, InstanceType

# Where the two sources differ, and why ours stands: moto adds up what each card could do, Karpenter's reference gives
# the instance's limit, which is what a copy sees.
KNOWN_DIFFERENCES = {
    ("g6e.24xlarge", "network_gbps"): 400,
    ("g6e.48xlarge", "network_gbps"): 1600,
    # moto counts the 8 cards at half of the 400 Gbit/s that AWS gives each.
    ("p6-b200.48xlarge", "network_gbps"): 1600,
    # moto counts card 0, which has no EFA and serves the host.
    ("p6-b300.48xlarge", "network_gbps"): 6750,
}


@pytest.fixture(scope="module")
def recorded() -> dict[str, dict[str, Any]]:
    with mock_aws():
        ec2 = boto3.client("ec2", region_name="us-east-1")
        pages = [ec2.describe_instance_types(InstanceTypes=[name])["InstanceTypes"] for name in INSTANCE_TYPES]
    return {one["InstanceType"]: one for (one,) in pages}


def as_moto_says(one: dict[str, Any]) -> dict[str, Any]:
    (gpu,) = one.get("GpuInfo", {}).get("Gpus", [{}])
    network = one["NetworkInfo"]
    return {
        "vcpus": one["VCpuInfo"]["DefaultVCpus"],
        "memory_gib": one["MemoryInfo"]["SizeInMiB"] / 1024,
        "gpus": gpu.get("Count", 0),
        "gpu": gpu.get("Name", ""),
        "gpu_memory_mib": gpu.get("MemoryInfo", {}).get("SizeInMiB", 0),
        "nvme_gb": one.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0),
        "network_gbps": sum(card["BaselineBandwidthInGbps"] for card in network["NetworkCards"]),
        "network_cards": network["MaximumNetworkCards"],
        "efa": network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
    }


def test_each_row_agrees_with_describe_instance_types_but_for_the_named_differences(
    recorded: dict[str, dict[str, Any]],
) -> None:
    differences = {
        (name, fact): value
        for name, row in INSTANCE_TYPES.items()
        for fact, value in as_moto_says(recorded[name]).items()
        if getattr(row, fact) != value
    }

    assert differences == KNOWN_DIFFERENCES


def test_every_type_is_x86_64_as_the_ami_types_of_the_node_groups_are(recorded: dict[str, dict[str, Any]]) -> None:
    assert {
        name for name, one in recorded.items() if one["ProcessorInfo"]["SupportedArchitectures"] != ["x86_64"]
    } == set()


def test_where_one_card_fewer_has_efa_card_0_is_the_one_without(recorded: dict[str, dict[str, Any]]) -> None:
    fewer = {name for name in GPU_TYPES if 0 < INSTANCE_TYPES[name].efa < INSTANCE_TYPES[name].network_cards}

    assert fewer == {"p6-b300.48xlarge"}


@pytest.mark.parametrize("name", GPU_TYPES)
def test_lnet_interfaces_follow_aws_s_client_script(name: str) -> None:
    """p6-b300 16; p6-b200, p5en, p5e and p5.48xlarge 8; other types with several cards 2, with one card 1."""
    row = INSTANCE_TYPES[name]
    if row.lustre_efa == "no":
        want = 0
    elif name == "p6-b300.48xlarge":
        want = 16
    elif row.gpus == 8 and name.startswith(("p5", "p6")):
        want = 8
    else:
        want = 2 if row.network_cards > 1 else 1

    assert row.lnet == want


def test_a_type_without_efa_or_before_nitro_v4_is_no_efa_client_of_lustre() -> None:
    for name in GPU_TYPES:
        row = INSTANCE_TYPES[name]
        assert (row.lustre_efa == "no") == (row.efa == 0 or row.gpu == "A100"), name


def test_the_families_of_the_first_release_are_there() -> None:
    families = {name.split(".")[0] for name in INSTANCE_TYPES}

    assert {"g6", "g6e", "p4d", "p5", "p5e", "p5en", "p6-b200", "p6-b300"} <= families


@pytest.mark.parametrize(
    ("name", "gib"), [("g6.8xlarge", 753), ("g6.16xlarge", 1575), ("g6.48xlarge", 6300), ("p5.48xlarge", 25480)]
)
def test_allocatable_nvme_is_below_the_figure_without_what_xfs_keeps(name: str, gib: int) -> None:
    assert 0.98 * gib < INSTANCE_TYPES[name].allocatable_nvme_gib <= gib


def test_a_row_is_one_line_of_the_table() -> None:
    source = inspect.getsource(instance_types)

    assert re.findall(r'InstanceType\("([^"]+)".*\),$', source, re.MULTILINE) == list(INSTANCE_TYPES)
    assert len(InstanceType._fields) == 12


def test_every_system_type_takes_no_gpu_and_every_gpu_type_has_nvme() -> None:
    assert all(INSTANCE_TYPES[name].gpus == 0 for name in CPU_TYPES)
    assert all(INSTANCE_TYPES[name].nvme_gb > 0 for name in GPU_TYPES)
