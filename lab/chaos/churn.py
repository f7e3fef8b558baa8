"""Pods that come, live and go on one node, all at once and never in peace, between two rests."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StatusCode
from lab.chaos.journal import Journal
from lab.chaos.kubelet import UNKNOWN, Caller, Kubelet, Member, Pod, best_effort, burstable, guaranteed, title
from lab.chaos.nodes import Node

_TRIES = 40
_EXIT_LIMIT_S = 60.0
_POLL_S = 0.02


@dataclass(slots=True)
class Pods:
    """All pods of a node, and what is done to them. *room* is how many CPUs new owners may still take."""

    node: Node
    journal: Journal
    limit: int
    """How many pods there may be."""
    living: list[Pod] = field(default_factory=list)
    room: int = 0
    kubelets: list[Kubelet] = field(default_factory=list)

    def kubelet(self, name: str) -> Kubelet:
        """A further kubelet with a connection of its own."""
        caller = Caller(f"unix://{self.node.kubelets}", name)
        self.kubelets.append(Kubelet(self.node, caller, self.journal))
        return self.kubelets[-1]

    @property
    def owned(self) -> int:
        """How many CPUs the living own at the most."""
        return sum(pod.owns for pod in self.living)

    async def make_room(self, kubelet: Kubelet, cpus: int, chance: random.Random) -> None:
        """Remove owners until *cpus* are free and a few pods may come, and let newcomers have the rest."""
        while self.node.assignable - self.owned < cpus or len(self.living) > self.limit - 2:
            owners = [pod for pod in self.living if pod.owns]
            short = self.node.assignable - self.owned < cpus
            await self.remove(kubelet, chance.choice(owners if short else self.living))
        self.room = self.node.assignable - self.owned - cpus

    async def remove(self, kubelet: Kubelet, pod: Pod) -> None:
        """Remove a pod, whatever it takes."""
        await repeated(kubelet, lambda: self._remove(kubelet, pod))

    async def _remove(self, kubelet: Kubelet, pod: Pod) -> None:
        await refresh(kubelet, pod)
        await kubelet.remove_pod(pod)
        if pod in self.living:
            self.living.remove(pod)

    async def tidy(self, kubelet: Kubelet, chance: random.Random) -> None:
        """Find out what became of doubtful pods; each is then in a state that a kubelet would know."""
        for pod in [pod for pod in self.living if pod.doubtful]:
            await repeated(kubelet, lambda pod=pod: refresh(kubelet, pod))  # type: ignore[misc]
            resized = any(member.resizing for member in pod.members)
            if resized or not pod.running or chance.random() < 0.3:
                await self.remove(kubelet, pod)

    async def close(self) -> None:
        """Drop all connections."""
        for kubelet in self.kubelets:
            await kubelet.client.close()


async def repeated(kubelet: Kubelet, work: Callable[[], Awaitable[None]]) -> None:
    """Do *work* again while it fails because criproxy or the runtime is away, as a kubelet does.

    What a start may wait for in vain, a task that the runtime has given up, is ended meanwhile.

    Raises:
        RuntimeCallError: something else is wrong, or it still fails after many tries.
    """
    for tries in range(_TRIES):
        await kubelet.node.serving.wait()
        try:
            await work()
        except RuntimeCallError as error:
            if tries == _TRIES - 1 or error.code not in UNKNOWN | {StatusCode.UNKNOWN}:
                raise
            await kubelet.end_left()
            await asyncio.sleep(_POLL_S * (1 + tries))  # the runtime tells nobody that it is back
        else:
            return


async def sandboxed(kubelet: Kubelet, pod: Pod) -> None:
    """Run a pod's sandbox, unless there is one."""
    await refresh(kubelet, pod)
    if not pod.sandbox:
        await kubelet.sandbox(pod)


async def refresh(kubelet: Kubelet, pod: Pod) -> None:
    """Ask the runtime what there is of a pod, unless that is known; of several sandboxes all but one are removed."""
    if pod.sandbox and not pod.doubtful:
        return
    direct = kubelet.node.direct
    found = [item.id for item in await direct.list_pod_sandbox() if item.metadata.uid == pod.spec.uid]
    for extra in found[1:]:
        pod.sandbox = extra
        await kubelet.remove_pod(pod)
    pod.sandbox = found[0] if found else ""
    listed = await direct.list_containers(pod.sandbox) if pod.sandbox else []
    if pod.sandbox:
        kubelet.journal.knows(pod.sandbox, "")
    for member in pod.members:
        mine = [item for item in listed if item.metadata.name == member.spec.name]
        last = max(mine, key=lambda item: item.metadata.attempt, default=None)
        member.id, member.state = (last.id, last.state) if last else ("", api.CONTAINER_UNKNOWN)
        member.attempt = last.metadata.attempt if last else member.attempt
        if last:
            kubelet.journal.knows(last.id, title(pod, member))
    pod.doubtful = False


