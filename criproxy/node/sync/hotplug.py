"""Changes of the machine at run time: CPUs that go offline or come online, and the CPUs of the pods' parent cgroup.

With the kubelet's option cgroupRoot, that cgroup is where a sandbox says. criproxy learns it from the first pod, and
keeps to it as long as pods run there: another program's pod, or a new cgroupRoot, takes no CPUs from them.

A few files are read every few seconds; only if one of them has changed, the machine is discovered again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from criproxy.cri.translate import pods_cgroup
from criproxy.errors import CriproxyError, Refused, StatusCode
from criproxy.host.cgroup import POD_PARENTS, Allowed, deciding_files, read_allowed
from criproxy.host.files import read_text
from criproxy.host.machine import discover
from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.machine.topology import Topology
from criproxy.model.remembered import remembered
from criproxy.model.text.amounts import are
from criproxy.model.text.bounded import bounded_texts
from criproxy.model.workload import Container, Pod
from criproxy.node.context import Context
from criproxy.placement.events import TopologyChanged

_MACHINE_FILES = ("cpu/online", "node/online", "node/has_memory")
"""Below /sys/devices/system."""
_ADVICE = "run all pods below one cgroup, or end those below the other one"


class _BelowAnother(Refused):
    """A container of a pod below another cgroup than the pods that run."""

    code = StatusCode.FAILED_PRECONDITION


class Hotplug:
    """Detects changes of the machine; to be created right after the machine was discovered."""

    def __init__(self, context: Context) -> None:
        self._context, self._root = context, context.settings.host_root
        self._pods = ""
        """`Node.pods_cgroup`."""
        self._files: dict[str, list[Path]] = {}
        """On which it depends what pods below a cgroup may use."""
        self._known = self._read("")
        self.error = ""
        """Why the machine could not be read after it had changed; empty if it could."""
        self._one = asyncio.Lock()

    def at_start(self) -> TopologyChanged:
        """Return the machine as the pods of the last run may use it."""
        node = self._context.state.node
        topology, self._pods = node.topology, node.pods_cgroup or self._followed()
        if self._pods:
            self._known = self._read(self._pods)
            try:
                if self._allowed(self._pods) != self._allowed(""):
                    topology = discover(self._root, self._pods)
            except CriproxyError:
                self._known = []  # the next check says why
        return TopologyChanged(topology, self._pods)

    async def follow(self, container: Container, cgroup_parent: str) -> None:
        """Return when what a new *container* may use is bounded by the cgroup above its pod, which the node has.

        Raises:
            Refused: pods run below another cgroup, which allows what this one does not.
        """
        pods, state = pods_cgroup(cgroup_parent), self._context.state
        if pods is None or pods == self._pods:
            return
        async with self._one:
            known = self._followed()
            await self._look(known)
        if pods != known and not state.bypassed and not state.node.released:
            this, that = self._allowed(pods), self._allowed(known)
            if _lacks(this, that):
                raise _BelowAnother(
                    f"container {container.title} is refused: its pod is below {_described(pods, this)}, which lacks "
                    f"CPUs or NUMA nodes of the pods that run below {_described(known, that)}: {_ADVICE}"
                )

    def apart(self) -> str:
        """Return a sentence about pods below cgroups that allow other CPUs or NUMA nodes; empty if there are none."""
        below = {each: pods for each, pods in self._below().items() if each != self._pods}
        if not below or not self._pods:
            return ""
        found, allowed = list[str](), self._allowed(self._pods)
        for each, pods in below.items():
            other = self._allowed(each)
            if _lacks(other, allowed) or _lacks(allowed, other):
                names = ", ".join(bounded_texts([pod.title for pod in pods], 3))
                found.append(f"{names} {are(len(pods))} below {_described(each, other)}")
        grants = f"criproxy grants what {_described(self._pods, allowed)} allows, but"
        return f"{grants} {', '.join(found)}: {_ADVICE}" if found else ""

    def _below(self) -> Mapping[str, list[Pod]]:
        """Return the pods that run, by the cgroup above those of all pods."""
        return _by_cgroup(self._context.state.node.pods)

    def _followed(self) -> str:
        """Return the cgroup that counts: the known one while pods run below it, then that of most pods."""
        below = self._below()
        if self._pods in below or not below:
            return self._pods
        return max(below, key=lambda each: len(below[each]))

    def start(self) -> None:
        """Log online CPUs that pods may not use: no other message explains why a node is smaller than its machine."""
        topology = self._context.state.node.topology
        parent = self._allowed(self._pods).path
        if parent and (self._pods or parent.name in POD_PARENTS):
            self._warn(topology.online_cpus - topology.cpus)

    async def check(self) -> None:
        """Check once, and return when the node has the current topology."""
        async with self._one:
            known, found = self._pods, self._followed()
            if found != known and known and _lacks(self._allowed(found), self._allowed(known)):
                found = known  # only a pod that comes makes the machine smaller
            await self._look(found)

    async def _look(self, pods: str) -> None:
        """Discover the machine again if a file has changed, or if *pods* is another cgroup than before."""
        is_known = self._read(self._pods) == self._known and not self.error
        if is_known and pods == self._pods:
            return
        is_known = is_known and self._allowed(pods) == self._allowed(self._pods)
        now = self._read(pods)
        self._pods, self._known = pods, []  # retried until the machine can be read
        if await self._discover(is_known=is_known):
            self._known = now

    def _allowed(self, pods: str) -> Allowed:
        return read_allowed(self._root, pods)

    async def _discover(self, *, is_known: bool) -> bool:
        """Discover the machine again, unless it *is_known*; False if that has to be retried."""
        pods, topology = self._pods, self._context.state.node.topology
        try:
            if not is_known:
                topology = await asyncio.to_thread(discover, self._root, pods)
        except CriproxyError as error:
            before, self.error = self.error, str(error)
            if self.error != before:  # once: it is retried every few seconds
                text = "the machine has changed, and criproxy cannot read its topology"
                self._context.log.error(text, error=self.error)  # noqa: TRY400 (the text says all)
            return False
        self.error = ""
        node, log, cpus = self._context.state.node, self._context.log, format_cpuset(topology.cpus)
        if pods != node.pods_cgroup:
            log.info("the cgroup of all pods", cgroup=pods, cpus=cpus)
        elif topology == node.topology:
            return True
        else:
            log.info("the machine has changed", online=format_cpuset(topology.online_cpus), pods=cpus)
            self._warn(_missing(node.topology, topology))
        await self._context.state.apply(TopologyChanged(topology, pods))
        return True

    def _read(self, pods: str) -> list[str | None]:
        if pods not in self._files:
            self._files = {pods: deciding_files(self._root, pods)}
        system = self._root / "sys/devices/system"
        return [read_text(path) for path in (*(system / name for name in _MACHINE_FILES), *self._files[pods])]

    def _warn(self, missing: CpuSet) -> None:
        """Log CPUs that are online but not available to pods, which the engine does not log."""
        text = (
            "pods cannot use some of the online CPUs: with cgroup v1, a CPU that was offline is missing from all "
            "cpusets when it comes back; add it to them manually"
        )
        if missing:
            cgroup = str(self._allowed(self._pods).path)
            self._context.log.warning(text, cpus=format_cpuset(missing), cgroup=cgroup)


@remembered(2)
def _by_cgroup(pods: Mapping[str, Pod]) -> Mapping[str, list[Pod]]:
    below = defaultdict[str, list[Pod]](list)
    for pod in pods.values():
        if not pod.stopped and (found := pods_cgroup(pod.cgroup_parent)):
            below[found].append(pod)
    return dict(below)


def _missing(old: Topology, new: Topology) -> CpuSet:
    """Return the online CPUs that pods may not use, if they could use them before or the CPUs came online now."""
    return (old.cpus | (new.online_cpus - old.online_cpus)) & new.online_cpus - new.cpus


def _lacks(this: Allowed, that: Allowed) -> bool:
    """Whether a cgroup lacks CPUs or NUMA nodes of *that* one."""
    pairs = (this.cpus, that.cpus), (this.mems, that.mems)
    return any(mine is not None and theirs is not None and theirs - mine for mine, theirs in pairs)


def _described(pods: str, allowed: Allowed) -> str:
    sets = ("CPU", allowed.cpus), ("NUMA node", allowed.mems)
    return f"{pods} ({', '.join(numbered(noun, ids) for noun, ids in sets if ids)})"
