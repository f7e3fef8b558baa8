"""Calls that fail, hang or get lost: no CPU ends up with two running owners, and none is lost."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.errors import StatusCode, StoreError
from criproxy.model.grant import Change
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.model.workload import Container, ContainerState
from criproxy.node.cgroups import Attributes, Cgroups, Seen
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.store.store import Store
from lab.emulator.runtime import RuntimeOptions
from tests.clocks import skip
from tests.node.world import FAST, Slow, World, cut, owner, refusal, said, sharer

LIMIT_S = 60.0
UNKNOWN = ContainerState.UNKNOWN


async def cut_create(world: World, slow: Slow) -> str:
    """Cancel the create of an owner's container; returns the sandbox's id."""
    pod = owner("cut", 2)
    sandbox_id = await world.kubelet.run_sandbox(pod)
    await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)
    return sandbox_id


async def test_a_start_waits_for_those_who_give_up_their_cpus(tmp_path: Path) -> None:
    """While the update of another is slow, the owner does not start; when it does, nobody is on its CPUs."""
    takes_s = 30.0
    slow = Slow(UpdateContainerResources=takes_s)
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        shared = await world.run(sharer("shared"))
        _, owned = await world.created(owner("owner", 2))
        assert world.cpus(shared) == "0-3"  # the create did not wait
        await slow.asked.wait()
        starting = asyncio.create_task(world.kubelet.start(owned))
        await asyncio.wait([starting], timeout=0.1)

        assert not starting.done()
        skip(takes_s)
        await starting

        assert (world.cpus(owned), world.cpus(shared)) == ("1-2", "0,3")


async def fails(world: World, blocker: str, held: str) -> None:
    """Wait until an update of *blocker* has failed, and nothing but that is in the way of the start of *held*."""
    reconciler, locks = world.controller.reconciler, world.controller.context.locks
    await world.until(lambda: reconciler.trouble(blocker).failures > 0)
    await world.poll(lambda: held not in reconciler._workers and not locks.busy(held))


async def test_a_start_is_refused_while_another_cannot_be_moved(tmp_path: Path) -> None:
    """After the barrier's time the kubelet is told whose update fails and how, and may try again."""
    stuck = RuntimeOptions(missing=frozenset({"UpdateContainerResources"}))
    async with World(tmp_path, stuck, replace(FAST, barrier_timeout_s=0.2)) as world:
        shared = await world.run(sharer("shared"))
        _, owned = await world.created(owner("owner", 2))
        await fails(world, shared, owned)

        caught = await refusal(world.kubelet.start(owned))
        assert caught.code is StatusCode.UNAVAILABLE
        assert "default/owner/main cannot start on CPUs 1-2 yet" in caught.details
        assert "default/shared/main" in caught.details
        assert "UNIMPLEMENTED" in caught.details

        in_force = world.controller.context.in_force
        in_force.settings = replace(in_force.settings, barrier_timeout_s=LIMIT_S)
        world.runtime.exit_container(shared)
        await world.kubelet.stop(shared)
        await world.kubelet.start(owned)
        assert world.cpus(owned) == "1-2"


