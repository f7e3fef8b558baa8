"""Lives of containers under each policy, in guests: the CPUs and the memory of everybody after each step.

Of two sockets with two NUMA nodes each, of one core with two threads; and of one with PMEM, for kinds of memory.
"""

import asyncio
from collections.abc import Mapping

from lab.vm.world import Placed, World
from tests.lives import Ends, Released, Reloaded, Resized, Runs, burstable, guaranteed

RESERVED = 'reservedCpus: "0"\n'
STATIC = f"policy: static\n{RESERVED}"
POOLS = f"""policy: pools
{RESERVED}pools:
  - {{name: pair, cpu: 2}}
  - {{name: rt, exclusive: true, cpuLists: [{{cpuset: "6-7"}}]}}
"""
BALLOONS = f"""policy: balloons
{RESERVED}balloonTypes:
  - {{name: database, minCPUs: 2}}
  - {{name: batch, namespaces: [night], shareIdleCPUsInSame: system}}
  - {{name: default, preferNewBalloons: true}}
"""
TOPOLOGY_AWARE = f"policy: topology-aware\n{RESERVED}"
EVERYTHING = "0-7 m0-3"
"""Where a container is that nobody places."""

WEB, DB = burstable("web", 500), guaranteed("db", 2000)
PAIR, RT, DATABASE = {"pool.podpools": "pair"}, {"pool.podpools": "rt"}, {"balloon.balloons": "database"}
DRAM, PMEM = {"memory-type": "dram"}, {"memory-type": "pmem"}


async def static_owners_grow_and_shrink(world: World) -> None:
    """More CPUs come from the next NUMA node, whose memory joins in, then from one further; memory in use stays."""
    await world.live(
        STATIC,
        (Runs(WEB), {"web": EVERYTHING}),
        (Runs(DB), {"web": "0-1,4-7 m0-3", "db": "2-3 m1"}),
        (Resized("db", 3000), {"web": "0,4-7 m0-3", "db": "1-3 m0-1"}),
        (Resized("db", 5000), {"web": "0,6-7 m0-3", "db": "1-5 m0-2"}),
        (Resized("db", 1000), {"web": "0,2-7 m0-3", "db": "1 m0-2"}),
        (Released(), {"web": EVERYTHING, "db": EVERYTHING}),
    )


async def static_has_the_kubelets_options(world: World) -> None:
    """Nobody is on reserved CPUs, and owners have whole cores, for which one that grows leaves half of another."""
    await world.live(
        f"{STATIC}fullPcpusOnly: true\nstrictCPUReservation: true\n",
        (Runs(WEB), {"web": "1-7 m0-3"}),
        (Runs(guaranteed("db", 1000)), {"web": "2-7 m0-3", "db": "1 m0"}),
        (Resized("db", 2000), {"web": "1,4-7 m0-3", "db": "2-3 m0-1"}),
        (Resized("db", 4000), {"web": "1,6-7 m0-3", "db": "2-5 m0-2"}),
        (Ends("db"), {"web": "1-7 m0-3"}),
    )


async def static_promises_memory(world: World) -> None:
    """What a NUMA node cannot promise beside an older owner comes from the nearest one, too, until that owner ends."""
    mib = world.machine.nodes[1].memory_mib * 6 // 10
    await world.live(
        'policy: static\nreservedCpus: "0-1"\n',
        (Runs(guaranteed("old", 1000, mib)), {"old": "2 m1"}),
        (Runs(guaranteed("young", 1000, mib)), {"old": "2 m1", "young": "3 m0-1"}),
        (Ends("old"), {"young": "3 m1"}),
    )


async def pools_have_the_size_that_they_have(world: World) -> None:
    """Memory is that of the pool's NUMA nodes; neither a resize nor an end makes a pool larger or moves anybody."""
    shop, web = "2-3 m1", "1,4-5 m0,2"
    await world.live(
        POOLS,
        (Runs(burstable("shop", 500, asks=PAIR)), {"shop": shop}),
        (Runs(guaranteed("motor", 2000, asks=RT)), {"shop": shop, "motor": "6-7 m3"}),
        (Runs(WEB), {"shop": shop, "motor": "6-7 m3", "web": web}),
        (Resized("shop", 3500), {"shop": shop, "motor": "6-7 m3", "web": web}),
        (Ends("motor"), {"shop": shop, "web": web}),
        (Released(), {"shop": EVERYTHING, "web": EVERYTHING}),
    )


async def balloons_inflate_and_deflate(world: World) -> None:
    """For a resize and for a newcomer; who is lent idle CPUs gives them back, and memory follows to further nodes."""
    await world.live(
        BALLOONS,
        (Runs(burstable("sql", 500, asks=DATABASE)), {"sql": "2-3 m1"}),
        (Runs(burstable("job", 1000, namespace="night")), {"sql": "2-3 m1", "job": "1,4-7 m0,2-3"}),
        (Resized("sql", 3500), {"sql": "2-5 m1-2", "job": "1,6-7 m0,2-3"}),
        (
            Runs(burstable("copy", 1500, asks=DATABASE)),
            {"sql": "2-6 m1-2", "copy": "2-6 m1-3", "job": "1,7 m0,2-3"},
        ),
        (Resized("sql", 500), {"sql": "4-5 m1-2", "copy": "4-5 m1-3", "job": "1-3,6-7 m0,2-3"}),
        (Ends("copy"), {"sql": "4-5 m1-2", "job": "1-3,6-7 m0,2-3"}),
        (Released(), {"sql": EVERYTHING, "job": EVERYTHING}),
    )


