"""Failures on demand, each as AWS itself fails.

- `throttled`: an error of `THROTTLED` instead of an answer, as the services' references and models have it.
- `refused`: the error `code`, which must be one of the operation's in botocore's model.
- `role_missing`: the error of `ROLE_MISSING`, as long as IAM's news have not reached a service. The texts are those on
  which terraform-provider-aws tries again (internal/service/eks).
- `fails`: the resource, or its update, ends in the failed state that the model has for it.
- `stays`: it stays in its transitional state, until a waiter's time is up.
- `hangs`: the answer comes `seconds` later.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

KINDS = ("throttled", "refused", "role_missing", "fails", "stays", "hangs")

# By service: code and HTTP status. EC2: docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html; S3:
# API/ErrorResponses.html; EKS: its model; IAM and STS: the common errors of their API references; else the common error
# of the JSON protocols.
THROTTLED = {
    "ec2": ("RequestLimitExceeded", "Request limit exceeded.", 503),
    "s3": ("SlowDown", "Please reduce your request rate.", 503),
    "eks": ("ThrottlingException", "Rate exceeded", 429),
    "iam": ("Throttling", "Rate exceeded", 400),
    "sts": ("Throttling", "Rate exceeded", 400),
    "": ("ThrottlingException", "Rate exceeded", 400),
}

# terraform-provider-aws tries again on these texts: cluster.go, addon.go, pod_identity_association.go, access_entry.go.
ROLE_MISSING = {
    "eks.CreateCluster": ("InvalidParameterException", "roleArn, {arn}, does not exist"),
    "eks.CreateNodegroup": ("InvalidParameterException", "The role with name {arn} cannot be found."),
    "eks.CreateAddon": ("InvalidParameterException", "Role {arn} does not exist"),
    "eks.UpdateAddon": ("InvalidParameterException", "Role {arn} does not exist"),
    "eks.CreatePodIdentityAssociation": (
        "InvalidParameterException",
        "Role provided in the request does not exist.",
    ),
    "eks.UpdatePodIdentityAssociation": (
        "InvalidParameterException",
        "Role provided in the request does not exist.",
    ),
    "eks.CreateAccessEntry": (
        "InvalidParameterException",
        "The specified principalArn is invalid: invalid principal",
    ),
    "iam.GetRole": ("NoSuchEntity", "The role with name {arn} cannot be found."),
    "iam.PutRolePolicy": ("NoSuchEntity", "The role with name {arn} cannot be found."),
    "iam.AttachRolePolicy": ("NoSuchEntity", "The role with name {arn} cannot be found."),
}


@dataclass
class Fault:
    """What goes wrong with some calls.

    Attributes:
        operation: `service.Operation` by the names of botocore's models, with the wildcards of fnmatch.
        kind: one of KINDS.
        times: how often; None for always.
        every: hits the n-th, 2n-th, ... of the calls that fit.
        share: hits this part of the calls, the same ones for the same seed.
        seed: of that.
        code: of a refusal.
        message: of a refusal.
        seconds: until the answer, if it hangs.
    """

    operation: str
    kind: str
    times: int | None = None
    every: int = 1
    share: float = 1.0
    seed: int = 0
    code: str = ""
    message: str = ""
    seconds: float = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a fault of kind {self.kind!r}; there are {', '.join(KINDS)}")
        if (self.kind == "refused") != bool(self.code):
            raise ValueError(f"a fault of kind {self.kind} with code {self.code!r}: `refused` has one, no other kind")


class Faults:
    """The faults of an account, and what was called.

    Attributes:
        calls: how often each operation was called.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self._faults: list[Fault] = []
        self._seen: Counter[int] = Counter()

    def set(self, faults: Iterable[dict[str, Any]]) -> None:
        """Replaces all faults.

        Raises:
            TypeError: one has attributes that `Fault` lacks.
            ValueError: one is of no kind.
        """
        self._faults, self._seen = [Fault(**one) for one in faults], Counter()

    def before(self, operation: str) -> Fault | None:
        """What goes wrong with a call before it reaches its service."""
        self.calls[operation] += 1
        return self._hit(operation, ("throttled", "refused", "role_missing", "hangs"))

    def end_of(self, operation: str) -> str:
        """How what an operation begins ends: `fails`, `stays`, or empty for well."""
        fault = self._hit(operation, ("fails", "stays"))
        return fault.kind if fault else ""

    def _hit(self, operation: str, kinds: tuple[str, ...]) -> Fault | None:
        found = None
        for number, fault in enumerate(self._faults):
            if fault.kind not in kinds or not fnmatchcase(operation, fault.operation) or fault.times == 0:
                continue
            self._seen[number] += 1
            seen = self._seen[number]
            chosen = seen % fault.every == 0
            if fault.share < 1:
                # What hits a call depends on its number among those of its operation, not on what else is called.
                numbered = f"{fault.seed} {operation} {self.calls[operation]}"
                drawn = int.from_bytes(hashlib.sha256(numbered.encode()).digest()[:4]) / 2**32
                chosen = chosen and drawn < fault.share
            if chosen and not found:
                found = fault
                if fault.times is not None:
                    fault.times -= 1
        return found
