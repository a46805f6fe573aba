"""Entry point of `python3 -m publish`."""

import os
import sys

from publish.program import main

code = main(sys.argv[1:])
# At once: threads of the libraries may still wait for the network, and an ordinary end would wait for them.
os._exit(code)
