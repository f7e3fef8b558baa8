"""The kernel's limits for real-time and deadline threads are read; without them its defaults hold."""

from pathlib import Path

import pytest

from criproxy.host.scheduler import read_scheduler
from criproxy.model.machine.scheduler import Scheduler
from tests.host.tree import plant

V1, LIMIT = "sys/fs/cgroup/cpu", "cpu.rt_runtime_us"
ROOT = {f"{V1}/{LIMIT}": "950000\n"}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        pytest.param({}, Scheduler(), id="nothing"),
        pytest.param(
            {"proc/sys/kernel/sched_rt_runtime_us": "-1\n", "proc/sys/kernel/sched_deadline_period_max_us": "100\n"},
            Scheduler(runtime_us=-1, longest_period_us=100),
            id="limits",
        ),
        pytest.param(ROOT, Scheduler(pods_runtime_us=0), id="no-pods-yet"),
        pytest.param({**ROOT, f"{V1}/kubepods/{LIMIT}": "0\n"}, Scheduler(pods_runtime_us=0), id="no-runtime"),
        pytest.param({**ROOT, f"{V1}/kubepods.slice/{LIMIT}": "40\n"}, Scheduler(pods_runtime_us=40), id="runtime"),
    ],
)
def test_reads_limits(tmp_path: Path, files: dict[str, str], expected: Scheduler) -> None:
    """The limit for cgroups is that of the pods' parent."""
    assert read_scheduler(plant(tmp_path, files)) == expected