async def topology_aware_keeps_cpus_and_memory_together(world: World) -> None:
    """Owners and sharers in the smallest part with room; who outgrows its node gets the next one with its memory."""
    await world.live(
        TOPOLOGY_AWARE,
        (Runs(DB), {"db": "2-3 m1"}),
        (Runs(WEB), {"db": "2-3 m1", "web": "4-7 m2-3"}),
        (Runs(guaranteed("proxy", 1500)), {"db": "2-3 m1", "web": "5-7 m2-3", "proxy": "4-5 m2"}),
        (Resized("db", 3000), {"db": "1-3 m0-1", "web": "5-7 m2-3", "proxy": "4-5 m2"}),
        (Ends("proxy"), {"db": "1-3 m0-1", "web": "4-7 m2-3"}),
        (Released(), {"db": EVERYTHING, "web": EVERYTHING}),
    )


async def another_policy_moves_everybody_and_no_cpu_has_two_owners(world: World) -> None:
    """With `apply: all`, while they run: who is on CPUs that are reserved now leaves them, and no memory moves."""
    every, life = "apply: all\n", world.life()
    await world.use(STATIC + every)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(_watch(life.running, "db", "rt"))
        await life.play(
            (Runs(WEB), {"web": EVERYTHING}),
            (Runs(DB), {"web": "0-1,4-7 m0-3", "db": "2-3 m1"}),
            (Runs(guaranteed("rt", 2000)), {"web": "0-1,6-7 m0-3", "db": "2-3 m1", "rt": "4-5 m2"}),
            (
                Reloaded(f'policy: topology-aware\n{every}reservedCpus: "2-3"\n'),
                {"web": "0-1 m0-3", "db": "6-7 m1", "rt": "4-5 m2"},
            ),
            (
                Reloaded(f'policy: static\n{every}reservedCpus: "4-5"\n'),
                {"web": "2-5 m0-3", "db": "6-7 m1", "rt": "0-1 m2"},
            ),
        )
        watching.cancel()
    await life.play(
        (Reloaded(BALLOONS + every), {"web": "3 m0-3", "db": "6-7 m1", "rt": "4-5 m2"}),
        (Reloaded(f"policy: none\n{every}"), {"web": EVERYTHING, "db": EVERYTHING, "rt": EVERYTHING}),
    )


async def memory_is_of_the_kinds_that_are_asked_for(world: World) -> None:
    """DRAM alone; or PMEM, with the DRAM that the kernel needs; who says nothing has both that are next to it."""
    await world.live(
        TOPOLOGY_AWARE,
        (Runs(guaranteed("dram", 1000, asks=DRAM)), {"dram": "4 m1"}),
        (Runs(guaranteed("pmem", 1000, asks=PMEM)), {"dram": "4 m1", "pmem": "1 m0,2"}),
        (Runs(guaranteed("any", 1000)), {"dram": "4 m1", "pmem": "1 m0,2", "any": "5 m1,3"}),
    )


async def memory_of_a_kind_that_is_short_comes_from_both_nodes(world: World) -> None:
    """Until who came before ends: three that want DRAM alone fit on two nodes, but no two of them on one."""
    mib = world.machine.nodes[1].memory_mib * 52 // 100
    await world.live(
        TOPOLOGY_AWARE,
        (Runs(guaranteed("old", 1000, mib, asks=DRAM)), {"old": "4 m1"}),
        (Runs(guaranteed("other", 1000, mib, asks=DRAM)), {"old": "4 m1", "other": "1 m0"}),
        (Runs(guaranteed("young", 1000, mib, asks=DRAM)), {"old": "4 m1", "other": "1 m0", "young": "5 m0-1"}),
        (Ends("old"), {"other": "1 m0", "young": "5 m1"}),
    )


async def balloons_have_memory_of_their_kinds(world: World) -> None:
    """Those of the option `memoryTypes`, next to the CPUs also of one that has grown; by default that of their node."""
    types = "[{name: cold, memoryTypes: [pmem]}, {name: default, preferNewBalloons: true}]"
    await world.live(
        f"policy: balloons\n{RESERVED}balloonTypes: {types}\n",
        (Runs(burstable("cold", 1000, asks={"balloon.balloons": "cold"})), {"cold": "1 m0,2"}),
        (Runs(burstable("warm", 1000)), {"cold": "1 m0,2", "warm": "2 m0"}),
        (Resized("cold", 4000), {"cold": "1,4-6 m0-3", "warm": "2 m0"}),
    )


async def static_spreads_over_cores_and_numa_nodes(world: World) -> None:
    """By the kubelet's options: a thread of each core before the second of any; about the same from each NUMA node."""
    await world.live(
        f"{STATIC}distributeCPUsAcrossCores: true\n",
        (Runs(DB), {"db": "1-2 m0"}),
        (Ends("db"), {}),
        (Reloaded(f"{STATIC}distributeCPUsAcrossNUMA: true\n"), {}),
        (Runs(guaranteed("db", 5000)), {"db": "2-6 m0-1"}),
    )


async def _watch(running: Mapping[str, Placed], one: str, other: str) -> None:
    """Look all the time whether two owners are on the same CPU; one that cannot go where it should yet may share."""
    while True:
        if {one, other} <= running.keys():
            before, there = running[one].effective.cpus, running[other].effective.cpus
            # Between two looks a CPU may go from one to the other.
            both = before & there & running[one].effective.cpus
            assert not both, f"{one} and {other} are both on {set(both)}"
        await asyncio.sleep(0.01)
