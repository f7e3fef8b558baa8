"""How criproxy is brought into each phase of its work, so that it can be killed there.

Each function is a context: at its `yield` the phase is reached, seen from outside, and lasts until criproxy is dead;
behind it, what was held is lost or goes on, as it would with a kernel's buffers.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass, field
from functools import partial

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.model.cpuset import parse_cpuset
from lab.chaos.churn import repeated, sandboxed
from lab.chaos.kubelet import Kubelet, Member, Pod
from lab.chaos.nodes import Node
from lab.chaos.phases import Kill, Phase
from lab.chaos.plugged import PluginNode
from lab.chaos.relay import Gate, Passing, Way

REACH_LIMIT_S = 60.0


class Missed(Exception):
    """The phase was not reached; the text says how it went instead."""


@dataclass(slots=True)
class Scene:
    """The pod that is worked on when criproxy dies."""

    node: Node
    kubelet: Kubelet
    kill: Kill
    pod: Pod
    _work: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def member(self) -> Member:
        """Its container."""
        return self.pod.members[-1]

    async def sandbox(self) -> None:
        """Run the pod's sandbox, again if its connection was just broken."""
        await repeated(self.kubelet, lambda: sandboxed(self.kubelet, self.pod))

    async def begin_create(self) -> None:
        """Run the sandbox, and begin to create the container."""
        await self.sandbox()
        self.begin(self.kubelet.create(self.pod, self.member))

    def begin(self, work: Coroutine[object, object, None]) -> None:
        """Begin a call that criproxy's death will end."""
        self._work.append(asyncio.create_task(work))

    async def ended(self) -> None:
        """Wait for the end of all that has begun, well or not."""
        for result in await asyncio.gather(*self._work, return_exceptions=True):
            if isinstance(result, BaseException) and not isinstance(result, RuntimeCallError):
                raise result

    def gate(self, way: Way, method: str) -> Gate:
        """Hold the next call of our kubelet."""
        return self.node.relay.gate(way, method, lambda call: call.caller == self.kubelet.client.name)

    def shrink_gate(self) -> Gate:
        """Hold the next update of criproxy's that takes CPUs from a container, before the runtime gets it."""
        return self.node.relay.gate(Way.REQUEST, "UpdateContainerResources", self._is_shrink)

    def _is_shrink(self, call: Passing) -> bool:
        if call.caller:
            return False
        request = api.UpdateContainerResourcesRequest.FromString(call.message)
        has = self.node.has(request.container_id)
        wanted = parse_cpuset(request.linux.cpuset_cpus)
        return has is not None and wanted < has

    async def reached(self, gate: Gate) -> None:
        """Wait until a call is held; Missed if all work ends without it."""
        waiting = asyncio.ensure_future(gate.reached.wait())
        try:
            await asyncio.wait([waiting, *self._work], timeout=REACH_LIMIT_S, return_when=asyncio.FIRST_COMPLETED)
            # The work may end before what follows from it is sent.
            await asyncio.wait([waiting], timeout=1.0 if any(task.done() for task in self._work) else 0)
        finally:
            waiting.cancel()
        if not gate.call:
            raise Missed(f"no {gate.way.value} came by: {self.ends()}")

    def ends(self) -> str:
        """How the work has ended that has, for people."""
        return ", ".join(repr(task.exception() or "ended well") for task in self._work if task.done()) or "no end"


def pending(node: Node, pod: Pod) -> bool:
    """Whether criproxy's database has a place for a create of *pod* that has no id yet."""
    query = "SELECT count(*) FROM containers WHERE pod = ? AND key = reservation"
    with closing(sqlite3.connect(f"file:{node.store}?mode=ro", uri=True, timeout=1)) as connection:
        return bool(connection.execute(query, (pod.sandbox,)).fetchone()[0])


def lose(gate: Gate, *, really: bool) -> None:
    """What was held is lost, or goes its way."""
    if really:
        gate.drop()
    else:
        gate.open()


@asynccontextmanager
async def reserved(scene: Scene) -> AsyncIterator[None]:
    """The create is held before the runtime; behind us it is lost or arrives after all."""
    gate = scene.gate(Way.REQUEST, "CreateContainer")
    await scene.begin_create()
    try:
        await scene.reached(gate)
        if scene.pod.owns and not pending(scene.node, scene.pod):  # who only shares may be written later
            raise Missed("an owner's create reached the runtime without a place in the store")
        yield
        lose(gate, really=scene.kill.variant % 2 == 0)
    finally:
        scene.node.relay.remove(gate)


@asynccontextmanager
async def sent(scene: Scene) -> AsyncIterator[None]:
    """The runtime works, or has finished and its answer is held."""
    way = (Way.REQUEST, Way.REPLY)[scene.kill.variant % 2]
    gate = scene.gate(way, "CreateContainer")
    await scene.begin_create()
    async with _passing(scene, gate, lost=way is Way.REPLY):
        yield


