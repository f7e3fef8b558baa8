"""Tables and outputs in the documentation say what the code says."""

import re
from pathlib import Path

import pytest

from criproxy.cli import COMMANDS
from criproxy.placement.options.annotation_keys import KEYS
from tests.conftest import ROOT
from tests.tables import PLACE, pages, pictures, policies_of, renewed


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_tables_are_those_of_the_code(page: Path) -> None:
    """Options, annotations and what commands print are as the code has them: ``python -m tests.tables`` renews them."""
    text = page.read_text()

    assert renewed(text) == text


def test_pictures_are_what_simulate_draws() -> None:
    """Each shows where containers are now: ``python -m tests.tables`` draws them anew. None is without a page.

    Those of docs/benefit are drawn from its reports.
    """
    drawn, docs = dict(pictures()), ROOT / "docs"

    for file, content in drawn.items():
        assert file.read_text() == content, file.name
    assert drawn.keys() == {path for path in docs.rglob("*.svg") if path.parent != docs / "benefit"}


def test_every_table_of_options_and_annotations_is_made() -> None:
    """None is written by hand: that would be behind one day."""
    for page in (ROOT / "docs").rglob("*.md"):
        by_hand = PLACE.sub("", page.read_text())
        assert not re.search(r"^\| (Option|Annotation) \|", by_hand, re.MULTILINE), page.name


def test_the_reference_has_the_help_of_every_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command has a heading and its options, and a narrow terminal changes no line."""
    monkeypatch.setenv("COLUMNS", "40")
    page = (ROOT / "docs/cli.md").read_text()

    assert renewed(page) == page
    for name in COMMANDS:
        assert f"\n### criproxy {name}\n\n```text\nUsage: criproxy {name} [" in page


def test_the_reference_lists_every_command() -> None:
    """Each command is in the table of what it is for, and in that of exit statuses."""
    page = (ROOT / "docs/cli.md").read_text()
    purposes, statuses = page.partition("\n## Exit statuses")[0], page.partition("| Command | 0 | 1 |")[2]

    for name in COMMANDS:
        assert re.search(rf"^\| .*`{name}`.* \| .* \|$", purposes, re.MULTILINE), name
        assert f"\n| `{name}` | " in statuses, name


@pytest.mark.parametrize("policy", sorted({policy for key in KEYS for policy in policies_of(key)}))
def test_the_page_of_a_policy_has_its_annotations(policy: str) -> None:
    """Each page links to every annotation that the policy reads."""
    assert f"<!-- annotations: {policy} -->" in (ROOT / f"docs/policies/{policy}.md").read_text()
