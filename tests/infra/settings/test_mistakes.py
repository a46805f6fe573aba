"""Each mistake that the stack file is refused for, by its key, and the good case beside it."""

from typing import Any

import pytest

from tests.infra.settings.support import BUCKET, DELETE, FOLDER, HUB, ROLE, refusals, settings

# What is wrong, the key that the message names, a piece of it that says what would be accepted, and a good twin.
RULES: list[tuple[dict[str, Any], str, str, dict[str, Any]]] = [
    # The network.
    ({"network.cidr": "10.0.0.0/8"}, "network.cidr", "use a /16 to /20", {"network.cidr": "10.0.0.0/20"}),
    ({"network.cidr": "10.20.0.0/21"}, "network.cidr", "too small", {"network.cidr": "192.168.0.0/16"}),
    ({"network.cidr": "10.20.1.0/16"}, "network.cidr", "use one like 10.20.0.0/16", {"network.cidr": "10.21.0.0/16"}),
    ({"network.cidr": "8.8.0.0/16"}, "network.cidr", "no private range", {"network.cidr": "172.16.0.0/16"}),
    ({"network.cidr": "127.0.0.0/16"}, "network.cidr", "use one inside 10.0.0.0/8", {"network.cidr": "10.0.0.0/16"}),
    ({"network.cidr": "10.20.0.0/255.255.0.0"}, "network.cidr", "use 10.20.0.0/16", {"network.cidr": "10.20.0.0/16"}),
    ({"network.zone": ["us-east-1a"]}, "network.zone", "did you mean zones?", {}),
    ({"network.cidr": "172.20.0.0/16"}, "network.cidr", "overlaps", {"network.cidr": "172.21.0.0/16"}),
    ({"network.zones": ["us-east-1a"]}, "network.zones", "at least two", {"network.zones": ["us-east-1b", "us-east-1a"]}),
    ({"network.zones": ["us-east-1a"] * 2}, "network.zones", "twice", {"network.zones": ["us-east-1a", "us-east-1c"]}),
    (
        {"network.zones": ["us-east-1a", "us-west-2b"]},
        "network.zones",
        "use us-east-1a, us-east-1b",
        {"network.zones": ["us-east-1a", "us-east-1g"]},
    ),
    (
        {"network.zones": ["us-east-1a", "us-east-1-bos-1a"]},
        "network.zones",
        "us-east-1a",
        {"network.zones": ["us-east-1a", "us-east-1b", "us-east-1c"]},
    ),
    ({"network.dataZone": "us-east-1c"}, "network.dataZone", "us-east-1a or us-east-1b", {"network.dataZone": "us-east-1b"}),
    ({"network.nat": "none"}, "network.nat", '"single" or "perZone"', {"network.nat": "perZone"}),
    # The cluster.
    ({"cluster.name": "-x"}, "cluster.name", "EKS cluster name", {"cluster.name": "x"}),
    ({"cluster.version": "1.34"}, "cluster.version", '"1.35" or "1.36"', {"cluster.version": "1.36"}),
    ({"cluster.version": 1.35}, "cluster.version", '"1.35"', {"cluster.version": "1.35"}),
    (
        {"cluster.endpoint": {"public": True}},
        "cluster.endpoint.cidrs",
        "name them",
        {"cluster.endpoint": {"public": True, "cidrs": ["203.0.113.0/24"]}},
    ),
    ({"cluster.endpoint": {"cidrs": ["203.0.113.0/24"]}}, "cluster.endpoint.cidrs", "public: true", {}),
    (
        {"cluster.endpoint": {"public": True, "cidrs": ["203.0.113.0/24", "203.0.113.128/25"]}},
        "cluster.endpoint.cidrs",
        "keep the wider",
        {"cluster.endpoint": {"public": True, "cidrs": ["203.0.113.0/25", "203.0.113.128/25"]}},
    ),
    (
        {"cluster.endpoint": {"public": True, "cidrs": ["here"]}},
        "cluster.endpoint.cidrs",
        "203.0.113.0/24",
        {"cluster.endpoint": {"public": True, "cidrs": ["203.0.113.7/32"]}},
    ),
    ({"cluster.logRetentionDays": 8}, "cluster.logRetentionDays", "7, 14", {"cluster.logRetentionDays": 7}),
    (
        {"cluster.access.entries": {"a": {"roleArn": "ci", "policy": "view"}}},
        "cluster.access.entries.a.roleArn",
        "ARN",
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "view"}}},
    ),
    (
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "root"}}},
        "cluster.access.entries.a.policy",
        '"clusterAdmin", "admin", "edit" or "view"',
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "edit", "namespaces": ["models"]}}},
    ),
    (
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "clusterAdmin", "namespaces": ["models"]}}},
        "cluster.access.entries.a.namespaces",
        "leave them out",
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "clusterAdmin"}}},
    ),
    (
        {"cluster.access.entries": {name: {"roleArn": ROLE, "policy": "view"} for name in ("a", "b")}},
        "cluster.access.entries.b.roleArn",
        "the role of a already",
        {"cluster.access.entries": {name: {"roleArn": ROLE + name, "policy": "view"} for name in ("a", "b")}},
    ),
    (
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "view", "namespaces": ["Bad NS"]}}},
        "cluster.access.entries.a.namespaces[0]",
        "no namespace",
        {"cluster.access.entries": {"a": {"roleArn": ROLE, "policy": "view", "namespaces": ["good-ns"]}}},
    ),
    # Nodes.
    (
        {"systemNodes.instanceType": "m7g.xlarge"},
        "systemNodes.instanceType",
        "m7i.xlarge",
        {"systemNodes.instanceType": "m6i.xlarge"},
    ),
    ({"systemNodes.rootGib": 99}, "systemNodes.rootGib", "use 100 or more", {"systemNodes.rootGib": 100}),
    (
        {"systemNodes.size": {"desired": 0, "max": 1}},
        "systemNodes.size",
        "at least 1",
        {"systemNodes.size": {"desired": 1, "max": 1}},
    ),
    (
        {"nodeGroups.p5.instanceType": "p5.24xlarge"},
        "nodeGroups.p5.instanceType",
        "p5.48xlarge",
        {"nodeGroups.p5.instanceType": "p5e.48xlarge"},
    ),
    (
        {"nodeGroups.p5.instanceType": "m7i.xlarge"},
        "nodeGroups.p5.instanceType",
        "no GPU type",
        {"nodeGroups.p5.instanceType": "p5en.48xlarge"},
    ),
    ({"nodeGroups.p5.capacity": "block"}, "nodeGroups.p5.capacity", '"onDemand" or "spot"', {"nodeGroups.p5.capacity": "spot"}),
    (
        {"nodeGroups.p5.size": {"desired": 3, "max": 2}},
        "nodeGroups.p5.size",
        "not in this order",
        {"nodeGroups.p5.size": {"min": 2, "desired": 2, "max": 2}},
    ),
    ({"nodeGroups.p5.size.max": 0}, "nodeGroups.p5.size.max", "use 1 or more", {"nodeGroups.p5.size.max": 3}),
    ({"nodeGroups.g6.efa": True}, "nodeGroups.g6.efa", "g6.8xlarge", {"nodeGroups.p5.efa": True}),
    ({"nodeGroups.p5.zone": "us-east-1b"}, "nodeGroups.p5.zone", "network.dataZone", {}),
    ({"nodeGroups.P5": {}}, "nodeGroups.P5", "node group name", {}),
    ({"nodeGroups.system": {}}, "nodeGroups.system", "node group name", {}),
    ({"nodeGroups.p5.size.desired": True}, "nodeGroups.p5.size.desired", "whole number", {"nodeGroups.p5.size.desired": "2"}),
    ({"nodeGroups.p5": None}, "nodeGroups.p5.instanceType", "is missing", {}),
    # Storage.
    ({"storage.efa": "yes"}, "storage.efa", "true or false", {"storage.efa": "true"}),
    ({"storage.capacityGib": True}, "storage.capacityGib", "whole number", {"storage.capacityGib": "9600"}),
    ({"storage.capacityGib": 7200}, "storage.capacityGib", "use 4800, 9600, 14400", {"storage.capacityGib": 4800}),
    ({"storage.throughput": 200}, "storage.throughput", "125, 250, 500 or 1000", {"storage": {"capacityGib": 1200, "throughput": 250, "efa": False}}),
    (
        {"storage.throughput": 125},
        "storage.capacityGib",
        "use 38400",
        {"storage": {"capacityGib": 38400, "throughput": 125, "efa": True}},
    ),
    (
        {"storage.capacityGib": 3600, "storage.efa": False},
        "storage.capacityGib",
        "use 1200, 2400, 4800",
        {"storage.capacityGib": 2400, "storage.efa": False},
    ),
    ({"storage.efa": DELETE}, "storage.efa", "Fixed at creation", {"storage.capacityGib": 2400, "storage.efa": False}),
    (
        {"storage": {"capacityGib": 1200, "throughput": 125, "efa": False}, "models.large.sizeGib": 1190},
        "storage.capacityGib",
        "1205 GiB of all models",
        {"storage": {"capacityGib": 1200, "throughput": 125, "efa": False}},
    ),
    # Models.
    ({"models.large.source": "gs://b/p"}, "models.large.source", "s3://bucket/prefix", {"models.large": BUCKET}),
    ({"models.large": BUCKET | {"source": "s3://B/p"}}, "models.large.source", "no prefix in a bucket", {"models.large": BUCKET | {"source": "s3://bucket"}}),
    ({"models.large": BUCKET | {"source": "s3://bucket/a b"}}, "models.large.source", "no prefix in a bucket", {"models.large": BUCKET | {"source": "s3://bucket/a/"}}),
    ({"models.large": BUCKET | {"source": "s3://bucket/a/../b"}}, "models.large.source", "no prefix in a bucket", {}),
    ({"models.large": BUCKET | {"source": "s3://bucket/$(HOME)"}}, "models.large.source", "no prefix in a bucket", {}),
    ({"models.large": HUB | {"source": "hf://org/name"}}, "models.large.source", "hf://org/name@revision", {"models.large": HUB}),
    ({"models.large": HUB | {"source": "hf://a/b/c@main"}}, "models.large.source", "hf://org/name@revision", {"models.large": HUB | {"source": "hf://gpt2@main"}}),
    ({"models.large": HUB | {"source": "hf://org/name@a b"}}, "models.large.source", "hf://org/name@revision", {"models.large": HUB | {"source": "hf://org/name@refs/pr/1"}}),
    ({"models.large": BUCKET | {"inPlace": True}}, "models.large.inPlace", "of no use", {"models.large": BUCKET | {"inPlace": False}}),
    ({"models.large": BUCKET | {"tokenSecret": "hub"}}, "models.large.tokenSecret", "of no use", {"models.large": HUB | {"tokenSecret": "hub"}}),
    ({"models.large": HUB | {"tokenSecret": "Hub"}}, "models.large.tokenSecret", "name of a Secret", {}),
    ({"models.large.inPlace": False}, "models.large.source", "set inPlace: true", {"models.large": FOLDER}),
    ({"models.large": FOLDER | {"source": "path:/fsx/models"}}, "models.large.source", "path:/fsx/<folder>", {}),
    ({"models.large": FOLDER | {"source": "path:/fsx/models/large"}}, "models.large.source", "set inPlace: true", {}),
    ({"models.large": FOLDER | {"source": "path:/fsx/models/large/1/sub"}}, "models.large.source", "set inPlace: true", {}),
    ({"models.large.source": "path:/data/x"}, "models.large.source", "path:/fsx/", {}),
    ({"models.large.source": "path:/fsx/../etc"}, "models.large.source", "path:/fsx/", {}),
    ({"models.large.source": "path:/fsx/.faststart/staging"}, "models.large.source", "path:/fsx/<folder>", {}),
    ({"models.small.source": "path:/fsx/models/large/1"}, "models.small.source", "the folder of large", {}),
    ({"models.large.source": "path:/fsx/models"}, "models.large.source", "path:/fsx/<folder>", {}),
    ({"models.large.source": "path:/fsx/a\n/b"}, "models.large.source", "path:/fsx/<folder>", {}),
    ({"models.large.source": "path:/fsx/$(HOME)"}, "models.large.source", "path:/fsx/<folder>", {}),
    ({"models.large": HUB, "models.small.source": "path:/fsx/models/large/1"}, "models.small.source", "the folder of large", {}),
    ({"models.small.source": "path:/fsx/models/large/1/x"}, "models.small.source", "lies in, the folder of large", {}),
    ({"models.large.revision": "-"}, "models.large.revision", "revision", {"models.large.revision": "v1.0_b"}),
    ({"models.large.revision": 2507}, "models.large.revision", "put it in quotes", {"models.large.revision": "2507"}),
    ({"models.large.revision": "2025-07-01 00:00:00 +0000 UTC"}, "models.large.revision", "the date in quotes", {"models.large.revision": "2025-07-01"}),
    ({"models.La": {}}, "models.La", "model name", {}),
    ({"models.small.sizeGib": 0}, "models.small.sizeGib", "use 1 or more", {"models.small.sizeGib": 1}),
    ({"models.large.sizeGib": "big"}, "models.large.sizeGib", "whole number", {"models.large.sizeGib": "440"}),
    ({"models.large.files": "some"}, "models.large.files", "use auto, all or a list of globs", {"models.large.files": "all"}),
    ({"models.large.files": "*.json"}, "models.large.files", "a list of globs", {"models.large.files": ["*.json", "sub/*"]}),
    ({"models.large.files": []}, "models.large.files", "names nothing", {"models.large.files": None}),
    ({"models.large.files": {"auto": True}}, "models.large.files", "is not accepted", {"models.large.files": "auto"}),
    ({"models.large.files": ["auto", "*.json"]}, "models.large.files", "auto stands alone", {"models.large.files": ["auto"]}),
    ({"models.large.files": ["*", "all"]}, "models.large.files", "all stands alone", {"models.large.files": ["all"]}),
    ({"models.large.files": ["*.json", ""]}, "models.large.files[1]", "use one like *.safetensors", {"models.large.files": ["*.json", "*"]}),
    ({"models.large.files": ["/fsx/*"]}, "models.large.files[0]", "inside the model's folder", {"models.large.files": ["fsx/*"]}),
    ({"models.large.files": ["a/../b"]}, "models.large.files[0]", "inside the model's folder", {"models.large.files": ["a..b"]}),
    ({"models.large.files": ["./*"]}, "models.large.files[0]", "inside the model's folder", {"models.large.files": [".*"]}),
    ({"models.large.files": ["original//"]}, "models.large.files[0]", "or folder/", {"models.large.files": ["original/"]}),
    ({"models.large.files": ["/"]}, "models.large.files[0]", "or folder/", {"models.large.files": ["original/*"]}),
    ({"models.large.files": ["-x"]}, "models.large.files[0]", "a flag of preload", {"models.large.files": ["?x", "model-*"]}),
    ({"models.large.files": ["a\nb"]}, "models.large.files[0]", "use ? for", {"models.large.files": ["a?b"]}),
    ({"models.large.files": ["a\0b"]}, "models.large.files[0]", "use ? for", {"models.large.files": ["[ab]*"]}),
    ({"models.large.files": ["$(HOME)"]}, "models.large.files[0]", "use ? for $", {"models.large.files": ["(HOME)"]}),
    ({"models.large.files": [7]}, "models.large.files[0]", "put it in quotes", {"models.large.files": ["7"]}),
    # What fits where.
    ({"models.small.sizeGib": 500}, "models.small.sizeGib", "GiB of NVMe", {"models.small.sizeGib": 16}),
    ({"models.large.sizeGib": 600}, "models.large.sizeGib", "can have 576", {"models.large.sizeGib": 576}),
    ({"modelServers.tiny.gpus": 2}, "modelServers.tiny.gpus", "use 1 to 1", {"modelServers.tiny.gpus": 1}),
    ({"modelServers.big.replicas": 3}, "nodeGroups.p5.size.max", "lower replicas", {"modelServers.big.replicas": 2}),
    ({"modelServers.big.model": "huge"}, "modelServers.big.model", "large or small", {}),
    ({"modelServers.big.nodeGroup": "p6"}, "modelServers.big.nodeGroup", "p5 or g6", {}),
    # Servers.
    ({"modelServers.Big": {}}, "modelServers.Big", "server name", {}),
    ({"modelServers.big.gpus": DELETE}, "modelServers.big.gpus", "GPUs of one pod", {"modelServers.big.gpus": 8}),
    ({"modelServers.big.image": "vllm/vllm-openai"}, "modelServers.big.image", "no fixed tag", {"modelServers.big.image": "x/y:1"}),
    ({"modelServers.big.image": "x/y:latest"}, "modelServers.big.image", "no fixed tag", {"modelServers.big.image": "host:5000/x/y:v1"}),
    ({"modelServers.big.image": "host:5000/x/y"}, "modelServers.big.image", "no fixed tag", {"modelServers.big.image": f"x/y@sha256:{'0' * 64}"}),
    ({"modelServers.big.image": "x y:1"}, "modelServers.big.image", "no image reference", {}),
    (
        {"modelServers.big.image": "vllm/vllm-openai:v0.8.5.post1"},
        "modelServers.big.image",
        "v0.25",
        {"modelServers.big.image": "vllm/vllm-openai:v0.25.1"},
    ),
    ({"modelServers.big.args": ["--port=80"]}, "modelServers.big.args", "it is 8000", {"modelServers.big.args": ["--seed", "1"]}),
    ({"modelServers.big.args": ["--api-key"]}, "modelServers.big.args", "process list", {}),
    ({"modelServers.big.args": ["--api_key=x"]}, "modelServers.big.args", "process list", {}),
    ({"modelServers.big.args": ["--api-k", "x"]}, "modelServers.big.args", "process list", {}),
    ({"modelServers.big.args": ["--tensor_parallel_size=4"]}, "modelServers.big.args", "gpus decides it", {}),
    ({"modelServers.big.args": ["-pp", "2"]}, "modelServers.big.args", "more GPUs", {"modelServers.big.args": ["--max-model-len", "8192", "--model-impl=auto"]}),
    ({"modelServers.big.replicas": 10**9}, "modelServers.big.replicas", "use 1000 or less", {"modelServers.big.replicas": 0}),
    ({"modelServers.big.image": "Docker.io/VLLM/Foo:v1"}, "modelServers.big.image", "no image reference", {"modelServers.big.image": "Docker.io/vllm/foo:v1"}),
    ({"modelServers.big.image": "a//b::v1"}, "modelServers.big.image", "no image reference", {"modelServers.big.image": "a/b_c/d-e:v1_2.3"}),
    ({"modelServers.big.args": "--seed 1"}, "modelServers.big.args", "a list is wanted", {}),
    (
        {"modelServers.big.preload": {"parallelCopies": 0}},
        "modelServers.big.preload.parallelCopies",
        "use 1 or more",
        {"modelServers.big.preload": {"parallelCopies": 64}},
    ),
    (
        {"modelServers.big.preload": {"write": "fast"}},
        "modelServers.big.preload.write",
        '"auto", "direct" or "buffered"',
        {"modelServers.big.preload": {"write": "direct"}},
    ),
    (
        {"modelServers.big.preload": {"cache": True}},
        "modelServers.big.preload.cache",
        '"auto", "keep" or "drop"',
        {"modelServers.big.preload": {"cache": "keep"}},
    ),
    (
        {"modelServers.big.preload": {"stallSeconds": 9}},
        "modelServers.big.preload.stallSeconds",
        "use 10 or more",
        {"modelServers.big.preload": {"stallSeconds": 10}},
    ),
    (
        {"modelServers.big.preload": {"stallSeconds": 86401}},
        "modelServers.big.preload.stallSeconds",
        "use 86400 or less",
        {"modelServers.big.preload": {"stallSeconds": 86400}},
    ),
    (
        {"modelServers.big.preload": {"stallSeconds": "10m"}},
        "modelServers.big.preload.stallSeconds",
        "whole number",
        {"modelServers.big.preload": {"stallSeconds": 120}},
    ),
    (
        {"modelServers.big.preload": {"verify": "md5"}},
        "modelServers.big.preload.verify",
        '"none", "size" or "sha256"',
        {"modelServers.big.preload": {"verify": "sha256"}},
    ),
    (
        {"modelServers.big.preload": {"write": "direct", "cache": "keep"}},
        "modelServers.big.preload.cache",
        "use auto or drop, or another write",
        {"modelServers.big.preload": {"write": "direct", "cache": "drop"}},
    ),
    (
        {"modelServers.big.preload": {"write": "direct", "cache": "keep"}},
        "modelServers.big.preload.cache",
        "write: direct leaves nothing",
        {"modelServers.big.preload": {"write": "buffered", "cache": "drop"}},
    ),
    # The rest.
    ({"mirrors.charts": "charts"}, "mirrors.charts", "./charts", {"mirrors.charts": "https://charts.example.com"}),
    ({"mirrors.charts": "./nowhere"}, "mirrors.charts", "no folder here", {"mirrors.charts": "oci://registry.example.com/charts"}),
    ({"team": 7}, "team", "put it in quotes", {"team": "research"}),
    ({"team": "a b"}, "team", "label value", {"team": "a.b"}),
    ({"plugins.nvidia": "maybe"}, "plugins.nvidia", "true or false", {"plugins.nvidia": False}),
    ({"storage": "small"}, "storage", "a mapping is wanted", {}),
    ({"network": DELETE}, "network.zones", "Availability zones", {}),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "key", "says", "good"), RULES)
