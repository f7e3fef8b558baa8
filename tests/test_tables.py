"""Tables in the documentation say what the code says."""

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.tables import PLACE, pages, renewed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_code(page: Path) -> None:
    """Each option is in the table of its page, with its default and meaning: ``python -m tests.tables`` renews it."""
    text = page.read_text()

    assert renewed(text) == text


def test_a_table_that_is_behind_is_renewed() -> None:
    """Whatever is between the marks gives way to the options of the class that they name."""
    old = "<!-- options: criproxy.policy.balloons.options.LoadClass -->\nold\n<!-- end -->"
    new = renewed(old)

    assert "old" not in new
    assert "| `level` | `core`, `l2cache` | must be given |" in new
    assert PLACE.search((ROOT / "docs/policies/balloons.md").read_text())
