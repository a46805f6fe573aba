"""Files that others read meanwhile are written whole or not at all."""

from pathlib import Path

import pytest

from lab import files


def test_a_file_gets_its_text_and_nothing_stays_beside_it(tmp_path: Path) -> None:
    for text in ("one", "two"):
        files.replace(tmp_path / "a.json", text)
        assert [path.name for path in tmp_path.iterdir()] == ["a.json"]
        assert (tmp_path / "a.json").read_text() == text


def test_an_old_file_stays_as_it_was_where_the_new_one_cannot_be_written(tmp_path: Path) -> None:
    files.replace(tmp_path / "a.json", "one")
    with pytest.raises(UnicodeEncodeError):
        files.replace(tmp_path / "a.json", "\ud800")

    assert (tmp_path / "a.json").read_text() == "one"
