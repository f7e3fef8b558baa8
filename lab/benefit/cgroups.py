"""The cgroups of pods as the kubelet makes them: shares of its class and of the pod, and the pod's quota and memory.

The small kubelet of criproxy's emulator makes cgroups that hold containers. To the scheduler they are all equal,
though: a BestEffort pod would get as much time as a Guaranteed one, which no kubelet does.
"""

import os
from contextlib import suppress
from pathlib import Path

from criproxy.model.resources import milli_to_shares
from lab.containerd.cgroups import PodCgroups
from lab.kubelet.kubelet import PodSpec, sandbox_config

_SHARES_MIN, _SHARES_RANGE = 2, 262142


class NodeCgroups(PodCgroups):
    """The cgroups below *root*, on cgroup v1 or v2."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self._requests: dict[str, tuple[str, int]] = {}

    @property
    def version(self) -> int:
        """1 or 2."""
        return 2 if self._unified else 1

    def make_pod(self, pod: PodSpec) -> str:
        """Make the cgroup of *pod*, and set it and those of the classes; returns its path."""
        linux = sandbox_config(pod, self.root).linux
        path, resources = linux.cgroup_parent, linux.resources
        self.make(path)
        self._requests[path] = (pod.qos, sum(container.cpu_milli for container in pod.containers))
        self._write(path, resources.cpu_shares, resources.cpu_quota, resources.cpu_period)
        self._write_classes()
        if resources.memory_limit_in_bytes:
            self._limit_memory(path, resources.memory_limit_in_bytes)
        return path

    def remove_pod(self, path: str) -> None:
        """Remove the cgroup of a pod that is gone."""
        del self._requests[path]
        self.remove(path)

    def _write_classes(self) -> None:
        """Everything that pods have weighs as much as the machine; a class as much as its pods ask for."""
        root = f"{self.root}/kubepods"
        burstable_milli = sum(milli for qos, milli in self._requests.values() if qos == "Burstable")
        whole = milli_to_shares(1000 * (os.cpu_count() or 1))
        for path, shares in (
            (self.root, whole),
            (root, whole),
            (f"{root}/burstable", milli_to_shares(burstable_milli)),
            (f"{root}/besteffort", _SHARES_MIN),
        ):
            if self._cpu(path).is_dir():
                self._write(path, shares)

    def _write(self, path: str, shares: int, quota_us: int = 0, period_us: int = 100_000) -> None:
        cpu = self._cpu(path)
        if self._unified:
            weight = 1 + (max(shares, _SHARES_MIN) - _SHARES_MIN) * 9999 // _SHARES_RANGE
            (cpu / "cpu.weight").write_text(str(weight))
            (cpu / "cpu.max").write_text(f"{quota_us if quota_us > 0 else 'max'} {period_us}")
        else:
            cpu.mkdir(parents=True, exist_ok=True)
            (cpu / "cpu.shares").write_text(str(max(shares, _SHARES_MIN)))
            (cpu / "cpu.cfs_period_us").write_text(str(period_us))
            (cpu / "cpu.cfs_quota_us").write_text(str(quota_us if quota_us > 0 else -1))

    def _limit_memory(self, path: str, limit_bytes: int) -> None:
        if self._unified:
            (self._cpu(path) / "memory.max").write_text(str(limit_bytes))
        else:
            memory = self._mount / "memory" / path.strip("/")
            memory.mkdir(parents=True, exist_ok=True)
            (memory / "memory.limit_in_bytes").write_text(str(limit_bytes))

    def _cpu(self, path: str) -> Path:
        return self._tree("cpu") / path.strip("/")

    def _tree(self, controller: str) -> Path:
        return self._mount if self._unified else self._mount / controller

    def throttled_s(self, path: str) -> float:
        """How long the quota of the cgroup *path* has stopped it."""
        stat = self._stat(path)
        return stat.get("throttled_usec", 0) / 1e6 if self._unified else stat.get("throttled_time", 0) / 1e9

    def cpu_s(self, path: str) -> float:
        """CPU time that the cgroup *path* has used."""
        if self._unified:
            return self._stat(path)["usage_usec"] / 1e6
        return int((self._tree("cpuacct") / path.strip("/") / "cpuacct.usage").read_text()) / 1e9

    def cpus(self, path: str) -> str:
        """The CPUs on which the cgroup *path* may run, as the kernel writes them."""
        name = "cpuset.cpus.effective" if self._unified else "cpuset.effective_cpus"
        return (self._tree("cpuset") / path.strip("/") / name).read_text().strip()

    def waited_s(self, path: str) -> float:
        """How long the threads that live in the cgroup *path* have waited for a CPU, according to schedstat."""
        processes = (self._tree("cpuset") / path.strip("/") / "cgroup.procs").read_text().split()
        return sum(map(_waited_ns, processes)) / 1e9

    def _stat(self, path: str) -> dict[str, int]:
        lines = (self._cpu(path) / "cpu.stat").read_text().splitlines()
        return {key: int(value) for key, value in map(str.split, lines)}


def _waited_ns(pid: str) -> int:
    total = 0
    with suppress(OSError):  # a process or a thread that has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += int((task / "schedstat").read_text().split()[1])
    return total
