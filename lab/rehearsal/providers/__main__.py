"""`python -m lab.rehearsal.providers NAME ENGINE_ADDRESS`: one stand-in, as the engine starts its plugins.

The first line of stdout is the port. Ends without a word on SIGINT or SIGTERM, or when who started it is gone.
"""

import importlib.util
import os
import signal
import sys
from pathlib import Path

FOLDER = "FASTSTART_REHEARSAL_CLOUD"
ENGINE = "FASTSTART_REHEARSAL_ENGINE"  # its process, known before it may be gone
_PARENT_CHECK_SECONDS = 1


def main(arguments: list[str]) -> int:
    """Serves until told to stop."""
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, lambda *_: os._exit(0))
    parent = int(os.environ.get(ENGINE) or os.getppid())
    name, engine = (*arguments, "", "")[:2]
    folder = os.environ.get(FOLDER)
    if not folder:
        print(
            f"{FOLDER} is not set: it names the folder that stands for the clouds. The stand-in providers run only "
            "inside a rehearsal (`make rehearse`).",
            file=sys.stderr,
        )
        return 2
    from lab.provider import tool
    from lab.rehearsal.providers import aws, aws_account, eks, kubernetes, protocol

    cloud = protocol.Cloud(Path(folder))
    of_aws = aws_account.AwsInAccount if cloud.account.exists() else aws.Aws
    stand_ins = {kind.package: kind for kind in (of_aws, eks.Eks, kubernetes.Kubernetes)}
    if name not in stand_ins:
        print(f"no stand-in for {name!r}; there are {', '.join(stand_ins)}", file=sys.stderr)
        return 2
    stand_in = stand_ins[name](cloud, engine)
    # `make rehearse` has the program's packages alone, and msgpack, in which the provider speaks, is not among them.
    can_speak = importlib.util.find_spec("msgpack") is not None
    if isinstance(stand_in, aws.Aws):
        cloud.judge.unlink(missing_ok=True)
        if can_speak and (found := tool.find()):
            stand_in.provider = found.program
            cloud.judge.write_text(f"{tool.NAME} {found.version}", encoding="utf-8")
    server, port = protocol.serve(stand_in)
    print(port, flush=True)
    while server.wait_for_termination(_PARENT_CHECK_SECONDS) and os.getppid() == parent:  # True: the time is up
        pass
    os._exit(0)  # without waiting for the operations that are under way: nobody is left who would hear how they end


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
