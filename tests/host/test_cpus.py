"""Cores, dies, packages, caches and sets of CPUs are read whichever files a kernel has."""

from pathlib import Path

import pytest

from criproxy.host import cpus
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.machine.topology import Core
from tests.host.tree import plant

CPU = "sys/devices/system/cpu"
FOUR = parse_cpuset("0-3")
SINGLES = [Core(cpu, frozenset({cpu})) for cpu in range(4)]


def each(name: str, *contents: str) -> dict[str, str]:
    """Return the file *name* of CPU 0, 1, … with these contents."""
    return {f"{CPU}/cpu{cpu}/{name}": f"{content}\n" for cpu, content in enumerate(contents)}


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        pytest.param({}, ["0", "1", "2", "3"], id="nothing-said"),
        pytest.param(each("topology/core_cpus_list", "0,2", "1,3", "0,2", "1,3"), ["0,2", "1,3"], id="new-name"),
        pytest.param(each("topology/thread_siblings_list", "0-1", "0-1", "2-3", "2-3"), ["0-1", "2-3"], id="old-name"),
        pytest.param(each("topology/thread_siblings", "3", "3", "c", "c"), ["0-1", "2-3"], id="masks-only"),
        pytest.param(
            each("topology/thread_siblings_list", "0-1", "0-1", "2-3", "2-3")
            | each("topology/core_id", "0", "1", "2", "3"),
            ["0", "1", "2", "3"],
            id="two-cores-of-a-module",
        ),
        pytest.param(
            each("topology/core_cpus_list", "0-1", "0-1", "2-3", "2-3") | each("topology/core_id", "7", "7", "7", "7"),
            ["0-1", "2-3"],
            id="core-ids-repeat-in-packages",
        ),
        pytest.param(each("topology/core_cpus_list", "0,8-9", "1", "2", "3"), ["0", "1", "2", "3"], id="offline"),
        pytest.param(each("topology/core_cpus_list", "0-1", "1-2", "2", "3"), ["0-1", "2", "3"], id="contradiction"),
    ],
)
def test_cores(tmp_path: Path, files: dict[str, str], cores: list[str]) -> None:
    """Threads share a core if the kernel lists them as siblings and gives them one core id; no CPU is in two."""
    found = cpus.read_cores(plant(tmp_path, files), FOUR)

    assert [format_cpuset(core.cpus) for core in found] == cores
    assert [core.id for core in found] == [min(core.cpus) for core in found]


@pytest.mark.parametrize(
    ("ids", "packages"),
    [
        pytest.param(["0", "0", "1", "1"], [(0, "0-1"), (1, "2-3")], id="plain"),
        pytest.param(["8442", "36", "36", "8442"], [(36, "1-2"), (8442, "0,3")], id="large-ids"),
        pytest.param(["-1"] * 4, [(-1, "0-3")], id="kernel-knows-none"),
        pytest.param([], [(-1, "0-3")], id="no-files"),
    ],
)
def test_packages(tmp_path: Path, ids: list[str], packages: list[tuple[int, str]]) -> None:
    """Packages have the kernel's ids, whatever they are."""
    found = cpus.read_packages(plant(tmp_path, each("topology/physical_package_id", *ids)), SINGLES)

    assert [(package.id, format_cpuset(package.cpus)) for package in found] == packages


@pytest.mark.parametrize(
    ("packages", "dies", "expected"),
    [
        pytest.param("0011", "0101", [(0, 0, {0}), (0, 1, {1}), (1, 0, {2}), (1, 1, {3})], id="two-in-each"),
        pytest.param("0011", "0000", [], id="one-in-each"),
        pytest.param("0011", ["0", "0", "8442", "8442"], [], id="one-in-each-by-other-ids"),
        pytest.param("0000", ["-1"] * 4, [], id="kernel-knows-none"),
        pytest.param("0000", "", [], id="no-files"),
        pytest.param("0001", "0110", [(0, 0, {0}), (0, 1, {1, 2}), (1, 0, {3})], id="two-in-one-package"),
    ],
)
def test_dies(tmp_path: Path, packages: str, dies: list[str], expected: list[tuple[int, int, set[int]]]) -> None:
    """Dies are listed where a package has several; their ids count within the package."""
    files = each("topology/physical_package_id", *packages) | each("topology/die_id", *dies)
    found = cpus.read_dies(plant(tmp_path, files), SINGLES)

    assert [(die.package, die.id, set(die.cpus)) for die in found] == expected


