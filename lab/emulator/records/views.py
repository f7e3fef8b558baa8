"""Messages that describe the records: list entries and statuses.

A list entry is kept as bytes with its field header, so that a list reply is a concatenation: listing 1,000
containers must not cost more than a proxy in front of it.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterable

from criproxy.cri import api_pb2 as cri
from lab.emulator.records.records import Container, Records, Sandbox


def listed_sandboxes(sandboxes: Iterable[Sandbox]) -> bytes:
    """Return a serialised ListPodSandboxResponse (and StreamPodSandboxesResponse, which has the same layout)."""
    return b"".join(sandbox.listed or _list_sandbox(sandbox) for sandbox in sandboxes)


def listed_containers(containers: Iterable[Container]) -> bytes:
    """Return a serialised ListContainersResponse (and StreamContainersResponse, which has the same layout)."""
    return b"".join(container.listed or _list_container(container) for container in containers)


def _list_sandbox(sandbox: Sandbox) -> bytes:
    entry = cri.PodSandbox(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox.state,
        created_at=sandbox.created_ns,
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    sandbox.listed = cri.ListPodSandboxResponse(items=[entry]).SerializeToString()
    return sandbox.listed


def _list_container(container: Container) -> bytes:
    entry = cri.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox.id,
        metadata=container.config.metadata,
        image=container.config.image,
        image_ref=container.image_id,
        state=container.state,
        created_at=container.created_ns,
        labels=container.config.labels,
        annotations=container.config.annotations,
        image_id=container.image_id,
    )
    container.listed = cri.ListContainersResponse(containers=[entry]).SerializeToString()
    return container.listed


def sandbox_status(sandbox: Sandbox) -> cri.PodSandboxStatus:
    """Return the status of a sandbox, which has no address."""
    status = cri.PodSandboxStatus(
        id=sandbox.id,
        metadata=sandbox.config.metadata,
        state=sandbox.state,
        created_at=sandbox.created_ns,
        labels=sandbox.config.labels,
        annotations=sandbox.config.annotations,
        runtime_handler=sandbox.runtime_handler,
    )
    status.linux.namespaces.options.CopyFrom(sandbox.config.linux.security_context.namespace_options)
    status.network.SetInParent()
    return status


def container_status(container: Container) -> cri.ContainerStatus:
    """Return the status of a container, with the resources of its spec."""
    log_directory = container.sandbox.config.log_directory
    return cri.ContainerStatus(
        id=container.id,
        metadata=container.config.metadata,
        state=container.state,
        created_at=container.created_ns,
        started_at=container.started_ns,
        finished_at=container.finished_ns,
        exit_code=container.exit_code,
        image=container.config.image,
        image_ref=container.image_id,
        reason=container.reason,
        message=container.message,
        labels=container.config.labels,
        annotations=container.config.annotations,
        mounts=container.config.mounts,
        log_path=f"{log_directory}/{container.config.log_path}" if container.config.log_path else "",
        resources=cri.ContainerResources(linux=container.resources),
        image_id=container.image_id,
    )


def container_info(container: Container) -> dict[str, str]:
    """Return the verbose part of ContainerStatus: process and cgroup, where containerd says them."""
    nodes = [{"path": device.container_path} for device in container.config.devices]
    spec = {"linux": {"cgroupsPath": container.cgroup, "devices": nodes}}
    config = {"linux": {"security_context": {"privileged": container.config.linux.security_context.privileged}}}
    info = {"config": config, "sandboxID": container.sandbox.id, "pid": container.pid, "runtimeSpec": spec}
    return {"info": json.dumps(info)}


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
        if self._listeners:
            statuses = [container_status(container) for container in self._records.of_sandbox(sandbox)]
            self.send(
                cri.ContainerEventResponse(
                    container_id=identifier,
                    container_event_type=kind,
                    created_at=time.time_ns(),
                    pod_sandbox_status=sandbox_status(sandbox),
                    containers_statuses=statuses,
                )
            )

    def send(self, event: cri.ContainerEventResponse | bytes) -> None:
        """Send *event* to all who listen; bytes as they are, which need not be an event."""
        for listener in self._listeners:
            listener.put_nowait(event)

    async def stream(self, request: bytes, context: object) -> AsyncIterator[cri.ContainerEventResponse | bytes]:
        """Serve one GetContainerEvents call until the client goes."""
        queue: asyncio.Queue[cri.ContainerEventResponse | bytes] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)
