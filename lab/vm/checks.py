"""What is checked of containers in guests.

Each check runs there on a node without pods; its docstring is its claim. They look at the kernel's files only, and take
from the policy no more than what it promises for every machine.
"""

import asyncio
import signal
from functools import partial
from pathlib import Path

from criproxy.controls.block_io import BlockIoLimits
from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.journal import Journal
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.controls.scheduling.threads import ThreadScheduling
from criproxy.cri import api_pb2 as api
from criproxy.deviceplugin.usage.processes import Processes, container_of
from criproxy.devices.usage.values import Process
from criproxy.model.controls import BlockIo, ContainerControls, Scheduling, Throttle
from criproxy.model.cpuset import CpuSet
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from lab.vm.world import MIB, STEP_TIMEOUT_S, Placed, World

RESERVED: CpuSet = frozenset({0})
"""In the policy files of all guests."""
ISOLATED: CpuSet = frozenset({14, 15})
"""In guests that have isolated CPUs: the last node of eight."""


async def an_owner_gets_one_node_with_its_memory(world: World) -> None:
    """Two CPUs of one NUMA node, memory from that node only, and its process has none elsewhere."""
    placed = await world.owner("owner", 2)

    sets = placed.sets
    nodes = world.machine.nodes_of(sets.cpus)
    assert len(sets.cpus) == 2
    assert len(nodes) == 1
    assert sets.mems == nodes
    assert placed.heap_nodes == nodes
    assert not sets.cpus & RESERVED


