"""Entry point of `python3 -S -m preload`."""

import sys

from preload.program import main

sys.exit(main(sys.argv[1:]))
