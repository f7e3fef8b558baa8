"""criproxy is killed at each point of each kind of call; the next one finds everybody where they belong.

A point is a moment in the life of one call: its event is applied in memory; it is on disk; the runtime has the call;
it is done with it; the kubelet has its answer. Nothing that was only in memory survives: docs/decisions/0038.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StoreError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.record import Record
from criproxy.model.workload import ContainerState
from criproxy.store.store import Store
from lab.emulator.records.records import Container
from lab.kubelet.kubelet import PodSpec
from tests.gates import Gate
from tests.node.calls.test_update import size
from tests.node.world import FAST, NO_EVENTS, Slow, World, cut, owner, sharer

LIMIT_S = 180.0
SETTINGS = replace(FAST, exit_list_s=0.05)


class Point(Enum):
    """When criproxy is killed."""

    APPLIED = "applied"
    WRITTEN = "written"
    SENT = "sent"
    DONE = "done by the runtime"
    REPLIED = "replied"


class Disk(Store):
    """A disk that stalls before it writes or after it has written something, and writes nothing after the kill."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.stalls: Point | None = None
        """`APPLIED`: before any write, `WRITTEN`: after the write of which `shows` is true."""
        self.shows: Callable[[Node], bool] = lambda node: True
        """What else is written meanwhile, such as what the runtime's list said of a container, is not waited for."""
        self.stalled = threading.Event()
        self._is_dead = False
        self._go_on = Gate()

    def die(self) -> None:
        """Let go of the directory, with what is written so far."""
        self._is_dead = True
        self.close()

    def close(self) -> None:
        """End what stalls."""
        self._go_on.set()
        super().close()

    def _save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        if self.stalls is Point.APPLIED:
            self._stall()
        if self._is_dead:
            raise StoreError("killed")
        super()._save(before, after, records)
        if self.stalls is Point.WRITTEN and self.shows(after):
            self._stall()

    def _stall(self) -> None:
        self.stalled.set()
        self._go_on.wait()


@dataclass
class Disks:
    """Makes the store of each start; nothing is written to one that has died."""

    directory: Path
    last: Disk = field(init=False)

    def __call__(self) -> Disk:
        """Open the state directory."""
        self.last = Disk(self.directory)
        return self.last


@dataclass(frozen=True)
class Play:
    """A node with one container that shares and one that owns a CPU, and a pod that is to come."""

    world: World
    slow: Slow
    shared: str
    owned: str
    pod: PodSpec
    sandbox_id: str

    async def create(self) -> None:
        """The kubelet creates the new pod's container."""
        await self.world.kubelet.create(self.pod, self.sandbox_id, self.pod.containers[0])

    def new(self) -> list[Container]:
        """What the runtime has of the new pod."""
        return [one for one in self.world.runtime.core.records.containers.values() if one.sandbox.id == self.sandbox_id]

    def reserved(self, node: Node) -> bool:
        """Whether *node* knows the new container."""
        return bool(node.containers_of(self.sandbox_id))

    async def start(self) -> None:
        """The kubelet repeats the create, where there is no container, and starts it."""
        if not self.new():
            await self.create()
        (made,) = self.new()
        await self.world.kubelet.start(made.id)


async def nothing(play: Play) -> None:
    """Everything is there already."""


def has_room(play: Play) -> bool:
    """Whether the one that shares has been moved from the CPU that a resize takes: by the same method, before it."""
    return len(play.world.runtime.cpuset(play.shared).cpus) == 2  # type: ignore[union-attr]  # it runs


async def cut_create(play: Play) -> None:
    """The first create was cut, and the runtime is still at it; its pod has been resized since."""
    play.slow["CreateContainer"] = 0.3
    first = owner(play.pod.name, 1)
    await cut(play.world.kubelet.create(first, play.sandbox_id, first.containers[0]), play.slow)
    await play.world.until(lambda: all_unknown(play))