async def test_a_start_tells_no_text_of_an_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever may see the pod reads it, and criproxy fails at the update of another one."""
    async with World(tmp_path, settings=replace(FAST, barrier_timeout_s=0.2)) as world:
        shared, secret, read = await world.run(sharer("shared")), "at /etc/secret", Cgroups.read

        async def failing(cgroups: Cgroups, key: str, attributes: Attributes) -> Seen:
            if key == shared:
                raise TypeError(secret)
            return await read(cgroups, key, attributes)

        monkeypatch.setattr(Cgroups, "read", failing)
        _, owned = await world.created(owner("owner", 2))
        await fails(world, shared, owned)

        refused = await refusal(world.kubelet.start(owned), "criproxy failed; its log has the cause")
        assert secret not in refused.details
        assert said(world, secret)


@pytest.mark.parametrize("ends", ["stopped", "removed", "with-its-pod"])
async def test_why_a_container_has_to_move_is_forgotten_with_it(world: World, ends: str) -> None:
    """Also while updates are held, for hours perhaps: no worker of it ever begins that would end."""
    reconciler = world.controller.reconciler
    pod = sharer("shared")
    sandbox_id, ids = await world.kubelet.run_pod(pod)
    shared = ids["main"]
    await world.rested()
    reconciler.holds.add("a test")
    await world.created(owner("owner", 2))
    await world.until(lambda: shared in reconciler._causes)

    if ends == "with-its-pod":
        await world.kubelet.remove_pod(sandbox_id)
    else:
        await world.kubelet.stop(shared)
    if ends == "removed":
        await world.kubelet.remove(shared)

    await world.poll(lambda: not reconciler._causes)


async def test_a_blocker_that_has_exited_unnoticed_does_not_block(world: World) -> None:
    """A container that ended by itself has no CPUs to give up, whatever the node still believes."""
    shared = await world.run(sharer("shared"))
    world.runtime.exit_container(shared)

    assert world.cpus(await world.run(owner("owner", 2))) == "1-2"


async def test_one_list_without_it_does_not_give_a_cut_create_up(tmp_path: Path) -> None:
    """The runtime is still at it when the first list is taken; the second one shows the container."""
    slow = Slow(CreateContainer=0.6)
    patient = replace(FAST, unknown_pause_s=0.4)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), patient) as world:
        await cut_create(world, slow)
        await world.until(lambda: {one.state for one in world.controller.node.containers.values()} == {UNKNOWN})

        await world.until(lambda: {one.state for one in world.controller.node.containers.values()} != {UNKNOWN})

        assert world.owned() == {1, 2}


async def test_a_cut_create_that_left_nothing_gives_its_place_back(tmp_path: Path) -> None:
    """Its place stays taken until two lists show that there is no such container."""
    slow = Slow(CreateContainer=60.0)
    async with World(tmp_path, RuntimeOptions(latency_s=slow)) as world:
        await cut_create(world, slow)
        await world.until(
            lambda: any(one.state is ContainerState.UNKNOWN for one in world.controller.node.containers.values())
        )
        assert world.owned() == {1, 2}

        await world.until(lambda: not world.owned())
        assert not world.controller.node.containers


async def test_a_repeated_create_inherits_the_place_and_frees_nothing(tmp_path: Path) -> None:
    """The retry of a cut create is told that the name is reserved; the first one's container keeps its CPUs."""
    slow = Slow(CreateContainer=0.3)
    patient = replace(FAST, unknown_pause_s=0.3)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), patient) as world:
        sandbox_id = await cut_create(world, slow)

        await refusal(world.kubelet.create(owner("cut", 2), sandbox_id, owner("cut", 2).containers[0]), "reserved")
        assert world.owned() == {1, 2}

        await world.until(lambda: all(one.has_id for one in world.controller.node.containers.values()))
        (listed,) = await world.direct.list_containers()
        assert list(world.controller.node.grants) == [listed.id]


async def test_after_a_refused_retry_of_a_create_we_look_what_the_container_has(tmp_path: Path) -> None:
    """What the message of the retry said counted until then; it is not in force."""
    deaf = replace(FAST, unknown_pause_s=3600.0, drift_period_s=3600.0, exit_list_s=3600.0)
    async with World(tmp_path, settings=deaf) as world:
        pod = sharer("shares")
        sandbox_id, ids = await world.kubelet.run_pod(pod)
        await world.rested()
        await world.direct.update_container_resources(ids["main"], api.LinuxContainerResources(cpuset_cpus="2"))

        await refusal(world.kubelet.create(pod, sandbox_id, pod.containers[0]), "reserved")

        await world.poll(lambda: world.cpus(ids["main"]) == "0-3")