@asynccontextmanager
async def replied(scene: Scene) -> AsyncIterator[None]:
    """The answer has just gone to criproxy; our kubelet may have it too."""
    gate = scene.gate(Way.REPLY, "CreateContainer")
    await scene.begin_create()
    async with _answered(scene, gate):
        if scene.kill.variant % 3 == 1:
            await scene.ended()
        elif scene.kill.variant % 3 == 2:
            await asyncio.sleep(scene.kill.variant % 30 / 10_000)  # somewhere in what criproxy does then
        yield


@asynccontextmanager
async def shrink_sent(scene: Scene) -> AsyncIterator[None]:
    """An update for another container is with the runtime, or done and its answer is held."""
    relay, gate = scene.node.relay, scene.shrink_gate()
    await scene.begin_create()
    if scene.kill.variant % 2:
        async with _passing(scene, gate, lost=False):
            yield
        return
    try:
        await scene.reached(gate)
        reply = relay.gate(Way.REPLY, "UpdateContainerResources", lambda call: call is gate.call)
    finally:
        relay.remove(gate)
    async with _passing(scene, reply, lost=True):
        yield


@asynccontextmanager
async def start_held(scene: Scene) -> AsyncIterator[None]:
    """The update that a start waits for is held; the start is in criproxy and not with the runtime."""
    gate, start = scene.shrink_gate(), (scene.kubelet.client.name, "StartContainer")
    scene.node.relay.passed.discard(start)
    await scene.begin_create()
    try:
        await scene.reached(gate)
        await scene.ended()
        if not scene.member.id:
            raise Missed(f"the create failed: {scene.ends()}")
        scene.begin(scene.kubelet.start(scene.pod, scene.member))
        # Frames of one connection are worked on in order: when this has its answer, criproxy has the start.
        await asyncio.sleep(0)
        await scene.kubelet.client.version()
        if start in scene.node.relay.passed:
            await scene.ended()  # whether that was right is for the checker to see, while the update is still held
            raise Missed("the start went on: no CPU of its own was concerned")
        yield
        lose(gate, really=scene.kill.variant % 2 == 0)
    finally:
        scene.node.relay.remove(gate)


@asynccontextmanager
async def release(scene: Scene) -> AsyncIterator[None]:
    """A container of an owner, or all of its pod, is being stopped or removed, or just has been."""
    kubelet, pod, member = scene.kubelet, scene.pod, scene.member
    await scene.sandbox()
    await kubelet.create(pod, member)
    await kubelet.start(pod, member)
    work: Mapping[str, Callable[[], Coroutine[object, object, None]]] = {
        "StopContainer": lambda: kubelet.stop(pod, member),
        "RemoveContainer": lambda: kubelet.remove(pod, member),
        "StopPodSandbox": lambda: kubelet.remove_pod(pod),
        "RemovePodSandbox": lambda: kubelet.remove_pod(pod),
    }
    method = list(work)[scene.kill.variant % 4]
    moment = scene.kill.variant // 4 % 4
    gate = scene.gate(Way.REQUEST if moment < 2 else Way.REPLY, method)
    scene.begin(work[method]())
    async with _answered(scene, gate) if moment == 3 else _passing(scene, gate, lost=moment != 1):
        yield


@asynccontextmanager
async def asked(scene: Scene, *, start: bool = False) -> AsyncIterator[None]:
    """The runtime has asked its plugin about somebody's create or start; the answer is held, and lost."""
    node = scene.node
    assert isinstance(node, PluginNode)
    if start:
        await scene.sandbox()
        await scene.kubelet.create(scene.pod, scene.member)
    async with node.nri.holding("StateChange" if start else "CreateContainer"):
        if start:
            scene.begin(scene.kubelet.start(scene.pod, scene.member))
        else:
            await scene.begin_create()
        async with asyncio.timeout(REACH_LIMIT_S):
            await node.nri.asked.wait()
        await asyncio.sleep(scene.kill.variant % 30 / 10_000)  # somewhere in what criproxy does then
        yield
        node.nri.cut()


@asynccontextmanager
async def _passing(scene: Scene, gate: Gate, *, lost: bool) -> AsyncIterator[None]:
    """A request that has just gone on, or a message that is held and then lost."""
    try:
        await scene.reached(gate)
        if not lost and gate.call:
            gate.open()
            async with asyncio.timeout(REACH_LIMIT_S):
                await gate.call.sent.wait()
        yield
        gate.drop()
    finally:
        scene.node.relay.remove(gate)


@asynccontextmanager
async def _answered(scene: Scene, gate: Gate) -> AsyncIterator[None]:
    """A reply that has gone on to criproxy, all of it."""
    try:
        await scene.reached(gate)
        gate.open()
        assert gate.call
        async with asyncio.timeout(REACH_LIMIT_S):
            await gate.call.ended.wait()
        yield
    finally:
        scene.node.relay.remove(gate)


WAYS: Mapping[Phase, Callable[[Scene], AbstractAsyncContextManager[None]]] = {
    Phase.RESERVED: reserved,
    Phase.SENT: sent,
    Phase.REPLIED: replied,
    Phase.SHRINK_SENT: shrink_sent,
    Phase.START_HELD: start_held,
    Phase.RELEASE: release,
    Phase.ASKED: asked,
    Phase.START_ASKED: partial(asked, start=True),
}
