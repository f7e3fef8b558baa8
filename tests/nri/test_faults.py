"""What goes wrong around a plugin: every call has an answer soon, and no container runs without its place unsaid."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.daemon.start import base_settings
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.errors import CriproxyError, StatusCode
from criproxy.nri import api_pb2 as nri
from criproxy.nri import front as front_module
from criproxy.nri import ttrpc_pb2 as ttrpc
from criproxy.nri.connection import PACKAGE, Connection, Ended
from criproxy.nri.frames import PLUGIN, RUNTIME, Frame, Kind, encoded
from criproxy.nri.front import NriFront
from lab.kubelet.kubelet import MiniKubelet, PodSpec, container_config, sandbox_config
from tests.allocations import Allocations
from tests.daemons import until
from tests.node.calls.test_sharers_do_not_wait import stalled
from tests.node.devices.test_guard import host
from tests.node.world import FAST, GIB, NO_EVENTS, NO_LOOKS, World, owner, sharer
from tests.nri.peer import Peer, Runtime
from tests.nri.test_front import Rules, front_of
from tests.nri.test_messages import POD, container
from tests.nri.test_plugin import plugged, taken_over

_NRI = base_settings(Path("/"), is_plugin=True)
SETTINGS = replace(
    FAST,
    handler_timeout_s=60.0,
    moves_created=_NRI.moves_created,
    device_limits=_NRI.device_limits,
    durable_s=_NRI.durable_s,
    barrier_timeout_s=_NRI.barrier_timeout_s,
)
"""Those of a plugin, except that a handler that waits for anything else hangs."""
METHODS = [method.name for method in nri.DESCRIPTOR.services_by_name["Plugin"].methods]


def front(world: World) -> NriFront:
    """A front end of the node of *world*."""
    found, controller = NriFront(Path("/")), world.controller
    found.use(controller.table())
    found.on_error = controller.fallback.on_error
    found.blockers = controller.reconciler.blockers
    return found


def create_of(pod: PodSpec) -> nri.CreateContainerRequest:
    """The runtime's question about the only container of *pod*."""
    config, linux = sandbox_config(pod), container_config(pod, pod.containers[0], 8 * GIB).linux.resources
    cpu = nri.LinuxCPU(
        shares=nri.OptionalUInt64(value=linux.cpu_shares),
        quota=nri.OptionalInt64(value=linux.cpu_quota),
        period=nri.OptionalUInt64(value=linux.cpu_period),
    )
    return nri.CreateContainerRequest(
        pod=nri.PodSandbox(
            id=f"s-{pod.name}",
            name=pod.name,
            uid=pod.uid,
            namespace="default",
            linux=nri.LinuxPodSandbox(cgroup_parent=config.linux.cgroup_parent),
        ),
        container=nri.Container(
            id=f"c-{pod.name}",
            pod_sandbox_id=f"s-{pod.name}",
            name="main",
            env=["NVIDIA_VISIBLE_DEVICES=GPU-a"],
            linux=nri.LinuxContainer(resources=nri.LinuxResources(cpu=cpu)),
        ),
    )


async def created(front: NriFront, pod: PodSpec) -> nri.CreateContainerResponse:
    """The answer to a create."""
    async with asyncio.timeout(30):
        reply = await front.answer("CreateContainer", create_of(pod).SerializeToString())
    return nri.CreateContainerResponse.FromString(reply)


async def test_a_disk_that_stalls(tmp_path: Path) -> None:
    """Owners and sharers get their places while nothing can be stored; what is on disk later is the same."""
    async with World(tmp_path, NO_EVENTS, SETTINGS) as world, stalled(world, tmp_path) as disk:
        plugin = front(world)
        for pod, cpus in ((owner("owner"), "1"), (sharer("sharer"), "0,2-3"), (owner("second"), "2")):
            assert (await created(plugin, pod)).adjust.linux.resources.cpu.cpus == cpus
        assert not disk.answers.is_set()
        assert not world.counters.fallbacks


async def test_who_gives_up_cpus_moves_while_the_disk_stalls(tmp_path: Path) -> None:
    """The new container could not start else."""
    async with World(tmp_path, NO_EVENTS, SETTINGS) as world, stalled(world, tmp_path) as disk:
        (before,) = world.controller.node.grants

        assert (await created(front(world), owner("owner"))).adjust.linux.resources.cpu.cpus == "1"

        await world.poll(lambda: world.cpus(before) == "0,2-3")
        assert not disk.answers.is_set()


async def test_a_resize_while_the_disk_stalls(tmp_path: Path) -> None:
    """It has its new size at once, too."""
    async with World(tmp_path, NO_EVENTS, SETTINGS) as world, stalled(world, tmp_path) as disk:
        (before,) = world.controller.node.grants
        quota, period = nri.OptionalInt64(value=50_000), nri.OptionalUInt64(value=100_000)
        resources = nri.LinuxResources(cpu=nri.LinuxCPU(quota=quota, period=period))
        request = nri.UpdateContainerRequest(container=nri.Container(id=before), linux_resources=resources)

        async with asyncio.timeout(30):
            await front(world).answer("UpdateContainer", request.SerializeToString())

        assert world.controller.node.containers[before].cpu_limit_milli == 500
        assert not disk.answers.is_set()