def cache(cpu: int, index: int, level: int, kind: str, **shared: str) -> dict[str, str]:
    """Return the files of one cache."""
    content = {"level": str(level), "type": kind, **shared}
    return {f"{CPU}/cpu{cpu}/cache/index{index}/{name}": f"{text}\n" for name, text in content.items()}


@pytest.mark.parametrize(
    ("files", "groups"),
    [
        pytest.param({}, [], id="no-caches"),
        pytest.param(cache(0, 3, 3, "Unified", shared_cpu_list="0-3"), ["0-3"], id="one"),
        pytest.param(cache(0, 3, 3, "Unified", shared_cpu_map="0000000b"), ["0-1,3"], id="mask-only"),
        pytest.param(
            cache(0, 2, 3, "Unified", shared_cpu_list="0-1") | cache(2, 5, 3, "Unified", shared_cpu_list="2-3"),
            ["0-1", "2-3"],
            id="any-index",
        ),
        pytest.param(
            cache(0, 3, 3, "Instruction", shared_cpu_list="0")
            | cache(0, 4, 3, "Data", shared_cpu_list="0-1")
            | cache(1, 3, 2, "Unified", shared_cpu_list="1"),
            ["0-1"],
            id="data-not-instructions",
        ),
        pytest.param(cache(1, 3, 3, "Unified", shared_cpu_list="1-9"), ["1-3"], id="offline-left-out"),
        pytest.param(cache(0, 3, 3, "Unified"), [], id="not-said-who-shares"),
    ],
)
def test_caches(tmp_path: Path, files: dict[str, str], groups: list[str]) -> None:
    """The online CPUs that share a data cache are a group; a CPU without one is in none."""
    assert [format_cpuset(group) for group in cpus.read_caches(plant(tmp_path, files), FOUR, 3)] == groups


@pytest.mark.parametrize(
    ("files", "isolated"),
    [
        pytest.param({f"{CPU}/isolated": "4-7,60\n"}, parse_cpuset("4-7,60"), id="listed"),
        pytest.param({f"{CPU}/isolated": "\n", "proc/cmdline": "isolcpus=1"}, frozenset(), id="list-wins"),
        pytest.param({"proc/cmdline": "ro isolcpus=2-3,5 quiet\n"}, {2, 3, 5}, id="command-line"),
        pytest.param({"proc/cmdline": "isolcpus=nohz,domain,managed_irq,2-3"}, {2, 3}, id="flags"),
        pytest.param({"proc/cmdline": "isolcpus=0-31:1/2"}, frozenset(), id="stride"),
        pytest.param({f"{CPU}/isolated": "(null)\n"}, frozenset(), id="null"),
        pytest.param({}, frozenset(), id="nothing-said"),
    ],
)
def test_isolated(tmp_path: Path, files: dict[str, str], isolated: CpuSet) -> None:
    """The kernel's list counts, else its command line."""
    assert cpus.read_isolated(plant(tmp_path, files)) == isolated


def test_present_and_online_without_lists(tmp_path: Path) -> None:
    """The folders count; a CPU is offline if it says so."""
    root = plant(tmp_path, {f"{CPU}/cpu0/x": "", f"{CPU}/cpu4095/online": "1\n", f"{CPU}/cpu2/online": "0\n"})

    assert cpus.read_present(root) == {0, 2, 4095}
    assert cpus.read_online(root) == {0, 4095}
