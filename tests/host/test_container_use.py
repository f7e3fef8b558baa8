"""What containers use, read from cgroups of both versions."""

from pathlib import Path

import pytest

from criproxy.host.container_use import SEARCH_EVERY, ContainerCgroups, read_cpu_times, read_memory_use, read_node_time
from criproxy.model.machine.hardware import ContainerUse, CpuTime, MemoryUse
from tests.host.tree import plant

ID = "c0ffee" * 10 + "abcd"
V2 = {"cpu.stat": "usage_usec 1500\nuser_usec 9", "memory.current": "5000", "memory.stat": "anon 7\ninactive_file 1000"}


def write(root: Path, **files: str) -> None:
    """Files of a cgroup."""
    plant(root, {name: f"{content}\n" for name, content in files.items()})


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(f"kubepods.slice/kubepods-pod1.slice/cri-containerd-{ID}.scope", id="systemd-containerd"),
        pytest.param(f"kubepods.slice/kubepods-pod1.slice/crio-{ID}.scope", id="systemd-crio"),
        pytest.param(f"kubepods/burstable/pod1/{ID}", id="cgroupfs"),
        pytest.param(f"some/parent/kubepods/pod1/{ID}", id="below-a-parent"),
    ],
)
def test_cgroup_v2(tmp_path: Path, name: str) -> None:
    """CPU time in nanoseconds, and memory without what is easily reclaimed, whatever the cgroup driver calls it."""
    write(tmp_path / "sys/fs/cgroup" / name, **V2)

    assert ContainerCgroups(tmp_path).read([ID, "", "missing"]) == {ID: ContainerUse(1_500_000, 4000)}


def test_cgroup_v1(tmp_path: Path) -> None:
    """Two controllers have two trees with the same paths."""
    root = tmp_path / "sys/fs/cgroup"
    write(root / f"cpuacct/kubepods/pod1/{ID}", **{"cpuacct.usage": "77"})
    memory = {"memory.usage_in_bytes": "5000", "memory.stat": "inactive_file 1\ntotal_inactive_file 1000"}
    write(root / f"memory/kubepods/pod1/{ID}", **memory)

    assert ContainerCgroups(tmp_path).read([ID]) == {ID: ContainerUse(77, 4000)}


def test_without_the_memory_controller_memory_is_not_known(tmp_path: Path) -> None:
    """CPU time is."""
    write(tmp_path / f"sys/fs/cgroup/kubepods/{ID}", **{"cpu.stat": "usage_usec 1"})

    assert ContainerCgroups(tmp_path).read([ID]) == {ID: ContainerUse(1000, None)}


def test_a_container_is_found_when_its_cgroup_appears(tmp_path: Path) -> None:
    """A search in vain is repeated after some readings, not with each; a cgroup that is gone is forgotten."""
    cgroups, folder = ContainerCgroups(tmp_path), tmp_path / f"sys/fs/cgroup/kubepods/{ID}"
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    assert cgroups.read([ID]) == {}
    write(folder, **V2)

    found = [bool(cgroups.read([ID])) for _ in range(SEARCH_EVERY)]

    assert not found[0]
    assert found[-1]
    (folder / "cpu.stat").unlink()
    assert cgroups.read([ID]) == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("cpu3 10 1 20 60 9 0 0 0 5 5", {3: CpuTime(31, 100)}, id="guests-count-once"),
        pytest.param("cpu3 10 0 20 70", {3: CpuTime(30, 100)}, id="an-old-kernel"),
        pytest.param("cpu 10 0 20 70", {}, id="the-sum"),
        pytest.param("cpu3 ten 0 20 70", {}, id="nonsense"),
        pytest.param("cpu3 1", {}, id="cut-off"),
    ],
)
def test_the_times_of_cpus(tmp_path: Path, line: str, expected: dict[int, CpuTime]) -> None:
    """Waiting for a disk is idle time."""
    write(tmp_path / "proc", stat=f"{line}\nintr 5")

    assert read_cpu_times(tmp_path) == expected


@pytest.mark.parametrize(
    ("stat", "expected"),
    [
        pytest.param("cpu  10 1 20 60 9 0 0 0 5 5\ncpu0 1 1 1 1", CpuTime(31, 100), id="guests-count-once"),
        pytest.param("cpu 10 0 20 70\n", CpuTime(30, 100), id="an-old-kernel"),
        pytest.param("cpu3 10 0 20 70\n", None, id="one-cpu"),
        pytest.param("cpu ten 0 20 70\n", None, id="nonsense"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_the_time_of_all_cpus(tmp_path: Path, stat: str, expected: CpuTime | None) -> None:
    """The first line has it; None where the kernel does not say."""
    assert read_node_time(tmp_path) is None
    write(tmp_path / "proc", stat=stat)

    assert read_node_time(tmp_path) == expected


def test_memory_of_the_machine(tmp_path: Path) -> None:
    """What can be had without swapping; nothing where the kernel does not say."""
    assert read_memory_use(tmp_path) is None
    write(tmp_path / "proc", meminfo="MemTotal:          16 kB\nMemFree:            1 kB\nMemAvailable:       4 kB\n")

    assert read_memory_use(tmp_path) == MemoryUse(16384, 4096)
