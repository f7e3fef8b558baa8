"""What classes can set is read of the machine, with either version of cgroups."""

from pathlib import Path

import pytest

from criproxy.host.controllable import read_controllable, read_scheduler
from criproxy.host.machine import host_reader
from criproxy.model.controls import DEFAULTS
from criproxy.model.machine.scheduler import Scheduler
from tests.host.tree import plant

CPU = "sys/devices/system/cpu"
HARDWARE = {
    f"{CPU}/online": "0-1\n",
    **{f"{CPU}/cpu{cpu}/cpufreq/scaling_available_governors": "performance powersave\n" for cpu in range(2)},
    **{f"{CPU}/cpu{cpu}/cpufreq/energy_performance_available_preferences": "default power \n" for cpu in range(2)},
    f"{CPU}/cpu0/cpufreq/cpuinfo_min_freq": "800000\n",
    f"{CPU}/cpu0/cpufreq/cpuinfo_max_freq": "2000000\n",
    f"{CPU}/cpu1/cpufreq/cpuinfo_min_freq": "1000000\n",
    f"{CPU}/cpu1/cpufreq/cpuinfo_max_freq": "3000000\n",
    f"{CPU}/cpu0/cpuidle/state0/name": "POLL\n",
    f"{CPU}/cpu0/cpuidle/state1/name": "C1\n",
    f"{CPU}/cpu1/cpuidle/state0/name": "POLL\n",
    f"{CPU}/intel_uncore_frequency/package_00_die_00/min_freq_khz": "800000\n",
    "proc/mounts": "resctrl /sys/fs/resctrl resctrl rw 0 0\n",
    "sys/fs/resctrl/schemata": "L3:0=fff;1=fff\n",
    "sys/fs/resctrl/info/L3/cbm_mask": "fff\n",
    "sys/fs/resctrl/info/L3/num_closids": "8\n",
}
V1, V2 = "sys/fs/cgroup/{}/kubepods", "sys/fs/cgroup/kubepods.slice"


def test_the_hardware(tmp_path: Path) -> None:
    """Frequencies, idle states, the uncore and caches, of all CPUs together."""
    found = read_controllable(plant(tmp_path, HARDWARE))

    assert found.governors == ("performance", "powersave")
    assert found.energy_preferences == ("default", "power")
    assert (found.min_khz, found.max_khz) == (800_000, 3_000_000)
    assert found.c_states == ("POLL", "C1")
    assert found.uncore
    assert found.resctrl is not None
    assert (found.resctrl.groups, [*found.resctrl.caches], found.no_resctrl) == (8, ["L3"], "")


def test_a_machine_without_anything(tmp_path: Path) -> None:
    """A guest has none of that, and an empty tree is no error."""
    found = read_controllable(tmp_path)

    assert (found.governors, found.c_states, found.uncore, found.resctrl) == ((), (), False, None)
    assert found.no_resctrl.startswith("this machine has no resctrl")
    assert (found.weights, found.throttles) == (True, True)  # as far as that is known


@pytest.mark.parametrize("missing", [{"io.bfq.weight"}, {"io.max"}, {"io.weight", "io.bfq.weight"}])
def test_cgroup_v2(tmp_path: Path, missing: set[str]) -> None:
    """The files of the pods' cgroup count: the root has few of them."""
    names = {*DEFAULTS, "io.max", "io.stat", "cpu.stat"} - missing
    tree = {f"{V2}/{name}": "" for name in names} | {"sys/fs/cgroup/cgroup.controllers": "cpu io memory\n"}
    found = read_controllable(plant(tmp_path, tree))

    assert found.unified
    assert found.weights is not (missing >= {"io.weight", "io.bfq.weight"})
    assert found.throttles is ("io.max" not in missing)


@pytest.mark.parametrize("burst", [True, False])
def test_cgroup_v1(tmp_path: Path, burst: bool) -> None:
    """Each controller has a folder of its own; of the values that runtimes write, there is only the burst."""
    tree = {
        "sys/fs/cgroup/cpuset/cpuset.cpus": "0-1\n",
        f"{V1.format('blkio')}/blkio.throttle.read_bps_device": "",
        f"{V1.format('blkio')}/blkio.bfq.weight": "100\n",
        f"{V1.format('cpu')}/cpu.shares": "2\n",
        **({f"{V1.format('cpu')}/cpu.cfs_burst_us": "0\n"} if burst else {}),
    }
    found = read_controllable(plant(tmp_path, tree))

    assert not found.unified
    assert found.v1_burst is burst
    assert (found.weights, found.throttles) == (True, True)


def test_policy_files_are_compared_with_it(tmp_path: Path) -> None:
    """It is what the reader of the host gives them."""
    assert host_reader(plant(tmp_path, HARDWARE)).controllable() == read_controllable(tmp_path)


OF_CPU, LIMIT = "sys/fs/cgroup/cpu", "cpu.rt_runtime_us"
ROOT = {f"{OF_CPU}/{LIMIT}": "950000\n"}


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
        pytest.param({**ROOT, f"{OF_CPU}/kubepods/{LIMIT}": "0\n"}, Scheduler(pods_runtime_us=0), id="no-runtime"),
        pytest.param({**ROOT, f"{OF_CPU}/kubepods.slice/{LIMIT}": "40\n"}, Scheduler(pods_runtime_us=40), id="runtime"),
    ],
)
def test_limits_of_the_scheduler(tmp_path: Path, files: dict[str, str], expected: Scheduler) -> None:
    """The limit for cgroups is that of the pods' parent."""
    assert read_scheduler(plant(tmp_path, files)) == expected
