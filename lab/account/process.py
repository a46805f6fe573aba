"""The account as a process of its own, for who uses it: starts it, ends it, asks it and lists what stands in it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from lab import ROOT, files
from lab.account import standing
from lab.account.faults import Fault

_CONTROL = "/_account"
_ENDPOINT, _BASELINE = "endpoint", "baseline.json"
_KEY, _SECRET = "AKIAIOSFODNN7EXAMPLE", "secret"  # of nobody


class AccountError(Exception):
    """The account is not to be had; the text says why."""


class Account:
    """An account; it is served while its `with` block runs, and its folder keeps it.

    Attributes:
        folder: where it is kept; the file `endpoint` there names the endpoint while it is served.
        region: where clients ask.
        account: its 12 digits.
        endpoint: where all its services are.
        pid: of the process.
    """

    def __init__(self, folder: Path, region: str, account: str = "123456789012"):
        self.folder, self.region, self.account = folder, region, account
        self.endpoint = ""
        self.pid = 0
        self._process: subprocess.Popen[str] | None = None
        self._clients: dict[str, Any] = {}

    def __enter__(self) -> Self:
        command = [sys.executable, "-m", "lab.account", str(self.folder.absolute()), "--account", self.account]
        # Nothing of AWS' own variables may reach moto.
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "MOTO_"))}
        # Ctrl-C is for who uses the account, and ends it when done.
        process = subprocess.Popen(
            command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        self._process, self.pid = process, process.pid
        self.endpoint = self._read_endpoint(process)
        try:
            files.replace(self.folder / _ENDPOINT, self.endpoint)
            self._own_things()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _read_endpoint(self, process: subprocess.Popen[str]) -> str:
        assert process.stdout
        with process.stdout:
            endpoint = process.stdout.readline().strip()
        if not endpoint:
            raise AccountError(f"{self.folder}: the account did not start (exit code {process.wait()})")
        return endpoint

    def __exit__(self, *_: object) -> None:
        assert self._process
        self._process.terminate()
        self._process.wait()
        (self.folder / _ENDPOINT).unlink(missing_ok=True)

    def environment(self) -> dict[str, str]:
        """The variables by which a program asks this account and nobody else."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": os.devnull,
            "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
            "NO_PROXY": "*",
        }

    def client(self, service: str) -> Any:
        """A boto3 client of it, the same one for each service."""
        import boto3

        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,
                region_name=self.region,
                endpoint_url=self.endpoint,
                aws_access_key_id=_KEY,
                aws_secret_access_key=_SECRET,
            )
        return self._clients[service]

    def set(self, *, faults: Iterable[Fault] = (), describes: int = 1, seconds: float | None = None) -> None:
        """Replaces the faults and the clock (lab.account.place.Clock); both hold until the process ends.

        Raises:
            ValueError: a fault is refused with an error that its operation does not have.
        """
        clock = {"describes": describes, "seconds": seconds}
        self._control("PUT", json.dumps({"clock": clock, "faults": [asdict(fault) for fault in faults]}))

    def calls(self) -> dict[str, int]:
        """How often each operation was called since the account was started, as `service.Operation`."""
        return json.loads(self._control("GET"))["calls"]

    def _control(self, method: str, body: str | None = None) -> str:
        connection = http.client.HTTPConnection(urlsplit(self.endpoint).netloc)
        try:
            connection.request(method, _CONTROL, body)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= http.client.BAD_REQUEST:
            raise ValueError(text)
        return text

    def give_roles(self, arns: Iterable[str]) -> None:
        """Makes roles of IAM that are not there yet; they count as the account's own, as if somebody had them before.

        Args:
            arns: as `arn:aws:iam::111122223333:role/path/name`.
        """
        iam, known = self.client("iam"), self._own_things()
        for arn in sorted({*arns} - {one.removeprefix("iam roles: ") for one in known[self.region]}):
            path, _, name = arn.partition(":role")[2].rpartition("/")
            trust = {"Version": "2012-10-17", "Statement": []}
            made = iam.create_role(RoleName=name, Path=f"{path}/", AssumeRolePolicyDocument=json.dumps(trust))
            known[self.region].append(f"iam roles: {made['Role']['Arn']}")
        files.replace(self.folder / _BASELINE, json.dumps(known))

    def standing(self) -> list[str]:
        """What stands in the region and in the global services, without what AWS itself gives each new account."""
        own = self._own_things()[self.region]
        return [one for one in standing.everything(self.client) if one not in own]

    def _own_things(self) -> dict[str, list[str]]:
        """By region, what stood there when this folder was first served with it: like a default VPC."""
        path = self.folder / _BASELINE
        known: dict[str, list[str]] = json.loads(path.read_text()) if path.exists() else {}
        if self.region not in known:
            known[self.region] = standing.everything(self.client)
            files.replace(path, json.dumps(known))
        return known
