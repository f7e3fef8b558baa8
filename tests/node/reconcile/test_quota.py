"""Who owns its CPUs runs without CFS quota if the policy file says so; the kubelet hears what it asked for."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.stamp import read_stamp
from criproxy.daemon.offline_release import release
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from criproxy.wire.calls import Table
from tests.clocks import skip
from tests.node.calls.test_update import size
from tests.node.world import FAST, STATIC, World, owner, refusal, sharer
from tests.sysfs import write_sysfs

LIFT = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0", "cpuQuota": "lift"}))
WATCHFUL = replace(FAST, drift_period_s=0.05)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved, with ``cpuQuota: lift``."""
    async with World(tmp_path, policy=LIFT, settings=WATCHFUL) as world:
        yield world


async def in_force(world: World, container_id: str) -> int:
    """The quota by the runtime's own words."""
    return (await world.direct.container_status(container_id)).status.resources.linux.cpu_quota


async def told(world: World, container_id: str) -> int:
    """The quota that the kubelet is told."""
    return (await world.client.container_status(container_id)).status.resources.linux.cpu_quota


def kernel_quota(root: Path, container_id: str) -> str:
    """What the cgroup of a running container says."""
    return quota_file(root, container_id).read_text().strip()


def quota_file(root: Path, container_id: str) -> Path:
    """Where its cgroup says that."""
    (file,) = (path / "cpu.cfs_quota_us" for path in (root / "sys/fs/cgroup/cpu").rglob(container_id))
    return file


def edits(world: World) -> set[str]:
    """The methods whose replies are edited."""
    table: Table = world.controller.table()
    return {path.rpartition("/")[2] for path, rule in table.items() if rule.edit}


EDITED = {"ContainerStatus", "PodSandboxStatus", "GetContainerEvents"}


async def at_rest(world: World) -> None:
    """Nothing reads cgroups but the passes over them: another reader mends what is foreign, and does not count it."""
    resync = world.controller.resync
    await world.poll(lambda: world.controller.ready and not (resync._wanted or resync._one.locked()))
    await world.rested()


async def use(world: World, policy: Policy, *, apply_all: bool = False) -> None:
    """Change the policy file while criproxy runs."""
    name = f"another than {world.controller.context.settings.configuration}"
    settings = replace(world.controller.context.settings, configuration=name, apply_all=apply_all)
    await world.controller.policy_switch.change(policy, settings)


async def test_an_owner_has_no_quota_and_the_kubelet_hears_of_one(world: World, tmp_path: Path) -> None:
    """In the kernel and the runtime there is none; in all three replies there is what was asked."""
    sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 2))
    owned = ids["main"]

    assert (kernel_quota(tmp_path, owned), await in_force(world, owned)) == ("-1", -1)
    assert await told(world, owned) == 200_000
    reply = await world.client.pod_sandbox_status(sandbox_id)
    assert [each.resources.linux.cpu_quota for each in reply.containers_statuses] == [200_000]
    status = (await world.direct.container_status(owned)).status
    stamp = read_stamp(status.annotations)
    assert stamp
    assert (stamp.cpu_quota_us, stamp.cpu_period_us) == (200_000, 100_000)


async def test_an_event_that_cannot_be_read_is_passed_on(world: World) -> None:
    """It is the runtime's fault, so nothing is wrong with criproxy; it is counted, and later events are edited."""
    heard = asyncio.create_task(first_quotas(world))
    await world.poll(lambda: world.runtime.core.events.listeners == 2)

    lifted = api.LinuxContainerResources(cpu_quota=-1)  # others are not looked at
    world.runtime.core.events.send(lifted.SerializeToString() + b"no event")

    await refusal(heard, "cannot be read")
    assert world.proxy.stats.unreadable == 1
    assert not world.controller.context.failures.recent()
    quotas = asyncio.create_task(first_quotas(world))
    await world.poll(lambda: world.runtime.core.events.listeners == 2)
    await world.run(owner("owner", 1))
    assert await quotas == [100_000]


async def first_quotas(world: World) -> list[int]:
    """What the first event that tells of a container says to the kubelet."""
    async for event in world.client.container_events():
        if event.containers_statuses:
            return [each.resources.linux.cpu_quota for each in event.containers_statuses]
    return []


async def test_who_stops_to_own_gets_its_quota_with_the_cpus(world: World, tmp_path: Path) -> None:
    """Shared CPUs and no quota never go together; and as an owner again, it has none again."""
    owned = await world.run(owner("owner", 2))

    await world.kubelet.update(owned, size(1500))
    assert (world.cpus(owned), kernel_quota(tmp_path, owned), await told(world, owned)) == ("0-3", "150000", 150_000)

    await world.kubelet.update(owned, size(1000))
    await world.until(lambda: world.controller.node.applied[owned].lifted is True)
    assert (world.cpus(owned), kernel_quota(tmp_path, owned), await told(world, owned)) == ("1", "-1", 100_000)


