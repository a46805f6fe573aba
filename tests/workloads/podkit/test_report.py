"""What a program tells of its run."""

from __future__ import annotations

import json

import pytest

from podkit.errors import Exit, FaststartError
from podkit.report import Report
from preload.report import CopyReport
from publish.report import PublishReport


@pytest.mark.parametrize("report", [Report(), CopyReport(), PublishReport()], ids=lambda report: type(report).__name__)
@pytest.mark.parametrize("text", ["x", "é", "\U0001f600", '"'])
def test_a_termination_message_never_exceeds_4_kib_and_stays_json(report: Report, text: str) -> None:
    report.fail(FaststartError(Exit.DAMAGED, text * 9000, text.encode() * 4000))
    message = report.termination_message()
    assert len(message) <= 4096
    fields = json.loads(message)
    assert fields["code"] == 4
    assert fields["message"].startswith(text * 50)
    assert fields["file"].startswith(text * 50)
