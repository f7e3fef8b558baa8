"""Changes of the machine at run time: CPUs that go offline or come online, and the CPUs of the pods' parent cgroup.

A few files are read every few seconds; only if one of them has changed, the machine is discovered again.
"""

import asyncio

from criproxy.control.context import Context
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
        system = self._root / "sys/devices/system"
        self._files = [*(system / name for name in _MACHINE_FILES), *deciding_files(self._root)]
        self._known = self._read()
        self.error = ""
        """Why the machine could not be read after it had changed; empty if it could."""
        self._one = asyncio.Lock()

    def start(self) -> None:
        """Log online CPUs that pods may not use: no other message explains why a node is smaller than its machine."""
        topology = self._context.state.node.topology
        parent = read_allowed(self._root).path
        if parent and parent.name in POD_PARENTS:
            self._warn(topology.online_cpus - topology.cpus)

    async def check(self) -> None:
        """Check once, and return when the node has the current topology."""
        async with self._one:
            if ((now := self._read()) != self._known or self.error) and await self._discover():
                self._known = now

    async def _discover(self) -> bool:
        """Discover the machine again; False if that has to be retried."""
        try:
            topology = await asyncio.to_thread(discover, self._root)
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

    def _read(self) -> list[str | None]:
        return [read_text(path) for path in self._files]

    def _warn(self, missing: CpuSet) -> None:
        """Log CPUs that are online but not available to pods, which the engine does not log."""
        if not missing:
            return
        self._context.log.warning(
            "pods cannot use some of the online CPUs: with cgroup v1, a CPU that was offline is missing from all "
            "cpusets when it comes back; add it to them manually",
            cpus=format_cpuset(missing),
            cgroup=str(read_allowed(self._root).path),
        )


def _missing(old: Topology, new: Topology) -> CpuSet:
    """Return the online CPUs that pods may not use, if they could use them before or the CPUs came online now."""
    return (old.cpus | (new.online_cpus - old.online_cpus)) & new.online_cpus - new.cpus
