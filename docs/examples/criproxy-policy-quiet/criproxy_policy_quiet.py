"""The policy ``quiet``: BestEffort pods run on CPUs of their own, all others where those never disturb them."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Grant, Layout
from criproxy.model.node import Node
from criproxy.model.topology import Topology
from criproxy.model.workload import Container, QosClass
from criproxy.policy import Entry
from criproxy.policy.options import CpuSetOption, Misfit, Options, missing_cpus


class QuietOptions(Options):
    """Options of the policy ``quiet``."""

    batch_cpus: CpuSetOption
    """CPUs of BestEffort pods; nobody else runs there."""

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """Complain of CPUs that the machine has not, and of a machine without a CPU for all others."""
        yield from super().misfits(topology)
        path = ("batchCpus",)
        yield from missing_cpus(path, self.batch_cpus, topology)
        if topology.cpus <= self.batch_cpus:
            yield Misfit(
                path, f"takes every CPU that pods may use ({format_cpuset(topology.cpus)}): leave at least one"
            )


class QuietPolicy:
    """BestEffort pods on CPUs of their own, all others on the rest."""

    def __init__(self, options: QuietOptions) -> None:
        self.options = options

    def place(self, node: Node, container: Container) -> Layout:
        """The layout with *container* on the side of its class."""
        cpus = self._side(node, container)
        if not cpus:
            raise NotEnough(f"container {container.title} has no CPU to run on: each one that may be used is exclusive")
        had = node.grants.get(container.key)
        newcomer = Grant(cpus, had.mems if had else node.topology.mems)
        reason = f"{container.title} shares CPUs {format_cpuset(cpus)}: its pod is {container.qos.value}"
        return Layout(self._divided(node, {**node.grants, container.key: newcomer}), (reason,))

    def release(self, node: Node, key: str) -> Layout:
        """The layout without *key*; those that stay may get CPUs that it owned under an earlier policy."""
        return Layout(self._divided(node, {other: grant for other, grant in node.grants.items() if other != key}))

    def _divided(self, node: Node, grants: Mapping[str, Grant]) -> Mapping[str, Grant]:
        """Everybody on the side of their class; who owns CPUs since an earlier policy keeps them."""
        after = node.replace(grants=grants)
        return {
            key: grant if grant.exclusive else _on(grant, self._side(after, node.containers[key]))
            for key, grant in grants.items()
            if key in node.containers
        }

    def _side(self, node: Node, container: Container) -> CpuSet:
        """The CPUs of the container's class; all that are shared where CPUs went offline and none is left for it."""
        had = node.grants.get(container.key)
        shared = node.shared_cpus | (had.exclusive if had else frozenset())
        batch = shared & self.options.batch_cpus
        return (batch if container.qos is QosClass.BEST_EFFORT else shared - batch) or shared


def _on(grant: Grant, cpus: CpuSet) -> Grant:
    # The same object where nothing changes: that tells the engine at once. Without a CPU for it, it stays elsewhere.
    return grant if grant.cpus == cpus or not cpus else replace(grant, cpus=cpus)


ENTRY = Entry(QuietOptions, QuietPolicy)
