"""What stands in one region of the account beside what moto keeps, and when it changes by itself."""

from __future__ import annotations

import datetime as dt
import secrets
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from moto import backends
from moto.core.exceptions import ServiceException
from moto.utilities.utils import get_partition

from lab.account.faults import Faults

Key = tuple[str, ...]
Values = dict[str, Any]


@dataclass
class Clock:
    """When a change that takes AWS its time has happened: by questions or by seconds, whichever comes first.

    Attributes:
        describes: with the answer to the n-th question about the resource. 1: the first question finds it done.
        seconds: after so long; None for never.
    """

    describes: int = 1
    seconds: float | None = None


@dataclass
class Pending:
    """A change that has begun.

    Attributes:
        values: what the resource then shows; None: it is gone.
        describes: questions until then; None: it never happens.
        due: seconds since the epoch; a question after that finds it done, too.
        update: the record of the update that ends with it, of EKS.
        outcome: what that record then shows.
    """

    values: Values | None
    describes: int | None
    due: float | None = None
    update: Key = ()
    outcome: Values = field(default_factory=dict)


@dataclass
class Record:
    """A resource.

    Attributes:
        shape: as the API shows it; times are datetimes.
        notes: what the API does not show.
        pending: its changes, one after the other.
    """

    shape: Values
    notes: Values = field(default_factory=dict)
    pending: list[Pending] = field(default_factory=list)


class RefusedError(ServiceException):
    """What an operation is refused with.

    Attributes:
        code: its name in the API's model.
        message: for people.
        status: of HTTP, where the model has none; 0 where it has.
    """

    def __init__(self, code: str, message: str, status: int = 0):
        super().__init__(code, message)
        self.status = status


class Place:
    """One region of the account.

    Attributes:
        records: by kind, then by what the API names the resource by.
        changed: whether something is to be saved; who saves it clears it.
        caller: the ARN of who asks just now.
    """

    def __init__(
        self, account: str, region: str, clock: Clock, faults: Faults, gone: Mapping[str, Callable[..., None]]
    ):
        self.account, self.region, self.partition = account, region, get_partition(region)
        self.clock, self.faults = clock, faults
        self.records: dict[Key, Record] = {}
        self.changed = False
        self.caller = ""
        self._gone = gone

    @property
    def ec2(self) -> Any:
        """EC2, as moto has it, in this region."""
        return backends.get_backend("ec2")[self.account][self.region]

    @property
    def iam(self) -> Any:
        """IAM, as moto has it."""
        return backends.get_backend("iam")[self.account][self.partition]

    def arn(self, service: str, rest: str) -> str:
        """The ARN of a resource here."""
        return f"arn:{self.partition}:{service}:{self.region}:{self.account}:{rest}"

    def add(self, key: Key, shape: Values, **notes: Any) -> Record:
        """Keeps a new resource."""
        self.records[key] = record = Record(shape, notes)
        self.changed = True
        return record

    def under(self, *start: str) -> Iterator[tuple[Key, Record]]:
        """Records whose key begins so."""
        return ((key, one) for key, one in list(self.records.items()) if key[: len(start)] == start)

    def later(
        self,
        key: Key,
        operation: str,
        values: Values | None,
        failed: Values | None = None,
        *,
        update: Key = (),
        errors: list[Values] | None = None,
    ) -> None:
        """Begins a change that ends by the clock, or as a fault has it.

        Args:
            key: of the resource.
            operation: that began it, `service.Operation`.
            values: what it shows in the end; None: it is gone.
            failed: what it shows if a fault lets it fail; without, it cannot fail.
            update: the record of an update of EKS that ends with it.
            errors: what that record shows if it fails.
        """
        end = self.faults.end_of(operation)
        pending = Pending(values, self.clock.describes, update=update, outcome={"status": "Successful"})
        if self.clock.seconds is not None:
            pending.due = time.time() + self.clock.seconds
        if end == "fails" and failed is not None:
            pending.values, pending.outcome = failed, {"status": "Failed", "errors": errors or []}
        if end == "stays":
            pending.describes = pending.due = None
        self.records[key].pending.append(pending)
        self.changed = True

    def look(self, key: Key) -> Record | None:
        """The resource as it is shown to one more question about it; None if there is none (any more)."""
        record = self.records.get(key)
        if record and record.pending:
            pending = record.pending[0]
            if pending.describes is not None:
                pending.describes -= 1
            over = pending.due is not None and time.time() >= pending.due
            if over or (pending.describes is not None and pending.describes <= 0):
                self._happen(key, record, record.pending.pop(0))
        return self.records.get(key)

    def _happen(self, key: Key, record: Record, pending: Pending) -> None:
        self.changed = True
        if pending.update in self.records:
            self.records[pending.update].shape |= pending.outcome
        if pending.values is not None:
            record.shape |= pending.values
            return
        del self.records[key]
        if after := self._gone.get(key[0]):
            after(self, key, record)


def now() -> dt.datetime:
    """This moment, in whole seconds, as AWS tells it."""
    return dt.datetime.now(dt.UTC).replace(microsecond=0)


def new_id(prefix: str) -> str:
    """An id as EC2, EKS and FSx make them."""
    return f"{prefix}-{secrets.token_hex(9)[:17]}"


def page(name: str, items: list[Any], asked: Values) -> Values:
    """One page of a list, and the token of the next one; EKS writes the names of both small, FSx and EC2 capital."""
    small = name[0].islower()
    following, limit = ("nextToken", "maxResults") if small else ("NextToken", "MaxResults")
    start = int(asked.get(following) or 0)
    end = start + (asked.get(limit) or 100)
    return {name: items[start:end]} | ({following: str(end)} if end < len(items) else {})


def without_none(values: Values) -> Values:
    """The members that are set."""
    return {name: value for name, value in values.items() if value is not None}