async def test_replies_are_edited_for_as_long_as_a_quota_is_lifted(world: World) -> None:
    """Lift switched off, those that run without quota go on so; with the last of them all replies pass as they are."""
    sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 1))
    await use(world, STATIC)
    assert (edits(world), await told(world, ids["main"]), await in_force(world, ids["main"])) == (EDITED, 100_000, -1)

    await world.kubelet.remove_pod(sandbox_id)
    await world.poll(lambda: not edits(world))


async def test_a_release_gives_quotas_back(world: World, tmp_path: Path) -> None:
    """With all CPUs comes the limit that was asked for, and replies pass as they are."""
    owned, shared = await world.run(owner("owner", 2)), await world.run(sharer("shared"))

    answer = await world.controller.policy_switch.release("test")

    assert {row["outcome"] for row in answer["containers"]} == {"released"}
    assert (world.cpus(owned), kernel_quota(tmp_path, owned)) == ("0-3", "200000")
    assert (await in_force(world, owned), await in_force(world, shared)) == (200_000, 0)
    await world.poll(lambda: not edits(world))
    await world.controller.policy_switch.undo()
    assert (await in_force(world, owned), await told(world, owned)) == (-1, 200_000)


@pytest.mark.parametrize("lost", [False, True], ids=["known", "database-lost"])
async def test_a_release_gives_quotas_back_with_the_daemon_dead(world: World, tmp_path: Path, *, lost: bool) -> None:
    """By what the store knows or, without it, by the stamp."""
    owned = await world.run(owner("owner", 2))
    await world.stop_criproxy()
    if lost:
        lose(tmp_path)

    write_sysfs(tmp_path, machine(nodes=1, cores=4, threads=1))

    answer = await release(tmp_path / "state", f"unix://{world.runtime.path}", tmp_path, world.log)

    assert [row["outcome"] for row in answer["containers"]] == ["released"]
    assert (world.cpus(owned), await in_force(world, owned)) == ("0-3", 200_000)
    await world.start_criproxy()


@pytest.mark.parametrize("lost", [False, True], ids=["known", "database-lost"])
@pytest.mark.parametrize("policy", [LIFT, STATIC], ids=["lift", "keep"])
async def test_a_restart_changes_nothing(world: World, tmp_path: Path, policy: Policy, *, lost: bool) -> None:
    """Who runs without quota goes on so, and what it asked for is known: from the store, else from its stamp."""
    owned = await world.run(owner("owner", 2))
    await world.stop_criproxy()
    if lost:
        lose(tmp_path)
    world.use(policy)
    await world.start_criproxy()
    await world.until(lambda: owned in world.controller.node.applied)

    assert (await in_force(world, owned), await told(world, owned)) == (-1, 200_000)
    await world.kubelet.update(owned, size(1500))
    assert (await in_force(world, owned), await told(world, owned)) == (150_000, 150_000)


async def test_a_quota_that_somebody_sets_is_lifted_again(world: World, tmp_path: Path) -> None:
    """Found in the cgroup, like a foreign cpuset; whose quota was never lifted is nobody's business."""
    owned, shared = await world.run(owner("owner", 1)), await world.run(sharer("shared"))
    await world.poll(lambda: world.groups() == {owned, shared})
    await at_rest(world)

    for container_id in (owned, shared):
        foreign = api.LinuxContainerResources(cpu_quota=50_000, cpu_period=100_000)
        await world.direct.update_container_resources(container_id, foreign)

    await world.poll(lambda: kernel_quota(tmp_path, owned) == "-1")
    await world.poll(lambda: world.counters.drift_repaired == 1)
    assert kernel_quota(tmp_path, shared) == "50000"
    assert "another program changed the CFS quota of a container" in world.log.events()


async def test_the_same_quota_again_and_again_is_left_for_a_while(tmp_path: Path) -> None:
    """It harms nobody else: after three times the pauses grow."""
    async with World(tmp_path, policy=LIFT, settings=WATCHFUL) as world:
        owned = await world.run(owner("owner", 1))
        await world.poll(lambda: owned in world.groups())
        await at_rest(world)
        foreign = api.LinuxContainerResources(cpu_quota=50_000, cpu_period=100_000)
        for number in (1, 2):
            await world.direct.update_container_resources(owned, foreign)
            await world.poll(lambda: world.counters.drift_repaired == number)  # noqa: B023 (called at once)
            assert kernel_quota(tmp_path, owned) == "-1"

        in_force, pause_s = world.controller.context.in_force, 30.0
        quota_file(tmp_path, owned).write_text("50000\n")
        in_force.settings = replace(in_force.settings, drift_period_s=pause_s)  # at once: the next pass has begun
        await world.poll(lambda: world.counters.drift_found == 3)

        assert kernel_quota(tmp_path, owned) == "50000"
        await world.poll(lambda: not world.controller.context.locks.busy(owned))
        skip(pause_s)
        await world.poll(lambda: kernel_quota(tmp_path, owned) == "-1")


def lose(directory: Path) -> None:
    """Take the database away."""
    for path in (directory / "state").glob("criproxy.db*"):
        path.unlink()