def all_unknown(play: Play) -> bool:
    """Whether the create was noticed to have no answer."""
    containers = play.world.controller.node.containers_of(play.sandbox_id)
    return [one.state for one in containers] == [ContainerState.UNKNOWN]


async def resize(play: Play) -> None:
    """The kubelet resizes the container that owns one CPU."""
    await play.world.kubelet.update(play.owned, size(2000))


async def stop(play: Play) -> None:
    """The kubelet stops it."""
    await play.world.kubelet.stop(play.owned)


def sized(play: Play, node: Node) -> bool:
    """Whether *node* knows the new size."""
    return node.containers[play.owned].cpu_milli == 2000


def ended(play: Play, node: Node) -> bool:
    """Whether *node* knows of the end."""
    return node.containers[play.owned].state is ContainerState.EXITED


NEW = sharer("new")


@dataclass(frozen=True)
class Deed:
    """One kind of call."""

    expected: str
    """Who owns how many CPUs in the end."""
    pod: PodSpec = NEW
    method: str = "CreateContainer"
    act: Callable[[Play], Awaitable[None]] = Play.create
    applied: Callable[[Play, Node], bool] = Play.reserved
    """Whether a node shows it."""
    done: Callable[[Play], bool] = lambda play: bool(play.new())
    """Whether the runtime has done it."""
    again: Callable[[Play], Awaitable[None]] = Play.start
    """What the kubelet does then."""
    waits: bool = False
    """Whether the runtime must not hear of it before it is on disk."""
    follows: Callable[[Play], bool] = lambda play: True
    """What criproxy does by the same method before."""
    prepare: Callable[[Play], Awaitable[None]] = nothing


def has_two(play: Play) -> bool:
    """Whether the runtime knows the new size."""
    return play.world.runtime.core.records.containers[play.owned].resources.cpu_shares == 2048


def is_stopped(play: Play) -> bool:
    """Whether the runtime has ended it."""
    return play.world.runtime.core.records.containers[play.owned].state == cri.CONTAINER_EXITED


def repeated(play: Play, node: Node) -> bool:
    """Whether *node* knows the size of the second create."""
    return [one.cpu_milli for one in node.containers_of(play.sandbox_id)] == [2000]


DEEDS = {
    "shared": Deed("old: 1"),
    "exclusive": Deed("new: 2, old: 1", owner("new", 2), waits=True),
    # The first create made it.
    "repeated": Deed("new: 1, old: 1", owner("new", 2), applied=repeated, waits=True, prepare=cut_create),
    "resize": Deed(
        "old: 2", NEW, "UpdateContainerResources", resize, sized, has_two, resize, waits=True, follows=has_room
    ),
    "removal": Deed("", NEW, "StopContainer", stop, ended, is_stopped, stop),
}


async def reach(play: Play, deed: Deed, disk: Disk, point: Point) -> None:
    """Begin the call, and return at *point* of it."""
    world = play.world
    play.slow[deed.method] = 0.05
    disk.shows = partial(deed.applied, play)
    disk.stalls = point if point in (Point.APPLIED, Point.WRITTEN) else None
    acting = asyncio.ensure_future(deed.act(play))
    acting.add_done_callback(lambda done: done.cancelled() or done.exception())
    if point is Point.APPLIED:
        await every_turn(lambda: deed.applied(play, world.controller.node))
    elif point is Point.WRITTEN:
        await world.poll(disk.stalled.is_set)
    else:
        await every_turn(lambda: deed.follows(play))
        play.slow.asked.clear()
        await play.slow.asked.wait()
        disk.stalls = Point.APPLIED  # what is not there by now never comes there
    if point is Point.DONE:
        await every_turn(lambda: deed.done(play))
    elif point is Point.REPLIED:
        await asyncio.wait([acting])


