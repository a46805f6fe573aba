"""Entry point of `python3 -S -m preload`."""

import sys

from podkit import early

early.end_on_sigterm("preload")

from podkit.console import crashed  # noqa: E402 - what takes time comes after the handler
from preload.program import main  # noqa: E402

sys.excepthook = crashed
sys.exit(main(sys.argv[1:]))
