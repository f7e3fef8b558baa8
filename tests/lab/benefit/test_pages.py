"""Every figure in a page is one of the report that lies beside it."""

import re
from typing import Any

import pytest

from lab.benefit.pages import BLOCK, FIGURE, PAGES, render, reports

_MEASURED = re.compile(r"\b\d[\d.,]* ?(?:%|ms|µs|MiB|times)(?!\w)")
_NOT_MEASURED = {"57.76 %", "95 %", "100 ms"}
"""The figure of a paper, the confidence of intervals, the period of a quota."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_figures_of_the_reports(page: Any) -> None:  # noqa: ANN401 (a path)
    """`python -m lab.benefit --write-docs` has nothing to change."""
    text = page.read_text()
    assert render(text, reports()) == text


def test_no_figure_is_typed_by_hand() -> None:
    """What docs/benefit.md says outside of blocks has none that was measured."""
    text = FIGURE.sub("", BLOCK.sub("", PAGES[-1].read_text()))
    assert set(_MEASURED.findall(text)) <= _NOT_MEASURED
