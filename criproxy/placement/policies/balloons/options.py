"""The options of the policy ``balloons`` and what is wrong with them, by themselves or on a machine."""

from collections.abc import Iterator

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.grant import NO_CPUS
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.amounts import are
from criproxy.placement.options.policy_options import Misfit
from criproxy.placement.policies.balloons.balloon_cpus import shape_of, smallest
from criproxy.placement.policies.balloons.contradictions import balloon_contradictions
from criproxy.placement.policies.balloons.fields import BalloonsFields
from criproxy.placement.policies.balloons.kinds import POD_RESOURCES, Kind, catalogue, device_cpus
from criproxy.placement.policies.balloons.reading import read
from criproxy.placement.policies.balloons.state import State


class BalloonsOptions(BalloonsFields):
    """Options of the policy ``balloons``."""

    def held(self, node: Node) -> CpuSet:
        """Those of the balloons with containers, without idle ones that are lent to them."""
        in_balloons = (grant for grant in node.grants.values() if grant.pool and not grant.is_preserved)
        return NO_CPUS.union(*(grant.home or grant.cpus for grant in in_balloons))

    def contradictions(self) -> Iterator[Misfit]:
        """What these options ask that no machine can give."""
        yield from super().contradictions()
        yield from balloon_contradictions(self)

    def misfits(self, topology: Topology) -> Iterator[Misfit]:
        """Balloons and devices that the machine *topology* cannot have."""
        yield from super().misfits(topology)
        for index, each in enumerate(self.balloon_types):
            for place, path in enumerate(each.prefer_close_to_devices):
                if not path.startswith(POD_RESOURCES) and not device_cpus(path, topology, self):
                    where = ("balloonTypes", index, "preferCloseToDevices", place)
                    yield Misfit(where, f"{path} is not in this machine, or has no CPUs")
        types = catalogue(self, self.usable(topology))
        state = read(types, Node(types.topology), {})
        index_of = {each.name: index for index, each in enumerate(self.balloon_types)}
        for kind in types.kinds:
            yield from _too_large(state, kind, index_of.get(kind.name))


def _too_large(state: State, kind: Kind, index: int | None) -> Iterator[Misfit]:
    """Whether the machine has not enough CPUs for the smallest balloon, or for all that have to be there."""
    cpus = state.catalogue.topology.cpus
    least, there = sum(smallest(shape_of(kind))), len(state.of(kind))
    machine, free = f"{len(cpus)} ({format_cpuset(cpus)})", len(state.free)
    left = f"{free} {are(free)} left of {machine}"
    others = ", ".join(f"{b.name} has {format_cpuset(b.home)}" for b in state.balloons.values() if b.home)
    if kind in state.catalogue.created and there < kind.type.min_balloons:
        path: tuple[str | int, ...] = ("reservedCpus",) if index is None else ("balloonTypes", index, "minBalloons")
        text = f"{kind.type.min_balloons} balloons of type {kind.name} need {least} CPUs each, but {left}"
        text += f": {others}" if others else ""
        yield Misfit(path, text)
    elif index is not None and not there and not kind.refused and least > len(state.free):
        has = f"{left}: {others}" if others else f"there are {machine}"
        text = f"a balloon of type {kind.name} needs {least} CPUs, but {has}"
        yield Misfit(("balloonTypes", index, "minCPUs"), text)
