"""Entry point of `python3 -S -m preload`."""

import sys

from podkit import early

early.install("preload", sys.argv[1:])

from preload.program import main  # noqa: E402 - its imports take a while

sys.exit(main(sys.argv[1:]))
