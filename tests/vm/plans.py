"""Which guests are booted, and what is checked in each: read by the tests on the host and by `inside` in the guest."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.vm import checks, topology_checks
from tests.vm.machines import named
from tests.vm.qemu import Hardware, PciDevice
from tests.vm.world import World

Check = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Scene:
    """Checks under one policy, in this order."""

    policy: str
    checks: tuple[Check, ...]

    @property
    def policy_file(self) -> str:
        """The text of the policy file."""
        return f'policy: {self.policy}\nreservedCpus: "0"\n'


@dataclass(frozen=True, slots=True)
class Plan:
    """A guest and what is checked in it."""

    name: str
    hardware: Hardware
    scenes: tuple[Scene, ...]


@dataclass(frozen=True, slots=True)
class Case:
    """A check in its place."""

    plan: str
    policy: str
    check: str

    def __str__(self) -> str:
        return f"{self.plan}-{self.policy}-{self.check}"


PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            "four-nodes",
            Hardware(named("2s-4n-smt"), pci=(PciDevice(2, "bochs-display"), PciDevice(1, "e1000e"))),
            (
                Scene(
                    "topology-aware",
                    (
                        topology_checks.the_topology_is_that_of_the_machine,
                        topology_checks.devices_are_on_their_nodes,
                        checks.an_owner_gets_one_node_with_its_memory,
                        checks.a_larger_owner_gets_the_nodes_of_one_socket,
                        checks.owners_and_sharers_never_meet,
                        checks.memory_that_nodes_cannot_promise_comes_from_all,
                        checks.who_does_not_fit_is_refused_until_there_is_room,
                        checks.a_restart_moves_nobody_and_forgets_nothing,
                        checks.a_resized_owner_keeps_its_memory,
                    ),
                ),
                Scene(
                    "static",
                    (
                        checks.an_owner_gets_one_node_with_its_memory,
                        checks.a_sharer_may_use_all_memory,
                        checks.owners_and_sharers_never_meet,
                        checks.who_does_not_fit_is_refused_until_there_is_room,
                        checks.a_restart_moves_nobody_and_forgets_nothing,
                    ),
                ),
            ),
        ),
        Plan(
            "eight-nodes",
            Hardware(named("4s-8n"), isolated=checks.ISOLATED),
            (
                Scene(
                    "topology-aware",
                    (
                        topology_checks.the_topology_is_that_of_the_machine,
                        topology_checks.isolated_cpus_are_recognised,
                        checks.isolated_cpus_go_to_owners_of_one,
                        checks.isolated_cpus_are_not_shared,
                        checks.owners_fill_node_after_node,
                        checks.a_larger_owner_gets_the_nodes_of_one_socket,
                        checks.a_restart_moves_nobody_and_forgets_nothing,
                    ),
                ),
                Scene("static", (checks.owners_fill_node_after_node, checks.owners_and_sharers_never_meet)),
            ),
        ),
        Plan(
            "memory-only-nodes",
            Hardware(named("2s-2n+2pmem")),
            (
                Scene(
                    "topology-aware",
                    (
                        topology_checks.the_topology_is_that_of_the_machine,
                        topology_checks.memory_only_nodes_are_recognised,
                        checks.memory_only_nodes_are_never_all_that_one_has,
                        checks.memory_only_nodes_are_used_from_nearby,
                        checks.memory_that_nodes_cannot_promise_comes_from_all,
                    ),
                ),
                Scene("static", (checks.memory_only_nodes_are_never_all_that_one_has,)),
            ),
        ),
    )
}

CASES = [
    Case(plan.name, scene.policy, check.__name__)
    for plan in PLANS.values()
    for scene in plan.scenes
    for check in scene.checks
]
