"""Copies a model folder from a shared mount to a local disk, whole or not at all (contracts.md, "Command").

Runs as the init container of a model server: `python3 -S -m preload SOURCE DEST`. Python 3.10 or newer, standard
library, `podkit` and `modelfolder` only.
"""

VERSION = "0.1"