async def test_an_end_of_which_the_runtime_tells_before_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As containerd does: asked at once, it would say that the container runs, and its CPU would not be free."""
    monkeypatch.setattr(front_module, "STOPPED_S", 1.0)
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        ended = await world.run(owner("owner"))
        stop = nri.StopContainerRequest(container=nri.Container(id=ended))
        await front(world).answer("StopContainer", stop.SerializeToString())
        await world.rested()
        world.runtime.exit_container(ended)

        await world.until(lambda: ended not in world.controller.node.grants)


async def test_cards_are_known_before_the_first_create(tmp_path: Path) -> None:
    """Nobody waits for the scan at the start: it may take longer than one of which a create is in need."""
    host(tmp_path)
    limits = replace(SETTINGS.device_limits, scan_s=0.0, drivers_s=0.0, adoption_s=60.0)
    settings = replace(SETTINGS, device_limits=limits, devices=DeviceRules(classes=(NVIDIA,)))
    async with World(tmp_path, NO_EVENTS, settings) as world:
        await world.controller.known()  # before that, no runtime is connected
        (stock,) = world.controller.devices.stocks.values()
        assert [card.id for card in stock.cards] == ["GPU-a", "GPU-b"]


@pytest.mark.parametrize("restarts", [False, True])
async def test_a_create_that_comes_to_nothing_while_nobody_tells(tmp_path: Path, restarts: bool) -> None:
    """Its CPUs are free after a second: if it is made after all, it does not start on CPUs of others."""
    settings = replace(SETTINGS, unknown_pause_s=3600.0, create_pause_s=_NRI.create_pause_s)
    async with World(tmp_path, NO_EVENTS, settings) as world:
        plugin = front(world)
        assert (await created(plugin, owner("owner"))).adjust.linux.resources.cpu.cpus == "1"
        if restarts:
            await world.restart()
        else:
            plugin.lost()

        await world.until(lambda: not world.controller.node.grants)


async def test_podresources_that_hang(tmp_path: Path) -> None:
    """The container gets its CPUs, and no card of which nothing is known."""
    allocations = Allocations(tmp_path / "k/sock", tmp_path / "k/checkpoint")
    await allocations.start()
    allocations.answers.clear()
    files = KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint")
    rules = DeviceRules(classes=(NVIDIA,), kubelet=files)
    async with World(tmp_path, NO_EVENTS, replace(SETTINGS, devices=rules)) as world:
        await world.poll(lambda: world.controller.ready)
        answer = await created(front(world), owner("owner"))
        assert answer.adjust.linux.resources.cpu.cpus == "1"
        assert not world.counters.fallbacks
    allocations.answers.set()
    await allocations.stop()


async def test_a_handler_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its container gets the CPUs that nobody owns, it is said, and others are asked about meanwhile."""
    async with World(tmp_path, NO_EVENTS, replace(SETTINGS, handler_timeout_s=0.2)) as world:
        plugin = front(world)
        assert (await created(plugin, owner("owner"))).adjust.linux.resources.cpu.cpus == "1"

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(world.controller.hotplug, "follow", hang)
        answer = await created(plugin, owner("hanging"))
        monkeypatch.undo()

        assert answer.adjust.linux.resources.cpu.cpus == "0,2-3"
        assert [key for key in answer.adjust.annotations if "missed" in key]
        assert world.counters.fallbacks == {"shared": 1}
        assert (await created(plugin, owner("next"))).adjust.linux.resources.cpu.cpus == "2"


