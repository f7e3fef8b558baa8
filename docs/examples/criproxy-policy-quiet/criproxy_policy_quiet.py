"""The policy ``quiet``: BestEffort pods run on CPUs of their own, and do not disturb other pods."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import Change, Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.placement.options.policy_options import CpuSetOption, Misfit, Options, missing_cpus
from criproxy.placement.policies import Entry


class QuietOptions(Options):
    """Options of the policy ``quiet``."""

    batch_cpus: CpuSetOption
    """CPUs of BestEffort pods; no other pod runs there."""

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """Reject CPUs that the machine does not have, and options that leave no CPU for other pods."""
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

    def place(self, node: Node, container: Container) -> Change:
        """The CPUs of the class of *container*."""
        cpus = self._side(node, container)
        if not cpus:
            raise NotEnough(
                f"container {container.title} has no CPU to run on: every CPU that pods may use is exclusive"
            )
        had = node.grants.get(container.key)
        grant = Grant(cpus, had.mems if had else node.topology.mems)
        reason = f"{container.title} shares CPUs {format_cpuset(cpus)}: its pod is {container.qos.value}"
        return Change(self._divided(node, {**node.grants, container.key: grant}), (reason,))

    def release(self, node: Node, left: Grant) -> Change:
        """The others may get CPUs that an earlier policy gave it exclusively."""
        return Change(self._divided(node, node.grants))

    def _divided(self, node: Node, grants: Mapping[str, Grant]) -> Mapping[str, Grant]:
        """Every container on the CPUs of its class; exclusive CPUs that an earlier policy gave stay where they are."""
        after = node.replace(grants=grants)
        return {
            key: grant if grant.exclusive else _on(grant, self._side(after, node.containers[key]))
            for key, grant in grants.items()
            if key in node.containers
        }

    def _side(self, node: Node, container: Container) -> CpuSet:
        """The CPUs of the container's class; all shared CPUs if CPUs went offline and its class has none left."""
        had = node.grants.get(container.key)
        shared = node.shared_cpus | (had.exclusive if had else frozenset())
        batch = shared & self.options.batch_cpus
        return (batch if container.qos is QosClass.BEST_EFFORT else shared - batch) or shared


def _on(grant: Grant, cpus: CpuSet) -> Grant:
    # If nothing changes, the same object: the engine sees it at once. Without a CPU of its class it stays elsewhere.
    return grant if grant.cpus == cpus or not cpus else replace(grant, cpus=cpus)


ENTRY = Entry(QuietOptions, QuietPolicy)
