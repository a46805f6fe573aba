"""Annotated types of single values: what a number, a switch or a name may be, wherever it stands in the stack file."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from infra.settings.findings import one_of, refuse, shown


def named(pattern: str, what: str) -> AfterValidator:
    """A check that a text matches `pattern` as a whole; `what` is the pattern in words."""

    def check(value: str) -> str:
        if not re.fullmatch(pattern, value, re.ASCII):
            date = "; put the date in quotes" if value.endswith(" +0000 UTC") else ""
            raise refuse(f"{value!r} is no {what} ({pattern}){date}")
        return value

    return AfterValidator(check)


def one_type_of(names: tuple[str, ...], kind: str) -> AfterValidator:
    """A check that a text is one of these instance types; `kind` says what they have in common."""

    def check(value: str) -> str:
        if value not in names:
            raise refuse(f"{value!r} is no {kind} in this version; use {one_of(names)}")
        return value

    return AfterValidator(check)


def no_bool_as_number(value: Any) -> Any:
    """The number in a text of digits; other values as they are, but for booleans, which Python counts as numbers."""
    if isinstance(value, bool):
        raise refuse(f"a whole number is wanted, not {shown(value)}")
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d{1,9}", value) else value


def _only_true_or_false(value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if value not in ("true", "false"):
        raise refuse(f"true or false is wanted, not {shown(value)}")
    return value == "true"


# `pulumi config set` without --path stores numbers and booleans as texts: those are read, guesses are not.
Whole = Annotated[int, BeforeValidator(no_bool_as_number)]
Flag = Annotated[bool, BeforeValidator(_only_true_or_false)]


ServerName = Annotated[str, named(r"[a-z]([a-z0-9-]{0,40}[a-z0-9])?", "server name")]
ModelName = Annotated[str, named(r"[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?", "model name")]
Revision = Annotated[str, named(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "revision")]
NodeGroupName = Annotated[str, named(r"(?!system$)[a-z]([a-z0-9-]{0,30}[a-z0-9])?", "node group name")]
EntryName = Annotated[str, named(r"[a-z]([a-z0-9-]{0,30}[a-z0-9])?", "name of an access entry")]
# https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateCluster.html
ClusterName = Annotated[str, named(r"[0-9A-Za-z][0-9A-Za-z_-]{0,99}", "EKS cluster name")]
LabelValue = Annotated[str, named(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?", "label value")]
RoleArn = Annotated[str, named(r"arn:aws:iam::\d{12}:role/[\w+=,.@/-]+", "ARN of an IAM role")]
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
SecretName = Annotated[str, named(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?", "name of a Secret")]
NamespaceName = Annotated[str, named(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "namespace")]
AccountId = Annotated[str, named(r"\d{12}", "account id of twelve digits")]