def test_a_mistake_is_refused_by_its_stack_key_and_its_good_twin_is_accepted(
    wrong: dict[str, Any], key: str, says: str, good: dict[str, Any]
) -> None:
    found = [finding for finding in refusals(wrong) if finding.key == f"faststart:{key}"]

    assert found, refusals(wrong)
    assert any(says in finding.text for finding in found), found
    assert refusals(good) == []


@pytest.mark.parametrize(
    ("aws", "key"),
    [
        ({"region": DELETE}, "aws:region"),
        ({"region": "cn-north-1"}, "aws:region"),
        ({"region": "us-gov-west-1"}, "aws:region"),
        ({"region": "east"}, "aws:region"),
        ({"allowedAccountIds": DELETE}, "aws:allowedAccountIds"),
        ({"allowedAccountIds": []}, "aws:allowedAccountIds"),
        ({"allowedAccountIds": [111122223333]}, "aws:allowedAccountIds[0]"),
        ({"allowedAccountIds": ["\u0661" * 12]}, "aws:allowedAccountIds[0]"),
        ({"defaultTags": {"tag": {"team": "x"}}}, "aws:defaultTags"),
        ({"profile": "prod"}, "aws:profile"),
    ],
)
def test_a_stack_that_does_not_pin_region_account_and_tags_is_refused(aws: dict[str, Any], key: str) -> None:
    assert key in [finding.key for finding in refusals({}, aws)]


def test_the_safe_choice_is_what_a_stack_gets_that_names_none() -> None:
    read = settings()

    assert read.storage.protect
    assert read.cluster.deletion_protection
    assert not read.cluster.endpoint.public
    assert read.cluster.access.entries == {}
    assert (read.plugins.fsx_csi, read.plugins.efa, read.plugins.nvidia) == (True, True, True)


def test_a_copy_is_by_default_what_preload_does_when_it_is_told_nothing() -> None:
    read = settings()

    assert read.models["large"].files == ["auto"]
    assert read.model_servers["big"].preload.model_dump() == {
        "parallel_copies": 32,
        "write": "auto",
        "cache": "auto",
        "verify": "size",
        "stall_seconds": 600,
    }


def test_settings_are_frozen() -> None:
    with pytest.raises(Exception, match="frozen"):
        settings().network.cidr = "10.0.0.0/16"
