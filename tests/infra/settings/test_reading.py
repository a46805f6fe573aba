"""How a stack file is read: keys that nothing reads, empty values, entries, and the one message of a refused run."""

import json
from typing import Any

import pulumi
import pytest
from pydantic.alias_generators import to_snake

from infra.settings import check
from infra.settings.reading import _value
from tests import recording
from tests.infra.settings.support import AWS, DELETE, STACK, changed, config, refusals, settings

UNKNOWN = [
    "networks", "network.cidrBlock", "cluster.endpoint.private", "cluster.access.previewRole", "systemNodes.type",
    "nodeGroups.p5.type", "nodeGroups.p5.amiRelease", "nodeGroups.p5.size.wanted", "storage.allowTcp",
    "models.large.currentRevision", "modelServers.big.load", "modelServers.big.preload.mode", "plugins.gpu",
    "mirrors.images", "observability", "iam", "network.[key]",
]  # fmt: skip


@pytest.mark.parametrize("key", UNKNOWN)
def test_an_unknown_key_is_refused_wherever_it_stands(key: str) -> None:
    found = refusals({key: "x"})

    assert [finding.key for finding in found] == [f"faststart:{key}"]
    assert "no such key in this version" in found[0].text


def test_a_key_of_a_misspelt_namespace_is_refused() -> None:
    (found,) = refusals({"fastart:plugins": {"efa": False}})

    assert (found.key, "use faststart:plugins" in found.text) == ("fastart:plugins", True)
    assert refusals({"pulumi:tags": {}, "kubernetes:x": 1}) == []


@pytest.mark.parametrize("section", ["plugins", "mirrors", "systemNodes", "team", "cluster"])
@pytest.mark.parametrize("empty", [None, ""])
def test_a_section_left_empty_is_a_section_left_out(section: str, empty: Any) -> None:
    assert refusals({section: empty}) == []
    assert getattr(settings({section: empty}), to_snake(section)) == getattr(
        settings({section: DELETE}), to_snake(section)
    )


@pytest.mark.parametrize(
    "key", ["cluster.endpoint", "cluster.access", "modelServers.big.preload", "modelServers.big.args"]
)
def test_a_nested_key_left_empty_is_left_out(key: str) -> None:
    assert refusals({key: None}) == []


def test_a_team_that_is_a_number_can_be_written_in_quotes() -> None:
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config(STACK, AWS).items()}
    values = {key: _value(text) for key, text in texts.items()} | {"faststart:team": _value("2507")}

    read, found = check(values, "test")

    assert read is not None, found
    assert read.team == "2507"


def test_a_stack_name_that_is_no_cluster_name_gives_a_good_default() -> None:
    read, _ = check(config(STACK, AWS), "team.dev")

    assert read is not None
    assert read.cluster.name == "faststart-team-dev"


def test_a_key_that_is_nearly_right_is_met_with_the_right_one() -> None:
    (found,) = refusals({"storage.capacityGiB": 4800})

    assert "did you mean capacityGib?" in found.text


def test_mistakes_in_one_entry_hide_none_in_the_others() -> None:
    found = refusals(
        {
            "network.cidr": "10.0.0.0/8",
            "storage.capacityGib": 7200,
            "nodeGroups.g6.efa": True,
            "modelServers.big.replicas": 9,
            "modelServers.tiny.image": "vllm",
            "clusters": {},
        }
    )

    assert {finding.key for finding in found} == {
        "faststart:clusters",
        "faststart:network.cidr",
        "faststart:storage.capacityGib",
        "faststart:nodeGroups.g6.efa",
        "faststart:nodeGroups.p5.size.max",
        "faststart:modelServers.tiny.image",
    }


def test_a_refused_stack_raises_one_run_error_that_names_every_mistake() -> None:
    with pytest.raises(pulumi.RunError) as raised:
        recording.run("test", config(changed({"storage.capacityGib": 7200, "team": "a b"}), AWS))

    lines = str(raised.value).splitlines()
    assert "2 mistakes" in lines[0]
    assert "nothing was created" in lines[0]
    assert lines[1].strip() == (
        "faststart:storage.capacityGib: 7200 is no whole number of 4800 GiB steps (EFA at 1000 MB/s/TiB); "
        "use 4800, 9600, 14400, ..."
    )
    assert len(lines) == 3


def test_two_servers_with_one_name_are_refused_where_the_stack_file_is_read() -> None:
    text = "config: {'faststart:modelServers': {chat: {gpus: 1}, chat: {gpus: 2}}}"

    with pytest.raises(Exception, match="chat"):
        recording.yaml.load(text, recording.StrictLoader)
