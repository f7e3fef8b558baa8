"""The file of the last good configuration is read as it was written, or not at all."""

from pathlib import Path

import pytest

from criproxy.store.configurations import LAST_GOOD_NAME, read_good


@pytest.mark.parametrize("text", ["", "[]", "{", '{"available": "x"}', "\0"])
def test_a_damaged_last_good_file_is_none(tmp_path: Path, text: str) -> None:
    """Whatever is there in its place, a start does not fail by it."""
    (tmp_path / LAST_GOOD_NAME).write_text(text)

    assert read_good(tmp_path) is None
