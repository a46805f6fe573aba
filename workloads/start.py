"""Runs a program whose files lie flat beside this one, as a ConfigMap gives them: `<package>.<file>`.

A ConfigMap's keys hold no slash. A pod that named a path for each key would be another pod with each file that a
program gains, and all servers would be rolled.

    python3 start.py PACKAGE ARGUMENTS...
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType


class FlatFolder(MetaPathFinder):
    """Finds `package.module` in `package.module.py`, and a package in `package.__init__.py`."""

    def __init__(self, folder: str):
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, None if it is not here."""
        del path, target
        for key, inside in ((f"{fullname}.__init__.py", []), (f"{fullname}.py", None)):
            file = os.path.join(self._folder, key)
            if os.path.isfile(file):
                return spec_from_file_location(fullname, file, submodule_search_locations=inside)
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, FlatFolder(os.path.dirname(os.path.abspath(__file__))))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
