"""Reads the engine's own event log: what it did in which order, which plugins it used, what it said.

The engine writes one JSON object a line where `--event-log FILE` is given, an option that it has only under
PULUMI_DEBUG_COMMANDS. The sequence numbers are the engine's.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]

AMBIENT = re.compile(r"using pulumi-(resource|language)-(\S+) from \$PATH at (\S+)")


class Step(NamedTuple):
    """One operation on one resource.

    Attributes:
        op: the engine's word: create, update, delete, same, replace, create-replacement, delete-replaced, ...
        urn: the resource.
        started: the sequence number of the event that began it.
        finished: that of the event that ended it; None where it failed or never ended.
    """

    op: str
    urn: str
    started: int
    finished: int | None

    @property
    def type(self) -> str:
        """The resource's own type, without its parents'."""
        return self.urn.split("::")[2].split("$")[-1]

    @property
    def name(self) -> str:
        """The resource's name."""
        return self.urn.split("::", 3)[3]


def read(path: Path) -> list[Event]:
    """The events of a log; none where the engine made no log. Of an engine that was killed the last one may be torn."""
    if not path.exists():
        return []
    *whole, _ = path.read_text(encoding="utf-8", errors="replace").split("\n")
    return [json.loads(line) for line in whole if line.strip()]


def order(events: Iterable[Event]) -> list[Step]:
    """Every operation, by the moment at which it began.

    A component has two ends in the log, its registration and its outputs; the last one counts.
    """
    begun: dict[tuple[str, str], int] = {}
    ended: dict[tuple[str, str], int] = {}
    for event in events:
        for kind, record in (("resourcePreEvent", begun), ("resOutputsEvent", ended)):
            if kind in event:
                metadata = event[kind]["metadata"]
                key = (metadata["op"], metadata["urn"])
                if record is begun:
                    record.setdefault(key, event["sequence"])
                else:
                    record[key] = event["sequence"]
    steps = [Step(op, urn, start, ended.get((op, urn))) for (op, urn), start in begun.items()]
    return sorted(steps, key=lambda step: step.started)


def changes(events: Iterable[Event]) -> dict[str, int]:
    """The engine's own summary: how many resources for each operation. Empty where it came to no end."""
    for event in events:
        if "summaryEvent" in event:
            return event["summaryEvent"].get("resourceChanges") or {}
    return {}


def messages(events: Iterable[Event], severity: str) -> list[str]:
    """What was said at this severity, each text once, without the lines about where plugins were found."""
    said: dict[str, None] = {}
    for event in events:
        told = event.get("diagnosticEvent")
        if told and told["severity"] == severity and not AMBIENT.search(told["message"]):
            said[told["message"].strip()] = None
    return list(said)


def plugins(events: Iterable[Event]) -> dict[str, set[str]]:
    """The resource plugins that the engine says it took from PATH: name to paths."""
    used: dict[str, set[str]] = {}
    for event in events:
        told = event.get("diagnosticEvent")
        found = AMBIENT.search(told["message"]) if told else None
        if found and found[1] == "resource":
            used.setdefault(found[2], set()).add(found[3])
    return used
