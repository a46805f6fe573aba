"""Rules that look at several sections, and what only warns."""

from pathlib import Path
from typing import Any

import pytest

from infra import images, versions
from lab.loopback.registry import write_lock
from tests.infra.settings.support import HUB, ROLE, findings, refusals, warnings

OTHER_ACCOUNT = ROLE.replace("1111", "9999")


def test_pods_of_different_widths_are_refused_by_their_sum_and_not_by_one_way_to_place_them() -> None:
    pods = [4, 3, 3, 2, 2, 2]
    servers = {f"s{i}": {"model": "small", "nodeGroup": "p5", "gpus": gpus} for i, gpus in enumerate(pods)}

    assert refusals({"modelServers": servers}) == []
    assert [
        finding.key for finding in refusals({"modelServers": servers, "nodeGroups.p5.size": {"desired": 1, "max": 1}})
    ] == ["faststart:nodeGroups.p5.size.max"]


def test_pods_of_one_width_are_refused_where_they_cannot_share_a_node() -> None:
    server = {"model": "small", "nodeGroup": "p5", "gpus": 5, "replicas": 3}  # 15 of 16 GPUs, but one pod a node

    (found,) = refusals({"modelServers": {"s": server}})

    assert found.key == "faststart:nodeGroups.p5.size.max"


@pytest.mark.parametrize(
    ("changes", "aws", "key"),
    [
        ({}, {}, "cluster.access.deployRole"),
        ({}, {}, "cluster.endpoint.public"),
        ({}, {}, "cluster.version"),
        ({"cluster.endpoint": {"public": True, "cidrs": ["0.0.0.0/0"]}}, {}, "cluster.endpoint.cidrs"),
        ({"cluster.endpoint": {"public": True, "cidrs": ["128.0.0.0/1"]}}, {}, "cluster.endpoint.cidrs"),
        ({"cluster.endpoint": {"public": True, "cidrs": ["10.0.0.0/8"]}}, {}, "cluster.endpoint.cidrs"),
        ({}, {}, "storage.efa"),
        ({"storage": {"capacityGib": 1200, "throughput": 125, "efa": False}}, {}, "storage.throughput"),
        ({}, {}, "nodeGroups.g6.instanceType"),
        ({"nodeGroups.g6.instanceType": "g6.8xlarge"}, {}, "nodeGroups.g6.instanceType"),
        ({"models.large.sizeGib": 560}, {}, "models.large.sizeGib"),
        ({"nodeGroups.p5.size.desired": 0}, {}, "nodeGroups.p5.size.desired"),
        ({"plugins": {"fsxCsi": False}}, {}, "plugins.fsxCsi"),
        ({"plugins": {"nvidia": False}}, {}, "plugins.nvidia"),
    ],
)
def test_field_knowledge_and_risks_warn_and_do_not_refuse(
    changes: dict[str, Any], aws: dict[str, Any], key: str
) -> None:
    assert f"faststart:{key}" in warnings(changes, aws)
    assert refusals(changes, aws) == []


@pytest.mark.parametrize(
    ("preload", "instance_type", "warned"),
    [
        ({}, "g6.xlarge", []),
        ({"write": "direct", "cache": "drop"}, "g6.xlarge", []),
        ({"write": "buffered"}, "g6.xlarge", ["write"]),
        ({"write": "buffered", "cache": "drop"}, "g6.xlarge", ["write"]),
        ({"cache": "keep"}, "g6.xlarge", ["cache"]),
        ({"write": "buffered", "cache": "keep"}, "g6.xlarge", ["write", "cache"]),
        ({"write": "buffered", "cache": "keep"}, "g6.2xlarge", []),
    ],
)
def test_a_copy_that_is_forced_through_too_little_memory_warns(
    preload: dict[str, str], instance_type: str, warned: list[str]
) -> None:
    """15 GiB want 24 GiB of memory: a g6.xlarge has 16, a g6.2xlarge 32."""
    changes = {"nodeGroups.g6.instanceType": instance_type, "modelServers.tiny.preload": preload}
    found = [finding for finding in findings(changes) if ".preload." in finding.key]

    assert [finding.key for finding in found] == [f"faststart:modelServers.tiny.preload.{key}" for key in warned]
    assert all("wants 24 GiB" in finding.text and "g6.xlarge has 16" in finding.text for finding in found)
    assert refusals(changes) == []


