"""Every figure in a page is one of the report that lies beside it."""

import re
from typing import Any

import pytest

from lab.benefit.pages import BLOCK, FIGURE, MISSING, PAGES, figure, render, reports

_MEASURED = re.compile(r"\b\d[\d.,]* ?(?:%|ms|µs|MiB|times)(?!\w)")
_NOT_MEASURED = {"57.76 %", "95 %", "100 ms"}
"""The figure of a paper, the confidence of intervals, the period of a quota."""


def made() -> dict[str, Any]:
    """A small report."""
    figures = {"median": 51.26, "low": 40.0, "high": 60.0}
    rows = [
        {
            "name": name,
            "title": name,
            "cpus": ["0-1"],
            "value": {"median": 1.5, "low": 1.0, "high": 2.0},
            "shorter_percent": figures,
            "neighbours_lose_percent": None,
            "cpu_s": 1.0,
            "waited_s": 0.5,
            "throttled_s": 0.0,
        }
        for name in ("none", "static")
    ]
    case = {"name": "a/b", "workload": "work", "neighbours": "noise", "unit": "s", "managers": rows}
    return {"usable": True, "complaints": [], "cases": [case], "cost": {"memory_mib": {"static": 50.5}}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_have_the_figures_of_the_reports(page: Any) -> None:  # noqa: ANN401 (a path)
    """`python -m lab.benefit --write-docs` has nothing to change."""
    text = page.read_text()
    assert render(text, reports()) == text


def test_no_figure_is_typed_by_hand() -> None:
    """What docs/benefit.md says outside of blocks has none that was measured."""
    text = FIGURE.sub("", BLOCK.sub("", PAGES[-1].read_text()))
    assert set(_MEASURED.findall(text)) <= _NOT_MEASURED


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param("report a/b static value", "1.5", id="median"),
        pytest.param("report a/b static value low", "1", id="low"),
        pytest.param("report a/b static shorter_percent", "51 %", id="percent"),
        pytest.param("report a/b static shorter_percent high", "60 %", id="high"),
        pytest.param("report cost memory_mib static", "50.5", id="path"),
        pytest.param("other a/b static value", "", id="no-such-report"),
    ],
)
def test_a_figure_is_looked_up(words: str, expected: str) -> None:
    """By the name of its report and the way to it; nothing where the report was never made."""
    assert figure({"report": made()}, words.split()) == expected


@pytest.mark.parametrize("words", ["report a/b balloons value", "report a/c static value", "report nothing"])
def test_a_figure_that_is_missing_is_told(words: str) -> None:
    """A page cannot go on saying what is measured no longer."""
    with pytest.raises(LookupError):
        figure({"report": made()}, words.split())


def test_blocks_are_replaced_as_a_whole() -> None:
    """As often as one likes; a report that is missing is named as missing."""
    block = "<!-- benefit: gains report -->\nold\n<!-- end -->"
    page = f"before\n{block}\nafter <!-- = report a/b static value -->9<!-- / -->.\n"

    once = render(page, {"report": made()})

    assert "old" not in once
    assert "| work | noise | none | 1.5 (1 to 2) s | | |" in once
    assert once.endswith("after <!-- = report a/b static value -->1.5<!-- / -->.\n")
    assert render(once, {"report": made()}) == once
    assert render(once, {}).startswith(f"before\n<!-- benefit: gains report -->\n{MISSING}<!-- end -->\nafter ")
    headline = "<!-- benefit: headline report -->\n<!-- end -->"
    assert render(headline, {}) == headline


def test_figures_that_do_not_count_say_so() -> None:
    """A noisy machine is named above the table."""
    noisy = {**made(), "usable": False, "complaints": ["it was busy"]}
    text = render("<!-- benefit: gains report -->\n<!-- end -->", {"report": noisy})
    assert "do not count" in text
    assert "it was busy" in text
