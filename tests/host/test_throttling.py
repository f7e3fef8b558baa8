"""What the kernel counts of CPU limits, with both versions of cgroups."""

from pathlib import Path

import pytest

from criproxy.host.cgroup import ContainerGroup
from criproxy.host.container_use import PodLimit, Throttling, read_pod_limit, read_throttling
from criproxy.model.resources import CfsQuota
from tests.host.tree import plant

V1 = "nr_periods 10\nnr_throttled 4\nthrottled_time 2500000\n"
V2 = "usage_usec 9\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500\n"
WITH_BURSTS = {False: "nr_bursts 3\nburst_time 7000\n", True: "nr_bursts 3\nburst_usec 7\n"}


def group(
    root: Path, files: dict[str, str] | None = None, *, unified: bool, of_pod: dict[str, str] | None = None
) -> ContainerGroup:
    """A container's cgroup with these files, in that of its pod."""
    mount = root / "sys/fs/cgroup"
    below = mount if unified else mount / "cpu"
    plant(below / "kubepods/pod1/c1", files or {})
    plant(below / "kubepods/pod1", of_pod or {})
    return ContainerGroup(str(mount), "kubepods/pod1/c1", unified)


@pytest.mark.parametrize("unified", [False, True], ids=["v1", "v2"])
def test_what_is_counted(tmp_path: Path, unified: bool) -> None:
    """Times in microseconds; kernels before 5.14 know no bursts."""
    text = V2 if unified else V1
    plain = Throttling(throttled_us=2500, throttled_periods=4, periods=10)
    assert read_throttling(group(tmp_path / "a", unified=unified, files={"cpu.stat": text})) == plain
    found = read_throttling(group(tmp_path / "b", unified=unified, files={"cpu.stat": text + WITH_BURSTS[unified]}))
    assert found
    assert (found.bursts, found.burst_us) == (3, 7)


@pytest.mark.parametrize("text", ["", "nr_periods x\n", "usage_usec 9\n", "nr_periods 1\nnr_throttled 1\n", "\x00 1 2"])
def test_what_is_not_counted_is_unknown(tmp_path: Path, text: str) -> None:
    """Without the controller, or where nothing can be read."""
    assert read_throttling(group(tmp_path, unified=True, files={"cpu.stat": text})) is None
    assert read_throttling(ContainerGroup(str(tmp_path), "gone/c", unified=True)) is None


@pytest.mark.parametrize(
    ("unified", "files", "quota"),
    [
        pytest.param(True, {"cpu.max": "200000 100000"}, CfsQuota(200_000, 100_000), id="v2"),
        pytest.param(True, {"cpu.max": "max 100000"}, None, id="v2-without"),
        pytest.param(False, {"cpu.cfs_quota_us": "500", "cpu.cfs_period_us": "900"}, CfsQuota(500, 900), id="v1"),
        pytest.param(False, {"cpu.cfs_quota_us": "-1", "cpu.cfs_period_us": "100000"}, None, id="v1-without"),
    ],
)
def test_the_limit_of_a_pod(tmp_path: Path, unified: bool, files: dict[str, str], quota: CfsQuota | None) -> None:
    """In the cgroup above that of the container, with what is counted there."""
    counted = {"cpu.stat": V2 if unified else V1}
    found = read_pod_limit(group(tmp_path, unified=unified, of_pod=files | counted))
    assert found == PodLimit(quota=quota, throttling=Throttling(throttled_us=2500, throttled_periods=4, periods=10))


@pytest.mark.parametrize("files", [{}, {"cpu.max": "nonsense"}, {"cpu.max": "max x"}], ids=["none", "word", "words"])
def test_an_unreadable_limit_of_a_pod_is_unknown(tmp_path: Path, files: dict[str, str]) -> None:
    """It is not said that there is none."""
    assert read_pod_limit(group(tmp_path, unified=True, of_pod=files)) is None