def test_a_stack_over_tcp_with_deploy_role_named_ranges_and_pinned_images_warns_only_of_what_aws_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(images, "LOCK", tmp_path / "images.lock.json")
    write_lock(images.LOCK, dict.fromkeys(versions.IMAGES, f"sha256:{'0' * 64}"))
    changes = {
        "storage.efa": False,
        "cluster.access.deployRole": ROLE,
        "cluster.endpoint": {"public": True, "cidrs": ["198.51.100.7/32"]},
    }

    assert warnings(changes, {"assumeRoles": [{"roleArn": ROLE}]}) == ["faststart:cluster.version"]


@pytest.mark.parametrize(
    ("changes", "assumed", "says"),
    [
        ({"cluster.access.deployRole": ROLE}, [], "aws:assumeRoles must end in the same role"),
        ({"cluster.access.deployRole": ROLE}, [{"roleArn": ROLE + "2"}], "aws:assumeRoles must end in the same role"),
        ({}, [{"roleArn": ROLE}], "set it here too"),
        ({"cluster.access.deployRole": OTHER_ACCOUNT}, [{"roleArn": OTHER_ACCOUNT}], "allowedAccountIds"),
    ],
)  # fmt: skip
def test_the_deploy_role_and_the_assumed_role_are_one(
    changes: dict[str, Any], assumed: list[dict[str, str]], says: str
) -> None:
    found = refusals(changes, {"assumeRoles": assumed})

    assert [finding.key for finding in found] == ["faststart:cluster.access.deployRole"]
    assert says in found[0].text


def test_an_access_entry_for_the_deploy_role_is_refused() -> None:
    entry = {"roleArn": ROLE, "policy": "admin"}
    changes = {"cluster.access": {"deployRole": ROLE, "entries": {"me": entry}}}

    (found,) = refusals(changes, {"assumeRoles": [{"roleArn": ROLE}]})

    assert found.key == "faststart:cluster.access.entries.me.roleArn"


def test_a_mirror_folder_without_a_chart_is_refused(tmp_path: Any) -> None:
    for name in ("aws-fsx-csi-driver", "nvidia-device-plugin"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "Chart.yaml").touch()
    mirror = {"mirrors.charts": str(tmp_path)}

    assert [finding.text.split("/Chart.yaml")[0].split("/")[-1].split()[-1] for finding in refusals(mirror)] == [
        "aws-efa-k8s-device-plugin"
    ]
    assert refusals({**mirror, "plugins.efa": False}) == []


def test_a_server_with_too_many_gpus_is_held_against_disk_and_memory_all_the_same() -> None:
    found = refusals({"modelServers.big.gpus": 9, "models.large.sizeGib": 9000})

    assert [finding.key for finding in found] == [
        "faststart:modelServers.big.gpus",
        "faststart:models.large.sizeGib",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "https://someone:PLANTED@hub.example/org/name",
        "hf://someone:PLANTED@org/name@main",
        "s3://AKIAEXAMPLE:PLANTED@bucket/prefix",
        "s3://AKIAEXAMPLE:PLANTED/more@bucket/prefix",
        "s3://PLANTED@bucket/prefix",
        "https://PLANTED@hub.example/org/name",
        "s3://bucket/prefix?X-Amz-Signature=PLANTED",
        "hf://org/name@main?token=PLANTED",
        "https://hub.example/#access_token=PLANTED",
    ],
)
def test_a_source_with_a_secret_in_it_is_refused_without_being_shown(source: str) -> None:
    (told,) = refusals({"models.large": HUB | {"source": source}})

    assert told.key == "faststart:models.large.source"
    assert "PLANTED" not in str(told)
    assert "s3://bucket/prefix" in str(told)