async def every_turn(happened: Callable[[], bool]) -> None:
    """Return in the first turn of the loop in which it has happened: nobody has acted on it yet."""
    while not happened():  # noqa: ASYNC110 (nothing may come in between)
        await asyncio.sleep(0)


def wrong(world: World) -> list[str]:
    """Everything in which runtime, cgroups and criproxy differ, or which nobody may have."""
    node, alive = world.controller.node, [one for one in world.runtime.core.records.containers.values() if lives(one)]
    found = [f"{key} has a grant" for key in node.grants.keys() - {one.id for one in alive}]
    owned = [cpu for grant in node.grants.values() for cpu in grant.exclusive]
    found += [f"CPUs {owned} have two owners"] if len(owned) > len(set(owned)) else []
    for one in alive:
        grant = node.grants.get(one.id)
        if grant is None:
            found.append(f"{one.id} has no grant")
            continue
        wanted = one.resources.cpu_shares // 1024
        if len(grant.exclusive) != wanted:
            found.append(f"{one.name} owns {format_cpuset(grant.exclusive)} instead of {wanted} CPUs")
        if not grant.exclusive and grant.cpus & set(owned):
            found.append(f"{one.name} shares what others own")
        if one.state == cri.CONTAINER_RUNNING and world.cpus(one.id) != format_cpuset(grant.cpus):
            found.append(f"{one.name} is on {world.cpus(one.id)} instead of {format_cpuset(grant.cpus)}")
    return found


def lives(one: Container) -> bool:
    """Whether it has not ended."""
    return one.state != cri.CONTAINER_EXITED


def owners(world: World) -> str:
    """Who owns how many CPUs."""
    node = world.controller.node
    found = ((node.containers[key].pod_name, len(grant.exclusive)) for key, grant in node.grants.items())
    return ", ".join(f"{name}: {count}" for name, count in sorted(found) if count)


async def right(world: World) -> None:
    """Wait until nothing is wrong any more; says what is, where that does not come."""
    try:
        async with asyncio.timeout(LIMIT_S / 3):
            await world.poll(lambda: world.controller.ready and not wrong(world))
    except TimeoutError:
        assert wrong(world) == []


@pytest.mark.parametrize("point", Point)
@pytest.mark.parametrize("kind", DEEDS)
async def test_whoever_is_killed_there_leaves_nothing_wrong(tmp_path: Path, kind: str, point: Point) -> None:
    """What runs is known, owns what it asked for and nothing else; what the kubelet repeats then goes as ever."""
    deed, slow = DEEDS[kind], Slow()
    disk = Disk(tmp_path / "state")
    world = World(tmp_path, replace(NO_EVENTS, latency_s=slow), SETTINGS)
    world.make_store = lambda: disk
    async with world:
        shared = await world.run(sharer("web"))
        owned = await world.run(owner("old", 1))
        play = Play(world, slow, shared, owned, deed.pod, await world.kubelet.run_sandbox(deed.pod))
        await world.rested()
        await deed.prepare(play)
        await world.controller.context.state.flush()

        await reach(play, deed, disk, point)
        await world.kill_criproxy(disk.die)
        slow.clear()
        if deed.prepare is cut_create:  # the size of a container that comes later still is nobody's to compare
            await world.poll(lambda: bool(play.new()))
        if kind == "resize" and point is Point.SENT:  # nor is that of a resize: the kubelet repeats it
            await world.poll(lambda: deed.done(play))
        stored = Store(tmp_path / "state")
        is_stored = deed.applied(play, stored.load(world.controller.node.topology))
        assert is_stored or point is Point.APPLIED or not deed.waits
        world.make_store = lambda: stored
        await world.start_criproxy()

        await right(world)
        with suppress(RuntimeCallError):  # the runtime is at the first create still: the kubelet tries again
            await deed.again(play)
        if not deed.done(play):
            await world.poll(lambda: bool(play.new()))
            await deed.again(play)
        await right(world)
        assert owners(world) == deed.expected
