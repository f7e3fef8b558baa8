"""A resize by the kubelet ends with the new size and our cpuset; what cannot be is refused, and nothing has changed."""

import asyncio
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode
from criproxy.model.resources import milli_to_quota, milli_to_shares
from criproxy.node.calls import update
from lab.emulator.runtime import RuntimeOptions
from lab.kubelet.kubelet import MiniKubelet
from tests.node.failing import plant_failure
from tests.node.world import GIB, Slow, World, owner, refusal, sharer


def size(cpu_milli: int, memory_bytes: int = GIB) -> api.LinuxContainerResources:
    """What the kubelet sends for a container of a Guaranteed pod: everything but a cpuset."""
    return api.LinuxContainerResources(
        cpu_shares=milli_to_shares(cpu_milli),
        cpu_quota=milli_to_quota(cpu_milli),
        cpu_period=100_000,
        memory_limit_in_bytes=memory_bytes,
        oom_score_adj=-997,
    )


async def test_an_owner_grows_and_shrinks_where_it_is(world: World) -> None:
    """Others make room before it grows, and get the CPUs back after it shrank."""
    shared = await world.run(sharer("shared"))
    owned = await world.run(owner("owner", 1))

    await world.kubelet.update(owned, size(3000))
    await world.until(lambda: world.cpus(owned) == "1-3")
    assert world.cpus(shared) == "0"

    await world.kubelet.update(owned, size(2000))
    assert world.cpus(owned) == "1-2"
    await world.until(lambda: world.cpus(shared) == "0,3")
    resources = (await world.client.container_status(owned)).status.resources.linux
    assert (resources.cpu_shares, resources.cpu_quota) == (milli_to_shares(2000), 200_000)


async def test_cpu_and_memory_come_in_two_calls(world: World) -> None:
    """The second call finds the cpuset of the first in force, and both sizes are remembered over a restart."""
    owned = await world.run(owner("owner", 1))

    await world.kubelet.update(owned, size(2000))
    await world.kubelet.update(owned, size(2000, 2 * GIB))
    await world.until(lambda: world.cpus(owned) == "1-2")
    await world.restart()

    container = world.controller.node.containers[owned]
    assert (container.cpu_milli, container.cpu_limit_milli, container.memory_limit_bytes) == (2000, 2000, 2 * GIB)
    assert container.memory_request_bytes is not None
    assert container.memory_request_bytes.low == container.memory_request_bytes.high == 2 * GIB
    assert world.cpus(owned) == "1-2"


async def test_an_owner_becomes_a_sharer_and_an_owner_again(world: World) -> None:
    """What it owned is there for all while it asks for no whole number of CPUs."""
    shared = await world.run(sharer("shared"))
    owned = await world.run(owner("owner", 2))

    await world.kubelet.update(owned, size(1500))
    await world.until(lambda: world.cpus(owned) == world.cpus(shared) == "0-3")

    await world.kubelet.update(owned, size(1000))
    await world.until(lambda: (world.cpus(owned), world.cpus(shared)) == ("1", "0,2-3"))


async def test_a_resize_that_does_not_fit_is_refused(world: World) -> None:
    """The kubelet is told why; the runtime hears nothing, and everybody stays where they are."""
    first = await world.run(owner("first", 1))
    await world.run(owner("second", 1))

    caught = await refusal(world.kubelet.update(first, size(3000)))

    assert caught.code is StatusCode.RESOURCE_EXHAUSTED
    assert "default/first/main asks for 3 exclusive CPUs, but only 2 are available" in caught.details
    resources = (await world.client.container_status(first)).status.resources.linux
    assert resources.cpu_quota == 100_000
    assert world.controller.node.containers[first].cpu_milli == 1000
    await world.kubelet.update(first, size(2000))
    await world.until(lambda: world.cpus(first) == "1,3")


async def test_a_resize_takes_the_cpus_of_who_has_ended_unnoticed(world: World) -> None:
    """Before it is refused, the runtime is asked who has exited."""
    ended = await world.run(owner("ended", 2))
    growing = await world.run(owner("growing", 1))
    await world.rested()  # whoever is being read is not believed to have ended
    world.runtime.exit_container(ended)

    await world.kubelet.update(growing, size(3000))

    await world.until(lambda: world.cpus(growing) == "1-3")


async def test_a_resize_of_who_has_ended_itself_does_not_hang(world: World) -> None:
    """It does not fit, and asking who has exited finds that it has: the runtime's answer goes to the kubelet."""
    await world.run(owner("other", 1))
    ended = await world.at_rest(owner("ended", 1))
    world.runtime.exit_container(ended)

    await world.kubelet.update(ended, size(3000))

    assert ended not in world.controller.node.grants


async def test_a_resize_that_the_runtime_refuses_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure reaches the kubelet, and the container has its old size and CPUs; one of ours leaves no lock."""
    without = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with World(tmp_path, without) as world:
        owned = await world.run(owner("owner", 1))

        assert (await refusal(world.kubelet.update(owned, size(2000)))).code is StatusCode.UNIMPLEMENTED
        await world.until(lambda: world.controller.node.containers[owned].cpu_milli == 1000)
        assert world.owned() == {1}
        assert world.cpus(owned) == "1"

        plant_failure(monkeypatch, update, "believe")
        await refusal(world.kubelet.update(owned, size(2000)))
        await world.poll(lambda: not world.controller.context.locks.busy(owned))


async def test_a_refused_shrink_whose_cpus_others_have_by_then_is_made_good(tmp_path: Path, slow: Slow) -> None:
    """The kubelet may take the resize back, and does not ask for what it believes in force."""
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        owned = await world.at_rest(owner("owner", 3))
        slow.hold("UpdateContainerResources")
        refused = asyncio.create_task(world.kubelet.update(owned, api.LinuxContainerResources(cpu_shares=1)))
        await world.until(lambda: not world.owned())
        other = await world.kubelet.run_sandbox(owner("other", 2))
        await world.kubelet.create(owner("other", 2), other, owner("other", 2).containers[0])
        slow.let_go("UpdateContainerResources")

        await refusal(refused)

        await world.until(lambda: world.controller.node.containers[owned].desired is not None)
        await world.kubelet.remove_pod(other)
        await world.until(lambda: world.controller.node.containers[owned].cpu_milli == 3000)
        await world.poll(lambda: world.cpus(owned) == "1-3")


async def test_who_shares_and_gets_more_memory_just_gets_it(world: World) -> None:
    """One that was found running with four CPUs in its limit shares; more memory asks nobody for CPUs of its own."""
    sandbox_id = await MiniKubelet(world.direct).run_sandbox(found := owner("found", 4))
    shared = await MiniKubelet(world.direct).create(found, sandbox_id, found.containers[0])
    await MiniKubelet(world.direct).start(shared)
    world.controller.runtime_lost()
    await world.until(lambda: shared in world.controller.node.grants)
    owned = await world.run(owner("owner", 2))
    await world.until(lambda: world.cpus(shared) == "0,3")

    await world.kubelet.update(shared, size(4000, 2 * GIB))

    assert (world.cpus(shared), world.cpus(owned)) == ("0,3", "1-2")
    resources = (await world.client.container_status(shared)).status.resources.linux
    assert resources.memory_limit_in_bytes == 2 * GIB
