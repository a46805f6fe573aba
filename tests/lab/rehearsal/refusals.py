"""Inputs that AWS takes, and changes of them that it refuses by a rule that HashiCorp's provider does not have."""

from typing import Any

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_types import CLUSTER, GROUP, LUSTRE, NODE_GROUP, SUBNET, TEMPLATE
from tests.lab.rehearsal.support import REGION

WELL: dict[str, dict[str, Any]] = {
    CLUSTER: {
        "name": "lab",
        "roleArn": "arn:aws:iam::111122223333:role/lab",
        "vpcConfig": {"subnetIds": ["subnet-1"]},
        "tags": {"k" * 128: "v" * 256, "empty": ""},
    },
    GROUP: {"name": "the nodes: all", "description": "all of a-z (and {these})!"},
    LUSTRE: {
        "deploymentType": "PERSISTENT_2",
        "efaEnabled": True,
        "fileSystemTypeVersion": "2.15",
        "metadataConfiguration": {"mode": "AUTOMATIC"},
        "perUnitStorageThroughput": 1000,
        "storageCapacity": 4800,
        "subnetIds": "subnet-1",
    },
    NODE_GROUP: {
        "clusterName": "lab",
        "nodeRoleArn": "arn",
        "subnetIds": ["a"],
        "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 1},
        "labels": {"example.com/kind": "gpu", "v" * 63: "1.0_x-y"},
    },
    SUBNET: {"vpcId": "v", "availabilityZone": f"{REGION}a", "cidrBlock": "10.0.0.0/24"},
    TEMPLATE: {"userData": "YmFzZTY0"},
}

