"""Entry point of `python3 -S -m preload`."""

import sys

from podkit import early

early.end_on_sigterm("preload")

from preload.program import main  # noqa: E402 - what takes time comes after the handler

sys.exit(main(sys.argv[1:]))