async def test_a_repeated_create_leaves_cpus_that_somebody_owns_since(tmp_path: Path, slow: Slow) -> None:
    """Its message named all CPUs: between the first one and the retry an owner had left, and another came after it."""
    never_asks = replace(FAST, unknown_pause_s=3600.0)
    async with World(tmp_path, RuntimeOptions(latency_s=slow), never_asks) as world:
        first = await world.run(owner("first", 1))
        pod = sharer("shares")
        sandbox_id = await world.kubelet.run_sandbox(pod)
        slow["CreateContainer"] = 60.0
        await cut(world.kubelet.create(pod, sandbox_id, pod.containers[0]), slow)
        world.runtime.core.records.names.clear()  # the runtime gives up, too
        await world.kubelet.stop(first)
        await world.until(lambda: not world.owned())

        slow["CreateContainer"] = 0.3
        slow.asked.clear()
        again = asyncio.create_task(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        await slow.asked.wait()
        second = await world.run(owner("second", 1))
        assert world.cpus(second) == "1"
        shared = await again
        await world.kubelet.start(shared)

        assert world.cpus(shared) == "0,2-3"


async def test_a_failed_start_gives_its_place_back(world: World) -> None:
    """The container has exited then, and another may own its CPUs."""
    _, container_id = await world.created(owner("broken", 2))
    await world.direct.update_container_resources(container_id, api.LinuxContainerResources(cpuset_cpus="7"))

    await refusal(world.kubelet.start(container_id), "cpuset")

    await world.until(lambda: not world.owned())


async def test_held_calls_are_refused_while_nobody_knows_what_runs(tmp_path: Path) -> None:
    """A runtime that cannot list leaves criproxy blind: creates are refused after a while, the rest passes."""
    mute = RuntimeOptions(missing=frozenset({"ListContainers"}))
    async with World(tmp_path, mute, replace(FAST, resync_timeout_s=0.2)) as world:
        caught = await refusal(world.run(owner("owner", 1)), r"has not answered for 0\.2 s")
        assert caught.code is StatusCode.UNAVAILABLE
        assert (await world.client.version()).runtime_name == "criproxy-sim"
        assert not world.controller.ready


async def test_a_runtime_that_comes_late_is_waited_for(world: World) -> None:
    """With the runtime away at the start, criproxy says so and goes on by itself once it is there."""
    pod = owner("owner", 1)
    sandbox_id = await world.kubelet.run_sandbox(pod)
    await world.stop_criproxy()
    await world.runtime.stop()
    await world.start_criproxy()
    assert world.controller.problem

    await world.runtime.start()
    await world.kubelet.create(pod, sandbox_id, pod.containers[0])

    assert world.owned() == {1}
    assert world.controller.problem is None


class FailingStore(Store):
    """A store whose disk is full from the first reservation on."""

    full = True

    def save(self, before: Node, after: Node, records: Sequence[Record] = ()) -> "asyncio.Future[None]":
        """Fail while `full`."""
        if self.full:
            raise StoreError("cannot store the state: disk is full")
        return super().save(before, after, records)


class Broken(StaticPolicy):
    """A policy with a mistake: it fails for containers that are called ``bad``."""

    def place(self, node: Node, container: Container) -> Change:
        """Fail, or place."""
        if container.pod_name == "bad":
            raise ZeroDivisionError
        return super().place(node, container)


async def test_a_policy_that_raises_puts_the_container_among_those_that_share(tmp_path: Path) -> None:
    """With onError shared, it never gets CPUs that somebody owns, and it is adopted as soon as the policy can."""
    policy = Broken(StaticOptions())
    async with World(tmp_path, policy=policy) as world:
        owned = await world.run(owner("owner", 2))
        bad = await world.run(owner("bad", 1))

        assert (world.cpus(owned), world.cpus(bad)) == ("0-1", "2-3")
        assert "call not handled" in world.log.events()


def overlaps(world: World) -> list[str]:
    """Running containers that are on CPUs of a running owner: there must be none at any moment."""
    running = {
        key: container.cpuset.cpus
        for key, container in world.runtime.core.records.containers.items()
        if container.cpuset and container.state == api.CONTAINER_RUNNING
    }
    owners = {key: grant.exclusive for key, grant in world.controller.node.grants.items() if grant.exclusive}
    return [
        f"{other} on {sorted(cpus & own)} of {key}"
        for key, own in owners.items()
        if key in running
        for other, cpus in running.items()
        if other != key and cpus & own
    ]
