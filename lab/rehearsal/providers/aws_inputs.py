"""What AWS's services refuse of a resource's inputs alone, by their API models and by rules of their own.

Asked in Check, so it shows in a preview.
"""

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from lab.rehearsal.providers import wire
from lab.rehearsal.providers.aws_types import (
    GROUP,
    LOG_GROUP,
    LUSTRE,
    NODE_GROUP,
    ROLE,
    SERVICE_SHAPES,
    TEMPLATE,
)
from lab.rehearsal.providers.sdk_types import Problem

Values = dict[str, Any]
Problems = Iterator[Problem]

_NAME_RULES = {  # the services' limits, which the real provider checks before it asks
    ROLE: r"[\w+=,.@-]{1,64}",
    "aws:iam/policy:Policy": r"[\w+=,.@-]{1,128}",
    "aws:iam/instanceProfile:InstanceProfile": r"[\w+=,.@-]{1,128}",
    GROUP: r"(?!sg-)[\w .:/()#,@\[\]+=&;{}!$*-]{1,255}",
    TEMPLATE: r"[\w().\-/]{3,128}",
    LOG_GROUP: r"[\w.\-/#]{1,512}",
    "aws:kms/alias:Alias": r"alias/(?!aws/)[\w/-]{1,250}",
}
_RETENTION_DAYS = (
    *(0, 1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
_EFA_STEP_GIB = {125: 38400, 250: 19200, 500: 9600, 1000: 4800}


def problems(token: str, inputs: Values, region: str) -> Problems:
    """What the services would refuse in plain inputs that fit the SDK's types."""
    if token in SERVICE_SHAPES:
        for prop, value in inputs.items():
            yield from _against(member_of(token, prop), value, (prop,))
    name, rule = inputs.get("name"), _NAME_RULES.get(token)
    if rule and isinstance(name, str) and name != wire.UNKNOWN and not re.fullmatch(rule, name):
        yield Problem(("name",), f"{name!r} is no name for it; it must match {rule}")
    for prop in ("assumeRolePolicy", "policy"):
        text = inputs.get(prop)
        if isinstance(text, str) and wire.UNKNOWN not in text and not _is_json(text):
            yield Problem((prop,), "contains an invalid JSON policy")
    if check := _CHECKS.get(token):
        yield from check(inputs)
    zone = inputs.get("availabilityZone")
    if isinstance(zone, str) and zone != wire.UNKNOWN and zone[:-1] != region:
        yield Problem(("availabilityZone",), f"{zone!r} is no zone of {region}")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except json.JSONDecodeError:
        return False
    return True


@functools.cache
def service_model(service: str) -> Any:
    """The model of a service's API, from botocore's files: no session, no network."""
    from botocore.loaders import Loader
    from botocore.model import ServiceModel

    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def member_of(token: str, prop: str) -> Any:
    """The API model's shape for a property of a type, None where there is none of the same meaning."""
    service, shapes, renamed = SERVICE_SHAPES[token]
    for shape in shapes:
        if found := _member(service_model(service).shape_for(shape), renamed.get(prop, prop)):
            return found
    return None


def _member(shape: Any, name: str) -> Any:
    return shape.members.get(name) or shape.members.get(name[0].upper() + name[1:])


def _against(shape: Any, value: Any, path: wire.Path) -> Problems:
    """Enums, lengths, ranges and patterns of one shape."""
    if shape is None or value is None or (isinstance(value, str) and wire.UNKNOWN in value):
        return
    kind, least, most = shape.type_name, shape.metadata.get("min"), shape.metadata.get("max")
    if kind == "structure" and isinstance(value, dict):
        for name, item in value.items():
            yield from _against(_member(shape, name), item, (*path, name))
    elif kind == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            yield from _against(shape.member, item, (*path, index))
    elif kind == "map" and isinstance(value, dict):
        for name, item in value.items():
            yield from _against(shape.key, name, (*path, name))
            yield from _against(shape.value, item, (*path, name))
    elif kind == "string" and isinstance(value, str):
        pattern = shape.metadata.get("pattern")
        if shape.enum and value not in shape.enum:
            yield Problem(path, f"{value!r} is not one of {', '.join(shape.enum)}")
        elif not (least or 0) <= len(value) <= (most or len(value)):
            yield Problem(path, f"{value!r} has {len(value)} characters, not {least or 0} to {most}")
        elif pattern and "\\p{" not in pattern and not re.fullmatch(pattern, value):
            yield Problem(path, f"{value!r} does not match {pattern}")
    elif kind in ("integer", "long") and isinstance(value, int) and not isinstance(value, bool):
        within = (least is None or value >= least) and (most is None or value <= most)
        yield from [] if within else [Problem(path, f"{value} is not within {least} to {most}")]


def _check_lustre(inputs: Values) -> Problems:
    """Rules of FSx that its API model does not have."""
    looked_at = ("deploymentType", "fileSystemTypeVersion", "metadataConfiguration", "efaEnabled", "storageType")
    if wire.has_unknown([inputs.get(prop) for prop in (*looked_at, "storageCapacity", "perUnitStorageThroughput")]):
        return
    kind, version, metadata, efa, storage = (inputs.get(prop) for prop in looked_at)
    size, tier = inputs.get("storageCapacity"), inputs.get("perUnitStorageThroughput")
    if efa and (kind != "PERSISTENT_2" or not metadata):
        reason = "EFA is only supported for PERSISTENT_2 filesystems with metadata configuration"
        yield Problem(("efaEnabled",), reason)
    if metadata and (kind != "PERSISTENT_2" or version != "2.15"):
        reason = "a metadata configuration needs deploymentType PERSISTENT_2 and fileSystemTypeVersion 2.15"
        yield Problem(("metadataConfiguration",), reason)
    if metadata and metadata.get("mode") == "AUTOMATIC" and metadata.get("iops"):
        yield Problem(("metadataConfiguration", "iops"), "IOPS cannot be set in mode AUTOMATIC")
    if kind != "PERSISTENT_2" or storage not in (None, "SSD"):
        return
    if tier not in _EFA_STEP_GIB:
        yield Problem(("perUnitStorageThroughput",), f"must be one of {', '.join(map(str, _EFA_STEP_GIB))}")
    elif efa and (not size or size % _EFA_STEP_GIB[tier]):
        reason = f"with EFA at {tier} MB/s/TiB it must be a multiple of {_EFA_STEP_GIB[tier]} GiB"
        yield Problem(("storageCapacity",), reason)
    elif not efa and size != 1200 and (not size or size % 2400):
        yield Problem(("storageCapacity",), "must be 1200 or a multiple of 2400 GiB")


def _check_node_group(inputs: Values) -> Problems:
    size = inputs["scalingConfig"]
    if not wire.has_unknown(size) and not size["minSize"] <= size["desiredSize"] <= size["maxSize"]:
        yield Problem(("scalingConfig", "desiredSize"), "must lie between minSize and maxSize")
    if inputs.get("launchTemplate") and inputs.get("diskSize"):
        yield Problem(("diskSize",), "must be given in the launch template when there is one")


def _check_template(inputs: Values) -> Problems:
    data = inputs.get("userData")
    if isinstance(data, str) and wire.UNKNOWN not in data:
        try:
            base64.b64decode(data, validate=True)
        except ValueError:
            yield Problem(("userData",), "invalid BASE64 encoding of user data")


def _check_log_group(inputs: Values) -> Problems:
    days = inputs.get("retentionInDays", 0)
    if days not in (*_RETENTION_DAYS, wire.UNKNOWN):
        yield Problem(("retentionInDays",), f"must be one of {_RETENTION_DAYS}")


_CHECKS: dict[str, Callable[[Values], Problems]] = {
    LUSTRE: _check_lustre,
    NODE_GROUP: _check_node_group,
    TEMPLATE: _check_template,
    LOG_GROUP: _check_log_group,
}
