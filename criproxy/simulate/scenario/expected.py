"""What a scenario file expects of a policy's pools, before anybody has come."""

from collections.abc import Mapping
from dataclasses import dataclass

from criproxy.model.cpuset import CpuSet, format_cpuset, numbered
from criproxy.model.machine.topology import Topology
from criproxy.placement.policies.api import HasPools, Policy
from criproxy.simulate.scenario.place import At

Place = tuple[CpuSet, CpuSet]
"""CPUs and memory nodes."""


@dataclass(frozen=True, slots=True)
class ExpectedPools:
    """Pools by name, each with the places of its instances."""

    line: int
    pools: Mapping[str, tuple[Place, ...]]

    def wrong_with(self, policy: Policy, topology: Topology) -> str:
        """What *policy* makes otherwise of *topology*, in a sentence; empty if nothing."""
        if not isinstance(policy, HasPools):
            return "the policy has no fixed pools"
        found = policy.pools(topology)
        for name, wanted in self.pools.items():
            places = tuple((grant.cpus, grant.mems) for grant in found.get(name, ()))
            if name not in found:
                return f"there is no pool {name}; pools are: {', '.join(found)}"
            if places != wanted:
                return f"the pool {name} should be {_words(wanted)}, and is {_words(places)}"
        return ""


def read_expected_pools(at: At) -> ExpectedPools:
    """The pools at *at*; raises Wrong."""
    pools = {name: tuple(_place(item) for item in pool.items()) for name, pool in at.entries().items()}
    return ExpectedPools(at.line, pools)


def _place(at: At) -> Place:
    fields = at.fields(("cpus", "mems"), required=("cpus", "mems"))
    return fields["cpus"].cpuset(), fields["mems"].cpuset()


def _words(places: tuple[Place, ...]) -> str:
    words = [f"{numbered('CPU', cpus)} with memory {format_cpuset(mems)}" for cpus, mems in places]
    return " and ".join(words) or "nothing"
