"""The pictures of the page in the documentation: they are there, small, shown, and of the page as it is now."""

import pytest

from tests.page.pictures import COMMAND, DIGEST, FOLDER, MOST_BYTES, PICTURES, digest

PAGE = FOLDER.parent / "page.md"


def test_they_are_of_the_page_as_it_is() -> None:
    """Who changes a file of the page looks at it again; pixels are not compared, since fonts differ."""
    assert DIGEST.read_text().strip() == digest(), f"the files of the page have changed: run {COMMAND}, and look"


@pytest.mark.parametrize("name", PICTURES)
def test_each_is_small_and_shown(name: str) -> None:
    """They are cloned with the repository."""
    body = (FOLDER / name).read_bytes()

    assert body.startswith(b"\x89PNG")
    assert len(body) < MOST_BYTES
    assert f"](page/{name})" in PAGE.read_text()


def test_there_are_no_others() -> None:
    """What is no longer taken is no longer shown."""
    assert {path.name for path in FOLDER.iterdir()} == {*PICTURES, DIGEST.name}
