"""Where no container is moved before it runs: who starts unasked, and outside of its place, is told."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.model.text.notices import timestamp
from criproxy.model.workload import ContainerState
from lab.kubelet import kubelet
from tests.node.sync.test_unseen import known, told
from tests.node.world import NO_EVENTS, NO_LOOKS, Slow, World, cut, owner, sharer

ALL, FREE = "0-3", "0,2-3"


@pytest.fixture
async def world(tmp_path: Path, slow: Slow) -> AsyncIterator[World]:
    """A node on which only what runs is moved, and nothing happens by itself."""
    options, settings = replace(NO_EVENTS, latency_s=slow), replace(NO_LOOKS, moves_created=False)
    async with World(tmp_path, options, settings) as world:
        yield world


async def start_past(world: World, *ids: str) -> None:
    """Start containers as a kubelet does that calls the runtime itself."""
    world.kubelet._client = world.direct
    for each in ids:
        await world.kubelet.start(each)
    world.kubelet._client = world.client


async def started(world: World, container_id: str) -> str:
    """When it started, as the history writes times."""
    return timestamp((await world.direct.container_status(container_id)).status.started_at / 1e9)


@pytest.mark.parametrize("is_first", [True, False])
async def test_who_started_on_the_cpus_of_an_owner_is_told(world: World, *, is_first: bool) -> None:
    """From its start to its move, whoever started first; the owner, which is where it belongs, is not."""
    _, shared = await world.created(sharer("shared"))
    _, owned = await world.created(owner("owner"))
    await world.stop_criproxy()
    await start_past(world, *([shared, owned] if is_first else [owned, shared]))

    await world.start_criproxy()

    await world.poll(lambda: (world.cpus(shared), world.cpus(owned)) == (FREE, "1"))
    await world.until(lambda: known(world, shared).missed is None)
    text, lasted_s = await told(world, shared)
    assert text.startswith(f"it ran without having been placed from {await started(world, shared)} to ")
    assert 0 < lasted_s == pytest.approx(world.counters.unplaced_s, abs=0.1)
    assert known(world, owned).missed is None


async def test_who_had_not_left_yet_when_an_owner_started_is_told(world: World, slow: Slow) -> None:
    """From the start of the owner on."""
    shared = await world.run(sharer("shared"))
    slow.hold("UpdateContainerResources")
    _, owned = await world.created(owner("owner"))
    await slow.asked.wait()
    await world.stop_criproxy()
    await start_past(world, owned)
    assert world.cpus(shared) == ALL

    await world.start_criproxy()
    await world.until(lambda: known(world, shared).missed is not None)
    slow.let_go("UpdateContainerResources")

    await world.until(lambda: known(world, shared).missed is None and world.cpus(shared) == FREE)
    text, _ = await told(world, shared)
    assert text.startswith(f"it ran without having been placed from {await started(world, owned)} to ")


@pytest.mark.parametrize("is_cut", [False, True], ids=["nobody-asked", "the-answer-was-lost"])
async def test_who_has_ended_before_it_is_seen_is_told(world: World, slow: Slow, *, is_cut: bool) -> None:
    """Once, with the times of the runtime; whether or not criproxy had let it start, when no owner ran."""
    _, shared = await world.created(sharer("shared"))
    await world.created(owner("owner"))
    if is_cut:
        slow.hold("StartContainer")
        slow.hold("UpdateContainerResources")
        await cut(world.kubelet.start(shared), slow)
        await world.until(lambda: known(world, shared).state is ContainerState.UNKNOWN)
    await world.stop_criproxy()
    if is_cut:
        slow.let_go("StartContainer")
        await world.poll(lambda: world.runtime.core.records.container(shared).started_ns > 0)
    else:
        await start_past(world, shared)
    world.runtime.exit_container(shared)

    if is_cut:
        slow.let_go("UpdateContainerResources")
    await world.start_criproxy()
    await world.until(lambda: known(world, shared).state is ContainerState.EXITED)
    await world.controller.resync.again()

    text, _ = await told(world, shared)
    assert text.startswith(f"it ran without having been placed from {await started(world, shared)} to ")
    assert text.endswith("; it ended before criproxy saw it")


@pytest.mark.parametrize("has_ended", [False, True], ids=["runs", "has-ended"])
async def test_who_has_only_a_reservation_when_it_starts_is_told(world: World, slow: Slow, *, has_ended: bool) -> None:
    """The answer to its create was lost; lists show whose place it has when it has started already."""
    sandbox = await world.kubelet.run_sandbox(pod := sharer("shared"))
    slow.hold("CreateContainer")
    await cut(world.kubelet.create(pod, sandbox, pod.containers[0]), slow)
    slow.let_go("CreateContainer")
    await world.poll(lambda: bool(world.runtime.core.records.containers))
    (shared,) = world.runtime.core.records.containers
    await world.created(owner("owner"))
    await world.stop_criproxy()
    await start_past(world, shared)
    assert world.cpus(shared) == ALL
    if has_ended:
        world.runtime.exit_container(shared)

    await world.start_criproxy()

    await world.until(lambda: shared in world.controller.node.containers)
    if has_ended:
        await world.until(lambda: known(world, shared).state is ContainerState.EXITED)
    else:
        await world.until(lambda: world.cpus(shared) == FREE and known(world, shared).missed is None)
    text, _ = await told(world, shared)
    assert text.startswith(f"it ran without having been placed from {await started(world, shared)} to ")
    assert text.endswith("; it ended before criproxy saw it") is has_ended


@pytest.mark.parametrize("has_ended", [False, True], ids=["runs", "has-ended"])
async def test_an_owner_that_nobody_asked_about_is_told_from_its_start_on(world: World, *, has_ended: bool) -> None:
    """It was known as created, which is no time in which it ran."""
    await world.created(owner("before"))
    await world.stop_criproxy()
    world.kubelet._client = world.direct
    _, past = await world.created(owner("past"))
    world.kubelet._client = world.client
    await world.start_criproxy()
    await world.until(lambda: past in world.controller.node.grants and known(world, past).missed is not None)
    await world.controller.resync.again()
    assert world.counters.unplaced_s == 0
    await world.stop_criproxy()
    await start_past(world, past)
    assert world.cpus(past) == ALL
    if has_ended:
        world.runtime.exit_container(past)

    await world.start_criproxy()

    if has_ended:
        await world.until(lambda: known(world, past).state is ContainerState.EXITED)
    else:
        await world.until(lambda: world.cpus(past) == "2" and known(world, past).missed is None)
    text, lasted_s = await told(world, past)
    assert text.startswith(f"it ran without having been placed from {await started(world, past)} to ")
    await world.poll(lambda: world.counters.unplaced_s > 0)
    if has_ended:
        status = (await world.direct.container_status(past)).status
        lasted_s = (status.finished_at - status.started_at) / 1e9
    assert world.counters.unplaced_s == pytest.approx(lasted_s, abs=0.1)


async def test_who_is_made_after_its_place_was_given_away_is_told(world: World, slow: Slow) -> None:
    """A create that took longer than criproxy waited for it; both ran on the CPU of the other."""
    in_force = world.controller.context.in_force
    in_force.settings = replace(in_force.settings, create_pause_s=0.01)
    sandbox = await world.kubelet.run_sandbox(pod := owner("late"))
    slow.hold("CreateContainer")
    await cut(world.kubelet.create(pod, sandbox, pod.containers[0]), slow)
    await world.until(lambda: not world.controller.node.grants)
    slow.let_go("CreateContainer")
    await world.poll(lambda: len(world.runtime.core.records.containers) == 1)
    (late,) = world.runtime.core.records.containers
    owned = await world.run(owner("owner"))
    assert world.cpus(owned) == "1"
    await world.stop_criproxy()
    await start_past(world, late)
    assert world.cpus(late) == "1"

    await world.start_criproxy()

    await world.until(lambda: world.cpus(late) == "2" and known(world, late).missed is None)
    text, _ = await told(world, late)
    assert text.startswith(f"it ran without having been placed from {await started(world, late)} to ")


async def test_who_is_no_kubelets_does_not_count_as_placed_before(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves the CPUs of others, and criproxy has never had a place for it."""
    owned = await world.run(owner("owner"))
    await world.stop_criproxy()
    monkeypatch.setattr(kubelet, "_pod_labels", lambda _: {})
    world.kubelet._client = world.direct
    other = await world.run(sharer("other"))

    await world.start_criproxy()

    await world.poll(lambda: (world.cpus(other), world.cpus(owned)) == (FREE, "1"))
    assert known(world, other).missed is None
    assert world.counters.unplaced_s == 0


