"""The measurement itself: both cases have every figure; limits of time and memory belong to the rig."""

import pytest

from lab.ids import GPUS, NPUS, Case, measure


@pytest.mark.parametrize("case", [pytest.param(GPUS, id="gpus"), pytest.param(NPUS, id="npus")])
async def test_many_ids(case: Case) -> None:
    """The kubelet takes all of them in one message, and up to 10,000 bring no warning."""
    start, memory, peak, listed, message = await measure(case)

    assert message.ok
    assert 0 < memory.value <= peak.value
    assert min(start.value, listed.value, message.value) > 0
