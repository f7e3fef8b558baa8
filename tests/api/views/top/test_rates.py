"""What two readings of the machine's counters say."""

import pytest

from criproxy.api.views.top.rates import Reading, rates
from criproxy.model.machine.use import ContainerUse, CpuTime


@pytest.mark.parametrize(
    ("before", "now", "load"),
    [
        pytest.param(CpuTime(10, 100), CpuTime(60, 200), 0.5, id="half"),
        pytest.param(CpuTime(10, 100), CpuTime(10, 200), 0.0, id="idle"),
        pytest.param(CpuTime(10, 100), CpuTime(10, 100), None, id="no-time-has-passed"),
        pytest.param(CpuTime(60, 200), CpuTime(10, 100), None, id="went-back"),
        pytest.param(CpuTime(10, 100), CpuTime(300, 200), 1.0, id="more-than-there-was"),
        pytest.param(None, CpuTime(10, 100), None, id="came-online"),
    ],
)
def test_the_load_of_a_cpu(before: CpuTime | None, now: CpuTime, load: float | None) -> None:
    """It is the busy part of the time between the readings, where that is known."""
    found = rates(Reading(1.0, {3: before} if before else {}), Reading(2.0, {3: now}))

    assert found.load.get(3) == load
    assert found.mean_load == load


@pytest.mark.parametrize(
    ("before", "now", "cpu_milli"),
    [
        pytest.param(ContainerUse(0, 1), ContainerUse(3_000_000_000, 1), 1500, id="one-and-a-half-cpus"),
        pytest.param(ContainerUse(5, 1), ContainerUse(4, 1), None, id="restarted"),
        pytest.param(None, ContainerUse(4, 1), None, id="new"),
    ],
)
def test_the_use_of_a_container(before: ContainerUse | None, now: ContainerUse, cpu_milli: int | None) -> None:
    """CPU time for each second that has passed; memory as it is now."""
    found = rates(Reading(1.0, {}, {"a": before} if before else {}), Reading(3.0, {}, {"a": now}))

    assert found.cpu_milli.get("a") == cpu_milli
    assert found.memory_bytes == {"a": 1}


def test_memory_that_the_kernel_does_not_tell_is_missing() -> None:
    """It is not 0."""
    found = rates(Reading(1.0), Reading(2.0, {}, {"a": ContainerUse(1, None)}))

    assert found.memory_bytes == {}
