"""Changes of the machine at run time: CPUs that go offline or come online, and the CPUs of the pods' parent cgroup.

With the kubelet's option cgroupRoot, that cgroup is where a sandbox says; criproxy learns it from the first one.

A few files are read every few seconds; only if one of them has changed, the machine is discovered again.
"""

import asyncio
from contextlib import suppress
from pathlib import Path

from criproxy.control.context import Context
from criproxy.cri.translate import pods_cgroup
from criproxy.discovery.cgroup import POD_PARENTS, deciding_files, read_allowed
from criproxy.discovery.files import read_text
from criproxy.discovery.machine import discover
from criproxy.engine.events import TopologyChanged
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.topology import Topology

_MACHINE_FILES = ("cpu/online", "node/online", "node/has_memory")
"""Below /sys/devices/system."""


class Hotplug:
    """Detects changes of the machine; to be created right after the machine was discovered."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._root = context.settings.host_root
        self._pods = ""
        """The cgroup above those of all pods; empty if it is the usual one."""
        self._files: dict[str, list[Path]] = {}
        """On which it depends what pods below a cgroup may use."""
        self._known = self._read("")
        self.error = ""
        """Why the machine could not be read after it had changed; empty if it could."""
        self._one = asyncio.Lock()

    def at_start(self) -> Topology:
        """Return the machine as the pods of the last run may use it: their cgroup may be another than the usual one."""
        node = self._context.state.node
        found = next(filter(None, (pods_cgroup(pod.cgroup_parent) for pod in node.pods.values())), "")
        if found:
            self._pods, self._known = found, self._read(found)
            with suppress(CriproxyError):
                return discover(self._root, found)
            self._known = []  # the next check says why
        return node.topology

    async def follow(self, cgroup_parent: str) -> None:
        """Return when what a pod may use is bounded by the cgroup above it, which its sandbox has named."""
        pods = pods_cgroup(cgroup_parent)
        if pods is None or pods == self._pods:
            return
        async with self._one:
            if pods != self._pods:
                now = self._read(pods)
                self._known = now if await self._discover(pods) else []
                self._pods = pods

    def start(self) -> None:
        """Log online CPUs that pods may not use: no other message explains why a node is smaller than its machine."""
        topology = self._context.state.node.topology
        parent = read_allowed(self._root, self._pods).path
        if parent and (self._pods or parent.name in POD_PARENTS):
            self._warn(topology.online_cpus - topology.cpus)

    async def check(self) -> None:
        """Check once, and return when the node has the current topology."""
        async with self._one:
            if ((now := self._read(self._pods)) != self._known or self.error) and await self._discover(self._pods):
                self._known = now

    async def _discover(self, pods: str) -> bool:
        """Discover the machine again; False if that has to be retried."""
        try:
            topology = await asyncio.to_thread(discover, self._root, pods)
        except CriproxyError as error:
            self._log_error(str(error))
            return False
        self.error = ""
        old, log = self._context.state.node.topology, self._context.log
        if topology != old:
            online, pods = format_cpuset(topology.online_cpus), format_cpuset(topology.cpus)
            log.info("the machine has changed", online=online, pods=pods)
            self._warn(_missing(old, topology))
            await self._context.state.apply(TopologyChanged(topology))
        return True

    def _log_error(self, error: str) -> None:
        if error != self.error:  # once: it is retried every few seconds
            self.error = error
            self._context.log.error("the machine has changed, and criproxy cannot read its topology", error=error)

    def _read(self, pods: str) -> list[str | None]:
        system = self._root / "sys/devices/system"
        return [read_text(path) for path in (*(system / name for name in _MACHINE_FILES), *self._cgroup_files(pods))]

    def _cgroup_files(self, pods: str) -> list[Path]:
        if pods not in self._files:
            self._files = {pods: deciding_files(self._root, pods)}
        return self._files[pods]

    def _warn(self, missing: CpuSet) -> None:
        """Log CPUs that are online but not available to pods, which the engine does not log."""
        if not missing:
            return
        self._context.log.warning(
            "pods cannot use some of the online CPUs: with cgroup v1, a CPU that was offline is missing from all "
            "cpusets when it comes back; add it to them manually",
            cpus=format_cpuset(missing),
            cgroup=str(read_allowed(self._root, self._pods).path),
        )


def _missing(old: Topology, new: Topology) -> CpuSet:
    """Return the online CPUs that pods may not use, if they could use them before or the CPUs came online now."""
    return (old.cpus | (new.online_cpus - old.online_cpus)) & new.online_cpus - new.cpus
