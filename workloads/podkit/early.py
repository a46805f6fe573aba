"""SIGTERM before a program's own handler stands: a line, the termination message, and exit code 143.

Without a handler SIGTERM ends a process without a word; and process 1 of a container, which gets no signal that it does
not handle, works on until it is killed (pid_namespaces(7)). Whoever starts a program installs this first. It imports
what Python itself has loaded by then, and nothing else: `signal` would take longer than all that comes before it.
"""

import _signal  # pyright: ignore[reportMissingImports] - typeshed does not describe it
import posix
import sys

MESSAGE = "stopped by SIGTERM before it began; nothing was touched"

_TERMINATED = 143
_LOG = "--termination-log"
_FIELDS = (
    f'{{"code": {_TERMINATED}, "message": "{MESSAGE}", "file": null, "seconds": 0.0, "retries": 0, "model": null, '
    '"revision": null, "bytes": null, "copied_bytes": 0, "resumed_bytes": 0, "verify_seconds": 0.0, "gb_per_s": 0.0, '
    '"streams": 0, "write": null}'
)
"""What a report of preload or publish says that knows no more than this."""


class Early:
    """The handler.

    Args:
        program: the name that begins its line.
        arguments: the program's command line.
    """

    def __init__(self, program: str, arguments: list[str]):
        self._program = program
        self._arguments = arguments

    def __call__(self, *_: object) -> None:
        """Tell how the process ends, and end it."""
        self._say(f"exit {_TERMINATED}: {MESSAGE}")
        if log := termination_log(self._arguments):
            try:
                _write(
                    posix.open(log, posix.O_WRONLY | posix.O_CREAT | posix.O_TRUNC | posix.O_CLOEXEC, 0o666), _FIELDS
                )
            except OSError as error:
                self._say(f"the termination message cannot be written: {error.strerror}")
        posix._exit(_TERMINATED)  # noqa: SLF001 - what os._exit is

    def _say(self, line: str) -> None:
        try:
            _write(2, f"{self._program}: {line}\n")
        except OSError:
            return


def install(program: str, arguments: list[str]) -> None:
    """Let SIGTERM end this process in words until the program's own handler takes its place.

    Args:
        program: the name that begins its line.
        arguments: the program's command line.
    """
    _signal.signal(_signal.SIGTERM, Early(program, arguments))


def termination_log(arguments: list[str]) -> str | None:
    """Return where a command line wants the termination message, as `podkit.options.common` does."""
    path = None
    for number, argument in enumerate(arguments):
        following = arguments[number + 1] if number + 1 < len(arguments) else ""
        if argument == "--":
            break
        if argument.startswith(f"{_LOG}="):
            path = argument[len(_LOG) + 1 :]
        elif argument == _LOG and (following == "-" or not following.startswith("-")):
            path = following
    return path or None


def _write(descriptor: int, text: str) -> None:
    data = text.encode(sys.getfilesystemencoding(), "backslashreplace")
    while data:
        data = data[posix.write(descriptor, data) :]
