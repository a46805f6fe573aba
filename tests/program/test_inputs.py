"""Every registration's inputs against the installed SDKs' own types and the service's own API models."""

import botocore.session
import pytest
from botocore.validate import ParamValidator

from lab.rehearsal.providers.sdk_types import problems
from tests import recording
from tests.recording import Recording


def test_every_input_is_one_that_the_sdk_knows_down_to_the_last_nested_key(stack: Recording) -> None:
    """Nested keys of a dictionary reach the engine unchecked: a misspelt one would be ignored by the cloud."""
    packages = ("aws:", "eks:", "kubernetes:")
    found = [
        f"{one.name}: {text}"
        for one in stack.resources
        if one.type.startswith(packages)
        for text in problems(one.type, one.inputs)
    ]

    assert found == []


def test_a_misspelt_nested_key_is_found(stack: Recording) -> None:
    (template, *_) = stack.of("aws:ec2/launchTemplate:LaunchTemplate")
    options = {**template.inputs["metadataOptions"], "httpTokenz": "required"}

    assert problems(template.type, {**template.inputs, "metadataOptions": options}) != []


EKS = botocore.session.get_session().get_service_model("eks")
FSX = botocore.session.get_session().get_service_model("fsx")


def test_node_groups_use_the_enumerations_of_the_eks_api(stack: Recording) -> None:
    shapes = {
        name: EKS.shape_for(name).enum
        for name in ("AMITypes", "CapacityTypes", "NodegroupUpdateStrategies", "TaintEffect")
    }

    for group in stack.of("aws:eks/nodeGroup:NodeGroup"):
        inputs = group.inputs
        assert inputs["amiType"] in shapes["AMITypes"]
        assert inputs.get("capacityType", "ON_DEMAND") in shapes["CapacityTypes"]
        assert inputs["updateConfig"].get("updateStrategy", "DEFAULT") in shapes["NodegroupUpdateStrategies"]
        assert all(taint["effect"] in shapes["TaintEffect"] for taint in inputs.get("taints", []))


def test_the_file_system_is_a_request_that_the_fsx_api_takes(stack: Recording) -> None:
    inputs = stack.one("aws:fsx/lustreFileSystem:LustreFileSystem").inputs
    request = {
        "FileSystemType": "LUSTRE",
        "StorageCapacity": inputs["storageCapacity"],
        "StorageType": inputs["storageType"],
        "SubnetIds": [inputs["subnetIds"]],
        "SecurityGroupIds": ["sg-0123456789abcdef0" for _ in inputs["securityGroupIds"]],
        "FileSystemTypeVersion": inputs["fileSystemTypeVersion"],
        "LustreConfiguration": {
            "DeploymentType": inputs["deploymentType"],
            "PerUnitStorageThroughput": inputs["perUnitStorageThroughput"],
            "EfaEnabled": inputs["efaEnabled"],
            "MetadataConfiguration": {"Mode": inputs["metadataConfiguration"]["mode"]},
            "DataCompressionType": inputs["dataCompressionType"],
            "AutomaticBackupRetentionDays": inputs["automaticBackupRetentionDays"],
        },
    }

    report = ParamValidator().validate(request, FSX.operation_model("CreateFileSystem").input_shape)

    assert not report.has_errors(), report.generate_report()
    for member, value in (
        ("LustreDeploymentType", inputs["deploymentType"]),
        ("StorageType", inputs["storageType"]),
        ("DataCompressionType", inputs["dataCompressionType"]),
        ("MetadataConfigurationMode", inputs["metadataConfiguration"]["mode"]),
    ):
        assert value in FSX.shape_for(member).enum


@pytest.mark.parametrize("stack_name", recording.STACKS)
def test_control_plane_log_types_are_those_of_the_eks_api(stack_name: str) -> None:
    types = EKS.shape_for("LogType").enum

    assert set(recording.run(stack_name).one("eks:index:Cluster").inputs["enabledClusterLogTypes"]) <= set(types)
