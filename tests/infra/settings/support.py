"""A good stack, changes to it, and what is found then."""

import copy
from typing import Any

from infra.settings import Finding, Settings, check

ROLE = "arn:aws:iam::111122223333:role/deploy"
AWS: dict[str, Any] = {"region": "us-east-1", "allowedAccountIds": ["111122223333"]}
STACK: dict[str, Any] = {
    "network": {"cidr": "10.20.0.0/16", "zones": ["us-east-1a", "us-east-1b"], "dataZone": "us-east-1a"},
    "cluster": {},
    "nodeGroups": {
        "p5": {"instanceType": "p5.48xlarge", "size": {"desired": 2, "max": 2}},
        "g6": {"instanceType": "g6.2xlarge", "size": {"desired": 1, "max": 1}},
    },
    "storage": {"capacityGib": 14400, "throughput": 1000, "efa": True},
    "models": {
        "large": {"source": "path:/fsx/models/large/1", "inPlace": True, "revision": "1", "sizeGib": 440},
        "small": {"source": "path:/fsx/models/small/1", "inPlace": True, "revision": "1", "sizeGib": 15},
    },
    "modelServers": {
        "big": {"model": "large", "nodeGroup": "p5", "gpus": 8},
        "tiny": {"model": "small", "nodeGroup": "g6", "gpus": 1},
    },
}
BUCKET = {"source": "s3://bucket/large", "revision": "1", "sizeGib": 440}
HUB = {"source": f"hf://org/name@{'0' * 40}", "revision": "1", "sizeGib": 440}
FOLDER = {"source": "path:/fsx/s3/large", "revision": "1", "sizeGib": 440}
DELETE = object()


def changed(changes: dict[str, Any], base: dict[str, Any] = STACK) -> dict[str, Any]:
    """A stack with values set (or deleted) by dotted key."""
    values = copy.deepcopy(base)
    for key, value in changes.items():
        *path, last = key.split(".") if ":" not in key else [key]
        place = values
        for part in path:
            place = place.setdefault(part, {})
        if value is DELETE:
            place.pop(last, None)
        else:
            place[last] = value
    return values


def findings(changes: dict[str, Any], aws: dict[str, Any] | None = None) -> list[Finding]:
    provider = {name: value for name, value in {**AWS, **(aws or {})}.items() if value is not DELETE}
    return check(config(changed(changes), provider), "test")[1]


def config(stack: dict[str, Any], aws: dict[str, Any]) -> dict[str, Any]:
    """A stack and the provider's keys, as the stack file spells them; a key with a namespace stays as it is."""
    named = {key if ":" in key else f"faststart:{key}": value for key, value in stack.items()}
    return named | {f"aws:{key}": value for key, value in aws.items()}


def refusals(changes: dict[str, Any], aws: dict[str, Any] | None = None) -> list[Finding]:
    return [finding for finding in findings(changes, aws) if finding.refuses]


def warnings(changes: dict[str, Any], aws: dict[str, Any] | None = None) -> list[str]:
    return [finding.key for finding in findings(changes, aws) if not finding.refuses]


def settings(changes: dict[str, Any] | None = None) -> Settings:
    read, found = check(config(changed(changes or {}), AWS), "test")
    assert read is not None, found
    return read
