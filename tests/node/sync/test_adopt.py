"""What runs already is taken in with what it asked for and where it is; nothing moves because criproxy started."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import time

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.errors import StatusCode
from criproxy.model.workload import ContainerState, QosClass
from criproxy.node import cgroups
from criproxy.node.devices.guard import DeviceGuard
from criproxy.node.settings import Adopt
from criproxy.node.sync.adopt import GRACE_S, Adoption, BypassTimes
from criproxy.node.sync.resync import Resync
from criproxy.placement.invariants import violations
from lab.emulator.runtime import IMAGE, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from tests.node.world import FAST, GIB, NO_EVENTS, NO_LOOKS, Slow, World, cut, owner, refusal, said, sharer


def lose(state: Path) -> None:
    """The directory is gone."""
    shutil.rmtree(state)


def corrupt(state: Path) -> None:
    """The database has no readable page any more."""
    database = state / "criproxy.db"
    database.write_bytes(b"\xff" * database.stat().st_size)


def make_newer(state: Path) -> None:
    """A criproxy of the future has been here."""
    with sqlite3.connect(state / "criproxy.db") as connection:
        connection.execute("PRAGMA user_version = 9999")


@pytest.mark.parametrize("damage", [lose, corrupt, make_newer])
async def test_a_lost_store_is_rebuilt_from_the_runtime(
    tmp_path: Path, world: World, damage: Callable[[Path], None]
) -> None:
    """The same owners, the same cpusets, the same sizes; and no update is sent."""
    first, second = await world.run(sharer("first")), await world.run(owner("second", 1))
    third, fourth = await world.run(owner("third", 1)), await world.run(sharer("fourth"))
    before = world.controller.node
    places = {key: world.cpus(key) for key in (first, second, third, fourth)}
    await world.stop_criproxy()
    damage(tmp_path / "state")

    await world.start_known()

    after = world.controller.node
    assert {key: world.cpus(key) for key in places} == places
    assert {k: (g.cpus, g.exclusive, g.mems) for k, g in after.grants.items()} == {
        k: (g.cpus, g.exclusive, g.mems) for k, g in before.grants.items()
    }
    assert {k: (c.sizes, c.qos, c.reservation, c.title) for k, c in after.containers.items()} == {
        k: (c.sizes, c.qos, c.reservation, c.title) for k, c in before.containers.items()
    }
    assert dict(after.pods) == dict(before.pods)
    assert all(after.applied[key].cpus == grant.cpus for key, grant in after.grants.items())
    assert world.counters.updates_sent == 0
    assert world.cpus(await world.run(owner("next", 1))) == "3"
    assert world.cpus(first) == "0"


async def test_a_lost_owner_keeps_its_cpus_though_a_call_about_it_ends_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first list does not count for it, so the next one does: until then nobody gets CPUs that another leaves."""
    slow, asked, go_on, listed, compared = Slow(), asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event()
    look, compare = Adoption._inspect, Resync._compare

    async def looked(self: Adoption, item: api.Container, until_s: float) -> object:
        asked.set()
        await go_on.wait()
        return await look(self, item, until_s)

    async def compares(self: Resync, *, thorough: bool) -> None:
        if go_on.is_set():
            listed.set()
            await compared.wait()
        await compare(self, thorough=thorough)

    async with World(tmp_path, replace(NO_EVENTS, latency_s=slow), NO_LOOKS) as world:
        shared, touched = await world.run(sharer("shared")), await world.run(owner("touched", 1))
        sandbox_id, _ = await world.kubelet.run_pod(owner("leaves", 1))
        await world.rested()
        await world.stop_criproxy()
        lose(tmp_path / "state")
        monkeypatch.setattr(Adoption, "_inspect", looked)
        monkeypatch.setattr(Resync, "_compare", compares)
        await world.start_criproxy()
        await asked.wait()
        slow.hold("StopContainer")
        await cut(world.kubelet.stop(touched), slow)
        await world.poll(lambda: bool(world.controller.resync._touched))

        go_on.set()
        await listed.wait()
        await world.kubelet.remove_pod(sandbox_id)
        await world.rested()
        assert (world.cpus(touched), world.cpus(shared)) == ("1", "0,3")

        compared.set()
        await world.poll(lambda: world.cpus(shared) == "0,2-3")
        assert world.controller.node.grants[touched].exclusive == {1}
        slow.let_go("StopContainer")


