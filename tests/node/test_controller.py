"""Placement through the real data plane, on the embedded runtime: what the cgroups say at each step."""

import asyncio
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.stamp import read_stamp
from criproxy.cri.touched_methods import touched_paths
from criproxy.errors import StatusCode
from criproxy.node.context import UPDATE_OTHERS
from criproxy.store.reader import open_reader
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.node.world import GIB, World, owner, refusal, sharer


async def test_an_owner_takes_cpus_from_those_that_share_and_gives_them_back(world: World) -> None:
    """Whoever shares is moved off before the owner starts, and back when it is removed."""
    first = await world.run(sharer("before"))
    assert world.cpus(first) == "0-3"

    sandbox, ids = await world.kubelet.run_pod(owner("owner", 2))
    assert (world.cpus(ids["main"]), world.cpus(first)) == ("1-2", "0,3")

    second = await world.run(sharer("after"))
    assert world.cpus(second) == "0,3"

    await world.kubelet.remove_pod(sandbox)
    await world.until(lambda: world.cpus(first) == world.cpus(second) == "0-3")
    assert not world.owned()


async def test_an_idle_controller_has_everything_on_disk(world: World, tmp_path: Path) -> None:
    """Nothing is in flight, nobody is being moved, and a reader finds what the node is."""
    await world.run(sharer("before"))
    await world.run(owner("owner", 2))

    await world.controller.idle()

    assert not world.controller.reconciler.at_work
    with open_reader(tmp_path / "state") as reader:
        stored = reader.node(world.controller.node.topology)
    node = world.controller.node
    assert (stored.containers, stored.grants, stored.applied) == (node.containers, node.grants, node.applied)


async def test_a_controller_that_is_to_move_others_is_not_idle(world: World) -> None:
    """They move when the create is on disk, which may be after its reply."""
    stored = asyncio.Event()

    async def until_stored() -> None:
        await stored.wait()

    world.controller.context.tasks.spawn(UPDATE_OTHERS, until_stored())
    idle = asyncio.create_task(world.controller.idle())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not idle.done()

    stored.set()
    await idle


async def test_the_stamp_says_who_it_is_and_what_it_asked(world: World) -> None:
    """A container carries its reservation and its size, and everything that the kubelet wrote."""
    container_id = await world.run(owner("owner", 2))

    status = (await world.client.container_status(container_id)).status
    stamp = read_stamp(status.annotations)

    assert stamp is not None
    assert stamp.reservation == world.controller.node.containers[container_id].reservation
    assert (stamp.qos, stamp.cpu_milli, stamp.memory_limit_bytes) == ("Guaranteed", 2000, GIB)
    assert "io.kubernetes.container.hash" in status.annotations


async def test_a_create_that_the_runtime_refuses_gives_its_place_back(world: World) -> None:
    """The failure reaches the kubelet as it is, and the CPUs are free again."""
    pod = owner("broken", 2)
    spec = ContainerSpec("main", "no-such-image", cpu_limit_milli=2000, memory_limit_bytes=GIB)
    sandbox_id = await world.kubelet.run_sandbox(pod)

    await refusal(world.kubelet.create(pod, sandbox_id, spec), "no-such-image")

    await world.until(lambda: not world.owned())
    assert not world.controller.node.containers


async def test_a_create_in_a_sandbox_that_is_gone_leaves_nothing_behind(world: World) -> None:
    """The kubelet may come late; only its message has told of the sandbox then."""
    await world.run(sharer("shared"))
    known = set(world.controller.node.pods)
    pod = owner("late")
    sandbox_id = await world.kubelet.run_sandbox(pod)
    await world.kubelet.remove_pod(sandbox_id)

    await refusal(world.kubelet.create(pod, sandbox_id, pod.containers[0]))

    await world.until(lambda: set(world.controller.node.pods) == known)
    assert world.owned() == frozenset()


