"""Which guests are booted, and what is checked in each: read by the tests on the host, and run in the guest.

    python -m lab.vm.plans PLAN CHECK …

A guest prints one line of JSON for each check on standard output.
"""

import asyncio
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from lab.containerd.cgroups import CgroupDriver
from lab.vm import checks, policy_checks, topology_checks
from lab.vm.qemu import NAMED, Hardware, PciDevice
from lab.vm.world import World, proxied

Check = Callable[[World], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Plan:
    """A guest, and what is checked in it, in this order.

    Checks that play lives bring the policy that they need, and leave it: they stand behind those that do not.
    """

    name: str
    hardware: Hardware
    policy: str
    """To begin with."""
    checks: tuple[Check, ...]
    in_make_test: tuple[Check, ...] = ()
    """Those of the checks that `make test` has time for."""
    cgroup_driver: CgroupDriver = "cgroupfs"
    options: str = ""
    """More lines of the policy file."""

    @property
    def policy_file(self) -> str:
        """The text of the policy file."""
        return f'policy: {self.policy}\nreservedCpus: "0"\n{self.options}'


@dataclass(frozen=True, slots=True)
class Case:
    """A check in its guest."""

    plan: str
    check: str

    def __str__(self) -> str:
        return f"{self.plan}-{self.check}"


# Guests run side by side: several of about the same length are over sooner than a long one.
PLANS = {
    plan.name: plan
    for plan in (
        Plan(
            "four-nodes-systemd",
            Hardware(NAMED["2s-4n-smt"], pci=(PciDevice(2, "bochs-display"), PciDevice(1, "e1000e"))),
            "topology-aware",
            (
                topology_checks.the_topology_is_that_of_the_machine,
                topology_checks.devices_are_on_their_nodes,
                checks.an_owner_gets_one_node_with_its_memory,
                checks.a_larger_owner_gets_the_nodes_of_one_socket,
                checks.a_restart_moves_nobody_and_forgets_nothing,
                checks.systemd_puts_back_nothing_old,
                checks.an_owner_has_no_quota_until_it_shares,
                checks.processes_are_those_of_their_containers,
            ),
            in_make_test=(
                topology_checks.the_topology_is_that_of_the_machine,
                topology_checks.devices_are_on_their_nodes,
                checks.an_owner_gets_one_node_with_its_memory,
                checks.systemd_puts_back_nothing_old,
            ),
            cgroup_driver="systemd",
            options="cpuQuota: lift\n",
        ),
        Plan(
            "four-nodes-static",
            Hardware(NAMED["2s-4n-smt"]),
            "static",
            (
                checks.an_owner_gets_one_node_with_its_memory,
                checks.a_restart_moves_nobody_and_forgets_nothing,
                checks.processes_are_those_of_their_containers,
                checks.a_cpu_that_goes_offline_is_used_again_when_it_is_back,
                checks.classes_are_applied_to_threads_and_disks,
                checks.classes_are_files_of_cgroups,
                checks.a_resize_meets_an_idle_container_and_one_with_a_burst,
                policy_checks.static_owners_grow_and_shrink,
                policy_checks.static_has_the_kubelets_options,
                policy_checks.static_promises_memory,
            ),
        ),
        Plan(
            "four-nodes-policies",
            Hardware(NAMED["2s-4n-smt"]),
            "pools",
            (
                policy_checks.pools_have_the_size_that_they_have,
                policy_checks.balloons_inflate_and_deflate,
                policy_checks.topology_aware_keeps_cpus_and_memory_together,
                policy_checks.another_policy_moves_everybody_and_no_cpu_has_two_owners,
            ),
        ),
        Plan(
            "eight-nodes-isolated",
            Hardware(NAMED["4s-8n"], isolated=checks.ISOLATED),
            "topology-aware",
            (
                topology_checks.the_topology_is_that_of_the_machine,
                topology_checks.isolated_cpus_are_recognised,
                checks.isolated_cpus_go_to_owners_of_one,
                checks.isolated_cpus_are_not_shared,
                checks.owners_fill_node_after_node,
                checks.a_larger_owner_gets_the_nodes_of_one_socket,
            ),
        ),
        Plan(
            "memory-only-nodes",
            Hardware(NAMED["2s-2n+2pmem"]),
            "topology-aware",
            (
                topology_checks.the_topology_is_that_of_the_machine,
                topology_checks.memory_only_nodes_are_recognised,
                checks.memory_only_nodes_are_never_all_that_one_has,
                checks.a_release_gives_everybody_everything,
                policy_checks.memory_is_of_the_kinds_that_are_asked_for,
                policy_checks.memory_of_a_kind_that_is_short_comes_from_both_nodes,
                policy_checks.balloons_have_memory_of_their_kinds,
                policy_checks.static_spreads_over_cores_and_numa_nodes,
            ),
        ),
    )
}

CASES = [Case(plan.name, check.__name__) for plan in PLANS.values() for check in plan.checks]
IN_MAKE_TEST = {Case(plan.name, check.__name__) for plan in PLANS.values() for check in plan.in_make_test}


CHECK_TIMEOUT_S = 400.0


async def run(plan: Plan, wanted: set[str]) -> None:
    """Try those checks of *plan* that are wanted, by name, and print their verdicts."""
    async with proxied(plan.hardware, plan.policy_file, plan.cgroup_driver) as world:
        for check in plan.checks:
            if check.__name__ in wanted:
                print(json.dumps([check.__name__, await judge(check, world)]), flush=True)


async def judge(check: Check, world: World) -> str:
    """Try one check, on a node without pods before and after; what went wrong."""
    logged = len(world.serve.log.read_text())
    try:
        async with asyncio.timeout(CHECK_TIMEOUT_S):
            await check(world)
        await world.clear()
    except Exception as problem:  # noqa: BLE001 (whatever it is, it is this check's verdict and must not end the others)
        told = traceback.TracebackException.from_exception(problem, capture_locals=True)
        error = f"{''.join(told.format())}\ncriproxy said meanwhile:\n{world.serve.log.read_text()[logged:]}"
        await world.recover()
        return error
    return ""


if __name__ == "__main__":
    asyncio.run(run(PLANS[sys.argv[1]], set(sys.argv[2:])))
