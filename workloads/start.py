"""Runs a program whose files lie flat beside this one, as a ConfigMap gives them: `<package>.<file>`.

A ConfigMap's keys hold no slash. A pod that named a path for each key would be another pod with each file that a
program gains, and all servers would be rolled.

    python3 start.py PACKAGE ARGUMENTS...

Until a handler for SIGTERM stands it imports only what Python itself has loaded.
"""

import posix
import sys
from _frozen_importlib import ModuleSpec, module_from_spec
from _frozen_importlib_external import spec_from_file_location

_KIND, _REGULAR = 0o170000, 0o100000  # of a file's mode (inode(7))


class FlatFolder:
    """Finds `package.module` in `package.module.py`, and a package in `package.__init__.py`."""

    def __init__(self, folder: str):
        self._folder = folder

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return where a module is, None if it is not here."""
        del path, target
        for key, inside in ((f"{fullname}.__init__.py", []), (f"{fullname}.py", None)):
            file = f"{self._folder}/{key}"
            try:
                is_file = posix.stat(file).st_mode & _KIND == _REGULAR
            except OSError:
                continue
            if is_file:
                return spec_from_file_location(fullname, file, submodule_search_locations=inside)
        return None

    def install_early(self) -> None:
        """Let SIGTERM end this process in words, if the module is here that does that; its package is not imported."""
        spec = self.find_spec("podkit.early")
        if spec and spec.loader:
            early = module_from_spec(spec)
            spec.loader.exec_module(early)
            early.install(sys.argv[1], sys.argv[2:])


if __name__ == "__main__":
    _folder = __file__.rpartition("/")[0] or "."
    _finder = FlatFolder(_folder if _folder.startswith("/") else f"{posix.getcwd()}/{_folder}")
    _finder.install_early()
    sys.meta_path.insert(0, _finder)
    import runpy

    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
