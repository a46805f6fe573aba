"""Every stack on the real engine with the stand-in providers: plan, deploy, change, destroy, and in which order."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.instance_types import GIB, INSTANCE_TYPES
from lab import ROOT
from lab.rehearsal import manifests
from lab.rehearsal.events import Step
from lab.rehearsal.runner import Rehearsal, Run
from tests import recording
from tests.lab.rehearsal.engine.conftest import CLUSTER, FILE_SYSTEM, SUBNET, Life

pytestmark = pytest.mark.engine

NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
LOG_GROUP = "aws:cloudwatch/logGroup:LogGroup"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
RELEASE = "kubernetes:helm.sh/v3:Release"
VOLUME = "kubernetes:core/v1:PersistentVolume"
CLAIM = "kubernetes:core/v1:PersistentVolumeClaim"
JOB = "kubernetes:batch/v1:Job"
DEPLOYMENT = "kubernetes:apps/v1:Deployment"

LABELLED = ("update", ("labels",))
"""What EKS does to a node group without touching its nodes."""

BEFORE_GPU_NODES = (FILE_SYSTEM, RELEASE, VOLUME, CLAIM, JOB)


def succeeded(run: Run) -> bool:
    assert run.code == 0, run.text
    return True


def steps(run: Run, op: str, type_: str, chosen: Callable[[Step], bool] = lambda _: True) -> list[Step]:
    found = [step for step in run.steps if step.op == op and step.type == type_ and chosen(step)]
    assert found, f"no {op} of a {type_}"
    return found


def is_gpu(step: Step) -> bool:
    return step.name != "system" and not step.name.startswith("system-")


def ended_before(first: list[Step], then: list[Step]) -> bool:
    """Whether everything in `first` had ended when `then` began."""
    return all(one.finished is not None and one.finished < other.started for one in first for other in then)


def test_the_first_preview_creates_everything_and_changes_nothing_else(life: Life) -> None:
    assert succeeded(life["preview"])
    assert set(life["preview"].changes) == {"create"}


def test_the_up_creates_what_the_preview_said(life: Life) -> None:
    assert succeeded(life["up"])
    assert life["up"].changes == life["preview"].changes


def test_a_second_preview_finds_nothing_to_do(life: Life) -> None:
    assert succeeded(life["again"])
    assert life["again"].changes == {"same": life["up"].changes["create"]}


def test_a_refresh_finds_nothing_changed(life: Life) -> None:
    assert succeeded(life["refresh"])
    assert set(life["refresh"].changes) <= {"same"}


def test_growing_the_file_system_updates_it_and_nothing_else(life: Life) -> None:
    assert succeeded(life["grown"])
    changed = [(step.op, step.type) for step in life["grown"].steps if step.op != "same"]

    assert changed == [("update", FILE_SYSTEM)]
    assert life["grown"].changes == {"update": 1, "same": life["up"].changes["create"] - 1}


def test_protected_data_stops_a_destroy_before_anything_is_deleted(life: Life) -> None:
    assert life["refused destroy"].code == 1
    assert "because it is protected" in life["refused destroy"].text
    assert life.standing["refused destroy"] == life.standing["up"] != []


def test_without_the_protection_a_destroy_leaves_nothing_that_bills(life: Life) -> None:
    assert succeeded(life["destroy"])
    assert set(life["destroy"].changes) == {"delete"}
    assert life.standing["destroy"] == []


def test_protected_data_stops_its_replacement_before_anything_is_deleted(life: Life) -> None:
    refused = life["refused replacement"]

    assert refused.code == 1
    assert "unable to replace resource" in refused.text
    assert {step.op for step in refused.steps} <= {"same", "create", "update"}
    assert set(life.standing["up"]) <= set(life.standing["refused replacement"])


def test_without_the_protection_another_file_system_takes_the_old_one_s_place_in_one_up(life: Life) -> None:
    assert succeeded(life["replacement"])
    old, new = ([one for one in life.standing[when] if one.startswith(FILE_SYSTEM)] for when in ("up", "replacement"))

    assert len(old) == len(new) == 1
    assert old != new
    assert succeeded(life["after the replacement"])
    assert set(life["after the replacement"].changes) == {"same"}


def test_pods_go_before_claims_volumes_and_the_old_file_system_and_come_back_on_the_new_one(life: Life) -> None:
    """A real claim in use, and a volume that is bound, would stay Terminating."""
    run = life["replacement"]
    gone, made = "delete-replaced", "create-replacement"
    for users, claim in ((DEPLOYMENT, "-ro-"), (JOB, "-rw-")):
        chain = [
            steps(run, made, FILE_SYSTEM),
            steps(run, gone, users),
            *(steps(run, gone, type_, lambda step, claim=claim: claim in step.name) for type_ in (CLAIM, VOLUME)),
            *(steps(run, made, type_, lambda step, claim=claim: claim in step.name) for type_ in (VOLUME, CLAIM)),
            steps(run, made, users),
            steps(run, gone, FILE_SYSTEM),
        ]
        for first, then in itertools.pairwise(chain):
            assert ended_before(first, then), (first, then)
    for type_ in (VOLUME, CLAIM, JOB, DEPLOYMENT):
        created = {step.urn for step in steps(life["up"], "create", type_)}
        assert {step.urn for step in steps(run, made, type_)} == created


def test_another_file_system_replaces_no_node_group_whose_own_place_is_the_same(life: Life) -> None:
    run = life["replacement"]
    moved = bool([step for step in run.steps if step.type == SUBNET and step.op != "same"])
    nodes = {step.op for step in run.steps if step.type == NODE_GROUP and (step.op, diffs(run, step)) != LABELLED}

    assert {step.op for step in run.steps if step.type == LAUNCH_TEMPLATE} == {"same"}
    assert moved or nodes == {"same"}


def diffs(run: Run, step: Step) -> tuple[str, ...]:
    """The inputs that change in a step."""
    found = [one["metadata"] for event in run.events for kind, one in event.items() if kind == "resourcePreEvent"]
    return next(tuple(one.get("diffs") or ()) for one in found if (one["op"], one["urn"]) == (step.op, step.urn))


def test_gpu_nodes_start_after_all_that_their_servers_wait_for(life: Life) -> None:
    gpu_nodes = steps(life["up"], "create", NODE_GROUP, is_gpu)
    for type_ in BEFORE_GPU_NODES:
        assert ended_before(steps(life["up"], "create", type_), gpu_nodes), type_


def test_gpu_nodes_start_when_their_models_are_published_and_not_before(life: Life) -> None:
    jobs = steps(life["up"], "create", JOB, lambda step: step.name.endswith("-publish"))
    gpu_nodes = steps(life["up"], "create", NODE_GROUP, is_gpu)

    assert ended_before(jobs, gpu_nodes)
    stack = recording.stack_settings(life.stack)
    bandwidth = INSTANCE_TYPES[stack.system_nodes.instance_type].network_gbps * 1e9 / 8
    gpus = sum(group.size.desired * group.facts.gpus for group in stack.node_groups.values())
    size = sum(model.size_gib for model in stack.models.values()) * GIB
    # Once in from the source, once more out of Lustre to be hashed.
    print(f"{life.stack}: {2 * size / bandwidth / 3600 * gpus:.1f} GPU hours not paid for, at the CPU node's baseline")


def test_the_network_addons_stand_before_any_node(life: Life) -> None:
    addons = steps(life["up"], "create", "aws:eks/addon:Addon", lambda step: "coredns" not in step.name)

    assert ended_before(addons, steps(life["up"], "create", NODE_GROUP))


def test_servers_start_after_their_nodes(life: Life) -> None:
    gpu_nodes = steps(life["up"], "create", NODE_GROUP, is_gpu)

    assert ended_before(gpu_nodes, steps(life["up"], "create", DEPLOYMENT))


def test_a_destroy_goes_the_other_way_round(life: Life) -> None:
    gone = life["destroy"]
    gpu_nodes = steps(gone, "delete", NODE_GROUP, is_gpu)

    assert ended_before(steps(gone, "delete", DEPLOYMENT), gpu_nodes)
    for type_ in BEFORE_GPU_NODES:
        assert ended_before(gpu_nodes, steps(gone, "delete", type_)), type_
    assert ended_before(steps(gone, "delete", VOLUME), steps(gone, "delete", FILE_SYSTEM))
    assert ended_before(steps(gone, "delete", NODE_GROUP), steps(gone, "delete", CLUSTER))


def test_the_clusters_log_group_stands_before_it_and_is_deleted_after_it(life: Life) -> None:
    created, gone = life["up"], life["destroy"]

    assert ended_before(steps(created, "create", LOG_GROUP), steps(created, "create", CLUSTER))
    assert ended_before(steps(gone, "delete", CLUSTER), steps(gone, "delete", LOG_GROUP))


def test_every_kubernetes_object_has_a_manifest_without_unknown_values(life: Life) -> None:
    documents = dict(manifests.from_state(json.loads(life.state)))
    kinds = {document["kind"] for document in documents.values()}

    assert {"Namespace", "ConfigMap", "PersistentVolume", "PersistentVolumeClaim", "Job", "Deployment"} <= kinds
    for name, document in documents.items():
        assert unresolved(document) == [], name
        assert yaml.safe_load(manifests.dump(document)) == document


def unresolved(value: Any, at: str = "") -> list[str]:
    """Where a document holds what is no value: nothing at all, or the engine's mark of an unknown or an Output."""
    if isinstance(value, dict):
        return [place for key, one in value.items() for place in unresolved(one, f"{at}.{key}")]
    if isinstance(value, list):
        return [place for index, one in enumerate(value) for place in unresolved(one, f"{at}[{index}]")]
    marks = ("04da6b54-80e4-46f7-96ec-b56ff0331ba9", "Calling __str__ on an Output", "<pulumi.output.Output")
    return [at] if value is None or (isinstance(value, str) and any(mark in value for mark in marks)) else []


