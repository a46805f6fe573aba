"""The command line of preload (contracts.md, "Command")."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from modelfolder.errors import Exit, FaststartError

MAX_PARALLEL = 1024
"""Each worker has a buffer of its own: 1024 of them take 4 GiB."""

_PURPOSE = "Copies a model folder from a shared mount to a local disk, whole or not at all."


@dataclass(frozen=True)
class Options:
    """What the command line asked for."""

    source: bytes
    destination: bytes
    parallel: int
    verify: str
    max_bytes: int | None
    require_local_disk: bool
    wait: float
    plan: bool


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise FaststartError(Exit.USAGE, message)


def parse(arguments: Sequence[str]) -> Options:
    """Return the options of a command line.

    Raises:
        FaststartError: 2, it is wrong, or asks for something that this version does not do.
    """
    parser = _Parser(prog="preload", description=_PURPOSE, allow_abbrev=False)
    parser.add_argument("source", metavar="SOURCE", type=os.fsencode)
    parser.add_argument("destination", metavar="DEST", type=os.fsencode)
    parser.add_argument("--parallel", metavar="N", type=_parallel, default=32, help="files copied at once (32)")
    parser.add_argument("--write", metavar="auto|direct|buffered", default="auto")
    parser.add_argument("--cache", metavar="auto|keep|drop", default="auto")
    parser.add_argument("--files", metavar="auto|all|GLOB", nargs="+", default=["all"])
    parser.add_argument(
        "--verify",
        metavar="none|size|sha256",
        default="size",
        help="size (the default): the model's structure in the source, and each file's size in the copy",
    )
    parser.add_argument("--max-bytes", metavar="N", type=_natural, help="refuse a larger model")
    parser.add_argument("--manifest-digest", metavar="D")
    parser.add_argument("--require-local-disk", action="store_true", help="only onto EC2 instance storage")
    parser.add_argument("--wait", metavar="SECONDS", type=_seconds, default=0.0, help="for another copier (0)")
    parser.add_argument("--stay", action="store_true")
    parser.add_argument("--plan", action="store_true", help="print what would be copied and touch nothing")
    parser.add_argument("--termination-log", metavar="PATH", help="write the result there, as JSON")
    given = parser.parse_args(arguments)

    _built("--write", given.write, "auto")
    _built("--cache", given.cache, "auto")
    _built("--files", " ".join(given.files), "all")
    _built("--verify", given.verify, "none", "size")
    if given.manifest_digest is not None:
        raise FaststartError(Exit.USAGE, "--manifest-digest: not in this version; leave it out")
    if given.stay:
        raise FaststartError(Exit.USAGE, "--stay: not in this version; leave it out")
    return Options(
        source=given.source,
        destination=given.destination,
        parallel=given.parallel,
        verify=given.verify,
        max_bytes=given.max_bytes,
        require_local_disk=given.require_local_disk,
        wait=given.wait,
        plan=given.plan,
    )


def termination_log(arguments: Sequence[str]) -> str | None:
    """Return the value of --termination-log in a command line that may be wrong elsewhere."""
    parser = _Parser(add_help=False, allow_abbrev=False)
    parser.add_argument("--termination-log")
    try:
        return parser.parse_known_args(arguments)[0].termination_log
    except FaststartError:
        return None


def _built(flag: str, value: str, *accepted: str) -> None:
    if value not in accepted:
        message = f"{flag} {value}: not in this version; accepted: {', '.join(accepted)}"
        raise FaststartError(Exit.USAGE, message)


def _natural(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _parallel(text: str) -> int:
    number = _natural(text)
    if not 1 <= number <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and {MAX_PARALLEL}")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds
