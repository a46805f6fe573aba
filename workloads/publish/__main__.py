"""Entry point of `python3 -m publish`."""

import sys

from podkit import early

early.install("publish", sys.argv[1:])

import os  # noqa: E402 - imports take a while

from publish.program import main  # noqa: E402

code = main(sys.argv[1:])
# At once: threads of the libraries may still wait for the network, and an ordinary end would wait for them.
os._exit(code)
