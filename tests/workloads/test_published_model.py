"""The Job that publishes a model: what it runs, what it may read, when it is tried again."""

from __future__ import annotations

import fnmatch
import functools
import hashlib
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra import sizing
from infra.instance_types import GIB
from publish import options
from tests import recording
from tests.recording import Recording, Registered
from tests.workloads.publish.support import MODEL
from tests.workloads.support import tree, write
from workloads import published_model

JOB = "kubernetes:batch/v1:Job"

# One of each kind, with all that can be said of it.
KINDS: dict[str, dict[str, Any]] = {
    "bucket": {"source": "s3://bucket/some/model", "revision": "1", "sizeGib": 3},
    "whole-bucket": {"source": "s3://bucket", "revision": "1", "sizeGib": 3, "files": ["*.json", "a/"]},
    "hub": {"source": "hf://org/name@main", "revision": "r_1", "sizeGib": 3, "tokenSecret": "hub-token"},
    "folder": {
        "source": "path:/fsx/s3/models/one",
        "revision": "1",
        "sizeGib": 3,
        "allowPickle": True,
        "tokenizer": "none",
    },
    "there": {"source": "path:/fsx/filled/by/hand", "revision": "1", "sizeGib": 3, "inPlace": True, "files": "all"},
}


@functools.cache
def kinds() -> Recording:
    config = recording.stack_config("article")
    config["faststart:models"] |= KINDS
    return recording.run("article", config)


def jobs(run: Recording) -> dict[str, Registered]:
    """The publishing Jobs, by model."""
    return {
        one.name.removesuffix("-publish"): one
        for one in run.of(JOB)
        if one.inputs["metadata"]["name"].startswith("faststart-publish-")
    }


def pod(job: Registered) -> dict[str, Any]:
    return job.inputs["spec"]["template"]["spec"]


def container(job: Registered) -> dict[str, Any]:
    (found,) = pod(job)["containers"]
    return found


def said(model: str) -> options.Options:
    parsed = options.parse(container(jobs(kinds())[model])["args"])
    assert isinstance(parsed, options.Options)
    return parsed


def test_each_model_of_a_stack_has_one_job_whose_command_line_publish_takes(stack: Recording) -> None:
    assert jobs(stack).keys() == stack.settings.models.keys()
    for name, job in jobs(stack).items():
        model = stack.settings.models[name]
        asked = options.parse(container(job)["args"])
        assert isinstance(asked, options.Options)
        assert (asked.model, asked.revision, asked.files) == (name, model.revision, tuple(model.files))
        assert asked.destination == stack.outputs["models"][name]["path"]
        assert asked.max_bytes == model.size_gib * GIB


def test_each_kind_of_source_is_published_from_where_it_is_to_where_servers_look(stack: Recording) -> None:
    assert said("bucket").source == "s3://bucket/some/model"
    assert said("hub").source == "hf://org/name@main"
    assert said("folder").source == "/fsx/s3/models/one"
    for name in ("bucket", "whole-bucket", "folder"):
        assert said(name).destination == f"/fsx/models/{name}/1"
        assert said(name).staging == f"/fsx/.faststart/staging/{name}/1"
    assert (said("there").in_place, said("there").destination) == (True, "/fsx/filled/by/hand")
    assert kinds().outputs["models"]["there"]["path"] == "/fsx/filled/by/hand"
    assert [said(name).allow_pickle for name in ("bucket", "folder")] == [False, True]
    assert [said(name).tokenizer for name in ("bucket", "folder")] == ["required", "none"]


def test_a_model_that_says_nothing_of_its_tokenizer_has_the_command_line_that_it_had() -> None:
    assert "--tokenizer" not in container(jobs(kinds())["bucket"])["args"]


def test_a_job_s_name_is_that_of_the_contract_and_another_for_each_revision() -> None:
    for name, job in jobs(kinds()).items():
        revision = kinds().settings.models[name].revision
        digest = hashlib.sha256(f"{name}@{revision}".encode()).hexdigest()[:8]
        assert job.inputs["metadata"]["name"] == f"faststart-publish-{name}-{digest}"
    long = published_model.object_name("a.b-" * 15, "2")
    assert re.fullmatch(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])", long)
    assert long != published_model.object_name("a.b-" * 15, "3")


