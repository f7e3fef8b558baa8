"""The event stream of the embedded runtime (GetContainerEvents): every subscriber gets every event from then on."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable

from criproxy.cri import api_pb2 as cri
from lab.emulator.records import views
from lab.emulator.records.records import Container, Records, Sandbox


class Events:
    """Queues of those who listen; an event without listeners costs nothing."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._listeners: set[asyncio.Queue[cri.ContainerEventResponse | bytes]] = set()

    @property
    def listeners(self) -> int:
        """How many streams are open."""
        return len(self._listeners)

    def of_container(self, kind: cri.ContainerEventType, container: Container) -> None:
        """Tell that *container* was created, started, stopped or deleted."""
        self._publish(kind, container.id, container.sandbox)

    def of_sandbox(self, kind: cri.ContainerEventType, sandbox: Sandbox) -> None:
        """Tell the same of a sandbox; containerd sends its id as container id."""
        self._publish(kind, sandbox.id, sandbox)

    def _publish(self, kind: cri.ContainerEventType, identifier: str, sandbox: Sandbox) -> None:
        if not self._listeners:
            return
        event = cri.ContainerEventResponse(
            container_id=identifier,
            container_event_type=kind,
            created_at=time.time_ns(),
            pod_sandbox_status=views.sandbox_status(sandbox),
            containers_statuses=self._statuses(sandbox),
        )
        self.send(event)

    def send(self, event: cri.ContainerEventResponse | bytes) -> None:
        """Send *event* to all who listen; bytes as they are, which need not be an event."""
        for listener in self._listeners:
            listener.put_nowait(event)

    def _statuses(self, sandbox: Sandbox) -> Iterable[cri.ContainerStatus]:
        return [views.container_status(container) for container in self._records.of_sandbox(sandbox)]

    async def stream(self, request: cri.GetEventsRequest) -> AsyncIterator[cri.ContainerEventResponse | bytes]:
        """Serve one GetContainerEvents call until the client goes."""
        queue: asyncio.Queue[cri.ContainerEventResponse | bytes] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)