async def a_larger_owner_gets_the_nodes_of_one_socket(world: World) -> None:
    """Four CPUs that fit into no node come from two of the same socket, with the memory of both."""
    sets = (await world.owner("owner", 4)).sets

    nodes = world.machine.nodes_of(sets.cpus)
    assert len(sets.cpus) == 4
    assert len(nodes) == 2
    assert len({node // 2 for node in nodes}) == 1
    assert sets.mems == nodes


async def a_restart_moves_nobody_and_forgets_nothing(world: World) -> None:
    """After a kill all stay where they were, owners are respected, and what they owned is given back in the end."""
    sharer = await world.sharer("sharer")
    free = sharer.sets.cpus
    owner = await world.owner("owner", 2)
    before = owner.sets, sharer.sets

    await world.restart(signal.SIGKILL)

    assert (owner.sets, sharer.sets) == before
    late = await world.owner("late", 2)
    assert not late.sets.cpus & owner.sets.cpus
    await world.remove(late)
    await world.remove(owner)
    await world.settles(sharer, free)


async def an_owner_has_no_quota_until_it_shares(world: World) -> None:
    """What the kernel has of cgroup v2 says so."""
    owner = await world.owner("owner", 2)
    limits = owner.group / "cpu.max"
    assert limits.read_text() == "max 100000\n"

    half = api.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000)
    await world.kubelet.update(owner.container_id, half)
    assert limits.read_text() == "50000 100000\n"


async def systemd_puts_back_nothing_old(world: World) -> None:
    """When it is told to read everything anew it sets again what was last set through it: CPUs, memory and no quota."""
    sharer = await world.sharer("sharer")
    owner = await world.owner("owner", 2)
    before, limits = [placed.sets for placed in (sharer, owner)], owner.group / "cpu.max"
    assert limits.read_text() == "max 100000\n"

    reload = await asyncio.create_subprocess_exec("systemctl", "daemon-reload")
    assert await reload.wait() == 0

    assert [placed.sets for placed in (sharer, owner)] == before
    assert limits.read_text() == "max 100000\n"
    assert sharer.group.name.endswith(".scope")


async def processes_are_those_of_their_containers(world: World) -> None:
    """The kernel's cgroup of a process names its container, also from a cgroup made inside; others have none."""
    placed = [await world.sharer(f"sharer{number}") for number in range(2)]
    processes = Processes()
    for each in placed:
        (pid, *_) = map(int, (each.group / "cgroup.procs").read_text().split())
        process = Process(pid=pid, start_ticks=processes.start_ticks(pid))
        assert processes.is_same(process, each.container_id)
        inside = each.group / "inside"
        inside.mkdir()
        (inside / "cgroup.procs").write_text(f"{pid}\n")
        assert processes.is_same(process, each.container_id)
    assert not container_of(Path("/proc/self/cgroup").read_text())  # noqa: ASYNC240 (of the kernel)


async def classes_are_applied_to_threads_and_disks(world: World) -> None:
    """Every thread has policy and nice, and two disks their limits; in the end all is as before."""
    placed = await world.sharer("limited")
    throttle = Throttle(devices=("/dev/loop[01]",), read_bps=1 << 20, write_iops=100)
    controls = ContainerControls(
        cgroup=str(placed.group.relative_to("/sys/fs/cgroup")),
        scheduling=Scheduling(policy="batch", nice=5),
        block_io=BlockIo(throttles=(throttle,)),
    )
    parts = ThreadScheduling(Path("/")), BlockIoLimits(Path("/"), Journal(Path("/run"), ""))
    threads, limits = ContainerThreads(Path("/")), placed.group / "io.max"

    assert [part.apply("c", controls, None) for part in parts] == [[], []]
    assert {read(number) for number in threads.numbers(controls.cgroup)} == {Attributes(Policy(3), nice=5)}
    values = "rbps=1048576 wbps=max riops=max wiops=100"
    assert sorted(limits.read_text().splitlines()) == [f"7:{number} {values}" for number in (0, 1)]
    assert [part.look("c", controls) for part in parts] == [[], []]
    assert [part.drift for part in parts] == [0, 0]

    assert [part.forget("c", controls) for part in parts] == [[], []]
    assert {read(number) for number in threads.numbers(controls.cgroup)} == {Attributes()}
    assert not limits.read_text()


CLASSES = """policy: static
reservedCpus: 0
classes:
  big:
    for: {qos: [Burstable]}
    memory: {high: 50%, low: 16Mi, min: 8Mi, swapMax: 25%, oomGroup: true}
    cpu: {weight: 200, burst: 20%}
"""
OTHERS = CLASSES.replace("high: 50%", "high: 75%").replace("weight: 200, ", "")


async def classes_are_files_of_cgroups(world: World) -> None:
    """From the create on; a reload, restarts, another program and a release change what they should, and no more."""
    await world.use(CLASSES)
    spec = ContainerSpec("c0", IMAGE, (), 500, 500, memory_request_bytes=32 * MIB, memory_limit_bytes=64 * MIB)
    placed = await world.run(PodSpec("classed", (spec,)))
    first = {
        "memory.high": f"{32 * MIB}",
        "memory.low": f"{16 * MIB}",
        "memory.min": f"{8 * MIB}",
        "memory.swap.max": f"{16 * MIB}",
        "memory.oom.group": "1",
        "cpu.weight": "200",
        "cpu.max.burst": "10000",
    }
    natural = dict.fromkeys(first, "0") | {"memory.high": "max", "cpu.weight": "20"}
    second = first | {"memory.high": f"{48 * MIB}", "cpu.weight": natural["cpu.weight"]}
    assert {name: (placed.group / name).read_text().strip() for name in first} == first

    for restart in (partial(world.restart, signal.SIGKILL), world.restart_runtime):
        await restart()
        await _files(placed, first)
        for name, value in natural.items():
            (placed.group / name).write_text(value)
        await _files(placed, first)
    await world.use(OTHERS)
    await _files(placed, second)
    await world.criproxy("release")
    await _files(placed, natural)
    await world.criproxy("release", "--undo")
    await _files(placed, second)
    await world.use("policy: static\nreservedCpus: 0\n")
    await _files(placed, natural)


IDLE = """policy: static
reservedCpus: 0
classes: {idle: {for: {qos: [Burstable]}, cpu: {idle: true}}, burst: {for: {qos: [Guaranteed]}, cpu: {burst: 100%}}}
"""


async def a_resize_meets_an_idle_container_and_one_with_a_burst(world: World) -> None:
    """The kernel refuses a weight while a container is idle, and a quota below its burst: resizes succeed anyway."""
    await world.use(IDLE)
    spec = ContainerSpec("c0", IMAGE, (), 500, 500, memory_request_bytes=32 * MIB, memory_limit_bytes=64 * MIB)
    idle = await world.run(PodSpec("idle", (spec,)))
    owner = ContainerSpec("c0", IMAGE, (), 1500, 1500, memory_request_bytes=64 * MIB, memory_limit_bytes=64 * MIB)
    burst = await world.run(PodSpec("burst", (owner,)))
    await _files(burst, {"cpu.max": "150000 100000", "cpu.max.burst": "150000"})
    for restart in (partial(world.restart, signal.SIGKILL), world.restart_runtime):
        await restart()
        await _files(idle, {"cpu.idle": "1"})
        (idle.group / "cpu.idle").write_text("0")
    await _files(idle, {"cpu.idle": "1"})

    less = api.LinuxContainerResources(cpu_shares=512, cpu_quota=50_000, cpu_period=100_000)
    await world.kubelet.update(burst.container_id, less)
    await _files(burst, {"cpu.max": "50000 100000", "cpu.max.burst": "50000"})
    await world.kubelet.update(idle.container_id, api.LinuxContainerResources(cpu_shares=1024, cpu_period=100_000))
    await _files(idle, {"cpu.idle": "1"})
    await world.use("policy: static\nreservedCpus: 0\n")
    await _files(idle, {"cpu.idle": "0", "cpu.weight": "39"})
    await world.kubelet.update(idle.container_id, api.LinuxContainerResources(cpu_shares=512, cpu_period=100_000))
    await _files(idle, {"cpu.idle": "0", "cpu.weight": "20"})


async def _files(placed: Placed, content: dict[str, str]) -> None:
    """Wait until the files of a container's cgroup have this content."""
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while found != content:
                found = {name: (placed.group / name).read_text().strip() for name in content}
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"{placed} should have {content}, and has {found}") from None


