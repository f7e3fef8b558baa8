"""The CPU burst of real cgroups of v1; the kernel takes none above the quota."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from criproxy.controls.cpu_burst import BURST, QUOTA, CpuBurst
from criproxy.controls.journal import Journal
from criproxy.model.controls import ContainerControls
from tests.controls.cgroups import UNIFIED, Cgroup

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(UNIFIED, reason="with cgroup v2, the runtime writes it"),
]


@pytest.fixture
def cgroup() -> Iterator[Cgroup]:
    """The cgroup of a container with a quota of half a CPU."""
    with Cgroup() as made:
        made.file(QUOTA).write_text("50000")
        yield made


@pytest.fixture
def part(tmp_path: Path) -> CpuBurst:
    """What is tested."""
    return again(tmp_path)


def again(state: Path) -> CpuBurst:
    """The same after a restart of the service, which may have been killed."""
    journal = Journal.open(state / "state", Path("/"))
    journal.keep_containers({"c": ContainerControls(cgroup="/", burst_us=1)})  # as before each call of a part
    return CpuBurst(Path("/"), journal)


def controls(cgroup: Cgroup, burst_us: int | None) -> ContainerControls:
    """Return the controls of a container with this cgroup."""
    return ContainerControls(cgroup=cgroup.path, burst_us=burst_us)


def burst(cgroup: Cgroup) -> int:
    """Return what the kernel has."""
    return int(cgroup.file(BURST).read_text())


@pytest.mark.parametrize(
    ("quota", "wanted", "expected"),
    [
        pytest.param("50000", 25_000, 25_000, id="half"),
        pytest.param("50000", 50_000, 50_000, id="all"),
        pytest.param("50000", 80_000, 50_000, id="more-than-the-quota"),
        pytest.param("-1", 25_000, 0, id="no-quota"),
    ],
)
def test_it_is_set_and_goes(cgroup: Cgroup, part: CpuBurst, quota: str, wanted: int, expected: int) -> None:
    """As far as the quota allows."""
    cgroup.file(QUOTA).write_text(quota)

    assert part.apply("c", controls(cgroup, wanted), None) == []
    assert burst(cgroup) == expected
    assert part.look("c", controls(cgroup, wanted)) == []
    assert part.drift == 0

    assert part.forget("c", controls(cgroup, wanted)) == []
    assert burst(cgroup) == 0


def test_it_follows_the_quota(cgroup: Cgroup, part: CpuBurst) -> None:
    """Lowered before that, as the kernel wants it, and raised after it."""
    part.apply("c", controls(cgroup, 40_000), None)
    with pytest.raises(OSError, match="Invalid argument"):
        cgroup.file(QUOTA).write_text("20000")

    part.apply("c", controls(cgroup, 10_000), controls(cgroup, 40_000))
    cgroup.file(QUOTA).write_text("20000")
    assert burst(cgroup) == 10_000

    part.apply("c", controls(cgroup, 60_000), controls(cgroup, 10_000))
    assert burst(cgroup) == 20_000
    cgroup.file(QUOTA).write_text("100000")
    part.look("c", controls(cgroup, 60_000))
    assert burst(cgroup) == 60_000
    assert part.drift == 0


def test_a_look_repairs_what_others_have_changed(cgroup: Cgroup, part: CpuBurst) -> None:
    """And counts it."""
    part.apply("c", controls(cgroup, 40_000), None)
    cgroup.file(BURST).write_text("0")

    assert part.look("c", controls(cgroup, 40_000)) == []

    assert burst(cgroup) == 40_000
    assert part.drift == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_there_comes_back(cgroup: Cgroup, part: CpuBurst, tmp_path: Path, *, is_killed: bool) -> None:
    """And a class without a burst is the end of it, also for a service that was killed meanwhile."""
    cgroup.file(BURST).write_text("5000")
    part.apply("c", controls(cgroup, 40_000), None)
    part = again(tmp_path) if is_killed else part
    part.look("c", controls(cgroup, 40_000))

    assert part.apply("c", controls(cgroup, None), controls(cgroup, 40_000)) == []

    assert burst(cgroup) == 5000
    assert part.machine() == {"cpuBurst": True}


def test_a_service_that_was_killed_before_its_first_write(cgroup: Cgroup, part: CpuBurst) -> None:
    """More than it would have set is what was there before."""
    cgroup.file(BURST).write_text("45000")

    part.look("c", controls(cgroup, 40_000))
    assert burst(cgroup) == 40_000
    part.forget("c", controls(cgroup, 40_000))
    assert burst(cgroup) == 45_000


def test_a_container_that_is_gone_is_no_trouble(part: CpuBurst) -> None:
    """Nor one that has not begun."""
    with Cgroup() as cgroup:
        pass
    wanted = controls(cgroup, 1000)

    assert part.apply("c", wanted, None) == part.look("c", wanted) == part.forget("c", wanted) == []
