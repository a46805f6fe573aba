"""The command line of preload (contracts.md, "Command")."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from podkit.errors import Exit, FaststartError
from podkit.options import Parser, digest, natural, seconds
from preload import VERSION
from preload.request import VERIFY_LEVELS, Cache, CopyRequest, Write

MAX_PARALLEL = 1024
"""Each stream has a buffer of its own: 1024 of them take up to 8 GiB."""

POD_UID = "FASTSTART_POD_UID"
"""The environment variable that tells --stay which pod it is in; the pod's spec fills it from metadata.uid."""

HELP = """\
usage: preload SOURCE DEST [options]

Copies a model folder from a shared mount to a local disk: many ranges of its
files at once, whole or not at all, and never twice what is there already.

SOURCE is a model folder: one that publishing sealed, a plain one, or a snapshot
of a Hugging Face cache. DEST is a folder that is new, empty or was made by
preload; any other is refused and not touched. When preload ends with 0, DEST
holds the model and DEST/.faststart/complete.json, the marker, says so.

What is copied
  --files auto|all|GLOB...
        auto (the default): what vLLM opens. With an index its shards, one
        weight format of several, no pictures, no original/ copies. all: each
        file. GLOB: matched against the path in the folder, * crosses "/", and
        a trailing "/" stands for all in a folder.
  --plan
        Print what would be copied, checked, kept, left out and removed, in GB
        and with the reason, and touch nothing.
  --max-bytes N
        Refuse a model of more bytes than this (exit 8).
  --manifest-digest D
        Refuse a source whose published manifest has another digest (exit 8).

How it is copied
  --parallel N
        Streams, at the most (32). A long copy uses fewer where fewer are as
        fast.
  --write auto|direct|buffered
        direct goes around the page cache; buffered leaves the copy in it, from
        where a server loads several times faster. auto (the default): buffered
        if 1.3 times the model and 4 GiB fit into the memory that is free, within
        the container's limit, else direct. The first line says which, and why.
  --cache auto|keep|drop
        What becomes of the copy's pages in the page cache. keep: buffered
        writes. drop: none stay. The source's pages are always dropped.
  --verify none|size|sha256
        size (the default): safetensors headers against file sizes, indexes
        against shards, no Git LFS pointers, and sizes in the copy. sha256: each
        block against its hash in the published manifest as well, from the
        buffer that was read. none: nothing of this.

Where and when
  --require-local-disk
        Refuse a destination that is not on EC2 instance storage (exit 10).
  --wait SECONDS
        How long to wait for another preload that owns DEST (3600). It is taken
        over from one that died at once.
  --stay
        After the copy, sleep until SIGTERM, as a sidecar does. DEST/.faststart/
        run/<pod uid> appears once no older marker can be mistaken for this
        copy's, and goes at the end; the uid is taken from FASTSTART_POD_UID.
  --stall SECONDS
        Give up (exit 9) once SOURCE has given nothing for so long while it was
        asked (600, Lustre's own limit for one request). What is known of it is
        told first, in report.json, too; started again, it goes on.
  --termination-log PATH
        Write the result there, as JSON of at most 4 KiB.
  --version, --help

Exit codes
   0  done: the marker stands        7  not permitted
   2  wrong command line             8  the source changed, or is another one
   3  no space                       9  I/O error, after several tries
   4  damaged, or a wrong hash      10  destination refused
   5  DEST is still another's      143  stopped by SIGTERM; what was copied
   6  no model at SOURCE                is kept
  1 is a crash of the program itself.

Started again after any end, kill -9 among them, it copies only what is
missing. After a reset of the node it believes what direct writes had put on
disk, some seconds less than all. A file that lies in DEST and that it does not
believe is held against the hashes in the published manifest, and copied only if
it is wrong; without published hashes it is copied. Files become 0644, links are
resolved; the source must not change meanwhile.

Example
  python3 -S /opt/faststart/start.py preload \\
      /fsx/models/qwen3/r1 /models/current --require-local-disk
"""


@dataclass(frozen=True)
class Options:
    """What the command line asked for: a copy, or with `plan` only to say what it would do."""

    request: CopyRequest
    plan: bool


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Options:
    """Return the options of a command line; their meaning stands in `--help`.

    Raises:
        FaststartError: 2, it is wrong.
    """
    parser = Parser("preload", HELP, VERSION)
    parser.add_argument("source", metavar="SOURCE", type=os.fsencode)
    parser.add_argument("destination", metavar="DEST", type=os.fsencode)
    parser.add_argument("--parallel", type=parallel, default=32)
    parser.add_argument("--write", choices=get_args(Write), default="auto")
    parser.add_argument("--cache", choices=get_args(Cache), default="auto")
    parser.add_argument("--files", nargs="+", default=["auto"])
    parser.add_argument("--verify", choices=VERIFY_LEVELS, default="size")
    parser.add_argument("--max-bytes", type=natural)
    parser.add_argument("--manifest-digest", type=digest)
    parser.add_argument("--require-local-disk", action="store_true")
    parser.add_argument("--wait", type=seconds, default=3600.0)
    parser.add_argument("--stay", action="store_true")
    parser.add_argument("--plan", action="store_true")
    given = parser.parse_args(arguments)
    if given.write == "direct" and given.cache == "keep":
        parser.error("--write direct leaves no pages that --cache keep could keep: use --write buffered, or auto")
    pod_uid = _pod_uid(environment) if given.stay else None
    request = CopyRequest(
        source=given.source,
        destination=given.destination,
        files=tuple(given.files),
        verify=given.verify,
        streams=given.parallel,
        wait=given.wait,
        write=given.write,
        cache=given.cache,
        max_bytes=given.max_bytes,
        manifest_digest=given.manifest_digest,
        require_local_disk=given.require_local_disk,
        pod_uid=None if given.plan else pod_uid,
    )
    return Options(request, given.plan)


def _pod_uid(environment: Mapping[str, str]) -> str:
    uid = environment.get(POD_UID, "")
    if not re.fullmatch(r"[0-9a-f-]{8,64}", uid):
        raise FaststartError(Exit.USAGE, f"--stay: {POD_UID} is {uid!r}, not a pod's uid: set it from metadata.uid")
    return uid


def parallel(text: str) -> int:
    """Read a number of streams, for argparse."""
    number = natural(text)
    if not 1 <= number <= MAX_PARALLEL:
        raise argparse.ArgumentTypeError(f"{number} is not between 1 and {MAX_PARALLEL}")
    return number