async def a_cpu_that_goes_offline_is_used_again_when_it_is_back(world: World) -> None:
    """Who shares does so on what is left, and is given the CPU back; owners are not touched."""
    sharer, owner = await world.sharer("sharer"), await world.owner("owner", 2)
    shared, owned = sharer.sets.cpus, owner.sets.cpus
    last = max(shared)

    switch = _switch_of(last)
    switch.write_text("0")
    try:
        await world.settles(sharer, shared - {last})
        assert owner.sets.cpus == owned
    finally:
        switch.write_text("1")

    await world.settles(sharer, shared)
    assert owner.sets.cpus == owned


def _switch_of(cpu: int) -> Path:
    """The file that takes a CPU offline with a 0, and back with a 1."""
    return Path(f"/sys/devices/system/cpu/cpu{cpu}/online")


async def isolated_cpus_go_to_owners_of_one(world: World) -> None:
    """Who owns a single CPU gets one that the kernel keeps free, as long as there are any, with its memory."""
    owners = [await world.owner(f"owner{number}", 1) for number in range(3)]

    sets = [owner.sets for owner in owners]
    assert sets[0].cpus | sets[1].cpus == ISOLATED
    assert sets[0].mems == sets[1].mems == world.machine.nodes_of(ISOLATED)
    assert owners[0].heap_nodes == sets[0].mems
    assert not sets[2].cpus & ISOLATED


async def isolated_cpus_are_not_shared(world: World) -> None:
    """Sharers and owners of several CPUs stay off them."""
    sharers = [await world.sharer(f"sharer{number}") for number in range(2)]
    owner = await world.owner("owner", 2)

    for placed in (*sharers, owner):
        assert not placed.sets.cpus & ISOLATED


async def owners_fill_node_after_node(world: World) -> None:
    """Owners of as many CPUs as a node has do not share nodes, and each has the memory of its own."""
    sets = [(await world.owner(f"owner{number}", 2)).sets for number in range(3)]

    nodes = [world.machine.nodes_of(each.cpus) for each in sets]
    assert [len(each) for each in nodes] == [1, 1, 1]
    assert len(frozenset().union(*nodes)) == 3
    assert [each.mems for each in sets] == nodes


async def memory_only_nodes_are_never_all_that_one_has(world: World) -> None:
    """An owner has the ordinary memory of its CPUs' node; who is kept to no node may use all, and starts on DRAM."""
    memory_only = frozenset(world.machine.pmem_nodes)
    owner, sharer = await world.owner("owner", 2), await world.sharer("sharer")

    assert owner.sets.mems - memory_only == world.machine.nodes_of(owner.sets.cpus)
    assert not owner.heap_nodes & memory_only
    assert sharer.sets.mems == world.every_node
    assert not sharer.heap_nodes & memory_only


async def a_release_gives_everybody_everything(world: World) -> None:
    """All CPUs, and the memory of all nodes, memory-only ones included; taken back, the next owner owns again."""
    owner, sharer = await world.owner("owner", 2), await world.sharer("sharer")
    before = len(owner.sets.cpus)

    await world.criproxy("release")
    for placed in (owner, sharer):
        await world.settles(placed, world.machine.chips.cpus)
        assert placed.sets.mems == world.every_node

    await world.criproxy("release", "--undo")
    late = await world.owner("late", 2)
    assert len(late.sets.cpus) == before
    assert not late.sets.cpus & sharer.sets.cpus
