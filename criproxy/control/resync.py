"""The runtime's truth minus ours → events: at start, and when something happened beside us.

Held calls wait for the first one; pass-through calls never do.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from criproxy.control.followups import Followups
from criproxy.control.inquiry import Inquiry, stamped, unconfirmed
from criproxy.cri import api_pb2 as api
from criproxy.cri import translate
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerStarted,
    PodCreated,
    PodGone,
    UpdateApplied,
)
from criproxy.errors import CriproxyError, NotEnough, StatusCode
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import ContainerState

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.1, 5.0


class NotReady(CriproxyError):
    """Held calls cannot be decided before the runtime has been asked what runs."""

    code = StatusCode.UNAVAILABLE


@dataclass(slots=True)
class Resync:
    """Compares lists of the runtime with the node."""

    followups: Followups
    inquiry: Inquiry
    _ready: asyncio.Event = field(default_factory=asyncio.Event)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _error: str = "it has not answered yet"

    async def ready(self) -> None:
        """Return once the node is known.

        Raises:
            NotReady: after ``resync_timeout_s``.
        """
        if self._ready.is_set():
            return
        timeout_s = self.followups.settings.resync_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            raise NotReady(
                f"criproxy does not know yet what runs on this node: the runtime has not answered for {timeout_s:g} s "
                f"({self._error})"
            ) from None

    def doubt(self) -> None:
        """Calls have passed unseen: held ones wait until the runtime has been asked again what runs."""
        self._ready.clear()
        self._error = "it has not answered yet"
        self.followups.tasks.spawn("resync", self.again())

    async def meet(self, container_id: str) -> None:
        """Take in a container that is about to start and that we know nothing of: it was made while nobody watched.

        Raises:
            RuntimeCallError: if the runtime cannot be asked.
        """
        async with self._one:
            if self.followups.manager.resolve(container_id) not in self.followups.manager.node.containers:
                await self._compare()

    @property
    def is_ready(self) -> bool:
        """Whether held calls are served."""
        return self._ready.is_set()

    async def again(self) -> None:
        """Compare until it worked once; the runtime may be away."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                async with self._one:
                    await self._compare()
            except RuntimeCallError as error:
                self._error = str(error)
                self.followups.log.warning("cannot ask the runtime what runs", error=self._error)
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)
            else:
                self._ready.set()
                return

    async def _compare(self) -> None:
        """One comparison: what ended gives its place back, what we do not know is adopted."""
        runtime = self.followups.runtime
        await runtime.version()
        before = self.followups.manager.node
        sandboxes, containers = await asyncio.gather(runtime.list_pod_sandbox(), runtime.list_containers())
        await self._pods(before, sandboxes)
        await self._reservations(before, containers)
        await self.inquiry.release_exited()
        for item in containers:
            await self._container(before, item)
        self.followups.kick(self.followups.manager.node.grants, look=True)

    async def _pods(self, before: Node, sandboxes: Sequence[api.PodSandbox]) -> None:
        for item in sandboxes:
            if item.id not in self.followups.manager.node.pods:
                await self.followups.apply(PodCreated(translate.found_pod(item)))
        for key in before.pods.keys() - {item.id for item in sandboxes}:
            await self.followups.apply(PodGone(key))

    async def _reservations(self, before: Node, containers: Sequence[api.Container]) -> None:
        """Creates that were under way when criproxy last ended: found by their stamp, or asked for."""
        for container in unconfirmed(before):
            if found := stamped(containers, container.key):
                await self.inquiry.created(container.key, found)
            elif not self._ready.is_set():
                self.inquiry.create_unknown(container.key, container.pod)

    async def _container(self, before: Node, item: api.Container) -> None:
        state = translate.state(item)
        known = self.followups.manager.node.containers.get(item.id)
        if known is None:
            if state is not ContainerState.EXITED and item.id not in before.containers:
                await self._adopt(item, state)
        elif state is ContainerState.RUNNING and known.state is not state and await self.inquiry.undisturbed(known):
            await self.followups.apply(ContainerStarted(item.id))

    async def _adopt(self, item: api.Container, state: ContainerState) -> None:
        """Take in a container that we did not place: it shares, whatever it asked for."""
        reservation = f"found-{item.id}"
        container = replace(translate.found_container(item), key=reservation, cpu_milli=0)
        try:
            await self.followups.apply(ContainerCreating(container))
        except NotEnough as error:
            self.followups.log.warning("container left alone", container=container.title, error=str(error))
            return
        await self.followups.apply(ContainerCreated(reservation, item.id))
        if state is not ContainerState.CREATED:
            await self.followups.apply(ContainerStarted(item.id))
        seen = (await self.followups.kernel.look(item.id)).applied
        topology = self.followups.manager.node.topology
        has = seen or Applied(topology.cpus, topology.mems)
        await self.followups.apply(UpdateApplied(item.id, has.cpus, has.mems))
        self.followups.log.info("container adopted", container=container.title, id=item.id)
        self.followups.kick([item.id])
