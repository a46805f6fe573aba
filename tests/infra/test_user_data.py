"""The user data of GPU nodes: a changed byte rolls them and wipes their NVMe, so each type's is pinned."""

import base64
import email
import json
import os
from pathlib import Path
from typing import Any

import pytest

from infra.bootstrap import Bootstrap, mime_document, user_data
from infra.instance_types import GPU_TYPES, INSTANCE_TYPES
from tests.recording import Recording

GOLDEN = Path(__file__).parent / "user_data"

TYPES = [INSTANCE_TYPES[name] for name in GPU_TYPES]
NODES = {
    f"{one.name}-{node.lustre_net}": node
    for one in TYPES
    for node in [
        Bootstrap(instance_type=one, lustre_net="tcp"),
        *([Bootstrap(instance_type=one, lustre_net="efa")] if one.lnet else []),
    ]
}
"""Every node that a stack can have, by the name of its golden file."""


def parts(text: str) -> list[tuple[str, str]]:
    """The parts as the standard library reads them: the second source of our own MIME writer."""
    message = email.message_from_string(text)
    assert message.is_multipart()
    assert not message.defects
    return [(part.get_content_type(), str(part.get_payload())) for part in message.walk() if not part.is_multipart()]


@pytest.mark.parametrize("name", NODES)
def test_user_data_is_the_golden_file_byte_by_byte(name: str) -> None:
    path, text = GOLDEN / f"{name}.mime", user_data(NODES[name])
    if os.environ.get("FASTSTART_WRITE_GOLDEN"):
        path.write_text(text)

    assert path.read_text() == text


def test_no_golden_file_is_left_of_a_node_that_is_gone() -> None:
    assert {path.stem for path in GOLDEN.glob("*.mime")} == set(NODES)


@pytest.mark.parametrize("name", NODES)
def test_user_data_puts_nvme_under_the_kubelet_and_leaves_room_for_eks_s_own_part(name: str) -> None:
    ((kind, body),) = parts(user_data(NODES[name]))
    config: dict[str, Any] = json.loads(body)

    assert kind == "application/node.eks.aws"
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert config["spec"]["instance"]["localStorage"]["strategy"] == "RAID0"
    assert config["spec"]["featureGates"] == {"FastImagePull": True}
    assert len(user_data(NODES[name]).encode()) < 12 * 1024


@pytest.mark.parametrize("name", NODES)
def test_user_data_sets_nothing_that_eks_sets_too(name: str) -> None:
    """Whether EKS's part comes before or after ours is not documented: what both set could be either's."""
    ((_, body),) = parts(user_data(NODES[name]))
    spec = json.loads(body)["spec"]

    assert "cluster" not in spec
    assert not {"maxPods", "clusterDNS"} & spec["kubelet"]["config"].keys()
    assert "flags" not in spec["kubelet"]


def test_parts_survive_the_way_through_mime() -> None:
    written = [
        ("application/node.eks.aws", '{"a": 1}\n'),
        ('text/x-shellscript; charset="us-ascii"', "#!/bin/sh\ntrue\n"),
    ]

    read = parts(mime_document(written))

    assert [(kind, body.rstrip("\n")) for kind, body in read] == [
        ("application/node.eks.aws", '{"a": 1}'),
        ("text/x-shellscript", "#!/bin/sh\ntrue"),
    ]


def test_the_launch_template_carries_its_group_s_user_data_in_base64(stack: Recording) -> None:
    templates = [one for one in stack.of("aws:ec2/launchTemplate:LaunchTemplate") if "GpuNodeGroup$" in one.urn]

    assert len(templates) == len(stack.settings.node_groups)
    for template in templates:
        text = base64.b64decode(template.inputs["userData"]).decode()
        (group,) = [one for one in stack.of("aws:eks/nodeGroup:NodeGroup") if one.name == template.name]
        expected = group.inputs["labels"]["faststart.dev/lustre-expected"]
        assert text == (GOLDEN / f"{template.inputs['instanceType']}-{expected}.mime").read_text()