class Idle(Exception):
    """There is no pod to which a thing could be done."""


@dataclass(slots=True)
class Churn:
    """One worker: takes a pod that nobody else has, does something to it, and goes on with another."""

    pods: Pods
    kubelet: Kubelet
    chance: random.Random
    _taken: Pod | None = None

    async def work(self, quiet: asyncio.Event) -> None:
        """Until it shall be quiet."""
        while not quiet.is_set():
            actions = [self._bring, self._bring, self._end, self._resize, self._restart, self._cancel, self._exit]
            try:
                await self.chance.choice(actions)()
            except (Idle, RuntimeCallError, TimeoutError):
                pass  # its pod is doubtful then, and is seen to at the next rest
            finally:
                if self._taken:
                    self._taken.busy, self._taken = False, None
            with suppress(TimeoutError):
                await asyncio.wait_for(quiet.wait(), self.chance.uniform(0.005, 0.06))

    def _new(self) -> Pod:
        """A pod of any kind for which there is room."""
        if len(self.pods.living) >= self.pods.limit:
            raise Idle
        kind = self.chance.random()
        if kind < 0.4 and self.pods.room > 0:
            count = self.chance.randint(1, min(self.pods.room, 6))
            self.pods.room -= count
            pod = guaranteed(1000 * count, self.chance.choice((0, 0, 1, 3)), exits=self.kubelet.node.exits)
        elif kind < 0.6:
            pod = guaranteed(500)
        else:
            pod = burstable() if kind < 0.8 else best_effort()
        pod.busy, self._taken = True, pod
        self.pods.living.append(pod)
        return pod

    def _take(self, fits: Callable[[Pod], bool]) -> Pod:
        """A living pod that nobody works on."""
        free = [pod for pod in self.pods.living if not pod.busy and not pod.doubtful and fits(pod)]
        if not free:
            raise Idle
        pod = self.chance.choice(free)
        pod.busy, self._taken = True, pod
        return pod

    async def _bring(self) -> None:
        pod = self._new()
        await self.kubelet.sandbox(pod)
        for member in pod.members:
            await self._run(pod, member)
            if member is not pod.members[-1]:
                await self._finish(member)

    async def _run(self, pod: Pod, member: Member) -> None:
        await self.kubelet.create(pod, member)
        await self.kubelet.start(pod, member)

    async def _finish(self, member: Member) -> None:
        """An init container exits, without a call that criproxy could see."""
        node = self.kubelet.node
        if not node.exits:
            await node.end(member.id)
        async with asyncio.timeout(_EXIT_LIMIT_S):
            while (await node.direct.container_status(member.id)).status.state != api.CONTAINER_EXITED:  # noqa: ASYNC110
                await asyncio.sleep(_POLL_S)  # containerd 1.6 has no events
        member.state = api.CONTAINER_EXITED

    async def _end(self) -> None:
        if len(self.pods.living) < self.pods.limit // 2:
            raise Idle
        pod = self._take(lambda pod: True)
        if pod.running and self.chance.random() < 0.5:
            await self.kubelet.stop(pod, pod.running[0])
        await self.kubelet.remove_pod(pod)
        self.pods.living.remove(pod)
        self.pods.room += pod.owns

    async def _resize(self) -> None:
        """Between owning CPUs, sharing, and owning others; or no other place at all."""
        pod = self._take(lambda pod: pod.spec.qos == "Guaranteed" and len(pod.members) == 1 and bool(pod.running))
        count = self.chance.choice((0, pod.owns, self.chance.randint(0, max(self.pods.room + pod.owns, 0))))
        self.pods.room += pod.owns - count
        await self.kubelet.resize(pod, pod.members[0], 1000 * count or 500)

    async def _restart(self) -> None:
        """A container ends by itself and is created again with the next attempt."""
        pod = self._take(lambda pod: bool(pod.running))
        member, pod.doubtful = pod.running[0], True
        await self.kubelet.node.end(member.id)
        member.attempt += 1
        await self._run(pod, member)

    async def _cancel(self) -> None:
        """A create that is cancelled or times out, and is repeated at once."""
        pod = self._new()
        member = pod.members[-1]
        await self.kubelet.sandbox(pod)
        limit_s = self.chance.uniform(0.001, 0.04)
        if self.chance.random() < 0.5:
            with suppress(RuntimeCallError):
                await self.kubelet.create(pod, member, limit_s)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(self.kubelet.create(pod, member), limit_s)
        if not member.id:
            await self.kubelet.create(pod, member)  # "name … is reserved", if the first one got through
        await self.kubelet.start(pod, member)

    async def _exit(self) -> None:
        """A container ends by itself, and nobody cares."""
        pod = self._take(lambda pod: bool(pod.running))
        pod.doubtful = True
        await self.kubelet.node.end(pod.running[0].id)
