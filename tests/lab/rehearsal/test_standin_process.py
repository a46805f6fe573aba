"""The stand-ins as the engine starts them: processes that share one cloud."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from pulumi.runtime.proto import provider_pb2 as pb
from pulumi.runtime.proto import provider_pb2_grpc

from lab import ROOT
from lab.provider.tool import ProviderTool
from lab.rehearsal.providers import protocol
from lab.rehearsal.providers.__main__ import FOLDER
from lab.rehearsal.providers.aws_types import SUBNET, VPC
from tests.lab.rehearsal.support import REGION, Client

pytestmark = pytest.mark.processes

ROUNDS = 12
HANG_SECONDS = 300  # ends a test that would wait for ever; none measures time


def start(name: str, cloud: Path | None, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **({FOLDER: str(cloud)} if cloud else {}), **variables}
    command = [sys.executable, "-m", "lab.rehearsal.providers", name, "127.0.0.1:1"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True)


@contextmanager
def running(name: str, cloud: Path, **variables: str) -> Iterator[tuple[subprocess.Popen[str], Client]]:
    with start(name, cloud, **variables) as process:
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield process, Client(provider_pb2_grpc.ResourceProviderStub(channel))
        finally:
            process.kill()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stand_in_prints_its_port_first_and_ends_without_a_word(tmp_path: Path, stop: signal.Signals):
    with running("aws", tmp_path) as (process, client):
        assert client.stub.GetPluginInfo(pb.CheckRequest()).version
        process.send_signal(stop)
        assert process.wait(HANG_SECONDS) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


@pytest.mark.parametrize(
    ("name", "with_cloud", "text"), [("aws", False, f"{FOLDER} is not set"), ("gcp", True, "no stand-in for 'gcp'")]
)
def test_a_stand_in_that_cannot_work_says_why(tmp_path: Path, name: str, with_cloud: bool, text: str):
    with start(name, tmp_path if with_cloud else None) as process:
        out, error = process.communicate(timeout=HANG_SECONDS)
    assert (process.returncode, out) == (2, "")
    assert text in error


def test_two_processes_share_one_cloud_and_lose_nothing(tmp_path: Path):
    with running("aws", tmp_path) as (_, one), running("aws", tmp_path) as (_, other):
        for client in (one, other):
            client.configure(region=REGION)
        inputs = {"cidrBlock": "10.0.0.0/16"}
        checked = one.checked("aws:ec2/vpc:Vpc", inputs)
        request = pb.CreateRequest(urn="urn:pulumi:a::b::aws:ec2/vpc:Vpc::c")
        request.properties.update(checked)
        waiting = [client.stub.Create.future(request) for _ in range(ROUNDS) for client in (one, other)]
        ids = {call.result().id for call in waiting}
    assert len(ids) == 2 * ROUNDS
    assert len(json.loads((tmp_path / "aws.json").read_text())) == 2 * ROUNDS


def test_a_stand_in_ends_when_who_started_it_is_gone(tmp_path: Path):
    script = (
        "import subprocess, sys\n"
        "command = [sys.executable, '-m', 'lab.rehearsal.providers', 'aws', '']\n"
        "process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)\n"
        "process.stdout.readline()\n"
        "print(process.pid, flush=True)\n"
    )
    environment = {**os.environ, FOLDER: str(tmp_path)}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", script]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=pipe, stderr=pipe, text=True) as starter:
        assert starter.stdout is not None
        orphan = int(starter.stdout.readline())
        try:
            _, error = starter.communicate(timeout=HANG_SECONDS)  # the orphan has its stderr, too: read until both end
        except subprocess.TimeoutExpired:
            os.kill(orphan, signal.SIGKILL)
            raise
    assert (starter.returncode, error) == (0, "")


def test_without_the_provider_the_tables_judge_and_nothing_says_that_it_did(tmp_path: Path):
    judge = protocol.Cloud(tmp_path).judge
    judge.write_text("terraform-provider-aws 6.48.0", encoding="utf-8")

    with running("aws", tmp_path, FASTSTART_CACHE=str(tmp_path / "empty")) as (_, client):
        client.configure(region=REGION)
        assert client.failures(VPC, {"cidrBlock": "10.0.0.0/8"}) == []
        assert client.failures(SUBNET, {"vpcId": "v", "availabilityZone": "moon-1a"}) != []
        vpc = client.create(VPC, {"cidrBlock": "10.0.0.0/16"})
        assert [*client.diff(vpc, {"cidrBlock": "10.1.0.0/16"}).replaces] == ["cidrBlock"]

    assert not judge.exists()


@pytest.mark.parametrize("has_msgpack", [True, False])
def test_the_provider_judges_where_it_was_built_and_its_package_is_there(
    tmp_path: Path, built: ProviderTool, has_msgpack: bool
):
    del built  # it must be there
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['msgpack'] = None\n", encoding="utf-8")
    hidden = {} if has_msgpack else {"PYTHONPATH": str(tmp_path)}

    with running("aws", tmp_path / "cloud", **hidden) as (_, client):
        client.configure(region=REGION)
        assert bool(client.failures(VPC, {"cidrBlock": "10.0.0.0/8"})) == has_msgpack

    assert protocol.Cloud(tmp_path / "cloud").judge.exists() == has_msgpack
