"""The suite itself: it knows nothing inside criproxy, and its tables notice what differs."""

import re
from pathlib import Path
from typing import Any

import pytest

from tests.contract.shapes import EACH, differences

SHAPE = {"name": str, "cpus": [int], "since": (str, None), "more?": {EACH: float}}
WELL: dict[str, Any] = {"name": "a", "cpus": [1, 2], "since": None, "more": {"b": 1, "c": 0.5}}


def test_nothing_inside_criproxy_is_known() -> None:
    """No file imports another module of criproxy than CRI's messages, or a test that may."""
    found = {
        f"{file.name}: {line}"
        for file in Path(__file__).parent.glob("*.py")
        for line in re.findall(r"^ *(?:from|import) .*\b(?:criproxy|tests)\b.*$", file.read_text(), re.MULTILINE)
        if not re.match(r" *from tests\.contract\b", line)
    }

    assert found == {"cri.py: from criproxy.cri import api_pb2"}


@pytest.mark.parametrize(
    ("value", "difference"),
    [
        pytest.param(WELL, "", id="the-same"),
        pytest.param({**WELL, "since": "today"}, "", id="other-choice"),
        pytest.param({key: WELL[key] for key in ("name", "cpus", "since")}, "", id="optional"),
        pytest.param({key: WELL[key] for key in ("cpus", "since")}, "$.name is missing", id="missing"),
        pytest.param({**WELL, "also": 1}, "$.also is new: add it to the table", id="new"),
        pytest.param({**WELL, "name": None}, "$.name is None, and must be str", id="null"),
        pytest.param({**WELL, "cpus": [1, "2"]}, "$.cpus[1] is '2', and must be int", id="in-a-list"),
        pytest.param({**WELL, "cpus": [True]}, "$.cpus[0] is True, and must be int", id="flag-is-no-number"),
        pytest.param({**WELL, "since": 1}, "$.since is 1, and must be str or null", id="no-choice-fits"),
        pytest.param({**WELL, "more": {"b": "x"}}, "$.more.b is 'x', and must be float", id="under-any-name"),
        pytest.param([WELL], "and must be an object", id="list"),
    ],
)
def test_a_difference_from_a_shape_is_found(value: object, difference: str) -> None:
    """A key that is gone, new, or of another type is named with its place."""
    found = differences(value, SHAPE)

    assert len(found) == bool(difference), found
    assert difference in "".join(found)
