"""Stops containers: each once, after that decision is on disk, and again only if the runtime failed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.errors import StoreError
from criproxy.model.incident import Incident
from criproxy.model.workload import Container, ContainerState
from criproxy.node.context import Context
from criproxy.placement.events import ContainerExited

GRACE_S = 10.0
"""Default grace period: how long the runtime lets a container end before it kills it."""
ANSWER_S = 20.0
"""How long the runtime may take to answer after the grace period."""
LOOK_S = 2.0
"""How long the runtime may take to report whether the container has ended."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Pause before a failed stop is retried; it doubles each time."""


@dataclass(slots=True, repr=False)
class Stops:
    """The stops in flight.

    Args:
        context: has the runtime.
        stopped: called after each stop with the key of the incident and the container instance.
        wanted: returns whether that instance is still to be stopped for that incident; called before each attempt.
    """

    context: Context
    stopped: Callable[[str, str], None]
    wanted: Callable[[str, str], bool]
    unconfirmed: set[str] = field(init=False)
    """Incidents from before a restart whose stops wait: their containers may be within their quotas by now."""
    _in_flight: dict[tuple[str, str], bool] = field(default_factory=dict)
    """By incident and container instance: whether the runtime was asked, and may have stopped it."""

    def __post_init__(self) -> None:
        incidents = self.context.state.node.incidents.values()
        self.unconfirmed = {each.key for each in incidents if each.excess and not each.ended}

    def confirm(self, incident: Incident | None) -> None:
        """Go on with an incident: the watcher has reported that its container is still over its quota."""
        if incident and incident.key in self.unconfirmed:
            self.unconfirmed.discard(incident.key)
            self.context.state.notify()

    def in_flight(self, incident: str) -> set[str]:
        """Return the container instances that are being stopped for an incident."""
        return {life for key, life in self._in_flight if key == incident}

    def is_sent(self, incident: str, life: str) -> bool:
        """Whether the runtime was asked to stop the container instance *life*, and may have done so."""
        return self._in_flight.get((incident, life), False)

    def begin(self, incident: str, container: Container, grace_s: float = GRACE_S) -> None:
        """Stop a container in the background, unless its stop is in flight or has to wait."""
        one = incident, container.life
        if one not in self._in_flight and self._may_go(*one):
            self._in_flight[one] = False
            self.context.tasks.spawn(f"stop {container.title}", self._run(incident, container, grace_s))

    def _may_go(self, incident: str, life: str) -> bool:
        """Whether the container instance is to be stopped now."""
        known = self.context.state.node.incidents.get(incident)
        waits = incident in self.unconfirmed and known is not None and not known.ended
        # While every call passes, the kubelet could not see why the container ends.
        return self.wanted(incident, life) and not waits and not self.context.state.passes_all

    async def _run(self, incident: str, container: Container, grace_s: float) -> None:
        pause_s, life = FIRST_PAUSE_S, container.life
        try:
            while self._may_go(incident, life):
                if await self._stop(incident, container, grace_s):
                    self.stopped(incident, life)
                    break
                self._in_flight[incident, life] = False
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        finally:
            del self._in_flight[incident, life]
            self.context.state.notify()  # the incident's data may be dropped now

    async def _stop(self, incident: str, container: Container, grace_s: float) -> bool:
        """Stop the container once, and return whether it has ended."""
        context, key, title = self.context, container.key, container.title
        known = context.state.node.containers.get(key)
        if known is None or known.state is ContainerState.EXITED:
            return True
        request = api.StopContainerRequest(container_id=key, timeout=ceil(grace_s))
        try:
            await context.persister.durable()
            if not self._may_go(incident, container.life):
                return False
            self._in_flight[incident, container.life] = True
            await context.runtime.call("StopContainer", request, api.StopContainerResponse, request.timeout + ANSWER_S)
            if await self._runs_on(container):
                text = "container keeps running although the runtime reports that it has stopped"
                context.log.warning(text, container=title)
                return False
        except StoreError as error:
            context.log.warning("container not stopped: not stored", container=title, error=str(error))
            return False
        except RuntimeCallError as error:
            if not error.not_found:
                context.log.warning("container not stopped", container=title, error=str(error))
                return False
        context.log.info("container stopped", container=title, id=key)
        if not context.in_flight.outlasts_stop(key):
            await context.state.apply(ContainerExited(key))
        return True

    async def _runs_on(self, container: Container) -> bool:
        """Whether the runtime itself says that a container runs that it has stopped; what it does not say is no."""
        try:
            reply = await self.context.runtime.container_status(container.key, LOOK_S)
        except RuntimeCallError:
            return False
        return reply.status.state == api.CONTAINER_RUNNING
