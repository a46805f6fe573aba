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
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import ModuleType


class FlatFolder:
    """Finds `package.module` in `package.module.py`, and a package in `package.__init__.py`."""

    def __init__(self, folder: str):
        self._folder = folder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module is, None if it is not here."""
        del path, target
        for key, package in ((f"{fullname}.__init__.py", True), (f"{fullname}.py", False)):
            file = os.path.join(self._folder, key)
            if os.path.isfile(file):
                spec = ModuleSpec(fullname, SourceFileLoader(fullname, file), origin=file, is_package=package)
                spec.has_location = True
                return spec
        return None


if __name__ == "__main__":
    sys.meta_path.insert(0, FlatFolder(os.path.dirname(os.path.abspath(__file__))))
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
