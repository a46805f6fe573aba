"""The Job that removes a revision from inside the cluster: a publishing Job's pod with other arguments."""

import re
from collections.abc import Mapping
from typing import Any

from infra import layout
from infra.layout import SYSTEM_NAMESPACE
from infra.namespaces import PUBLISH_ACCOUNT
from infra.node_groups import SYSTEM_GROUP
from workloads.published_model import object_name, publisher_pod

# The image is pulled first, and it is large; the deletion itself takes seconds.
_DEADLINE_SECONDS = 1800
_KEPT_SECONDS = 3600


def name(model: str, revision: str) -> str:
    """Name of the Job."""
    return object_name(model, revision, "remove")


def manifest(model: str, revision: str, region: str) -> dict[str, Any]:
    """The Job as kubectl takes it.

    Args:
        model: The model's name.
        revision: The revision of it that is removed.
        region: The region of the cluster.
    """
    labels = {
        "app.kubernetes.io/name": "remove",
        "app.kubernetes.io/instance": name(model, revision),
        "app.kubernetes.io/part-of": "faststart",
        "faststart.dev/model": model,
        "faststart.dev/revision": revision,
    }
    arguments = [
        "--remove",
        layout.model_path(model, revision),
        "--staging",
        layout.staging_path(model, revision),
        "--termination-log",
        layout.TERMINATION_LOG,
    ]
    pod = publisher_pod(
        arguments,
        account=PUBLISH_ACCOUNT,
        region=region,
        node_group=SYSTEM_GROUP,
        claim_name=layout.READ_WRITE_CLAIM,
    )
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name(model, revision), "namespace": SYSTEM_NAMESPACE, "labels": labels},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": _DEADLINE_SECONDS,
            "ttlSecondsAfterFinished": _KEPT_SECONDS,
            "template": {"metadata": {"labels": labels}, "spec": in_camel_case(pod)},
        },
    }


def in_camel_case(value: Any) -> Any:
    """What Pulumi's SDK takes, with the keys as Kubernetes spells them."""
    if isinstance(value, Mapping):
        return {
            re.sub("_([a-z])", lambda found: found[1].upper(), key): in_camel_case(one) for key, one in value.items()
        }
    return [in_camel_case(one) for one in value] if isinstance(value, list) else value