def test_the_outputs_are_those_of_the_contract(life: Life) -> None:
    resources = json.loads(life.state)["deployment"]["resources"]
    outputs = next(one["outputs"] for one in resources if one["type"] == "pulumi:pulumi:Stack")

    assert set(outputs) == {
        "kubeconfig", "clusterName", "region", "dataZone", "vpcId", "dataSubnetId", "fileSystemId",
        "fileSystemDnsName", "mountName", "nodeGroups", "models", "servers", "nextCommands",
    }  # fmt: skip
    assert manifests.plain(outputs["kubeconfig"]) == manifests.SECRET_SHOWN


def test_the_repository_is_as_it_was(life: Life) -> None:
    assert life.git == ""


def test_the_state_remembers_the_urns_of_the_stack_s_list(life: Life) -> None:
    """What the recording monitor names is what the engine keeps; a packaged component's children are its own affair."""
    resources = json.loads(life.state)["deployment"]["resources"]
    providers = "pulumi:providers:"
    urns = {
        one["urn"]
        for one in resources
        if one["type"] != "pulumi:pulumi:Stack"
        and "eks:index:Cluster$" not in one["urn"]
        and not (one["type"].startswith(providers) and one["urn"].rpartition("::")[2].startswith("default"))
    }
    listed = (ROOT / "tests/program/urns" / f"{life.stack}.txt").read_text(encoding="utf-8").split()

    assert urns == set(listed)


