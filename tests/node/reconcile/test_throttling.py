"""How long containers were throttled: from their start, or from when criproxy found them, by what is in force."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.host.container_use import Throttling
from criproxy.model.machine.controllable import Controllable
from criproxy.node.reconcile.throttling import Observed, Share
from lab.emulator.runtime import IMAGE, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import Slow, World, owner
from tests.placement.classes.policy import contents

POLICY = "policy: topology-aware\nclasses: {batch: {for: {qos: [Burstable]}, cpu: {burst: idle}}}\n"
PODS = (ContainerSpec("main", IMAGE, cpu_request_milli=600, cpu_limit_milli=800),)


@pytest.fixture
async def world(tmp_path: Path, slow: Slow) -> AsyncIterator[World]:
    """Four CPUs, none reserved, and a class with a burst."""
    settings = contents(POLICY, Controllable()).settings
    assert settings is not None
    async with World(tmp_path, RuntimeOptions(latency_s=slow), policy=settings.build_policy()) as world:
        yield world


def count(root: Path, container_id: str, throttled_ms: int) -> None:
    """Make the kernel count so much of a container, and twice as much of its pod, which has a limit of a CPU."""
    (group,) = (path for path in (root / "sys/fs/cgroup/cpu").rglob(container_id) if path.is_dir())
    text = "nr_periods 9\nnr_throttled 5\nthrottled_time {}\n"
    (group / "cpu.stat").write_text(text.format(throttled_ms * 1_000_000))
    (group.parent / "cpu.stat").write_text(text.format(2 * throttled_ms * 1_000_000))
    (group.parent / "cpu.cfs_quota_us").write_text("100000\n")
    (group.parent / "cpu.cfs_period_us").write_text("100000\n")


async def observed(world: World, container_id: str) -> Observed:
    """What is known of a container."""
    found = await world.controller.throttling.of(container_id)
    assert found
    return found


def throttled_us(found: Observed) -> list[int | None]:
    """While its limit was in force, and while it was lifted."""
    return [found.shares[lifted].throttled_us for lifted in (False, True)]


async def test_before_and_after(world: World, tmp_path: Path) -> None:
    """What was counted before a change counts for what was in force then; a container that ended is forgotten."""
    ours = await world.run(PodSpec("batch", PODS))
    count(tmp_path, ours, 1)
    found = await observed(world, ours)
    assert (found.lifted, throttled_us(found)) == (True, [0, 1000])

    sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 3))
    await world.poll(lambda: world.controller.throttling._watches[ours].lifted is False)
    count(tmp_path, ours, 31)
    found = await observed(world, ours)
    assert (found.lifted, throttled_us(found)) == (False, [30_000, 1000])
    assert found.now == Throttling(throttled_us=31_000, throttled_periods=5, periods=9)
    assert found.pod
    assert found.pod.quota
    assert found.pod.throttling
    assert (found.pod.quota.quota_us, found.pod.throttling.throttled_us) == (100_000, 62_000)

    assert await world.controller.throttling.of(ids["main"]) is None  # it has no class
    await world.kubelet.remove_pod(sandbox_id)
    await world.poll(lambda: world.controller.throttling._watches[ours].lifted is True)
    await world.kubelet.stop(ours)
    await world.poll(lambda: ours not in world.controller.throttling._watches)
    assert await world.controller.throttling.of(ours) is None


async def test_what_is_counted_while_the_limit_is_restored_is_due_to_it(
    world: World, slow: Slow, tmp_path: Path
) -> None:
    """The kernel enforces it before the runtime has answered."""
    ours = await world.run(PodSpec("batch", PODS))
    count(tmp_path, ours, 1)
    assert throttled_us(await observed(world, ours)) == [0, 1000]  # its cgroup is known
    slow.hold("UpdateContainerResources")
    await world.created(owner("owner", 3))
    await slow.asked.wait()
    count(tmp_path, ours, 31)
    assert throttled_us(await observed(world, ours)) == [0, 1000], "not known to be in force"

    slow.let_go("UpdateContainerResources")
    await world.poll(lambda: world.controller.throttling._watches[ours].lifted is False)
    assert throttled_us(await observed(world, ours)) == [30_000, 1000]


async def test_what_was_before_a_restart_is_unknown(world: World, tmp_path: Path) -> None:
    """It counts from when criproxy knows the container again."""
    ours = await world.run(PodSpec("batch", PODS))
    count(tmp_path, ours, 7)
    before = await observed(world, ours)
    await world.restart_known()
    await observed(world, ours)
    count(tmp_path, ours, 9)
    found = await observed(world, ours)
    assert throttled_us(found) == [0, 2000]
    assert found.since_s > before.since_s


async def test_what_cannot_be_read_is_unknown(world: World) -> None:
    """And is no failure; the pod's limit, too."""
    ours = await world.run(PodSpec("batch", PODS))
    found = await observed(world, ours)
    assert (throttled_us(found), found.now, found.pod) == ([0, None], None, None)
    assert not world.controller.context.failures.recent()


def test_what_was_unknown_once_stays_so() -> None:
    """A sum with an unknown part is unknown; its seconds are not."""
    known, nothing = Throttling(throttled_us=5), Throttling()
    share = Share().plus(1, nothing, known)
    assert share == Share(1, 5)
    assert share.plus(2, None, known).plus(1, nothing, known) == Share(4, None)
