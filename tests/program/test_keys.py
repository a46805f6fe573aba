"""Each key that the stack file accepts changes something that the program registers."""

import functools
import json
from typing import Any

import pytest

from infra.settings import key_reference
from tests import recording

ROLE = "arn:aws:iam::111122223333:role/other"
ENTRY = {"roleArn": ROLE, "policy": "view", "namespaces": ["models"]}

HUB = {"source": "hf://org/name@main", "revision": "1", "sizeGib": 9}
FOLDER = {"source": "path:/fsx/o", "revision": "1", "sizeGib": 9}

# For each key a second good value; with what must change beside it for the stack to stay good.
CHANGES: dict[str, dict[str, Any]] = {
    "aws:region": {
        "aws:region": "us-east-2",
        "faststart:network.zones": ["us-east-2a", "us-east-2b"],
        "faststart:network.dataZone": "us-east-2a",
    },
    "aws:defaultTags": {"aws:defaultTags": {"tags": {"other": "tag"}}},
    "faststart:network.cidr": {"faststart:network.cidr": "10.99.0.0/16"},
    "faststart:network.zones": {"faststart:network.zones": ["us-east-1a", "us-east-1b", "us-east-1c"]},
    "faststart:network.dataZone": {"faststart:network.dataZone": "us-east-1b"},
    "faststart:network.nat": {"faststart:network.nat": "single"},
    "faststart:cluster.name": {"faststart:cluster.name": "other"},
    "faststart:cluster.version": {"faststart:cluster.version": "1.36"},
    "faststart:cluster.endpoint.public": {"faststart:cluster.endpoint": {"public": True, "cidrs": ["203.0.113.0/24"]}},
    "faststart:cluster.endpoint.cidrs": {"faststart:cluster.endpoint": {"public": True, "cidrs": ["198.51.100.0/24"]}},
    "faststart:cluster.access.deployRole": {
        "faststart:cluster.access.deployRole": ROLE,
        "aws:assumeRoles": [{"roleArn": ROLE}],
    },
    "faststart:cluster.access.entries.<name>.roleArn": {"faststart:cluster.access.entries": {"a": ENTRY}},
    "faststart:cluster.access.entries.<name>.policy": {
        "faststart:cluster.access.entries": {"a": ENTRY | {"policy": "edit"}}
    },
    "faststart:cluster.access.entries.<name>.namespaces": {
        "faststart:cluster.access.entries": {"a": ENTRY | {"namespaces": []}}
    },
    "faststart:cluster.deletionProtection": {"faststart:cluster.deletionProtection": False},
    "faststart:cluster.logRetentionDays": {"faststart:cluster.logRetentionDays": 30},
    "faststart:systemNodes.instanceType": {"faststart:systemNodes": {"instanceType": "m6i.2xlarge"}},
    "faststart:systemNodes.size.min": {"faststart:systemNodes": {"size": {"min": 2, "desired": 2, "max": 3}}},
    "faststart:systemNodes.size.desired": {"faststart:systemNodes": {"size": {"min": 1, "desired": 3, "max": 3}}},
    "faststart:systemNodes.size.max": {"faststart:systemNodes": {"size": {"min": 1, "desired": 2, "max": 4}}},
    "faststart:systemNodes.rootGib": {"faststart:systemNodes": {"rootGib": 200}},
    "faststart:nodeGroups.<name>.instanceType": {"faststart:nodeGroups.p5.instanceType": "p5en.48xlarge"},
    "faststart:nodeGroups.<name>.capacity": {"faststart:nodeGroups.p5.capacity": "spot"},
    "faststart:nodeGroups.<name>.size.min": {"faststart:nodeGroups.p5.size": {"min": 1, "desired": 1, "max": 1}},
    "faststart:nodeGroups.<name>.size.desired": {"faststart:nodeGroups.p5.size": {"min": 0, "desired": 0, "max": 1}},
    "faststart:nodeGroups.<name>.size.max": {"faststart:nodeGroups.p5.size": {"min": 0, "desired": 1, "max": 2}},
    "faststart:nodeGroups.<name>.efa": {"faststart:nodeGroups.p5.efa": False},
    "faststart:storage.capacityGib": {"faststart:storage.capacityGib": 19200},
    "faststart:storage.throughput": {"faststart:storage.throughput": 500, "faststart:storage.capacityGib": 9600},
    "faststart:storage.efa": {"faststart:storage.efa": False},
    "faststart:storage.protect": {"faststart:storage.protect": False},
    "faststart:models.<name>.source": {"faststart:models.qwen3-235b-a22b.source": "path:/fsx/elsewhere"},
    "faststart:models.<name>.allowPickle": {"faststart:models.qwen3-235b-a22b.allowPickle": True},
    "faststart:models.<name>.tokenizer": {"faststart:models.qwen3-235b-a22b.tokenizer": "none"},
    "faststart:models.<name>.tokenSecret": {"faststart:models.other": HUB | {"tokenSecret": "hub"}},
    "faststart:models.<name>.inPlace": {"faststart:models.other": FOLDER | {"inPlace": True}},
    "faststart:models.<name>.revision": {"faststart:models.qwen3-235b-a22b.revision": "other"},
    "faststart:models.<name>.sizeGib": {"faststart:models.qwen3-235b-a22b.sizeGib": 300},
    "faststart:models.<name>.files": {"faststart:models.qwen3-235b-a22b.files": ["*.safetensors", "*.json"]},
    "faststart:modelServers.<name>.model": {
        "faststart:models.other": FOLDER,
        "faststart:modelServers.qwen3.model": "other",
    },
    "faststart:modelServers.<name>.nodeGroup": {
        "faststart:nodeGroups.two": {"instanceType": "p5.48xlarge", "size": {"min": 0, "desired": 1, "max": 1}},
        "faststart:modelServers.qwen3.nodeGroup": "two",
    },
    "faststart:modelServers.<name>.replicas": {"faststart:modelServers.qwen3.replicas": 0},
    "faststart:modelServers.<name>.gpus": {"faststart:modelServers.qwen3.gpus": 7},
    "faststart:modelServers.<name>.image": {"faststart:modelServers.qwen3.image": "vllm/vllm-openai:v0.30.0"},
    "faststart:modelServers.<name>.args": {"faststart:modelServers.qwen3.args": ["--seed", "7"]},
    "faststart:modelServers.<name>.preload.parallelCopies": {
        "faststart:modelServers.qwen3.preload": {"parallelCopies": 8}
    },
    "faststart:modelServers.<name>.preload.write": {"faststart:modelServers.qwen3.preload": {"write": "direct"}},
    "faststart:modelServers.<name>.preload.cache": {"faststart:modelServers.qwen3.preload": {"cache": "drop"}},
    "faststart:modelServers.<name>.preload.verify": {"faststart:modelServers.qwen3.preload": {"verify": "none"}},
    "faststart:modelServers.<name>.preload.stallSeconds": {
        "faststart:modelServers.qwen3.preload": {"stallSeconds": 60}
    },
    "faststart:plugins.fsxCsi": {"faststart:plugins": {"fsxCsi": False}},
    "faststart:plugins.efa": {"faststart:plugins": {"efa": False}},
    "faststart:plugins.nvidia": {"faststart:plugins": {"nvidia": False}},
    "faststart:mirrors.charts": {"faststart:mirrors": {"charts": "https://charts.example.com"}},
    "faststart:team": {"faststart:team": "other"},
}
# The provider's own keys: the engine hands them to the AWS provider, and the rules of the settings hold them.
PROVIDER_KEYS = {"aws:allowedAccountIds", "aws:assumeRoles"}
# Keys whose effect shows only beside another value than the stack's.
BASES: dict[str, dict[str, Any]] = {
    "faststart:models.<name>.tokenSecret": {"faststart:models.other": HUB},
    "faststart:models.<name>.inPlace": {"faststart:models.other": FOLDER},
    "faststart:cluster.endpoint.cidrs": CHANGES["faststart:cluster.endpoint.public"],
    "faststart:cluster.access.entries.<name>.policy": CHANGES["faststart:cluster.access.entries.<name>.roleArn"],
    "faststart:cluster.access.entries.<name>.namespaces": CHANGES["faststart:cluster.access.entries.<name>.roleArn"],
    "faststart:modelServers.<name>.model": {
        "faststart:models.other": CHANGES["faststart:modelServers.<name>.model"]["faststart:models.other"]
    },
    "faststart:modelServers.<name>.nodeGroup": {
        "faststart:nodeGroups.two": CHANGES["faststart:modelServers.<name>.nodeGroup"]["faststart:nodeGroups.two"]
    },
}


def accepted_keys() -> set[str]:
    return {row.key for chapter in key_reference.chapters() for row in chapter.rows}


def registered(changes: dict[str, Any]) -> Any:
    return registered_with(json.dumps(changes))


@functools.cache
def registered_with(changes: str) -> Any:
    config = recording.stack_config("article")
    for key, value in json.loads(changes).items():
        name, *path = key.split(".")
        if not path:
            config[name] = value
            continue
        place = config.setdefault(name, {})
        for part in path[:-1]:
            place = place.setdefault(part, {})
        place[path[-1]] = value
    run = recording.run("article", config)
    return {(one.urn, str(one.inputs), one.protect) for one in run.resources}


def test_every_accepted_key_has_a_second_value_here() -> None:
    assert CHANGES.keys() | PROVIDER_KEYS == accepted_keys()


@pytest.mark.parametrize("key", CHANGES)
def test_a_key_changes_something_that_is_registered(key: str) -> None:
    base = BASES.get(key, {})

    assert registered({**base, **CHANGES[key]}) != registered(base)
