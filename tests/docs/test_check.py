"""docs/check.md lists what `criproxy status --check` can say: each kind of notice and each sentence, and none else."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from criproxy.api.views import status_check as report
from criproxy.placement import invariants
from tests.conftest import ROOT

PAGE = ROOT / "docs/check.md"
SOURCES = {"all_notices", "misplaced", "undersized", "unguarded", "unhealthy_in_use", "violations"}
"""What `report.find` asks beside the notices: a further one needs a part of the page, and a line in this test."""

CHECKED: list[Callable[..., Any]] = [*invariants.CHECKS, invariants.violations]


@dataclass(frozen=True, slots=True)
class Made:
    """A notice that some line of the package makes."""

    kind: str
    wrong: bool
    where: str


def made(source: str, name: str) -> Iterator[Made]:
    """The notices that the module *source* makes; AssertionError where a kind is not written out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Notice":
            where, given = f"{name}:{node.lineno}", dict(enumerate(node.args))
            given |= {{"kind": 0, "text": 1, "wrong": 2}[word.arg or ""]: word.value for word in node.keywords}
            kind, wrong = given[0], given.get(2, ast.Constant(value=True))
            assert isinstance(kind, ast.Constant), f"{where}: write the notice's kind out, so that the docs can list it"
            assert isinstance(wrong, ast.Constant), f"{where}: say with a literal whether the notice is wrong"
            yield Made(str(kind.value), bool(wrong.value), where)


@cache
def in_package() -> list[Made]:
    """All notices that criproxy makes."""
    files = sorted((ROOT / "criproxy").rglob("*.py"))
    return [each for file in files for each in made(file.read_text(), str(file.relative_to(ROOT)))]


def rows(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, without its first two lines."""
    part = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    lines = [line for line in part.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def sentences(function: Callable[..., Any]) -> Iterator[str]:
    """The texts that a function yields, returns or collects, with … for what is filled in."""
    for node in ast.walk(ast.parse(inspect.getsource(function).lstrip())):
        if isinstance(node, ast.JoinedStr):
            parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
            yield "".join(map(str, parts))
        elif isinstance(node, ast.Yield) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def test_each_kind_of_notice_is_on_the_page_and_no_other() -> None:
    """The first column has the kinds of the package, each once."""
    listed = [row[0].strip("`") for row in rows("Notices")]
    kinds = {each.kind: each.where for each in in_package()}

    assert sorted(listed) == sorted(set(listed)), "a kind is listed twice"
    assert not (missing := kinds.keys() - set(listed)), f"{PAGE.name} lacks {[f'{k} ({kinds[k]})' for k in missing]}"
    assert not (extra := set(listed) - kinds.keys()), f"{PAGE.name} lists {extra}, of which no code speaks"


def test_the_page_says_which_notices_end_with_status_1() -> None:
    """The second column says whether a kind is wrong, or chosen by somebody; for some kinds it depends."""
    listed = {row[0].strip("`"): row[1] for row in rows("Notices")}
    for kind in {each.kind for each in in_package()}:
        found = {each.wrong for each in in_package() if each.kind == kind}
        assert listed.get(kind) == {(True,): "1", (False,): "0", (False, True): "0 or 1"}[tuple(sorted(found))], kind


@pytest.mark.parametrize("check", CHECKED, ids=lambda check: check.__name__)
def test_each_violation_is_on_the_page(check: Callable[..., Any]) -> None:
    """What must always be true has a row for each sentence that says that it is not."""
    listed = {row[0].strip("`") for row in rows("What must always be true")}
    assert not (missing := set(sentences(check)) - listed), f"{PAGE.name} lacks {missing}"


def test_the_page_lists_no_violation_that_there_is_not() -> None:
    """Each of its rows is a sentence of some check."""
    known = {text for check in CHECKED for text in sentences(check)}
    assert {row[0].strip("`") for row in rows("What must always be true")} <= known


def test_the_page_says_how_a_misplaced_container_is_told_of() -> None:
    """The differences between granted and applied have a row each."""
    listed = {row[0].strip("`") for row in rows("Containers that are not where they should be")}
    assert listed == {f"… {text}" for text in sentences(report._difference)}


def test_whatever_is_a_problem_comes_from_where_the_page_knows_of() -> None:
    """A new source of problems is noticed here, so that the page gets a part for it."""
    tree = ast.parse(inspect.getsource(report.find))
    called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    assert called - {"Notice", "Found"} == SOURCES


def test_other_pages_lead_here() -> None:
    """README, and the page about status, have a link."""
    assert re.search(r"\]\(docs/check\.md\)", (ROOT / "README.md").read_text())
    assert re.search(r"\]\(check\.md\)", (ROOT / "docs/status.md").read_text())
