"""preload as a program: what surrounds a copy in the process that makes it."""

from __future__ import annotations

import os
import resource

from podkit.errors import Exit
from podkit.heap import READING_BYTES, THREAD_BYTES
from podkit.program import Program
from podkit.surroundings import Surroundings
from preload import options
from preload.destination import remove_run
from preload.mode import READ_BYTES_MAX
from preload.options import Options
from preload.report import CopyReport
from preload.request import CopyRequest
from preload.run import copy, plan

FILES_PER_STREAM = 8
"""What a stream has open at once, with room to spare: source, part, both folders, and what is closed late."""


def _work(asked: Options, around: Surroundings, report: CopyReport) -> None:
    _allow_open_files(FILES_PER_STREAM * asked.request.streams)
    # A pod that was started again after a reset of its node has the uid that it had, and what it left.
    _take_back(asked.request)
    (plan if asked.plan else copy)(asked.request, around, report)


def _stay(asked: Options, around: Surroundings, report: CopyReport) -> None:
    """Wait for SIGTERM as a sidecar does, if the marker stands; then no copy is under way here any more."""
    if asked.request.pod_uid and report.code == Exit.DONE:
        around.patience.wait_for_stop()
    _take_back(asked.request)


def _take_back(request: CopyRequest) -> None:
    if request.pod_uid:
        remove_run(os.path.abspath(request.destination), request.pod_uid)


def _allow_open_files(number: int) -> None:
    """Raise the soft limit of open files by so many, where the hard one allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        wanted = soft + number
        resource.setrlimit(
            resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard)
        )


def memory(asked: Options) -> int:
    """Return the most bytes of memory that a copy may take: for the model's small files, and for its streams."""
    return READING_BYTES + asked.request.streams * (THREAD_BYTES + READ_BYTES_MAX)


main = Program("preload", options.parse, CopyReport, _work, _stay, memory).main
"""Runs preload. 0 means that the marker stands, or that --plan was given; with --stay it is returned after SIGTERM."""
