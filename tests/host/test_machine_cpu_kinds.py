"""Slow and fast CPUs are told apart, and CPUs that are alike are not."""

from pathlib import Path

import pytest

from criproxy.host.machine import read_kinds
from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import Core, CpuKind
from tests.host.tree import plant

CPU = "sys/devices/system/cpu"
CORES = [Core(cpu, frozenset({cpu})) for cpu in range(4)]


def per_cpu(name: str, *values: int) -> dict[str, str]:
    """Return the file *name* of CPU 0, 1, … with these numbers."""
    return {f"{CPU}/cpu{cpu}/{name}": f"{value}\n" for cpu, value in enumerate(values)}


def maxima(*values: int) -> dict[str, str]:
    """Return the highest frequencies."""
    return per_cpu("cpufreq/cpuinfo_max_freq", *values)


COUNTERS = {"sys/devices/cpu_core/cpus": "0-1\n", "sys/devices/cpu_atom/cpus": "2-3\n"}


@pytest.mark.parametrize(
    ("files", "kinds"),
    [
        pytest.param({}, [], id="nothing-said"),
        pytest.param(maxima(3_000_000, 3_000_000, 3_000_000, 3_000_000), [], id="alike"),
        pytest.param(maxima(5_200_000, 5_000_000, 5_000_000, 5_100_000), [], id="best-cores-boost-further"),
        pytest.param(maxima(5_000_000, 5_200_000, 3_900_000, 3_900_000), ["2-3", "0", "1"], id="no-base-frequency"),
        pytest.param(
            maxima(5_000_000, 5_200_000, 3_900_000, 3_900_000)
            | per_cpu("cpufreq/base_frequency", 1_900_000, 1_900_000, 1_400_000, 1_400_000),
            ["2-3", "0-1"],
            id="two-kinds-and-boost",
        ),
        pytest.param(per_cpu("cpu_capacity", 1024, 718, 718, 1024), ["1-2", "0,3"], id="capacities"),
        pytest.param(per_cpu("cpu_capacity", 1024, 1024, 1024, 1024), [], id="one-capacity"),
        pytest.param(COUNTERS, ["2-3", "0-1"], id="counters-only"),
        pytest.param(COUNTERS | maxima(3_000_000, 3_000_000, 3_000_000, 3_000_000), [], id="counters-of-equal-cores"),
        pytest.param({"sys/devices/cpu_core/cpus": "0-3\n"}, [], id="one-kind-of-counters"),
    ],
)
def test_kinds(tmp_path: Path, files: dict[str, str], kinds: list[str]) -> None:
    """Kinds go from slow to fast, by capacity and frequencies; counters count only where there is nothing else."""
    found = read_kinds(plant(tmp_path, files), CORES)

    assert [format_cpuset(kind.cpus) for kind in found] == kinds


def test_speeds(tmp_path: Path) -> None:
    """A kind tells its capacity, its base frequency and the highest of its maxima."""
    files = (
        per_cpu("cpu_capacity", 500, 500, 1024, 1024)
        | maxima(3_000_000, 3_100_000, 4_000_000, 4_000_000)
        | per_cpu("cpufreq/base_frequency", 1_000_000, 1_000_000, 2_000_000, 2_000_000)
    )
    slow = CpuKind(frozenset({0, 1}), 500, 1_000_000, 3_100_000)
    fast = CpuKind(frozenset({2, 3}), 1024, 2_000_000, 4_000_000)

    assert read_kinds(plant(tmp_path, files), CORES) == (slow, fast)
