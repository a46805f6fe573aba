"""The command line of publish (contracts.md, "Command")."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass

from podkit.options import Parser, natural, seconds
from preload import VERSION
from preload.options import parallel

REMOTE = ("s3://", "hf://")

TOKENIZER_WORDS = ("required", "none")
"""Whether a model must have a tokenizer."""

HELP = """\
usage: publish SOURCE DEST [options]
       publish --in-place FOLDER [options]
       publish --check FOLDER [--tokenizer none]
       publish --remove FOLDER [options]

Puts a model on shared storage once, whole and sealed: preload then copies it to
any number of nodes, and can hold each block against its hash.

SOURCE is s3://BUCKET/PREFIX, hf://ORG/NAME@REVISION (a branch, a tag or a
commit), or a folder; a snapshot folder of a Hugging Face cache will do. DEST
appears when all is there and sealed, and never changes again. It is put
together in a folder beside it; started again after any end, publish goes on
with what is there. If DEST is sealed already, from the same source, there is
nothing to do.

  --in-place FOLDER
        Seal a folder as it stands, and copy nothing: write its manifest,
        FOLDER/.faststart/manifest.json. Each byte is read once, which also
        brings in what a data repository of S3 has not loaded yet. Nothing may
        change in the folder from then on.
  --check FOLDER
        Say what vLLM would do with a folder, and what is wrong with it: cut,
        missing or strange weights, stale indexes, Git LFS pointers. With a
        manifest each byte is held against it. Changes nothing; the exit code is
        that of the worst finding.
  --remove FOLDER
        Delete a sealed folder, once and for all. It is renamed first, to
        .<name>.removed beside it, so that nobody meets half of it; started again
        after any end, publish finishes that. Whether a server still needs the
        folder is not known here: see that none does. A folder without a manifest,
        or sealed in place, is somebody's own, and is refused.
  --manifest-digest D
        With --remove: refuse a folder whose manifest has another digest (exit 8).

What is published
  --files auto|all|GLOB...
        auto (the default): what vLLM opens, as preload's flag has it. all: each
        file. GLOB: matched against the path, as `hf download --include` does.
        --check judges the same files; of a sealed folder those that were sealed.
  --allow-pickle
        Seal files that are Python pickles, too. Whoever wrote one can run code
        in the server that loads it (exit 7 without this flag).
  --tokenizer required|none
        none: the model is served without a tokenizer (vLLM's
        --skip-tokenizer-init; some for speech and embeddings), so that a folder
        without one is published. required (the default): it is refused (exit 4).
  --max-bytes N
        Refuse a model of more bytes than this (exit 8).
  --model NAME, --revision REVISION
        For the manifest; by default the last two folders of DEST.