ALSO_WELL: list[tuple[str, dict[str, Any]]] = [
    (LUSTRE, {"fileSystemTypeVersion": None}),
    (LUSTRE, {"efaEnabled": False, "storageCapacity": 1200}),
    (LUSTRE, {"efaEnabled": False, "metadataConfiguration": None, "fileSystemTypeVersion": "2.12"}),
    (LUSTRE, {"metadataConfiguration": {"mode": "USER_PROVISIONED", "iops": 12000}}),
    (
        LUSTRE,
        {
            "storageType": "INTELLIGENT_TIERING",
            "storageCapacity": None,
            "perUnitStorageThroughput": None,
            "throughputCapacity": 4000,
            "dataReadCacheConfiguration": {"sizingMode": "NO_CACHE"},
        },
    ),
    (SUBNET, {"availabilityZone": f"{REGION}-lon-1a"}),
    (SUBNET, {"availabilityZone": f"{REGION}-wl1-lon-wlz-1"}),
    (SUBNET, {"availabilityZone": "us-east-1b", "region": "us-east-1"}),
    (NODE_GROUP, {"scalingConfig": {"minSize": 0, "desiredSize": 0, "maxSize": 1}}),
    (NODE_GROUP, {"labels": {"a": wire.UNKNOWN}, "tags": {"a": wire.UNKNOWN, "b": None}}),
]

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    (LUSTRE, {"storageCapacity": 7200}, "storageCapacity: with EFA at 1000 MB/s/TiB it must be a multiple of 4800 GiB"),
    (
        LUSTRE,
        {"perUnitStorageThroughput": 125, "storageCapacity": 9600},
        "storageCapacity: with EFA at 125 MB/s/TiB it must be a multiple of 38400 GiB",
    ),
    (LUSTRE, {"efaEnabled": False, "storageCapacity": 3600}, "storageCapacity: must be 1200 or a multiple of 2400 GiB"),
    (LUSTRE, {"perUnitStorageThroughput": 200}, "perUnitStorageThroughput: must be one of 125, 250, 500, 1000"),
    (LUSTRE, {"perUnitStorageThroughput": None}, "perUnitStorageThroughput: must be one of 125, 250, 500, 1000"),
    (LUSTRE, {"metadataConfiguration": None}, "efaEnabled: EFA is only supported for PERSISTENT_2 with a metadata"),
    (
        LUSTRE,
        {"deploymentType": "SCRATCH_2", "metadataConfiguration": None, "perUnitStorageThroughput": None},
        "efaEnabled: EFA is only supported for PERSISTENT_2 with a metadata configuration",
    ),
    (LUSTRE, {"fileSystemTypeVersion": "2.12"}, "metadataConfiguration: a metadata configuration needs"),
    (LUSTRE, {"fileSystemTypeVersion": "2.16"}, "fileSystemTypeVersion: must be one of 2.10, 2.12, 2.15"),
    (
        LUSTRE,
        {"efaEnabled": False, "metadataConfiguration": None, "fileSystemTypeVersion": "2.10", "storageCapacity": 2400},
        "fileSystemTypeVersion: PERSISTENT_2 needs 2.12 or 2.15",
    ),
    (
        LUSTRE,
        {"metadataConfiguration": {"mode": "AUTOMATIC", "iops": 12000}},
        "metadataConfiguration.iops: IOPS cannot be set in mode AUTOMATIC",
    ),
    (
        NODE_GROUP,
        {"scalingConfig": {"minSize": 2, "desiredSize": 1, "maxSize": 2}},
        "scalingConfig.desiredSize: must lie between minSize and maxSize",
    ),
    (
        NODE_GROUP,
        {"scalingConfig": {"minSize": 0, "desiredSize": 3, "maxSize": 2}},
        "scalingConfig.desiredSize: must lie between minSize and maxSize",
    ),
    (NODE_GROUP, {"launchTemplate": {"id": "lt-1", "version": "1"}, "diskSize": 20}, "diskSize: must be given in"),
    (NODE_GROUP, {"labels": {"a b": "c"}}, "labels[\"a b\"]: 'a b' is no name of a label"),
    (NODE_GROUP, {"labels": {"x" * 64: "c"}}, f"labels.{'x' * 64}: '{'x' * 64}' is no name of a label"),
    (NODE_GROUP, {"labels": {"a": "x" * 64}}, f"labels.a: '{'x' * 64}' is no value of a label"),
    (NODE_GROUP, {"labels": {"a": ""}}, "labels.a: '' is no value of a label"),
    (NODE_GROUP, {"labels": {"a": "-b"}}, "labels.a: '-b' is no value of a label"),
    (TEMPLATE, {"userData": "not base64!"}, "userData: invalid BASE64 encoding of user data"),
    (TEMPLATE, {"userData": "abc"}, "userData: invalid BASE64 encoding of user data"),
    (GROUP, {"name": 'a"b'}, "name: 'a\"b' must consist of"),
    (GROUP, {"name": ""}, "name: '' must consist of"),
    (GROUP, {"description": "it's"}, 'description: "it\'s" must consist of'),
    (SUBNET, {"availabilityZone": "us-east-1a"}, f"availabilityZone: 'us-east-1a' is no zone of {REGION}"),
    (SUBNET, {"availabilityZone": REGION}, f"availabilityZone: '{REGION}' is no zone of {REGION}"),
    (SUBNET, {"availabilityZone": f"{REGION}!"}, f"availabilityZone: '{REGION}!' is no zone of {REGION}"),
    (SUBNET, {"region": "us-east-1"}, f"availabilityZone: '{REGION}a' is no zone of us-east-1"),
    (CLUSTER, {"tags": {"x" * 129: "a"}}, f"tags.{'x' * 129}: the key of a tag has 1 to 128 characters, not 129"),
    (CLUSTER, {"tags": {"": "a"}}, 'tags[""]: the key of a tag has 1 to 128 characters, not 0'),
    (CLUSTER, {"tags": {"a": "x" * 257}}, "tags.a: the value of a tag has up to 256 characters, not 257"),
]
"""A type, what is changed in its inputs that are well (None takes something away), and how the complaint begins."""


def changed(token: str, changes: dict[str, Any]) -> dict[str, Any]:
    """The inputs of a type with these changes."""
    return {name: value for name, value in {**WELL[token], **changes}.items() if value is not None}
