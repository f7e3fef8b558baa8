"""Who only shares and came while the policy was not asked is placed once all is well, and is told of until then."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.api.views.status import summary
from criproxy.api.views.status_check import MAX_NAMED
from criproxy.model.cpuset import CpuSet
from criproxy.node.bypass import BypassMode
from criproxy.node.settings import Promote
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.balloons import BalloonsOptions, BalloonsPolicy
from criproxy.placement.policies.topology_aware import TopologyAwareOptions, TopologyAwarePolicy
from criproxy.simulate.hosts import machine
from lab.kubelet.kubelet import PodSpec
from tests.disks import fill, free
from tests.node.reconcile.test_promotion import wrong
from tests.node.record.test_disk import QUICK as QUICK_DISK
from tests.node.record.test_disk import back
from tests.node.test_bypassed_calls import Placing
from tests.node.world import FAST, STATIC, World, metric, owner, sharer, situation

LIMIT_S = 60.0
QUICK = replace(FAST, promote_pause_s=0.02, promote_quiet_s=0.0)
HURRIED = replace(QUICK_DISK, promote_pause_s=0.02, promote_quiet_s=0.0)
TWO_NODES = machine(nodes=2, cores=4, threads=1)
RESERVED = {"reservedResources": {"cpu": "cpuset:0"}}
SMALL = {"balloonTypes": [{"name": "small", "namespaces": ["default"], "minCPUs": 1}]}
POLICIES: dict[str, Policy] = {
    "static": STATIC,
    "topology-aware": TopologyAwarePolicy(TopologyAwareOptions.model_validate(RESERVED)),
    "balloons": BalloonsPolicy(BalloonsOptions.model_validate(RESERVED | SMALL)),
}


def sharer_of(name: str, milli: int) -> PodSpec:
    """A Burstable pod of one container, ``main``, that asks for that much."""
    pod = sharer(name)
    return replace(pod, containers=(replace(pod.containers[0], cpu_request_milli=milli),))


def place(world: World, key: str) -> tuple[CpuSet, str]:
    """Where a container is to be: its CPUs, and its pool or balloon."""
    grant = world.controller.node.grants[key]
    return grant.cpus, grant.pool


async def come(world: World, pod: PodSpec) -> str:
    """Run *pod* and wait until criproxy knows its container; the id of that."""
    key = await world.run(pod)
    await world.until(lambda: key in world.controller.node.grants)
    return key


async def come_during(trouble: BypassMode | str, world: Placing, pod: PodSpec, disk: Path) -> str:
    """The same while something is wrong, which is over then."""
    if isinstance(trouble, BypassMode):
        world.bypass.set(trouble, "for the test")
        key = await world.run(pod)
        world.bypass.set(BypassMode.OFF, "mended")
    else:
        fill(disk)
        await world.kubelet.stop(await world.run(owner("first")))  # with that it is known to be full
        key = await world.run(pod)
        free(disk)
        await back(world)
    await world.until(lambda: key in world.controller.node.grants)
    return key


def unplaced(world: World) -> list[str]:
    """What status says of those who are not placed."""
    notices = summary(situation(world.controller))["notices"]
    return [each["text"] for each in notices if "without having been placed" in each["text"]]


async def late(world: World) -> str:
    """A container that comes while the policy fails, and is known."""
    container_id = await world.run(sharer("late"))
    await world.until(lambda: container_id in world.controller.node.grants)
    return container_id


async def test_who_shares_is_placed_once_the_policy_answers(tmp_path: Path) -> None:
    """By itself; nothing is wrong then."""
    async with Placing(tmp_path, QUICK) as world:
        world.fragile.broken = True
        await late(world)
        (text,) = unplaced(world)
        assert text.startswith("default/late/main has had shared CPUs since 20")
        assert text.endswith("without having been placed: criproxy was failing when the container was created")
        world.fragile.broken = False
        await world.poll(lambda: unplaced(world) == [])


async def test_it_is_told_of_over_a_restart(tmp_path: Path) -> None:
    """And as long as it lives, where nobody is promoted."""
    async with Placing(tmp_path, replace(QUICK, promote=Promote.OFF)) as world:
        world.fragile.broken = True
        await late(world)
        world.fragile.broken = False
        await world.restart_known()
        assert len(unplaced(world)) == 1


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("trouble", [BypassMode.ORDERED, BypassMode.AUTOMATIC, "disk"])
async def test_who_came_meanwhile_is_where_it_would_be_without(
    tmp_path: Path, disk: Path, trouble: BypassMode | str, name: str
) -> None:
    """In its pool or balloon, on the CPUs of that; nothing is wrong then."""
    (tmp_path / "without").mkdir()
    pod, policy = sharer_of("late", 1500), POLICIES[name]
    async with asyncio.timeout(LIMIT_S):
        async with Placing(tmp_path / "without", policy=policy, topology=TWO_NODES) as world:
            expected = place(world, await come(world, pod))
        async with Placing(tmp_path, HURRIED, policy=policy, topology=TWO_NODES) as world:
            late = await come_during(trouble, world, pod, disk)
            await world.poll(lambda: not world.controller.node.containers[late].missed)
            await world.poll(lambda: world.controller.node.applied[late].cpus == expected[0])
            assert place(world, late) == expected
            assert wrong(world) == []


@pytest.mark.parametrize("trouble", [BypassMode.ORDERED, BypassMode.AUTOMATIC])
async def test_who_came_during_a_bypass_is_told_of_where_nobody_is_promoted(
    tmp_path: Path, trouble: BypassMode
) -> None:
    """One sentence, also where it asks for whole CPUs; the metric counts it."""
    settings, policy = replace(QUICK, promote=Promote.OFF), POLICIES["balloons"]
    async with Placing(tmp_path, settings, policy=policy, topology=TWO_NODES) as world:
        await come_during(trouble, world, owner("late"), tmp_path)
        await world.poll(lambda: world.controller.ready)
        (text,) = wrong(world)
        assert text.startswith("default/late/main has had shared CPUs since 20")
        assert text.endswith("without having been placed: it was created during a bypass")
        assert metric(world.controller, "unpromoted_containers") == 1


async def test_of_many_a_few_are_named(tmp_path: Path) -> None:
    """And the others counted."""
    settings = replace(QUICK, promote=Promote.OFF)
    async with Placing(tmp_path, settings) as world:
        world.bypass.set(BypassMode.AUTOMATIC, "for the test")
        for number in range(MAX_NAMED + 2):
            await come(world, sharer(f"n{number}"))
        told = unplaced(world)
        assert len(told) == MAX_NAMED + 1
        assert told[-1] == "2 more containers share CPUs without having been placed, for similar reasons"
        assert metric(world.controller, "unpromoted_containers") == MAX_NAMED + 2


FEW = {"balloonTypes": [{"name": "few", "namespaces": ["default"], "minCPUs": 1, "maxCPUs": 2, "maxBalloons": 1}]}
NONE = {"balloonTypes": [{"name": "default", "maxCPUs": -1}]}


@pytest.mark.parametrize("before", ["static", "topology-aware"])
@pytest.mark.parametrize(
    ("types", "why"),
    [
        pytest.param(FEW, "no balloon of type few", id="no-room"),
        pytest.param(NONE, "maxCPUs of balloon type default is -1", id="no-default-place"),
    ],
)
async def test_who_fits_no_balloon_after_a_change_for_all_is_told_of(
    tmp_path: Path, before: str, types: dict[str, object], why: str
) -> None:
    """By status, its check, the log and the metric, each with the reason."""
    policy = BalloonsPolicy(BalloonsOptions.model_validate(RESERVED | types))
    async with World(tmp_path, settings=QUICK, policy=POLICIES[before]) as world:
        keys = [await come(world, sharer_of(f"n{number}", 1500)) for number in range(2)]
        settings = replace(world.controller.context.settings, configuration="new", apply_all=True)
        await world.controller.policy_switch.change(policy, settings)
        await world.poll(lambda: world.controller.ready)
        grants = world.controller.node.grants
        homeless = [key for key in keys if not grants[key].pool]
        told = unplaced(world)
        assert len(homeless) == len(told) == metric(world.controller, "unpromoted_containers") > 0
        assert all("the policy had no place for it when criproxy placed all" in text and why in text for text in told)
        assert set(told) <= set(wrong(world))
        await world.poll(lambda: "policy changed" in world.log.events())
        (logged,) = [keys["reasons"] for event, keys in world.log.lines if event == "policy changed"]
        assert "shares CPUs now" in str(logged)
        assert why in str(logged)


async def test_who_fitted_no_balloon_comes_into_one_when_there_is_room(tmp_path: Path) -> None:
    """By itself, and nothing is wrong then."""
    policy = BalloonsPolicy(BalloonsOptions.model_validate(RESERVED | FEW))
    async with World(tmp_path, settings=QUICK) as world:
        keys = {await come(world, sharer_of(f"n{number}", 1500)) for number in range(2)}
        settings = replace(world.controller.context.settings, configuration="new", apply_all=True)
        await world.controller.policy_switch.change(policy, settings)
        (homeless,) = [key for key in keys if not world.controller.node.grants[key].pool]
        (inside,) = keys - {homeless}
        await world.kubelet.stop(inside)
        await world.poll(lambda: place(world, homeless)[1] == "few[0]")
        await world.poll(lambda: wrong(world) == [])