How
  --parallel N
        Files, or requests, at once (16).
  --token-file PATH
        A file with the token for Hugging Face. Without it huggingface_hub looks
        where it always does. For S3 boto3 finds region and credentials.
  --staging FOLDER
        Where DEST is put together; on the same file system. By default
        .<name>.staging beside it. With --remove: where the folder was put
        together, for its lock lies there.
  --wait SECONDS
        How long to wait for another publisher of DEST (3600; with --remove 0).
  --tries N
        How often to try in all (1) where another try can help: exits 5, 9 and
        11, and access denied to a pod, whose role may be seconds old.
  --stall SECONDS
        Give up (exit 9) once a folder has given nothing for so long while it was
        read (600, Lustre's own limit for one request).
  --termination-log PATH
        Write the result there, as JSON of at most 4 KiB.
  --version, --help

Exit codes
   0  done: DEST is sealed           7  not permitted: no access, gated, pickle
   2  wrong command line             8  the source changed, or DEST was sealed
   3  no space                          from something else
   4  damaged, or a wrong hash       9  I/O error, after several tries
   5  another one publishes DEST    10  DEST refused: it holds something else
   6  no such source or folder,     11  network, after several tries
      or no model                  143  stopped by SIGTERM; what came is kept
  1 is a crash of the program itself.

Example
  PYTHONPATH=workloads python3 -m publish hf://Qwen/Qwen3-8B@main \\
      /fsx/models/qwen3-8b/2025-07
"""


@dataclass(frozen=True)
class Options:
    """What the command line asked for.

    Attributes:
        source: an address, or the absolute path of a folder.
        destination: absolute path; that of the source, where it is sealed in place.
        staging: absolute path of the folder in which the destination is put together.
        tokenizer: `required`, or `none` where it is served without one.
    """

    source: str
    destination: str
    staging: str
    model: str
    revision: str
    files: tuple[str, ...]
    allow_pickle: bool
    max_bytes: int | None
    parallel: int
    token_file: str | None
    wait: float
    tries: int
    tokenizer: str = TOKENIZER_WORDS[0]

    @property
    def in_place(self) -> bool:
        """Say whether the source itself is sealed."""
        return self.source == self.destination


@dataclass(frozen=True)
class Check:
    """What to check.

    Attributes:
        folder: the folder.
        files: the patterns of the files that count; None for those that were or would be sealed.
        tokenizer: whether there must be one.
    """

    folder: str
    files: tuple[str, ...] | None
    tokenizer: str = TOKENIZER_WORDS[0]


@dataclass(frozen=True)
class Removal:
    """What is to be removed.

    Attributes:
        folder: absolute path of the sealed folder.
        staging: absolute path of the folder in which it was put together.
        manifest_digest: that of the folder's manifest, if only such a folder is meant.
        wait: seconds to wait for a publisher of it.
    """

    folder: str
    staging: str
    manifest_digest: str | None
    wait: float


def parse(arguments: Sequence[str]) -> Options | Check | Removal:
    """Return the options of a command line; their meaning stands in `--help`.

    Raises:
        FaststartError: 2, it is wrong.
    """
    parser = Parser("publish", HELP, VERSION)
    parser.add_argument("paths", metavar="SOURCE DEST", nargs="*")
    parser.add_argument("--in-place", metavar="FOLDER")
    parser.add_argument("--check", metavar="FOLDER")
    parser.add_argument("--remove", metavar="FOLDER")
    parser.add_argument("--manifest-digest")
    parser.add_argument("--files", nargs="+")
    parser.add_argument("--allow-pickle", action="store_true")
    parser.add_argument("--tokenizer", choices=TOKENIZER_WORDS, default=TOKENIZER_WORDS[0])
    parser.add_argument("--max-bytes", type=natural)
    parser.add_argument("--model")
    parser.add_argument("--revision")
    parser.add_argument("--parallel", type=parallel, default=16)
    parser.add_argument("--token-file")
    parser.add_argument("--staging")
    parser.add_argument("--wait", type=seconds)
    parser.add_argument("--tries", type=tries, default=1)
    given = parser.parse_intermixed_args(arguments)
    folders = [folder for folder in (given.in_place, given.check, given.remove) if folder is not None]
    if len(folders) + bool(given.paths) != 1 or len(given.paths) not in (0, 2):
        parser.error("give SOURCE and DEST, or --in-place FOLDER, or --check FOLDER, or --remove FOLDER")
    if given.manifest_digest is not None and given.remove is None:
        parser.error("--manifest-digest is for --remove")
    if given.check is not None:
        files = tuple(given.files) if given.files else None
        return Check(os.path.abspath(given.check), files, given.tokenizer)
    if given.remove is not None:
        folder = os.path.abspath(given.remove)
        return Removal(folder, _staging(folder, given.staging, parser), given.manifest_digest, given.wait or 0.0)
    source, destination = given.paths or (given.in_place, given.in_place)
    if "://" in destination or ("://" in source and not source.startswith(REMOTE)):
        parser.error(f"{source} to {destination}: a source is s3://, hf:// or a folder, and DEST a folder")
    if not source.startswith(REMOTE):
        source = os.path.abspath(source.removeprefix("path:"))
    destination = os.path.abspath(destination)
    if given.paths and source == destination:
        parser.error("SOURCE and DEST are one folder: use --in-place")
    staging = _staging(destination, given.staging, parser)
    above, name = os.path.split(destination)
    return Options(
        source=source,
        destination=destination,
        staging=staging,
        model=given.model or os.path.basename(above) or name,
        revision=given.revision or name,
        files=tuple(given.files or ["auto"]),
        allow_pickle=given.allow_pickle,
        max_bytes=given.max_bytes,
        parallel=given.parallel,
        token_file=given.token_file,
        wait=3600.0 if given.wait is None else given.wait,
        tries=given.tries,
        tokenizer=given.tokenizer,
    )


def tries(text: str) -> int:
    """Return a number of tries.

    Raises:
        ArgumentTypeError: it is none from 1 on.
    """
    if number := natural(text):
        return number
    raise argparse.ArgumentTypeError(f"{text!r} is no number of tries: 1 is the least")


def _staging(destination: str, named: str | None, parser: Parser) -> str:
    above, name = os.path.split(destination)
    if not name:
        parser.error(f"{destination} is the top folder of the file system")
    return os.path.abspath(named or os.path.join(above, f".{name}.staging"))
