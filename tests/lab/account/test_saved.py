"""What of an account is on disk, and who may serve it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab import ROOT
from lab.account.faults import Fault
from lab.account.process import Account, AccountError
from tests.lab.account.support import REGION, Cloud

pytestmark = pytest.mark.processes


def test_an_account_outlives_its_process_even_a_killed_one(tmp_path: Path) -> None:
    with Account(tmp_path, REGION, "111122223333") as account:
        cloud = Cloud(account)
        cluster = cloud.add_cluster()
        account.set(faults=[Fault("fsx.CreateFileSystem", "stays")])
        number = cloud.add_file_system()["FileSystemId"]
        s3 = account.client("s3")
        s3.create_bucket(Bucket="models")
        s3.put_object(Bucket="models", Key="a", Body=b"x" * 100_000)
        key = account.client("kms").create_key()["KeyMetadata"]["KeyId"]
        stood = account.standing()
        os.kill(account.pid, signal.SIGKILL)

    for _ in range(2):  # after a kill, and after a regular end
        with Account(tmp_path, REGION, "111122223333") as account:
            assert account.standing() == stood
            assert account.client("eks").describe_cluster(name=cluster)["cluster"]["status"] == "ACTIVE"
            found = account.client("fsx").describe_file_systems(FileSystemIds=[number])["FileSystems"][0]
            assert found["Lifecycle"] == "CREATING"
            assert account.client("s3").get_object(Bucket="models", Key="a")["Body"].read() == b"x" * 100_000
            assert account.client("kms").describe_key(KeyId=key)["KeyMetadata"]["KeyId"] == key
            assert account.client("sts").get_caller_identity()["Account"] == "111122223333"
            vpc = account.client("eks").describe_cluster(name=cluster)["cluster"]["resourcesVpcConfig"]["vpcId"]
            assert account.client("ec2").describe_vpcs(VpcIds=[vpc])["Vpcs"]


def test_one_process_serves_an_account_and_ends_with_its_owner(tmp_path: Path) -> None:
    program = f"""
import sys, time
from pathlib import Path
from lab.account.process import Account
with Account(Path({str(tmp_path)!r}), {REGION!r}) as account:
    print("served", flush=True)
    time.sleep(60)
"""
    owner = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout
        owner.stdout.readline()
        with pytest.raises(AccountError, match="did not start"), Account(tmp_path, REGION):
            pass
        owner.kill()
    with (tmp_path / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # until the process has ended
    with Account(tmp_path, REGION) as account:
        assert account.standing() == []


def test_programs_find_it_by_their_environment(tmp_path: Path) -> None:
    program = "import boto3; print(boto3.client('sts').get_caller_identity()['Account'])"
    with Account(tmp_path, REGION, "444455556666") as account:
        environ = {"PATH": os.environ["PATH"], **account.environment()}
        told = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=True)
        assert told.stdout.strip() == "444455556666"
        assert (tmp_path / "endpoint").read_text() == account.endpoint
        assert json.loads((tmp_path / "baseline.json").read_text())[REGION]
    assert not (tmp_path / "endpoint").exists()
