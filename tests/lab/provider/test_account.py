"""Resources that the provider's own code makes, reads, changes and deletes in an emulated account (moto)."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from moto.server import ThreadedMotoServer

from lab.provider import mapping, state
from lab.provider.protocol import Plugin, unpacked
from lab.provider.provider import NO_ACCOUNT, FailedError, Made, Provider
from lab.provider.tool import ProviderTool
from lab.rehearsal.providers import sdk_types
from tests.lab.provider.conftest import Stack

pytestmark = pytest.mark.processes

SERVICES = ("ec2", "iam", "logs", "sts")


@pytest.fixture(scope="module")
def account(built: ProviderTool) -> Iterator[Provider]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    config = {
        **NO_ACCOUNT,
        "maxRetries": 8,
        "skipRequestingAccountId": False,
        "region": "us-east-1",
        "defaultTags": {"tags": {"team": "one"}},
        "endpoints": [dict.fromkeys(SERVICES, f"http://{host}:{port}")],
    }
    environ = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"}
    with Provider(Plugin(built.program, environ), config) as provider:
        yield provider
    server.stop()


@pytest.mark.parametrize("kind", ["LogGroup", "Role"])
def test_a_resource_lives_from_its_creation_to_its_end(account: Provider, article: Stack, kind: str) -> None:
    one = article.one(kind)
    token, inputs = one["type"], one["inputs"]
    names = sdk_types.output_names(token)
    tagged = {**inputs, "tags": {"kind": "test"}}

    made = account.create(token, inputs, names)
    assert made.outputs.keys() <= names
    assert made.outputs["tagsAll"] == {"team": "one"}
    assert account.look(token, made.id, inputs, made.outputs, names) == made
    assert account.diff(token, made.id, inputs, made.outputs, inputs).action == "none"

    changed = account.update(token, made.id, inputs, made.outputs, tagged, names)
    assert (changed.id, changed.outputs["tagsAll"]) == (made.id, {"team": "one", "kind": "test"})
    assert account.look(token, made.id, tagged, changed.outputs, names) == changed

    account.delete(token, made.id, tagged, changed.outputs)
    assert account.look(token, made.id, tagged, changed.outputs, names) is None


def test_what_the_account_refuses_is_told_in_its_words(account: Provider) -> None:
    inputs = {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/24"}

    with pytest.raises(FailedError, match=r"InvalidVpcID\.NotFound") as failed:
        account.create("aws:ec2/subnet:Subnet", inputs, ())

    assert failed.value.made is None


def test_what_could_not_be_deleted_still_stands(account: Provider) -> None:
    inputs = {"role": "nobody", "name": "none", "policy": "{}"}

    with pytest.raises(FailedError, match="must be of the form <role name>:<policy name>") as failed:
        account.delete("aws:iam/rolePolicy:RolePolicy", "none", inputs, inputs)

    assert failed.value.made == Made("none", inputs)


def test_planned_states_become_properties_of_the_sdk_and_back(provider: Provider, stack: Stack) -> None:
    for one in stack.resources:
        names = sdk_types.output_names(one["type"]) | {"id", "timeouts"}
        kind, name = (
            provider.shape(one["type"]),
            mapping.resource_type(one["type"], provider.plugin.schema.resource_schemas),
        )
        config = provider.read(one["type"], one["inputs"]).arguments
        planned = unpacked(provider._plan(str(name), kind, None, config).planned_state)

        properties = mapping.written(kind, planned, names, one["inputs"])

        assert properties.keys() <= names
        assert [*state.differences(kind, planned, provider.read(one["type"], properties).arguments)] == []
