"""A container that runs as a process of this machine: what it says, how it ended, whether it answers."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lab.kube import pod_folders
from lab.kube.containers import Exit, Object

_SANDBOX = (sys.executable, "-I", "-S", Path(__file__).with_name("sandbox.py"))
TERMINATION_MAX_BYTES = 4096
"""What the kubelet keeps of a container's message."""

LAST_LINES, LAST_BYTES = 80, 2048
"""How much of a log becomes the message with FallbackToLogsOnError."""

_LOOK_SECONDS = 1.0  # how often folders are measured
_FORCED = 128 + signal.SIGKILL


class SandboxError(Exception):
    """This machine does not let processes be put into namespaces; the text says what it said."""


class Lines:
    """What a process says, line by line, with the moment of each; also written into a file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._found: list[tuple[float, str]] = []
        self._lock = threading.Lock()

    def follow(self, stream: Any) -> None:
        """Takes lines until the stream ends, and closes it."""
        with stream, self.path.open("a", encoding="utf-8") as log:
            for line in stream:
                now = time.monotonic()
                log.write(line)
                log.flush()
                with self._lock:
                    self._found.append((now, line.rstrip("\n")))

    def all(self) -> list[tuple[float, str]]:
        """Moment (of time.monotonic) and text of each so far."""
        with self._lock:
            return list(self._found)


class Process:
    """A container that runs as a process.

    Attributes:
        pod, container: as the API server has them.
        run: what is run in the container's place.
        spec: what the sandbox was told.
        lines: what it says.
        began, ended: moments of time.monotonic; ended is None while it runs.
    """

    def __init__(
        self,
        pod: Object,
        container: Object,
        run: Object,
        work: Path,
        volumes: pod_folders.Volumes,
        spec: dict[str, Any],
    ) -> None:
        self.pod, self.container, self.run, self.spec = pod, container, run, spec
        self.work = work
        self._volumes = volumes
        self._exit: Exit | None = None
        self._record: dict[str, Any] = {}
        self._used: dict[str, tuple[float, float]] = {}
        self.lines = Lines(work / "log")
        self.began, self.ended = time.monotonic(), None
        command = [*_SANDBOX, "run", work / "spec.json", work / "record.json"]
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            env={"PATH": os.defpath},
        )
        assert self._popen.stdout is not None
        first = self._popen.stdout.readline()
        # The sandbox's first line is the number of the command's process; another one says why there is none.
        self.pid = int(first) if first.strip().isdigit() else 0
        self._reader = threading.Thread(target=self.lines.follow, args=(self._popen.stdout,), daemon=True)
        self._reader.start()
        if not self.pid:
            self._popen.wait()
            self._reader.join()
            raise SandboxError(first.strip() or "the sandbox ended at once")

    @property
    def record(self) -> dict[str, Any]:
        """What it was when it became its command; empty before."""
        if not self._record:
            with contextlib.suppress(ValueError, OSError):
                self._record = json.loads((self.work / "record.json").read_text(encoding="utf-8"))
        return self._record

    def exit(self) -> Exit | None:
        """How it ended."""
        if self._exit is None and (code := self._popen.poll()) is not None:
            self.ended = time.monotonic()
            self._reader.join(2)
            _ = self.record  # which goes with its folder
            self._exit = Exit(code if code >= 0 else 128 - code, self._message(code))
        return self._exit

    def wait(self, seconds: float) -> Exit | None:
        """How it ended, after at most so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)
        return self.exit()

    def passes(self, probe: Mapping[str, Any]) -> bool:
        """Asks it over HTTP, or for a connection, as the kubelet does."""
        seconds = float(probe.get("timeoutSeconds", 1))
        asked = probe.get("httpGet") or probe["tcpSocket"]
        try:
            with contextlib.closing(self.connect(self._port(asked["port"]), seconds)) as one:
                if "tcpSocket" in probe:
                    return True
                connection = http.client.HTTPConnection(self._address, timeout=seconds)
                connection.sock = one
                connection.request("GET", asked.get("path", "/"))
                return 200 <= connection.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False

    def connect(self, port: int, seconds: float) -> socket.socket:
        """A connection to one of its ports.

        Raises:
            OSError: nothing answers.
        """
        if self.spec["addresses"] is None:
            return socket.create_connection(("127.0.0.1", port), seconds)
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = [*_SANDBOX, "connect", str(self.pid), self._address, str(port), str(seconds)]
            subprocess.run(command, stdin=theirs.fileno(), env={"PATH": os.defpath}, check=False)
            ours.setblocking(False)
            answer, found, *_ = socket.recv_fds(ours, 16, 1)
        if not found:
            number = int(answer or errno.EIO)
            raise OSError(number, os.strerror(number))
        made = socket.socket(fileno=found[0])
        made.settimeout(seconds)
        return made

    def signal(self, number: int) -> None:
        """Sends a signal to the command."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def stop(self, seconds: float) -> Exit:
        """SIGTERM, and after so many seconds SIGKILL to all that is in it."""
        if self.exit() is None and seconds > 0:
            self.signal(signal.SIGTERM)
            self.wait(seconds)
        if self.exit() is None:
            self.signal(signal.SIGKILL)
            self.wait(10)
        return self.exit() or Exit(_FORCED)

    def used_gib(self, volume: str) -> float:
        """Measures the folder; not more often than every second."""
        found = self._volumes.get(volume)
        mounted = any(one["name"] == volume for one in self.run.get("volumeMounts") or [])
        if not mounted or not found or found.path is None:
            return 0
        at, used = self._used.get(volume, (0.0, 0.0))
        if time.monotonic() - at > _LOOK_SECONDS:
            used = pod_folders.bytes_in(found.path) / 2**30
            self._used[volume] = (time.monotonic(), used)
        return used

    @property
    def _address(self) -> str:
        return (self.spec["addresses"] or ["127.0.0.1"])[0]

    def _port(self, port: int | str) -> int:
        if isinstance(port, int):
            return port
        return next(one["containerPort"] for one in self.container.get("ports") or [] if one.get("name") == port)

    def _message(self, code: int) -> str:
        text = (self.work / "termination-log").read_bytes()[-TERMINATION_MAX_BYTES:].decode(errors="replace")
        if not text and code and self.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            text = "\n".join(line for _, line in self.lines.all()[-LAST_LINES:])[-LAST_BYTES:]
        return text
