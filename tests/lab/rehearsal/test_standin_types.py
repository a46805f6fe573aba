"""What the SDKs' own types find in inputs, and what the stand-ins' tables say against the API models."""

import pytest

from lab.rehearsal.providers import sdk_types, wire
from lab.rehearsal.providers.aws_types import BLOCKS, KINDS, LUSTRE, PARTS, REFERENCES

VPC = "aws:ec2/vpc:Vpc"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"


def deployment(**container: object) -> dict[str, object]:
    pod = {"containers": [{"name": "serve", **container}]}
    return {"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {"spec": pod}}}


def test_inputs_that_fit_are_no_problem():
    assert sdk_types.problems(VPC, {"cidrBlock": "10.0.0.0/16", "tags": {"a": "b"}, "enableDnsSupport": True}) == []


def test_an_unknown_nested_property_is_found_with_its_path_and_the_nearest_name():
    found = sdk_types.problems(DEPLOYMENT, deployment(ports=[{"containerPortt": 80, "containerPort": 80}]))
    path = "spec.template.spec.containers[0].ports[0].containerPortt"
    assert found == [f"{path}: no such property of ContainerPortArgs; did you mean containerPort?"]


def test_a_missing_required_property_is_found_at_any_depth():
    assert "subnetIds: required by LustreFileSystemArgs, and missing" in sdk_types.problems(LUSTRE, {})
    found = sdk_types.problems(DEPLOYMENT, deployment(env=[{"value": "x"}]))
    assert found == ["spec.template.spec.containers[0].env[0].name: required by EnvVarArgs, and missing"]


@pytest.mark.parametrize(
    ("inputs", "complaint"),
    [
        ({"enableDnsSupport": "yes"}, "enableDnsSupport: true or false is wanted, not 'yes'"),
        ({"tags": {"a": 1}}, "tags.a: a string is wanted, not 1"),
        ({"tags": ["a"]}, "tags: a mapping is wanted, not ['a']"),
        ({"ipv4NetmaskLength": "16"}, "ipv4NetmaskLength: a number is wanted, not '16'"),
        ({"ipv4NetmaskLength": 16.5}, "ipv4NetmaskLength: a whole number is wanted, not 16.5"),
    ],
)
def test_a_value_of_the_wrong_kind_is_found(inputs: dict[str, object], complaint: str):
    assert sdk_types.problems(VPC, inputs) == [complaint]


def test_a_number_as_a_quantity_is_found_because_the_sdk_wants_text():
    limits = {"limits": {"nvidia.com/gpu": 8}}
    path = 'spec.template.spec.containers[0].resources.limits["nvidia.com/gpu"]'
    assert sdk_types.problems(DEPLOYMENT, deployment(resources=limits)) == [f"{path}: a string is wanted, not 8"]


def test_a_value_outside_an_enum_is_found():
    found = sdk_types.problems("eks:index:Cluster", {"authenticationMode": "AP"})
    assert found == ["authenticationMode: 'AP' is not one of CONFIG_MAP, API, API_AND_CONFIG_MAP"]


def test_a_component_wants_a_resource_where_its_type_says_so():
    reference = {wire.SIG: wire.RESOURCE, "urn": "urn:pulumi:a::b::aws:iam/role:Role::c", "id": "c"}
    assert sdk_types.problems("eks:index:Cluster", {"serviceRole": reference}) == []
    assert sdk_types.problems("eks:index:Cluster", {"serviceRole": "arn"}) == [
        "serviceRole: a resource (Role) is wanted, not 'arn'"
    ]


def test_unknown_values_pass_and_secrets_are_looked_into():
    assert sdk_types.problems(VPC, {"cidrBlock": wire.UNKNOWN, "tags": wire.UNKNOWN}) == []
    assert sdk_types.problems(VPC, {"tags": wire.secret({"a": 1})}) == ["tags.a: a string is wanted, not 1"]


def test_a_custom_resource_has_no_type_and_so_no_problems():
    assert sdk_types.problems("kubernetes:example.com/v1:Widget", {"spec": {"anything": 1}}) == []


def test_the_configuration_of_a_provider_is_checked_too():
    found = sdk_types.config_problems("aws", {"region": "eu-west-1", "alowedAccountIds": []})
    assert [problem.path for problem in found] == [("alowedAccountIds",)]


@pytest.mark.parametrize("token", KINDS)
def test_every_entry_of_the_table_names_properties_that_the_sdk_has(token: str):
    known = sdk_types.input_names(token)
    assert known
    for prop in f"{KINDS[token].replaces} {KINDS[token].unique}".split():
        assert prop.split(".")[0] in known


def test_references_and_blocks_name_types_of_the_table():
    named = {reference.type for reference in REFERENCES.values()} | BLOCKS.keys() | PARTS.keys()
    named |= {token for _, types in BLOCKS.values() for token in types or ()}
    named |= {token for _, types in PARTS.values() for token in types}
    assert named <= KINDS.keys()


def test_changes_are_found_as_deep_as_they_are():
    old = {"a": {"b": [1, 2]}, "c": 1, "__defaults": ["c"]}
    new = {"a": {"b": [1, 3, 4]}, "d": {"x.y": 1}}
    found = [(wire.path_text(path), change) for path, change in wire.changes(old, new)]
    assert found == [("a.b[1]", "update"), ("a.b[2]", "add"), ("c", "delete"), ("d", "add")]


def test_the_same_json_written_otherwise_is_no_change():
    assert list(wire.changes({"policy": '{"a": 1, "b": 2}'}, {"policy": '{"b":2,"a":1}'})) == []


def test_an_update_keeps_what_the_cloud_added_and_drops_what_the_program_took_away():
    state = {"vpcConfig": {"subnetIds": ["a"], "clusterSecurityGroupId": "sg"}, "tags": {"a": "b"}, "arn": "x"}
    old, new = {"vpcConfig": {"subnetIds": ["a"]}, "tags": {"a": "b"}}, {"vpcConfig": {"subnetIds": ["b"]}}
    assert wire.carried(state, old, new) == {
        "vpcConfig": {"subnetIds": ["b"], "clusterSecurityGroupId": "sg"},
        "arn": "x",
    }
