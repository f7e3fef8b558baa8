"""A resize for which there is no room: said once, shown until it is done, and no trap for the container's restart."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.api.views.status import summary
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.grant import NO_CPUS
from criproxy.model.record import Kind
from criproxy.model.workload import ContainerState
from criproxy.placement.policies import BUILTIN
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.calls.test_update import size
from tests.node.world import FAST, GIB, World, owner, said, situation

TIMES = 12


@pytest.fixture(params=["static", "topology-aware"])
async def world(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[World]:
    """Four CPUs, of which CPU 0 is reserved."""
    entry = BUILTIN[request.param]
    policy = entry.build(entry.options.model_validate({"reservedCpus": "0"}))
    async with World(tmp_path, None, FAST, policy) as world:
        yield world


async def refused(world: World, container_id: str, cpus: int = 3, memory_bytes: int = GIB, times: int = 1) -> str:
    """Resize as a kubelet that repeats what is refused; returns the last refusal."""
    text = ""
    for _ in range(times):
        with pytest.raises(RuntimeCallError) as caught:
            await world.kubelet.update(container_id, size(1000 * cpus, memory_bytes))
        text = caught.value.details
    return text


async def grown(world: World) -> tuple[str, str, str]:
    """Of three CPUs for exclusive use, `growing` has one and `other` has one; returns their ids and a sandbox's."""
    other = await world.run(owner("other", 1))
    sandbox_id, ids = await world.kubelet.run_pod(owner("growing", 1))
    return other, ids["main"], sandbox_id


async def restarted(world: World, sandbox_id: str, container_id: str, cpus: int, attempt: int = 1) -> str:
    """The container ends, and the kubelet makes it anew with the size that is in the pod by now; returns its id."""
    world.runtime.exit_container(container_id, exit_code=1)
    await world.until(lambda: world.controller.node.containers[container_id].state is ContainerState.EXITED)
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=GIB)
    created = await world.kubelet.create(PodSpec("growing", (spec,)), sandbox_id, spec, attempt)
    await world.kubelet.start(created)
    return created


async def begin_again(world: World) -> None:
    """Criproxy ends and starts, and knows what runs."""
    await world.restart_known()


def exclusive(world: World, key: str) -> int:
    """How many CPUs it has for itself."""
    grant = world.controller.node.grants.get(key)
    return len(grant.exclusive if grant else NO_CPUS)


async def test_it_is_said_once_however_often_the_kubelet_repeats_it(world: World) -> None:
    """One line of the log, a few entries of the history; each one is counted."""
    _, growing, _ = await grown(world)
    assert "asks for 3 exclusive CPUs" in await refused(world, growing, times=TIMES)

    assert world.log.events().count("resize refused") == 1
    records = await world.controller.context.state.find_history(growing)
    told = [record for record in records if record.kind in (Kind.RESIZED, Kind.CONSIDERED)]
    assert len([record for record in told if record.kind is Kind.RESIZED]) == 2
    assert len([record for record in told if record.kind is Kind.CONSIDERED]) <= 2  # that of its create, and one
    assert world.counters.resizes_refused == TIMES


async def test_status_shows_it_with_the_sizes(world: World) -> None:
    """Among the refusals, and ``--check`` has a sentence for it."""
    _, growing, _ = await grown(world)
    await refused(world, growing, 3, 2 * GIB, times=3)

    (listed,) = summary(situation(world.controller))["refusals"]
    assert (listed["container"], listed["times"]) == ("default/growing/main", 3)
    assert "3 CPUs and 2 GiB" in listed["text"]
    assert "1 CPU and 1 GiB" in listed["text"]
    (sentence,) = said(world)
    assert sentence.startswith("default/growing/main should have 3 CPUs and 2 GiB, but has 1 CPU and 1 GiB")