async def test_init_containers_leave_their_cpus_to_the_next_without_a_call(world: World) -> None:
    """Each of three init containers and the main container gets every CPU that can be owned."""
    specs = [ContainerSpec(f"c{n}", IMAGE, cpu_limit_milli=3000, memory_limit_bytes=GIB) for n in range(4)]
    pod = PodSpec("pod", tuple(specs))
    sandbox_id = await world.kubelet.run_sandbox(pod)

    for spec in specs:
        container_id = await world.kubelet.create(pod, sandbox_id, spec)
        await world.kubelet.start(container_id)
        assert world.cpus(container_id) == "1-3"
        await world.rested()  # one that is being read is not believed to have ended
        world.runtime.exit_container(container_id)


async def test_an_init_container_that_exited_owns_nothing_once_the_next_comes(world: World) -> None:
    """Even while other CPUs are free, the next container of the pod gets the same one, and no CPU is lost."""
    specs = [ContainerSpec(f"c{n}", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=GIB) for n in range(3)]
    pod = PodSpec("pod", tuple(specs))
    sandbox_id = await world.kubelet.run_sandbox(pod)

    for spec in specs:
        container_id = await world.kubelet.create(pod, sandbox_id, spec)
        assert world.owned() == {1}
        await world.kubelet.start(container_id)
        await world.rested()
        world.runtime.exit_container(container_id)


async def test_an_update_of_the_kubelet_keeps_our_cpuset(world: World) -> None:
    """A cpuset of the kubelet's CPU manager is replaced by ours, with one warning; a new weight gets ours added."""
    container_id = await world.run(owner("owner", 1))

    await world.kubelet.update(container_id, api.LinuxContainerResources(cpuset_cpus="0,3"))
    assert world.cpus(container_id) == "1"
    await world.kubelet.update(container_id, api.LinuxContainerResources(cpu_quota=200_000, memory_limit_in_bytes=2))

    resources = (await world.client.container_status(container_id)).status.resources.linux
    assert (resources.cpuset_cpus, resources.cpu_quota, resources.memory_limit_in_bytes) == ("1", 200_000, 2)
    assert sum("CPU manager" in event for event in world.log.events()) == 1


async def test_a_foreign_change_is_found_after_the_next_update(world: World) -> None:
    """Applied is what the cgroup says: an update of the kubelet makes us look, and repair."""
    container_id = await world.run(sharer("shared"))
    await world.run(owner("owner", 1))
    await world.direct.update_container_resources(container_id, api.LinuxContainerResources(cpuset_cpus="0-3"))

    await world.kubelet.update(container_id, api.LinuxContainerResources(cpu_shares=512))

    assert world.cpus(container_id) == "0,2-3"


async def test_clients_of_the_old_package_are_served_alike(world: World) -> None:
    """A create in runtime.v1alpha2 is placed too."""
    world.client._package = "runtime.v1alpha2"

    assert world.cpus(await world.run(owner("old", 2))) == "1-2"


async def test_bytes_that_are_no_message_are_refused(world: World) -> None:
    """A create that cannot be read starts nothing: it could land on CPUs that somebody owns."""
    with pytest.raises(RuntimeCallError) as caught:
        await world.client.call("CreateContainer", Garbage(), api.CreateContainerResponse)  # type: ignore[arg-type]

    assert caught.value.code is StatusCode.INVALID_ARGUMENT
    assert "runtime.v1.CreateContainerRequest" in caught.value.details


class Garbage:
    """Serialises to what protobuf cannot parse."""

    def SerializeToString(self) -> bytes:
        """A field with the reserved wire type 7."""
        return b"\x0f\xff"


async def test_every_touched_call_is_known_to_wait(world: World) -> None:
    """What may have a rule waits while the controller is still being loaded, and nothing else."""
    held_and_watched = world.controller.table().keys()
    world.controller.replies.shows_quotas = True  # as while quotas are lifted

    assert held_and_watched < world.controller.table().keys() == touched_paths()
