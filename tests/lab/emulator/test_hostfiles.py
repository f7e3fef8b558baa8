"""The files that show where made-up containers run."""

import json
import time
from pathlib import Path

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from criproxy.deviceplugin.usage.processes import Processes
from criproxy.devices.usage.values import Process, ProcessUse, Reading
from lab.emulator.hostfiles import HostFiles
from lab.emulator.records.cpusets import Cpuset
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec

POD = PodSpec("pod", (ContainerSpec("main", IMAGE),))


async def test_a_containers_cgroups_are_read_like_real_ones(tmp_path: Path) -> None:
    """The process id of the verbose status leads to its cgroups under the root, and nothing is left after the end."""
    options = RuntimeOptions(host_root=tmp_path / "host", mems="0-1")
    async with EmbeddedRuntime(tmp_path / "r.sock", options) as runtime:
        client = RuntimeClient(f"unix://{runtime.path}")
        kubelet = MiniKubelet(client)
        _, ids = await kubelet.run_pod(POD)
        await kubelet.update(ids["main"], cri.LinuxContainerResources(cpuset_cpus="1-2", cpuset_mems="1"))
        await kubelet.update(ids["main"], cri.LinuxContainerResources(cpu_quota=50_000))
        info = (await client.container_status(ids["main"], verbose=True)).info["info"]

        host = tmp_path / "host"
        lines = (host / f"proc/{json.loads(info)['pid']}/cgroup").read_text().splitlines()
        path = lines[0].removeprefix("3:cpuset:/")
        files = [f"cpuset/{path}/cpuset.cpus", f"cpuset/{path}/cpuset.mems", f"cpu/{path}/cpu.cfs_quota_us"]
        found = [(host / "sys/fs/cgroup" / file).read_text() for file in files]
        await kubelet.stop(ids["main"])
        await client.close()

    assert found == ["1-2\n", "1\n", "50000\n"]
    assert not [path for path in host.rglob("*") if path.is_file()]


def test_a_path_never_leads_out_of_the_root(tmp_path: Path) -> None:
    """The cgroup parent comes from a client; dots in it are left out."""
    files = HostFiles(tmp_path / "host")

    files.write("/../../../../../x", Cpuset(frozenset({0}), frozenset({0})))

    assert [path.name for path in tmp_path.iterdir()] == ["host"]


def test_what_a_killed_run_left_is_no_obstacle(tmp_path: Path) -> None:
    """The same root can be used again."""
    pids = [HostFiles(tmp_path).add("/a") for _ in range(2)]

    assert pids[0] == pids[1]
    assert (tmp_path / f"proc/{pids[0]}/cgroup").read_text().startswith("3:cpuset:/a\n")


def test_a_process_says_when_it_started(tmp_path: Path) -> None:
    """Who reads the use of cards can tell that a process is older than a reading."""
    before = time.monotonic()
    pid = HostFiles(tmp_path).add(f"/kubepods/pod1/{'a' * 64}")
    use = ProcessUse(process=Process(pid=pid, start_ticks=0), card="card0", memory_mib=1)

    def owner(at_s: float) -> str:
        reading = Reading(kind="demo", at_s=at_s, processes=(use,))
        return Processes(tmp_path).with_containers(reading).processes[0].container_id

    assert owner(time.monotonic()) == "a" * 64
    assert owner(before - 60) == ""