async def test_another_refused_size_is_another_thing_to_say(world: World) -> None:
    """It takes the place of the one before; when the kubelet says the size that the container has, it is forgotten."""
    _, growing, _ = await grown(world)
    await refused(world, growing, 3, times=2)
    await refused(world, growing, 4, times=2)
    assert world.log.events().count("resize refused") == 2
    (sentence,) = said(world)
    assert "4 CPUs" in sentence
    await world.kubelet.update(growing, size(1000))
    assert said(world) == []


async def test_the_kubelet_gets_it_when_there_is_room(world: World) -> None:
    """Nothing is left to say then."""
    other, growing, _ = await grown(world)
    await refused(world, growing, 3)
    await world.kubelet.stop_sandbox(world.controller.node.containers[other].pod)
    await world.kubelet.update(growing, size(3000))
    await world.until(lambda: exclusive(world, growing) == 3)
    assert said(world) == []
    assert summary(situation(world.controller))["refusals"] == []


async def test_a_resize_that_the_kubelet_does_not_repeat_was_taken_back(world: World) -> None:
    """It makes no call for a pod that asks again for what it has."""
    _, growing, _ = await grown(world)
    await refused(world, growing, 3)
    world.use(world._policy, resize_silence_s=0.0)
    await begin_again(world)
    await world.until(lambda: world.controller.node.containers[growing].desired is None)
    assert said(world) == []


async def test_nothing_is_kept_of_who_has_gone(world: World) -> None:
    """Also where nobody asks for the status of the node."""
    other, growing, _ = await grown(world)
    await refused(world, growing, 3)
    await world.kubelet.remove_pod(world.controller.node.containers[growing].pod)
    await world.until(lambda: growing not in world.controller.node.containers)

    await refused(world, other, 4)

    assert set(world.controller.refused_resizes._refusals) == {other}


async def test_it_is_known_over_a_restart_of_criproxy(world: World) -> None:
    """And still said only once."""
    _, growing, _ = await grown(world)
    await refused(world, growing, 3, times=2)
    await begin_again(world)
    (sentence,) = said(world)
    assert "should have 3 CPUs" in sentence
    await refused(world, growing, 3, times=2)
    assert world.log.events().count("resize refused") == 1


async def test_a_container_that_restarts_gets_what_it_had_and_grows_later(world: World) -> None:
    """Its create asks for the refused size; the kubelet believes that it has it, and does not ask again."""
    other, growing, sandbox_id = await grown(world)
    await refused(world, growing, 3)

    again = await restarted(world, sandbox_id, growing, 3)

    assert exclusive(world, again) == 1
    (sentence,) = said(world)
    assert sentence.startswith("default/growing/main should have 3 CPUs and 1 GiB, but has had 1 CPU and 1 GiB")
    assert "grows when there is room" in sentence
    resources = (await world.client.container_status(again)).status.resources.linux
    assert resources.cpu_quota == 300_000
    await world.kubelet.stop_sandbox(world.controller.node.containers[other].pod)
    await world.until(lambda: exclusive(world, again) == 3)
    await world.poll(lambda: world.cpus(again) == "1-3")
    assert said(world) == []


async def test_a_second_restart_changes_nothing_of_it(world: World) -> None:
    """Nor does a restart of criproxy."""
    other, growing, sandbox_id = await grown(world)
    await refused(world, growing, 3)
    again = await restarted(world, sandbox_id, growing, 3)
    await begin_again(world)
    third = await restarted(world, sandbox_id, again, 3, attempt=2)
    assert exclusive(world, third) == 1
    assert len(said(world)) == 1
    await begin_again(world)
    assert len(said(world)) == 1
    await world.kubelet.stop_sandbox(world.controller.node.containers[other].pod)
    await world.until(lambda: exclusive(world, third) == 3)
    assert said(world) == []


async def test_who_never_asked_before_is_refused_as_ever(world: World) -> None:
    """A restart with a size of which no resize was refused gets no smaller place."""
    _, growing, sandbox_id = await grown(world)
    with pytest.raises(RuntimeCallError, match="asks for 3 exclusive CPUs"):
        await restarted(world, sandbox_id, growing, 3)