async def test_a_resized_and_a_created_owner_are_found_with_their_places(tmp_path: Path, world: World) -> None:
    """The stamp of one is older than its resize: the sizes in force count; the other will start on what is told."""
    resized = await world.run(owner("resized", 1))
    await world.kubelet.update(resized, api.LinuxContainerResources(cpu_shares=2048, cpu_quota=200_000))
    await world.poll(lambda: world.cpus(resized) == "1-2")
    _, created = await world.created(owner("created", 1))
    await world.stop_criproxy()
    lose(tmp_path / "state")

    await world.start_criproxy()
    shared = await world.run(sharer("shared"))
    await world.kubelet.start(created)

    assert world.owned() == {1, 2, 3}
    assert world.controller.node.containers[resized].cpu_milli == 2000
    assert [world.cpus(key) for key in (resized, created, shared)] == ["1-2", "3", "0"]


async def beside(world: World, *pods: PodSpec) -> list[str]:
    """Run pods while criproxy is away, and let it come back."""
    await world.stop_criproxy()
    world.kubelet._client = world.direct
    ids = [await world.run(pod) for pod in pods]
    world.kubelet._client = world.client
    await world.start_known()
    return ids


async def test_what_others_started_is_taken_in_with_what_it_asked_for(world: World) -> None:
    """Class, sizes and names are those of its create, though no stamp says them; it stays where it is and shares."""
    spec = ContainerSpec("main", IMAGE, cpu_request_milli=300, memory_request_bytes=GIB, cpu_limit_milli=2000)
    (foreign,) = await beside(world, PodSpec("foreign", (spec,)))

    container = world.controller.node.containers[foreign]
    assert (container.qos, container.cpu_milli, container.cpu_limit_milli) == (QosClass.BURSTABLE, 300, 2000)
    assert (container.title, container.state) == ("default/foreign/main", ContainerState.RUNNING)
    assert world.controller.node.pods[container.pod].qos is QosClass.BURSTABLE
    assert world.cpus(foreign) == "0-3"
    assert world.counters.adoptions == 1


async def test_a_container_of_others_leaves_the_cpus_of_an_owner(world: World) -> None:
    """It was started on all CPUs; the conflict is repaired, counted and said."""
    owned = await world.run(owner("owner", 2))
    (foreign,) = await beside(world, sharer("foreign"))

    await world.poll(lambda: world.cpus(foreign) == "0,3")

    assert world.cpus(owned) == "1-2"
    assert world.counters.conflicts_repaired == 2
    assert "other containers used exclusive CPUs, and move away" in world.log.events()


async def test_under_watch_a_container_of_others_is_left_alone(tmp_path: Path) -> None:
    """Nobody becomes the owner of its CPUs while it runs; once it has ended, they can be owned again."""
    async with World(tmp_path, settings=replace(FAST, adopt=Adopt.WATCH)) as world:
        owned = await world.run(owner("owner", 1))
        (foreign,) = await beside(world, sharer("foreign"))
        pod = owner("next", 1)
        sandbox_id = await world.kubelet.run_sandbox(pod)

        assert world.controller.node.watched_cpus == {0, 1, 2, 3}
        caught = await refusal(world.kubelet.create(pod, sandbox_id, pod.containers[0]))
        assert caught.code is StatusCode.RESOURCE_EXHAUSTED
        assert "containers that criproxy does not move run on CPUs 0-3" in caught.details
        assert world.cpus(foreign) == "0-3"
        assert world.cpus(owned) == "1"

        await world.direct.update_container_resources(foreign, api.LinuxContainerResources(cpuset_cpus="0,2"))
        world.controller.runtime_lost()
        await world.until(lambda: world.controller.node.watched_cpus == {0, 2})
        created = await world.kubelet.create(pod, sandbox_id, pod.containers[0])
        await world.kubelet.start(created)
        assert world.cpus(created) == "3"

        await world.kubelet.stop(foreign)
        await world.until(lambda: not world.controller.node.watched_cpus)


