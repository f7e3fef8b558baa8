"""What the rig prints: a line for each check, and an exit status that says whether all were good."""

from typing import TYPE_CHECKING, cast

import pytest

from lab.cluster.checks.report import Report
from lab.cluster.process import ClusterError, until

if TYPE_CHECKING:
    from lab.cluster.cluster import Cluster


async def good(_: "Cluster") -> str:
    """Something is well."""
    return "3 of 3"


async def wrong(_: "Cluster") -> str:
    """Something else is well."""
    raise ClusterError("it is not")


async def broken(_: "Cluster") -> str:
    """A figure is right."""
    assert 1 + 1 == 3
    return ""


NONE = cast("Cluster", None)


async def test_a_line_for_each_check(capsys: pytest.CaptureFixture[str]) -> None:
    """A check that fails, whatever the way, does not end the run, and its name is repeated at the end."""
    report = Report()
    for each in (good, wrong, broken, good):
        await report.check(each, NONE)
    assert report.end() == 1
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert lines[0].startswith("ok     Something is well (") and lines[0].endswith("s): 3 of 3")  # noqa: PT018 (a line)
    assert lines[1].startswith("FAILED Something else is well (")
    assert "it is not" in lines[1]
    assert any(line.startswith("FAILED A figure is right (") for line in lines)
    assert "2 of 4 checks are ok" in printed.err
    assert "  FAILED Something else is well" in printed.err


async def test_what_is_waited_for_is_named() -> None:
    """What does not come in time is an error that says what was missing."""

    async def never() -> bool:
        return False

    with pytest.raises(ClusterError, match=r"the node was ready: not within 0 s"):
        await until(never, "the node was ready", 0.01)
