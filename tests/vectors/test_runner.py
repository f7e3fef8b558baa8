"""The runner of the vectors: which cases pass, and when a difference on purpose is none."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.deliberate import Difference
from tests.vectors.runner import judged, verdicts

STOCK = {"id": "a", "expect": 1}
HONOURED = {"id": "a", "expect": 1, "expect_if_honoured": 2}


def judge_of(answer: int) -> Any:  # noqa: ANN401 (a judge)
    """A judge for whom criproxy always gives *answer*."""

    def judge(case: Mapping[str, Any], whole: Mapping[str, Any]) -> str | None:
        return None if case["expect"] == answer else f"{answer} instead of {case['expect']}"

    return judge


@pytest.mark.parametrize(
    ("answer", "case", "listed", "wrong"),
    [
        pytest.param(1, STOCK, None, None, id="like-nvidia"),
        pytest.param(2, STOCK, None, "2 instead of 1", id="not-like-nvidia"),
        pytest.param(2, HONOURED, None, None, id="honours-what-nvidia-ignores"),
        pytest.param(3, HONOURED, None, "3 instead of 2", id="neither"),
        pytest.param(2, HONOURED, Difference("why"), None, id="listed"),
        pytest.param(1, HONOURED, Difference("why"), "criproxy answers like NVIDIA", id="listed-but-stock"),
        pytest.param(3, HONOURED, Difference("why", expect=3), None, id="listed-with-an-answer"),
        pytest.param(2, HONOURED, Difference("why", expect=3), "2 instead of 3", id="listed-with-another-answer"),
        pytest.param(2, STOCK, Difference("why"), "does not say what is expected", id="listed-without-an-answer"),
    ],
)
def test_a_case_passes_as_nvidia_answers_or_as_listed(
    answer: int, case: dict[str, Any], listed: Difference | None, wrong: str | None
) -> None:
    """A difference that is listed has to be one."""
    found, _ = judged(judge_of(answer), case, {}, listed)

    assert (found is None) if wrong is None else (found is not None and wrong in found)


def test_a_module_may_know_differences_of_cases_that_are_not_listed() -> None:
    """They pass with the rule's answer, and cases that answer like NVIDIA need no rule."""

    def by_rule(case: Mapping[str, Any], whole: Mapping[str, Any]) -> Difference:
        return Difference("a rule", expect=3)

    assert judged(judge_of(3), STOCK, {}, None, by_rule) == (None, "a rule")
    assert judged(judge_of(1), STOCK, {}, None, by_rule) == (None, "")
    assert judged(judge_of(2), STOCK, {}, None, by_rule)[0] == "2 instead of 3"


def test_a_case_that_cannot_be_judged_fails_alone(tmp_path: Path) -> None:
    """An unknown kind, or an error in a judge, is a line like any other."""
    (tmp_path / "some.yaml").write_text(
        "cases: [{id: a, kind: new}, {id: b, kind: plugin, args: 5, expect: ok}, {id: c, kind: select, files: [a],"
        " fallback_strategies: [single], expect: ok, result: {config: a, changed: true, link: src/a}}]"
    )

    lines = [verdict.line for verdict in verdicts(tmp_path)]

    assert lines[0] == "FAIL some.yaml a: nobody judges the kind 'new'"
    assert lines[1].startswith("FAIL some.yaml b: TypeError: ")
    assert lines[2] == "ok   some.yaml c"
