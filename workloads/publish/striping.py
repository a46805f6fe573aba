"""How the files of a model are spread over the servers of a Lustre file system."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

_LAYOUT = ("-E", "64M", "-c", "1", "-E", "-1", "-c", "-1", "-S", "16M")
"""The first 64 MiB of a file on one server, the rest over all of them, 16 MiB at a time: FSx recommends to spread large
files over all servers (FSx for Lustre guide, "Striping data in your file system")."""

_SECONDS = 30.0


def stripe(folder: str, say: Callable[[str], None]) -> None:
    """Spread files that are made in a folder from now on, where `lfs` is there to do it; say so, or why not.

    Without it they get the file system's own layout. It is no error: the model is the same.

    Args:
        folder: a folder of a Lustre file system.
        say: takes a line for people.
    """
    lfs = shutil.which("lfs")
    if not lfs:
        say("there is no lfs here: files get the file system's own striping")
        return
    try:
        done = subprocess.run(
            [lfs, "setstripe", *_LAYOUT, folder], capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        say(f"files get the file system's own striping: lfs setstripe: {error}")
        return
    if done.returncode:
        words = done.stderr.strip() or f"exit {done.returncode}"
        say(f"files get the file system's own striping: lfs setstripe: {words}")
    else:
        say("files over 64 MiB are striped over all servers of the file system")