async def test_who_starts_where_it_belongs_is_not_told(world: World) -> None:
    """Whether criproxy was asked or not."""
    _, owned = await world.created(owner("owner"))
    _, shared = await world.created(sharer("shared"))
    await world.stop_criproxy()
    await start_past(world, owned, shared)

    await world.start_criproxy()
    await world.controller.resync.again()

    assert (world.cpus(shared), world.cpus(owned)) == (FREE, "1")
    assert world.counters.unplaced_s == 0
    assert not [key for key in (owned, shared) if known(world, key).missed]


@pytest.mark.parametrize("is_known", [True, False])
async def test_an_owner_moves_when_a_created_container_turns_out_not_to_start(
    tmp_path: Path, *, is_known: bool
) -> None:
    """Nothing else happens then: no update of that container could be answered."""
    settings = replace(NO_LOOKS, moves_created=False, unknown_pause_s=0.2)
    async with World(tmp_path, NO_EVENTS, settings) as world:
        await world.created(sharer("shared" if is_known else "before"))
        await world.stop_criproxy()
        world.kubelet._client = world.direct
        if not is_known:
            await world.created(sharer("shared"))
        owned = await world.run(owner("owner"))
        world.kubelet._client = world.client

        await world.start_criproxy()

        await world.poll(lambda: world.cpus(owned) == "1")
