"""A Python language host for a Pulumi CLI that was built alone.

A full installation brings `pulumi-language-python` beside `pulumi`. The one that we build (pulumi_cli.py) has none, and
the vendor's is not to be had as a module. The pip package ships nearly all of it as the server of its Automation API
for inline programs; this file adds what the engine asks beyond that.

Beside the binary, not in the run's own folder on PATH: there the engine finds it without a warning. So the wrapper is
part of the cached build, shared by all clones, and the run's environment names interpreter and file
(`variables`). The program runs in this process and so with this interpreter, whatever Pulumi.yaml says.
"""

import importlib.metadata
import io
import os
import queue
import runpy
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path

NAME = "pulumi-language-python"
PYTHON = "FASTSTART_REHEARSAL_PYTHON"
FILE = "FASTSTART_REHEARSAL_LANGUAGE_HOST"
_OWNER_CHECK_SECONDS = 1

# -P: this file's folder must not become the place where the program's imports are looked up first.
WRAPPER = f"""#!/bin/sh
# Written by faststart's rehearsal beside the Pulumi CLI that it built.
exec "${{{PYTHON}:?is set by the rehearsal}}" -P "${{{FILE}}}" "$@"
"""


def write_beside(folder: Path) -> None:
    """Puts the wrapper into the folder of a CLI that has none."""
    path = folder / NAME
    path.write_text(WRAPPER, encoding="utf-8")
    path.chmod(0o755)


def is_ours(path: Path) -> bool:
    """Whether this language host is our wrapper, and not a full installation's executable."""
    try:
        return path.read_bytes() == WRAPPER.encode()
    except OSError:
        return False


def variables() -> dict[str, str]:
    """What the wrapper needs in the engine's environment."""
    return {PYTHON: sys.executable, FILE: str(Path(__file__).absolute())}


plugins: list[subprocess.Popen[bytes]] = []
"""What was started at the engine's wish."""


def end() -> None:
    """Ends this process at once, and what it has started; the program may be in the middle of anything."""
    for plugin in plugins:
        plugin.kill()
    os._exit(0)


def serve(engine: str, owner: int) -> None:
    """Serves the engine at this address until it says stop, or is gone.

    Args:
        engine: the address; empty if there is none yet.
        owner: the engine's process.
    """
    import grpc
    from google.protobuf import empty_pb2
    from pulumi import RunError
    from pulumi.automation._server import LanguageServer
    from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2

    class Host(LanguageServer):
        """The pip package's server, with what the engine asks of a host that it started itself."""

        engine = ""

        def Handshake(self, request, context):  # noqa: ARG002, N802 -- gRPC's names from here on
            self.engine = request.engine_address
            return language_pb2.LanguageHandshakeResponse()

        def GetPluginInfo(self, request, context):  # noqa: ARG002, N802
            return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

        def Cancel(self, request, context):  # noqa: ARG002, N802
            return empty_pb2.Empty()

        def InstallDependencies(self, request, context):  # noqa: ARG002, N802
            return iter(())

        def GetProgramDependencies(self, request, context):  # noqa: ARG002, N802
            return language_pb2.GetProgramDependenciesResponse()

        def Run(self, request, context):  # noqa: N802
            """Runs the program as `python __main__.py` would be run in its folder."""
            folder = Path(request.info.program_directory or request.pwd)
            if not request.args and self.engine:
                request.args.append(self.engine)
            sys.path.insert(0, str(folder))
            os.chdir(request.pwd or folder)

            def program() -> None:
                try:
                    runpy.run_path(str(folder / "__main__.py"), run_name="__main__")
                except (RunError, grpc.RpcError):
                    raise
                except Exception as fault:  # noqa: BLE001 -- whatever it is, it is the program's, and is shown
                    raise RunError(f"the program failed:\n{shown(fault, folder)}") from None

            self.program = program
            done = super().Run(request, context)
            # The error is logged by now; "bail" keeps the engine from showing it a second time.
            return language_pb2.RunResponse(bail=True) if done.error else done

        def RunPlugin(self, request, context) -> Iterator[language_pb2.RunPluginResponse]:  # noqa: N802
            """Runs a policy pack that is a folder."""
            process = subprocess.Popen(
                [sys.executable, "-u", request.info.program_directory, *request.args],
                cwd=request.pwd,
                env=dict(entry.split("=", 1) for entry in request.env),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            plugins.append(process)
            context.add_callback(process.terminate)
            said: queue.SimpleQueue[language_pb2.RunPluginResponse | None] = queue.SimpleQueue()

            def follow(name: str) -> None:
                pipe = getattr(process, name)
                try:
                    while data := pipe.read1(4096):
                        said.put(language_pb2.RunPluginResponse(**{name: data}))
                finally:  # the engine waits for it
                    said.put(None)

            for name in ("stdout", "stderr"):
                threading.Thread(target=follow, args=(name,), daemon=True).start()
            for _ in ("stdout", "stderr"):
                yield from iter(said.get, None)
            yield language_pb2.RunPluginResponse(exitcode=process.wait())

    host = Host(lambda: None)
    host.engine = engine
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(host, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # the engine reads the first line
    while server.wait_for_termination(_OWNER_CHECK_SECONDS) and os.getppid() == owner:  # True: the time is up
        pass
    end()


def shown(fault: BaseException, folder: Path) -> str:
    """A traceback from the program's first line on: how it was called here says nothing about it."""
    frame = fault.__traceback__
    while frame is not None and not frame.tb_frame.f_code.co_filename.startswith(str(folder)):
        frame = frame.tb_next
    return "".join(traceback.format_exception(fault.with_traceback(frame or fault.__traceback__)))


def is_there(address: str) -> bool:
    """Whether somebody listens at this address of loopback."""
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port))).close()
    except OSError:
        return False
    return True


def main() -> None:
    """As the engine starts it: its own address is the last argument."""
    owner = os.getppid()
    signal.signal(signal.SIGINT, lambda *_: end())  # how the engine ends its plugins
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what the program prints is shown line by line
    last = sys.argv[-1]
    engine = last if ":" in last else ""
    if not engine or is_there(engine):  # if not, `owner` is who took the place of an engine that is gone
        serve(engine, owner)


if __name__ == "__main__":
    main()
