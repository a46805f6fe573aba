"""publish as a program: which of its tasks was asked for, and how often it is tried."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator

from podkit.display import show
from podkit.errors import Exit, FaststartError
from podkit.heap import READING_BYTES, THREAD_BYTES
from podkit.processor import processors
from podkit.program import Program
from podkit.surroundings import Surroundings
from preload.mode import READ_BYTES_MAX
from publish import options
from publish.checking import check
from publish.options import REMOTE, Check, Options, Removal
from publish.publishing import publish
from publish.removing import remove
from publish.report import PublishReport

AGAIN = (Exit.BUSY, Exit.IO_ERROR, Exit.NETWORK)
"""Exit codes after which another try can help."""

PAUSES = (10.0, 30.0, 60.0)
"""Seconds before the second try and the next ones. A choice of ours: each try has its own patience with single
requests, so these are for what is away for longer."""

LIBRARY_BYTES = 10 << 30
"""What boto3, the AWS CRT, huggingface_hub and hf_xet may take beside. The CRT has the most: buffers of up to 8
GiB (s3.CRT_GIB)."""


def _work(asked: Options | Check | Removal, around: Surroundings, report: PublishReport) -> None:
    before = os.umask(0o022)  # servers read as another user
    try:
        with _quiet_libraries():
            if isinstance(asked, Check):
                check(asked, around, report)
            elif isinstance(asked, Removal):
                remove(asked, around, report)
            else:
                _try(asked, around, report)
    finally:
        os.umask(before)


@contextlib.contextmanager
def _quiet_libraries() -> Iterator[None]:
    """Let nothing of what libraries log or warn of reach standard error, where nobody bounds it: addresses, names."""
    root, nobody = logging.getLogger(), logging.NullHandler()
    root.addHandler(nobody)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(nobody)


def _try(asked: Options, around: Surroundings, report: PublishReport) -> None:
    """Publish, and do so again after a growing pause where that can help.

    Raises:
        FaststartError: any exit code of publish: one that another try would meet again, or that of the last try.
    """
    for number in range(1, asked.tries + 1):
        try:
            publish(asked, around, report)
        except FaststartError as error:
            if not (error.code in AGAIN or error.passing) or number == asked.tries:
                raise
            pause = PAUSES[min(number, len(PAUSES)) - 1]
            about = f"{show(error.file)}: " if error.file else ""
            around.say(f"{about}{error.message}; try {number + 1} of {asked.tries} begins in {pause:.0f} s")
            around.patience.pause(pause)
        else:
            return


def memory(asked: Options | Check | Removal) -> int:
    """Return the most bytes of memory that a task may take: for the model's small files, streams, and libraries."""
    hashing = READING_BYTES + processors() * THREAD_BYTES
    if not isinstance(asked, Options):
        return hashing
    streams = asked.parallel * (THREAD_BYTES + READ_BYTES_MAX)
    return hashing + streams + (LIBRARY_BYTES if asked.source.startswith(REMOTE) else 0)


main = Program("publish", options.parse, PublishReport, _work, memory=memory).main
"""Runs publish. 0 means that the destination is sealed, that --check found nothing that is wrong, or that what --remove
named is gone."""
