"""Entry point of `python3 -m publish`."""

import os
import sys

from podkit import early

early.end_on_sigterm("publish")

from publish.program import main  # noqa: E402 - what takes time comes after the handler

code = main(sys.argv[1:])
# At once: threads of the libraries may still wait for the network, and an ordinary end would wait for them.
os._exit(code)