async def test_an_answer_that_the_runtime_did_not_wait_for(tmp_path: Path) -> None:
    """It creates the container without: that gets the CPU of the answer as soon as it is seen, not after pauses."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(sharer("shared"))
        pod, plugin = owner("owner"), front(world)
        sandbox_id = await world.kubelet.run_sandbox(pod)
        create = create_of(pod)
        create.pod.id = create.container.pod_sandbox_id = sandbox_id
        reply = await plugin.answer("CreateContainer", create.SerializeToString())
        assert nri.CreateContainerResponse.FromString(reply).adjust.linux.resources.cpu.cpus == "1"
        plugin.lost()

        past = await MiniKubelet(world.direct).create(pod, sandbox_id, pod.containers[0])
        await world.kubelet.start(past)

        await world.poll(lambda: world.cpus(past) == "1")


async def test_who_was_created_without_the_answer_and_has_ended(tmp_path: Path) -> None:
    """Nobody else comes with that answer: its CPUs are free as soon as it is seen, as those of an init container."""
    async with World(tmp_path, NO_EVENTS, NO_LOOKS) as world:
        await world.run(sharer("shared"))
        pod, plugin, past = owner("owner"), front(world), MiniKubelet(world.direct)
        create = create_of(pod)
        create.pod.id = create.container.pod_sandbox_id = sandbox_id = await world.kubelet.run_sandbox(pod)
        await plugin.answer("CreateContainer", create.SerializeToString())
        plugin.lost()
        assert world.owned() == {1}
        await world.stop_criproxy()
        ended = await past.create(pod, sandbox_id, pod.containers[0])
        await past.start(ended)
        world.runtime.exit_container(ended)
        _, large = await past.run_pod(owner("large", 3))

        await world.start_criproxy()

        await world.poll(lambda: world.cpus(large["main"]) == "1-3")


# -------------------------------------------------------------------- the connection


@asynccontextmanager
async def beside(front: NriFront, path: Path, failed: Callable[[str, Exception], None]) -> AsyncIterator[Peer]:
    """A connection whose calls *front* answers."""
    runtime = Runtime(path / "nri.sock")
    async with asyncio.timeout(30), runtime.listening():
        reader, writer = await asyncio.open_unix_connection(runtime.path)
        connection = Connection(reader, writer, front.answer, failed)
        reading = asyncio.create_task(connection.run())
        yield await runtime.peers.get()
        connection.close()
        await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.parametrize("method", METHODS)
async def test_messages_that_are_none(tmp_path: Path, method: str) -> None:
    """Each has an answer, none is a failure of ours, and the connection goes on."""
    failures = list[Any]()
    async with beside(front_of(Rules()), tmp_path, lambda *what: failures.append(what)) as peer:
        for junk in (b"\xff", b"\x0a\xff\x01", b"\x0a\x02\xc3\x28", bytes(100)):
            answer = await peer.begin(method, junk)
            assert answer.status.code in {StatusCode.OK, StatusCode.INVALID_ARGUMENT, StatusCode.UNIMPLEMENTED}
        empty = await peer.begin(method, b"")
        assert empty.status.code in {StatusCode.OK, StatusCode.UNIMPLEMENTED}
        assert not (await peer.call("CreateContainer", nri.CreateContainerRequest(pod=POD))).status.code
    assert failures == []


async def test_a_connection_that_ends_after_any_byte() -> None:
    """Whatever was heard until then is answered or given up; nothing waits, and nothing of ours fails."""
    create = nri.CreateContainerRequest(pod=POD, container=container()).SerializeToString()
    call = ttrpc.Request(service=PACKAGE + "Plugin", method="CreateContainer", payload=create).SerializeToString()
    registered = encoded(Frame(RUNTIME, 1, Kind.RESPONSE, ttrpc.Response().SerializeToString()))
    wire = registered + encoded(Frame(PLUGIN, 1, Kind.REQUEST, call)) + encoded(Frame(PLUGIN, 3, Kind.REQUEST, call))
    failures = list[Any]()
    for end in range(len(wire) + 1):
        rules = Rules()
        near, far = await _pair()
        front = front_of(rules)
        connection = Connection(*near, front.answer, lambda *what: failures.append(what))
        registering = asyncio.create_task(connection.call("RegisterPlugin", b""))
        await asyncio.sleep(0)
        far[1].write(wire[:end])
        far[1].close()
        with pytest.raises(Ended):
            await connection.run()
        await asyncio.gather(registering, return_exceptions=True)
        assert registering.done()
        assert end >= len(registered) or isinstance(registering.exception(), CriproxyError)
        front.lost()
        assert not front._open
        near[1].close()
    assert failures == []


async def _pair() -> tuple[tuple[asyncio.StreamReader, asyncio.StreamWriter], ...]:
    """Both ends of a connection."""
    ends = socket.socketpair()
    return tuple([await asyncio.open_unix_connection(sock=end) for end in ends])


async def test_1200_containers_in_pieces(tmp_path: Path) -> None:
    """As a runtime sends them, within its two seconds: nothing is done about them then."""
    some = [container() for _ in range(100)]
    pieces = [nri.SynchronizeRequest(containers=some, more=number < 11) for number in range(12)]
    async with plugged(tmp_path) as (plugin, runtime, _):
        peer = await runtime.peers.get()
        await peer.call("Configure", nri.ConfigureRequest())
        for piece in pieces:
            answer = nri.SynchronizeResponse.FromString((await peer.call("Synchronize", piece)).payload)
            assert answer == nri.SynchronizeResponse(more=piece.more)
        await until(lambda: not plugin.problem)


async def test_a_runtime_that_restarts_again_and_again(tmp_path: Path) -> None:
    """With several connections at once for a moment, criproxy is asked over the last one."""
    async with plugged(tmp_path) as (plugin, runtime, _):
        for number in range(1, 6):
            peer = await runtime.peers.get()
            if number % 2:  # the others end before they are accepted
                await taken_over(peer)
                await until(lambda: not plugin.problem)
                asked = await peer.call("RunPodSandbox", nri.RunPodSandboxRequest(pod=POD))
                assert not asked.status.code
            peer.writer.close()
        assert plugin.connections >= 5