async def test_who_was_watched_is_pinned_once_the_policy_file_says_so(tmp_path: Path) -> None:
    """After a restart with `adopt: pin` it is moved off the owner's CPUs."""
    async with World(tmp_path, settings=replace(FAST, adopt=Adopt.WATCH)) as world:
        await world.run(owner("owner", 1))
        (foreign,) = await beside(world, sharer("foreign"))
        assert world.cpus(foreign) == "0-3"
        world._settings = replace(world._settings, adopt=Adopt.PIN)

        await world.restart()

        await world.poll(lambda: world.cpus(foreign) == "0,2-3")


async def test_a_restored_pod_is_taken_in(world: World) -> None:
    """Its containers come to life without a create, on CPUs that somebody owns: they leave those at once."""
    await world.run(owner("owner", 2))
    pod = sharer("restored")
    request = api.RestorePodRequest(
        config=sandbox_config(pod), container_configs=[container_config(pod, pod.containers[0], 8 * GIB)]
    )

    reply = await world.client.call("RestorePod", request, api.RestorePodResponse)

    (restored,) = reply.restored_containers
    await world.poll(lambda: world.cpus(restored.container_id) == "0,3")
    assert world.controller.node.containers[restored.container_id].title == "default/restored/main"


async def test_a_pod_that_is_resized_is_looked_at(world: World) -> None:
    """Whatever the runtime did to its containers meanwhile is repaired."""
    sandbox_id, ids = await world.kubelet.run_pod(sharer("shared"))
    await world.run(owner("owner", 2))
    everything = api.LinuxContainerResources(cpuset_cpus="0-3")
    await world.direct.update_container_resources(ids["main"], everything)
    request = api.UpdatePodSandboxResourcesRequest(pod_sandbox_id=sandbox_id)

    await world.client.call("UpdatePodSandboxResources", request, api.UpdatePodSandboxResourcesResponse)

    await world.poll(lambda: world.cpus(ids["main"]) == "0,3")


async def test_many_containers_are_taken_in_with_few_decisions(tmp_path: Path) -> None:
    """One for each of a thousand took six seconds, with a call and a turn of the disk between them."""
    async with World(tmp_path, RuntimeOptions(containers=200)) as world:
        await world.poll(lambda: world.controller.ready)
        await world.stop_criproxy()
        lose(tmp_path / "state")

        await world.start_known()

        assert len(world.controller.node.grants) == 200
        assert violations(world.controller.node) == []
        assert sum(world.counters.decisions.values()) < 40


@pytest.mark.parametrize(
    ("of", "name", "argument"),
    [
        pytest.param(translate, "found_container", 0, id="what-it-asked-for"),
        pytest.param(DeviceGuard, "found", 1, id="its-cards"),
        pytest.param(cgroups, "find_group", 2, id="its-cgroup"),
    ],
)
async def test_one_that_cannot_be_understood_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of: object, name: str, argument: int
) -> None:
    """It shares and gives way to owners, who keep their CPUs; `status` names it."""
    original, broken = getattr(of, name), list[str]()

    def fails(*args: object) -> object:
        if getattr(args[argument], "id", args[argument]) in broken:
            raise ValueError("planted")
        return original(*args)

    async with World(tmp_path) as world:
        owned = await world.run(owner("owner", 1))
        broken.append(await world.run(sharer("broken")))
        await world.stop_criproxy()
        lose(tmp_path / "state")
        monkeypatch.setattr(of, name, fails)

        await world.start_known()
        another = await world.run(owner("another", 1))

        assert (world.cpus(owned), world.cpus(another), world.cpus(broken[0])) == ("1", "2", "0,3")
        assert said(world, "default/broken/main")


def test_a_create_that_was_under_way_at_the_end_of_a_bypass_is_of_it() -> None:
    """The runtime made its container after the bypass, and nobody held the call."""
    seen = BypassTimes()
    before = time()
    seen.begin()
    seen.end()
    after = time()
    assert seen.cover(after + GRACE_S / 2)
    assert not seen.cover(after + GRACE_S + 1)
    assert not seen.cover(before - 1)
