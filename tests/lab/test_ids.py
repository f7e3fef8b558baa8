"""The measurement itself: both cases have every figure; limits of time and memory belong to the rig."""

import pytest

from lab.ids import GPUS, NPUS, Case, measure
from lab.kubelet.device_endpoint import LARGEST_BYTES


@pytest.mark.parametrize(("case", "ids"), [pytest.param(GPUS, 384, id="gpus"), pytest.param(NPUS, 10_000, id="npus")])
async def test_many_ids(case: Case, ids: int) -> None:
    """The kubelet takes all of them in one message, and up to 10,000 bring no warning."""
    cost = await measure(case)

    assert (cost.healthy, cost.warned) == (ids, False)
    assert 0 < cost.list_bytes < LARGEST_BYTES
    assert 0 < cost.memory_kib <= cost.peak_kib
    assert min(cost.start_s, cost.list_s) > 0
