"""`python -m lab.account FOLDER`: serves the account of a folder on loopback until it is told to stop.

The first line of stdout is the endpoint. Ends on SIGINT or SIGTERM, or when who started it is gone.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import signal
import sys
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path

TAKEN = 3
_OWNER_CHECK_SECONDS = 1


def main(arguments: Sequence[str]) -> int:
    """Runs the command line.

    Returns:
        0 after its end; 2 a wrong command line; 3 another process serves the folder.
    """
    parser = argparse.ArgumentParser(prog="python -m lab.account", description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path, help="where the account is kept; made if need be")
    parser.add_argument("--account", default="123456789012", help="its 12 digits")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    owner, stop = os.getppid(), threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: stop.set())
    with (options.folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{options.folder}: another process serves this account", file=sys.stderr)
            return TAKEN
        serve(options.folder, options.account, owner, stop)
    return 0


def serve(folder: Path, account: str, owner: int, stop: threading.Event) -> None:
    """Serves until `stop` is set or the process `owner` is gone."""
    warnings.filterwarnings("ignore", ".*does not match an error shape")  # the common errors are in no model
    # moto reads these when it is imported.
    os.environ |= {"MOTO_ACCOUNT_ID": account, "MOTO_IAM_LOAD_MANAGED_POLICIES": "true"}
    from moto.moto_server.werkzeug_app import MotoRequestHandler
    from werkzeug.serving import make_server

    from lab.account.server import Server

    class Quiet(MotoRequestHandler):
        """Tells of errors of ours, not of each request."""

        def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
            pass

    application = Server(folder, account)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    while not stop.wait(_OWNER_CHECK_SECONDS) and os.getppid() == owner:
        pass
    server.shutdown()
    thread.join()
    application.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
