"""The measurement itself: a short one has every figure; its verdict belongs to the rig."""

from lab.page import measure
from tests.page.browser import program
from tests.page.stage import SMALL


async def test_a_short_run_has_every_figure() -> None:
    """On a small node, with one of each."""
    program()
    found = await measure(SMALL, 3, 1, 1, 0.2)

    assert (found.cpus, found.containers) == (32, 3)
    assert found.first_paint_ms[0] > 0  # a busy browser may paint only after all is drawn
    assert found.drawn_ms[0] > 0
    assert found.event_ms[0] >= 0
    assert found.sort_ms[0] > 0
    assert found.draw_ms > 0
    assert len(found.lines()) == 7
