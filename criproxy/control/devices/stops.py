"""Stops containers: each once, after it is on disk that it shall be stopped, and again only if the runtime failed."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from criproxy.control.context import Context
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.engine.events import ContainerExited
from criproxy.errors import StoreError
from criproxy.model.workload import Container, ContainerState

GRACE_S = 10
"""What the runtime gives a container to end by itself."""
ANSWER_S = 20.0
"""What it has after that to answer."""
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
"""Before a stop that failed is tried again; the pause doubles each time."""


@dataclass(slots=True, repr=False)
class Stops:
    """The stops under way.

    Args:
        context: has the runtime.
        stopped: told of each that has been done: the key of the incident, and the life of the container.
    """

    context: Context
    stopped: Callable[[str, str], None]
    _under_way: set[tuple[str, str]] = field(default_factory=set)

    def under_way(self, incident: str) -> set[str]:
        """The lives of the containers that are being stopped for an incident."""
        return {life for key, life in self._under_way if key == incident}

    def begin(self, incident: str, container: Container) -> None:
        """Stop a container in the background, unless that is under way."""
        one = incident, container.life
        if one not in self._under_way:
            self._under_way.add(one)
            self.context.tasks.spawn(f"stop {container.title}", self._run(incident, container))

    async def _run(self, incident: str, container: Container) -> None:
        pause_s = FIRST_PAUSE_S
        try:
            while not await self._stop(container):
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
            self.stopped(incident, container.life)
        finally:
            self._under_way.discard((incident, container.life))

    async def _stop(self, container: Container) -> bool:
        """Whether it has ended."""
        context, key = self.context, container.key
        known = context.state.node.containers.get(key)
        if known is None or known.state is ContainerState.EXITED:
            return True
        request = api.StopContainerRequest(container_id=key, timeout=GRACE_S)
        try:
            await context.persister.durable()
            await context.runtime.call("StopContainer", request, api.StopContainerResponse, GRACE_S + ANSWER_S)
        except StoreError as error:
            context.log.warning("container not stopped: not stored", container=container.title, error=str(error))
            return False
        except RuntimeCallError as error:
            if not error.not_found:
                context.log.warning("container not stopped", container=container.title, error=str(error))
                return False
        context.log.info("container stopped", container=container.title, id=key)
        if not context.in_flight.outlasts_stop(key):
            await context.state.apply(ContainerExited(key))
        return True