def test_a_job_fails_as_pulumi_knows_it_with_its_first_pod_and_never_goes_away_by_itself() -> None:
    """pulumi-kubernetes waits on, for hours, after any reason but BackoffLimitExceeded and DeadlineExceeded."""
    for name, job in jobs(kinds()).items():
        spec = job.inputs["spec"]
        assert spec["backoffLimit"] == 0
        (ignore,) = spec["podFailurePolicy"]["rules"]
        assert (ignore["action"], ignore["onPodConditions"][0]["type"]) == ("Ignore", "DisruptionTarget")
        assert said(name).tries > 1
        assert pod(job)["restartPolicy"] == "Never"
        assert "ttlSecondsAfterFinished" not in spec


def test_what_reads_s3_asks_the_pod_identity_agent_itself_as_eks_webhook_would_let_it() -> None:
    """A pod that EKS does not know yet to have an identity gets none from the webhook, and never later."""
    for name, job in jobs(kinds()).items():
        environment = {one["name"]: one["value"] for one in container(job)["env"]}
        tokens = [
            (volume["name"], source["serviceAccountToken"])
            for volume in pod(job)["volumes"]
            for source in volume.get("projected", {}).get("sources", [])
            if "serviceAccountToken" in source
        ]
        if not kinds().settings.models[name].source.startswith("s3://"):
            assert not tokens
            assert not any("CONTAINER" in key for key in environment)
            continue
        ((volume, token),) = tokens
        (mount,) = [one for one in container(job)["volumeMounts"] if one["name"] == volume]
        assert volume == "eks-pod-identity-token", "by which the webhook knows that it is there"
        assert token["audience"] == "pods.eks.amazonaws.com"
        assert environment["AWS_CONTAINER_CREDENTIALS_FULL_URI"] == "http://169.254.170.23/v1/credentials"
        assert environment["AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"] == f"{mount['mountPath']}/{token['path']}"


def test_up_waits_for_hours_where_a_model_is_large() -> None:
    article = recording.run("article")
    for name, job in jobs(article).items():
        gib = article.settings.models[name].size_gib
        assert job.timeouts["create"] == job.timeouts["update"] == f"{sizing.publish_seconds(gib)}s"
    assert sizing.publish_seconds(1000) > 8 * 3600 > sizing.publish_seconds(450) > 3 * 3600


def test_a_job_is_told_its_region_by_the_name_that_boto3_reads(stack: Recording) -> None:
    for job in jobs(stack).values():
        environment = {one["name"]: one["value"] for one in container(job)["env"]}
        assert environment["AWS_DEFAULT_REGION"] == stack.settings.aws.region


def test_a_job_alone_writes_to_the_file_system_as_its_folders_owner_from_a_cpu_node(stack: Recording) -> None:
    for job in jobs(stack).values():
        mounts = {one["mountPath"]: one for one in container(job)["volumeMounts"]}
        volumes = {one["name"]: one for one in pod(job)["volumes"]}
        claim = volumes[mounts["/fsx"]["name"]]["persistentVolumeClaim"]
        assert claim["claimName"] == "faststart-models-rw"
        assert pod(job)["securityContext"]["runAsUser"] == 2000
        assert pod(job)["nodeSelector"] == {"faststart.dev/node-group": "system"}
        assert "nvidia.com/gpu" not in json.dumps(job.inputs)
        assert container(job)["securityContext"]["readOnlyRootFilesystem"] is True


def config_maps(stack: Recording, namespace: str) -> dict[str, dict[str, str]]:
    return {
        one.inputs["metadata"]["name"]: one.inputs["data"]
        for one in stack.of("kubernetes:core/v1:ConfigMap")
        if one.inputs["metadata"]["namespace"] == namespace
    }


def program(stack: Recording, job: Registered, folder: Path) -> Path:
    """Write what the kubelet would mount as a Job's program; return where."""
    (volume,) = [one["projected"] for one in pod(job)["volumes"] if "projected" in one]
    folder.mkdir()
    for source in volume["sources"]:
        for key, text in config_maps(stack, "faststart-system")[source["configMap"]["name"]].items():
            assert not (folder / key).exists(), "no two programs have one key"
            (folder / key).write_text(text, encoding="utf-8")
    return folder


def test_config_maps_are_small_enough_and_the_same_in_each_namespace(stack: Recording) -> None:
    system, models = config_maps(stack, "faststart-system"), config_maps(stack, "models")
    assert (system.keys(), models.keys()) == ({"faststart-preload", "faststart-publish"}, {"faststart-preload"})
    assert system["faststart-preload"] == models["faststart-preload"]
    for data in system.values():
        assert sum(len(key) + len(text.encode()) for key, text in data.items()) <= 512 << 10


