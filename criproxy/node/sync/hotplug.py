"""Changes of the machine at run time: CPUs that go offline or come online, and the CPUs of the pods' parent cgroup.

With the kubelet's option cgroupRoot, that cgroup is where a sandbox says. criproxy learns it from the first pod, and
keeps to it as long as pods run there: another program's pod, or a new cgroupRoot, takes no CPUs from them.

A few files are read every few seconds; only if one of them has changed, the machine is discovered again.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from criproxy.cri.translate import pods_cgroup
from criproxy.errors import CriproxyError, Refused, StatusCode
from criproxy.host.cgroup import POD_PARENTS, Allowed, deciding_files, read_allowed, read_control_files
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
        self._cgroup = ""
        """`Node.pods_cgroup`: that of all pods."""
        self._files: dict[str, list[Path]] = {}
        """By such a cgroup, the files on which it depends what pods below it may use; of the last one only."""
        self._is_assumed = False
        """Whether no cgroup shows yet which files containers have for classes."""
        self._contents = self._read("")
        """Of the files, when the machine was discovered; empty: it has to be discovered again."""
        self.error = ""
        """Why the machine could not be read after it had changed; empty if it could."""
        self._lock = asyncio.Lock()
        """One discovery at a time."""

    def at_start(self) -> TopologyChanged:
        """Return the machine as the pods of the last run may use it."""
        node = self._context.state.node
        topology, self._cgroup = node.topology, node.pods_cgroup or self._followed()
        if self._cgroup:
            self._contents = self._read(self._cgroup)
            try:
                if self._allowed(self._cgroup) != self._allowed(""):
                    topology = discover(self._root, self._cgroup)
            except CriproxyError:
                self._contents = []  # the next check says why
        return TopologyChanged(topology, self._cgroup)

    async def follow(self, container: Container, cgroup_parent: str) -> None:
        """Return when what a new *container* may use is bounded by the cgroup above its pod, which the node has.

        Raises:
            Refused: pods run below another cgroup, which allows what this one does not.
        """
        cgroup, state = pods_cgroup(cgroup_parent), self._context.state
        if cgroup is None or (cgroup == self._cgroup and not self._is_assumed):
            return
        async with self._lock:
            followed = self._followed()
            await self._look(followed)
        if cgroup != followed and not state.bypassed and not state.node.released:
            this, that = self._allowed(cgroup), self._allowed(followed)
            if _lacks(this, that):
                raise _BelowAnother(
                    f"container {container.title} is refused: its pod is below {_described(cgroup, this)}, which lacks "
                    f"CPUs or NUMA nodes of the pods that run below {_described(followed, that)}: {_ADVICE}"
                )

    def apart(self) -> str:
        """Return a sentence about pods below cgroups that allow other CPUs or NUMA nodes; empty if there are none."""
        pods_by_cgroup = _by_cgroup(self._context.state.node.pods)
        others = {cgroup: pods for cgroup, pods in pods_by_cgroup.items() if cgroup != self._cgroup}
        if not others or not self._cgroup:
            return ""
        found, allowed = list[str](), self._allowed(self._cgroup)
        for cgroup, pods in others.items():
            other = self._allowed(cgroup)
            if _lacks(other, allowed) or _lacks(allowed, other):
                names = ", ".join(bounded_texts([pod.title for pod in pods], 3))
                found.append(f"{names} {are(len(pods))} below {_described(cgroup, other)}")
        grants = f"criproxy grants what {_described(self._cgroup, allowed)} allows, but"
        return f"{grants} {', '.join(found)}: {_ADVICE}" if found else ""

    def _followed(self) -> str:
        """Return the cgroup that counts: the known one while pods run below it, then that of most pods."""
        pods = _by_cgroup(self._context.state.node.pods)
        if self._cgroup in pods or not pods:
            return self._cgroup
        return max(pods, key=lambda cgroup: len(pods[cgroup]))

    def start(self) -> None:
        """Log online CPUs that pods may not use: no other message explains why a node is smaller than its machine."""
        topology = self._context.state.node.topology
        parent = self._allowed(self._cgroup).path
        if parent and (self._cgroup or parent.name in POD_PARENTS):
            self._warn(topology.online_cpus - topology.cpus)

    async def check(self) -> None:
        """Check once, and return when the node has the current topology."""
        async with self._lock:
            now, followed = self._cgroup, self._followed()
            if now and followed != now and _lacks(self._allowed(followed), self._allowed(now)):
                followed = now  # only a pod that comes makes the machine smaller
            await self._look(followed)

    async def _look(self, cgroup: str) -> None:
        """Discover the machine again if a file has changed, or if *cgroup* is another one than before."""
        has_changed = self._read(self._cgroup) != self._contents or bool(self.error)
        if not has_changed and cgroup == self._cgroup:
            return
        is_other = has_changed or self._allowed(cgroup) != self._allowed(self._cgroup)
        contents = self._read(cgroup)
        self._cgroup, self._contents = cgroup, []  # retried until the machine can be read
        if await self._apply(is_other=is_other):
            self._contents = contents

    def _allowed(self, cgroup: str) -> Allowed:
        return read_allowed(self._root, cgroup)

    async def _apply(self, *, is_other: bool) -> bool:
        """Let the node have its cgroup, and the machine if it *is_other* than before; False if that must be retried."""
        topology = self._context.state.node.topology
        try:
            if is_other:
                topology = await asyncio.to_thread(discover, self._root, self._cgroup)
            elif topology.control_files is not None:  # the cgroup of all pods has more than others
                files = read_control_files(self._root, self._cgroup)
                topology = replace(topology, control_files=files.names if files else None)
        except CriproxyError as error:
            before, self.error = self.error, str(error)
            if self.error != before:  # once: it is retried every few seconds
                text = "the machine has changed, and criproxy cannot read its topology"
                self._context.log.error(text, error=self.error)  # noqa: TRY400 (the text says all)
            return False
        self.error = ""
        node, log, cpus = self._context.state.node, self._context.log, format_cpuset(topology.cpus)
        if self._cgroup != node.pods_cgroup:
            log.info("the cgroup of all pods", cgroup=self._cgroup, cpus=cpus)
        elif topology == node.topology:
            return True
        else:
            log.info("the machine has changed", online=format_cpuset(topology.online_cpus), pods=cpus)
            self._warn(_missing(node.topology, topology))
        await self._context.state.apply(TopologyChanged(topology, self._cgroup))
        return True

    def _read(self, cgroup: str) -> list[str | None]:
        """Return the contents of the files on which it depends what pods below *cgroup* may use."""
        if cgroup not in self._files:
            self._files = {cgroup: deciding_files(self._root, cgroup)}
        system = self._root / "sys/devices/system"
        files = read_control_files(self._root, cgroup)
        texts = [read_text(path) for path in (*(system / name for name in _MACHINE_FILES), *self._files[cgroup])]
        self._is_assumed = files is not None and files.is_assumed
        return [*texts, " ".join(sorted(files.names if files else ()))]

    def _warn(self, missing: CpuSet) -> None:
        """Log CPUs that are online but not available to pods, which the engine does not log."""
        if not missing:
            return
        text = (
            "pods cannot use some of the online CPUs: with cgroup v1, a CPU that was offline is missing from all "
            "cpusets when it comes back; add it to them manually"
        )
        cgroup = str(self._allowed(self._cgroup).path)
        self._context.log.warning(text, cpus=format_cpuset(missing), cgroup=cgroup)


@remembered(2)
def _by_cgroup(pods: Mapping[str, Pod]) -> Mapping[str, list[Pod]]:
    """Return those of the *pods* that run, by the cgroup that the kubelet has for all pods."""
    found = defaultdict[str, list[Pod]](list)
    for pod in pods.values():
        if not pod.stopped and (cgroup := pods_cgroup(pod.cgroup_parent)):
            found[cgroup].append(pod)
    return dict(found)


def _missing(old: Topology, new: Topology) -> CpuSet:
    """Return the online CPUs that pods may not use, if they could use them before or the CPUs came online now."""
    return (old.cpus | (new.online_cpus - old.online_cpus)) & new.online_cpus - new.cpus


def _lacks(this: Allowed, that: Allowed) -> bool:
    """Whether a cgroup lacks CPUs or NUMA nodes of *that* one."""
    pairs = (this.cpus, that.cpus), (this.mems, that.mems)
    return any(mine is not None and theirs is not None and theirs - mine for mine, theirs in pairs)


def _described(cgroup: str, allowed: Allowed) -> str:
    sets = ("CPU", allowed.cpus), ("NUMA node", allowed.mems)
    return f"{cgroup} ({', '.join(numbered(noun, ids) for noun, ids in sets if ids)})"