def spoiled(rehearsal: Rehearsal, change: Callable[[Path], None]) -> Run:
    with rehearsal.alone():
        rehearsal.prepare(fresh=True)
        change(rehearsal.place.program)
        return rehearsal.preview()


def test_a_refusal_is_shown_alone_and_without_a_traceback(scratch: Rehearsal) -> None:
    def unknown_key(program: Path) -> None:
        stack_file = program / "stacks" / scratch.stack_file.name
        stack_file.write_text(
            stack_file.read_text(encoding="utf-8").replace("capacityGib:", "capacityGiB:"), encoding="utf-8"
        )

    run = spoiled(scratch, unknown_key)

    assert run.code != 0
    assert len(errors(run)) == 1
    assert "faststart:storage.capacityGiB" in errors(run)[0]
    assert "Traceback" not in run.text


def test_two_servers_with_one_name_are_refused_before_the_program_runs(scratch: Rehearsal) -> None:
    def twice(program: Path) -> None:
        stack_file = program / "stacks" / scratch.stack_file.name
        text = stack_file.read_text(encoding="utf-8")
        server = text.partition("  faststart:modelServers:\n")[2].partition("\nencryptionsalt")[0]
        twice = f"faststart:modelServers:\n{server}\n{server}"
        stack_file.write_text(text.replace(f"faststart:modelServers:\n{server}", twice), encoding="utf-8")

    run = spoiled(scratch, twice)

    assert run.code != 0
    assert "already" in run.text
    assert "Traceback" not in run.text


def test_a_fault_of_the_program_shows_its_traceback_once(scratch: Rehearsal) -> None:
    def fault(program: Path) -> None:
        (program / "__main__.py").write_text("import pulumi\n\nraise KeyError('the fault')\n", encoding="utf-8")

    run = spoiled(scratch, fault)

    assert run.code != 0
    assert len(errors(run)) == 1
    assert run.text.count("Traceback (most recent call last)") == 1
    assert run.text.count("KeyError: 'the fault'") == 1


def errors(run: Run) -> list[str]:
    told = [event["diagnosticEvent"] for event in run.events if "diagnosticEvent" in event]
    return [one["message"] for one in told if one["severity"] == "error"]
