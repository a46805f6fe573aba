"""Command lines: a parser that refuses with exit code 2, and the options that every program has."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from podkit import lines
from podkit.console import write
from podkit.errors import Exit, FaststartError
from podkit.patience import STALL_SECONDS

_TERMINATION_LOG = "--termination-log"
_STALL = "--stall"


class Parser(argparse.ArgumentParser):
    """A parser with --termination-log, --stall, --version and --help, whose errors are FaststartError 2.

    Args:
        program: its name.
        text: what --help prints.
        version: what --version prints behind the name.
    """

    def __init__(self, program: str, text: str, version: str):
        super().__init__(prog=program, allow_abbrev=False)
        self._text = text
        self.add_argument(_TERMINATION_LOG)
        self.add_argument(_STALL, type=some_seconds)
        self.add_argument("--version", action="version", version=f"{program} {version}")

    def format_help(self) -> str:
        """Return the text."""
        return self._text

    def _print_message(self, message: str, file: Any = None) -> None:
        write(file, message)

    def error(self, message: str) -> NoReturn:
        """Refuse the command line.

        Raises:
            FaststartError: 2.
        """
        raise FaststartError(Exit.USAGE, f"{message}; see --help")


class Common(NamedTuple):
    """What the options of every program say.

    Attributes:
        termination_log: where the termination message is written; None, nowhere.
        stall_seconds: how long the source may give nothing.
    """

    termination_log: str | None = None
    stall_seconds: float = STALL_SECONDS


def common(arguments: Sequence[str]) -> Common:
    """Return what a command line says that may be wrong elsewhere; where it is wrong here, the defaults."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False, exit_on_error=False)
    parser.add_argument(_TERMINATION_LOG)
    parser.add_argument(_STALL)
    try:
        found = parser.parse_known_args(arguments)[0]
    except argparse.ArgumentError:
        return Common()
    try:
        return Common(found.termination_log, STALL_SECONDS if found.stall is None else some_seconds(found.stall))
    except argparse.ArgumentTypeError:
        return Common(found.termination_log)


def require_no_secrets(arguments: Sequence[str]) -> None:
    """Hold that no argument has a password or a token in it: the list of processes shows it, and so may a manifest.

    Raises:
        FaststartError: 2, one has.
    """
    for argument in filter(lines.holds_secret, arguments):
        message = (
            f"what looks like a password or a token stands in {lines.line(argument, most=lines.NAME_BYTES)}: give the"
            " address without it; a token of the hub comes from --token-file, keys for S3 from AWS_PROFILE or the pod's"
            " identity"
        )
        raise FaststartError(Exit.USAGE, message)


def natural(text: str) -> int:
    """Read a whole number, for argparse."""
    if not text.isascii() or not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def seconds(text: str) -> float:
    """Read a number of seconds, for argparse."""
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return number


def some_seconds(text: str) -> float:
    """Read a number of seconds that is not 0, for argparse."""
    if number := seconds(text):
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is no time to wait")


def digest(text: str) -> str:
    """Read a manifest's digest, for argparse."""
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not sha256: and 64 hex digits")
    return text
