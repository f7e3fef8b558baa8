"""The measurement itself: a short one has every figure; its verdict belongs to the rig."""

from lab.page import measure
from tests.page.browser import program
from tests.page.stage import SMALL


async def test_a_short_run_has_every_figure() -> None:
    """On a small node, with one of each."""
    program()
    found = await measure(SMALL, 3, 1, 1, 0.2)

    assert {figure.way for figure in found} == {"32 CPUs, 3 containers"}
    assert len(found) == 10
    assert all(figure.value >= 0 for figure in found)  # a busy browser may paint only after all is drawn
