"""What `make quick` looks at and runs."""

import re
from pathlib import Path

import pytest

from lab import ROOT
from tests import quick


def names(paths: set[Path]) -> set[str]:
    return {str(path.relative_to(ROOT)) for path in paths}


def test_an_area_is_its_tests_and_the_code_that_they_mirror() -> None:
    files, tests = quick.chosen(["kube"])

    assert {"lab/kube/tools.py", "tests/lab/kube/support.py", "tests/lab/kube/test_tools.py"} <= names(files)
    assert names(tests) == {str(path.relative_to(ROOT)) for path in (ROOT / "tests/lab/kube").glob("test_*.py")}


def test_a_file_of_code_is_looked_at_alone_and_its_room_s_tests_run() -> None:
    files, tests = quick.chosen(["lab/kube/tools.py"])

    assert names(files - tests) == {"lab/kube/tools.py"}
    assert "tests/lab/kube/test_tools.py" in names(tests)


def test_a_file_of_tests_is_all() -> None:
    files, tests = quick.chosen(["tests/lab/kube/test_tools.py"])

    assert names(files) == names(tests) == {"tests/lab/kube/test_tools.py"}


@pytest.mark.parametrize("words", [["nosuch"], ["kube", "lab/nosuch.py"], ["docs"], []])
def test_what_has_no_tests_is_refused_with_the_list(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert quick.main(words) == quick.USAGE
    assert re.search("areas: .*preload", capsys.readouterr().err)