def test_what_a_job_mounts_publishes_a_model_with_the_arguments_that_the_job_gives(tmp_path: Path) -> None:
    job = jobs(kinds())["folder"]
    mounted = program(kinds(), job, tmp_path / "program")
    source = write(tmp_path / "fsx/s3/models/one", MODEL)
    environment = {one["name"]: one["value"] for one in container(job)["env"]}
    given = [one.replace("/fsx", str(tmp_path / "fsx")) for one in container(job)["args"]]
    given[given.index("/dev/termination-log")] = str(tmp_path / "log")
    assert container(job)["command"] == ["python3", "/opt/faststart/start.py", "publish"]
    ended = subprocess.run(
        [sys.executable, mounted / "start.py", "publish", *given],
        env={**environment, "PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, json.loads((tmp_path / "log").read_text())["code"]) == (0, 0), ended.stderr
    assert tree(tmp_path / "fsx/models/folder/1") == tree(source)
    assert not list(mounted.rglob("__pycache__"))


# what it may read


def allowed(source: str, action: str, resource: str, prefix: str | None = None) -> bool:
    """Whether the policy for a source allows an action on a resource, and a listing with a prefix."""
    for statement in published_model.bucket_statements(source):
        wanted = statement.get("Condition", {}).get("StringEquals", {}).get("s3:prefix", prefix)
        if statement["Action"] == action and fnmatch.fnmatchcase(resource, statement["Resource"]) and wanted == prefix:
            return True
    return False


@pytest.mark.parametrize(
    ("source", "readable", "other"),
    [
        ("s3://bucket/some/model", "arn:aws:s3:::bucket/some/model/config.json", "arn:aws:s3:::bucket/some/model-2/x"),
        ("s3://bucket/some/model/", "arn:aws:s3:::bucket/some/model/a/b", "arn:aws:s3:::bucket/some/x"),
        ("s3://bucket", "arn:aws:s3:::bucket/anything", "arn:aws:s3:::bucket-2/anything"),
    ],
)
def test_a_job_reads_its_own_prefix_and_nothing_else(source: str, readable: str, other: str) -> None:
    assert allowed(source, "s3:GetObject", readable)
    assert not allowed(source, "s3:GetObject", other)
    folder = source.removeprefix("s3://bucket").strip("/")
    assert allowed(source, "s3:ListBucket", "arn:aws:s3:::bucket", f"{folder}/" if folder else "")
    assert not allowed(source, "s3:ListBucket", "arn:aws:s3:::bucket", "another/")
    actions = {statement["Action"] for statement in published_model.bucket_statements(source)}
    assert actions == {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}


def test_a_key_is_used_through_s3_and_for_this_prefix_alone() -> None:
    (key,) = [one for one in published_model.bucket_statements("s3://bucket/m") if one["Action"] == "kms:Decrypt"]
    assert key["Condition"] == {
        "StringLike": {
            "kms:ViaService": "s3.*.amazonaws.com",
            "kms:EncryptionContext:aws:s3:arn": ["arn:aws:s3:::bucket/m/*", "arn:aws:s3:::bucket"],
        }
    }


def test_only_who_reads_a_bucket_has_a_role_and_each_has_its_own() -> None:
    associations = {
        one.name.removesuffix("-publish"): one.inputs
        for one in kinds().of("aws:eks/podIdentityAssociation:PodIdentityAssociation")
        if one.name.endswith("-publish")
    }
    accounts = {name: pod(job)["serviceAccountName"] for name, job in jobs(kinds()).items()}
    buckets = {name for name, model in kinds().settings.models.items() if model.kind == "s3"}

    assert associations.keys() == buckets == {"bucket", "whole-bucket", "qwen3-235b-a22b"}
    for name, association in associations.items():
        assert (association["serviceAccount"], association["namespace"]) == (accounts[name], "faststart-system")
    assert {accounts[name] for name in accounts.keys() - buckets} == {"faststart-publish"}
    assert len({accounts[name] for name in buckets}) == len(buckets)


def test_a_token_comes_from_a_secret_that_is_mounted_and_stands_nowhere_else() -> None:
    for name, job in jobs(kinds()).items():
        secrets = [one["secret"] for one in pod(job)["volumes"] if "secret" in one]
        if name != "hub":
            assert secrets == []
            continue
        assert secrets == [{"secretName": "hub-token", "items": [{"key": "token", "path": "token"}]}]
        mounts = {one["name"]: one for one in container(job)["volumeMounts"]}
        assert said(name).token_file == f"{mounts['token']['mountPath']}/token"
        assert mounts["token"]["readOnly"] is True
        assert not [one for one in container(job)["env"] if "TOKEN" in one["name"]]
    assert kinds().of("kubernetes:core/v1:Secret") == []
