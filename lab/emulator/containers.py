"""Calls about containers, as the embedded runtime answers them."""

import time
from collections.abc import Iterable

from criproxy.cri import api_pb2 as cri
from lab.emulator.core import Core, write_failed
from lab.emulator.records import views
from lab.emulator.records.cpusets import BadCpuset
from lab.emulator.records.records import (
    Container,
    Refusal,
    as_created,
    container_name,
    new_id,
    not_found,
    selected,
    unknown,
)
from lab.emulator.sandboxes import Sandboxes

_START_FAILED = 128
"""Exit code that containerd gives a container which never ran."""


class Containers:
    """One coroutine per method."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def create(self, request: cri.CreateContainerRequest) -> cri.CreateContainerResponse:
        """Serve CreateContainer; the cpuset is not looked at before the start, as in containerd."""
        container = self._prepared(request)
        try:
            await self._core.plugins.create(self._core, container)
        except Refusal:
            self._core.records.names.pop(container.name)
            raise
        await self._core.delay("CreateContainer")
        self._core.records.containers[container.id] = container
        self._core.events.of_container(cri.CONTAINER_CREATED_EVENT, container)
        await self._core.plugins.tell("PostCreateContainer", container.sandbox, container)
        return cri.CreateContainerResponse(container_id=container.id)

    def _prepared(self, request: cri.CreateContainerRequest) -> Container:
        records, config, identifier = self._core.records, request.config, new_id()
        try:
            sandbox = records.sandbox(request.pod_sandbox_id)
        except Refusal as refusal:
            raise refusal.within(f'failed to find sandbox id "{request.pod_sandbox_id}"') from None
        if not sandbox.ready:
            raise _no_task(sandbox.id)
        if not config.HasField("metadata"):
            raise unknown("container config must include metadata")
        image_id = self._core.images.required(config.image.image)
        name = container_name(config.metadata, request.sandbox_config.metadata)
        try:
            records.reserve(name, identifier)
        except Refusal as refusal:
            raise refusal.within(f'failed to reserve container name "{name}"') from None
        return Container(identifier, sandbox, name, config, image_id, as_created(config.linux.resources))

    async def start(self, request: cri.StartContainerRequest) -> cri.StartContainerResponse:
        """Serve StartContainer; an update that comes meanwhile changes the spec only, as in containerd."""
        container = self._named(request.container_id)
        self._check_startable(container)
        container.starting, started_ns = True, time.time_ns()
        cpus, mems = container.resources.cpuset_cpus, container.resources.cpuset_mems
        await self._core.delay("StartContainer")
        # As in containerd, what was seen of the sandbox before counts: a stop meanwhile does not see this container.
        try:
            container.cpuset = self._core.machine.cpuset(cpus, mems)
        except BadCpuset as bad:
            text = (
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create "
                "failed: unable to start container process: unable to apply cgroup configuration: "
                f"{write_failed(container, bad)}: unknown"
            )
            container.exited(_START_FAILED, "StartError", text)
            raise unknown(text) from None
        try:
            await self._core.plugins.tell("StartContainer", container.sandbox, container)
        except Refusal as refusal:
            container.exited(_START_FAILED, "StartError", refusal.text)
            raise
        self._core.run_container(container, started_ns)
        await self._core.plugins.tell("PostStartContainer", container.sandbox, container)
        return cri.StartContainerResponse()

    def _check_startable(self, container: Container) -> None:
        prefix = f'failed to set starting state for container "{container.id}"'
        if container.state != cri.CONTAINER_CREATED:
            raise unknown(f"{prefix}: container is in {container.state_name} state")
        if container.starting:
            raise unknown(f"{prefix}: container is already in starting state")
        self._check_sandbox(container)

    def _check_sandbox(self, container: Container) -> None:
        if not container.sandbox.ready:
            container.exited(_START_FAILED, "StartError", f'sandbox container "{container.sandbox.id}" is not running')
            raise unknown(container.message)

    async def restore(self, request: cri.RestorePodRequest) -> cri.RestorePodResponse:
        """Serve RestorePod: a sandbox with its containers running, as if from a checkpoint."""
        ran = cri.RunPodSandboxRequest(config=request.config, runtime_handler=request.runtime_handler)
        reply = cri.RestorePodResponse(pod_sandbox_id=(await Sandboxes(self._core).run(ran)).pod_sandbox_id)
        for config in request.container_configs:
            wanted = cri.CreateContainerRequest(
                pod_sandbox_id=reply.pod_sandbox_id, config=config, sandbox_config=request.config
            )
            container_id = (await self.create(wanted)).container_id
            await self.start(cri.StartContainerRequest(container_id=container_id))
            reply.restored_containers.add(name=config.metadata.name, container_id=container_id)
        return reply

    async def stop(self, request: cri.StopContainerRequest) -> cri.StopContainerResponse:
        """Serve StopContainer: the process ends at once; one that does not run is left alone."""
        self._core.end_container(self._named(request.container_id))
        return cri.StopContainerResponse()

    async def remove(self, request: cri.RemoveContainerRequest) -> cri.RemoveContainerResponse:
        """Serve RemoveContainer: a missing one is no error, a running one is ended first."""
        try:
            container = self._named(request.container_id)
        except Refusal as refusal:
            if refusal.missing:
                return cri.RemoveContainerResponse()
            raise
        if container.starting:
            raise unknown(
                f'failed to set removing state for container "{container.id}": '
                "container is in starting state, can't be removed"
            )
        self._core.remove_container(container)
        await self._core.plugins.tell("RemoveContainer", container.sandbox, container)
        return cri.RemoveContainerResponse()

    async def list(self, request: cri.ListContainersRequest) -> bytes:
        """Serve ListContainers, as bytes; every part of the filter must fit."""
        containers: Iterable[Container] = self._core.records.containers.values()
        if request.HasField("filter"):
            containers = self._filtered(request.filter)
        if unlisted := self._core.records.unlisted:
            containers = (one for one in containers if one.id not in unlisted)
        return views.listed_containers(containers)

    def _filtered(self, wanted: cri.ContainerFilter) -> Iterable[Container]:
        state = wanted.state.state if wanted.HasField("state") else None
        found = self._selected(wanted.id, wanted.pod_sandbox_id, wanted.label_selector.items())
        return (one for one in found if state is None or one.state == state)

    def _selected(self, prefix: str, pod: str, labels: Iterable[tuple[str, str]]) -> Iterable[Container]:
        records = self._core.records
        identifier = records.full_id(records.containers, prefix)
        sandbox_id = records.full_id(records.sandboxes, pod)
        for container in selected(records.containers.values(), dict(labels)):
            if prefix and container.id != identifier:
                continue
            if not pod or container.sandbox.id == sandbox_id:
                yield container

    async def status(self, request: cri.ContainerStatusRequest) -> cri.ContainerStatusResponse:
        """Serve ContainerStatus."""
        container = self._named(request.container_id)
        if container.unreadable:
            raise unknown(container.unreadable)
        info = views.container_info(container) if request.verbose else None
        return cri.ContainerStatusResponse(status=views.container_status(container), info=info)

    async def update(self, request: cri.UpdateContainerResourcesRequest) -> cri.UpdateContainerResourcesResponse:
        """Serve UpdateContainerResources: zero and empty keep what was; nothing changes if the kernel refuses."""
        try:
            container = self._core.records.container(request.container_id)
        except Refusal as refusal:
            raise refusal.within("failed to find container") from None
        linux = await self._core.plugins.update(self._core, container, request.linux)
        self._core.update_container(container, linux)
        await self._core.plugins.tell("PostUpdateContainer", container.sandbox, container)
        return cri.UpdateContainerResourcesResponse()

    async def reopen_log(self, request: cri.ReopenContainerLogRequest) -> cri.ReopenContainerLogResponse:
        """Serve ReopenContainerLog; there is no log, but the checks are containerd's."""
        if self._named(request.container_id).state != cri.CONTAINER_RUNNING:
            raise unknown("container is not running")
        return cri.ReopenContainerLogResponse()

    async def stats(self, request: cri.ContainerStatsRequest) -> cri.ContainerStatsResponse:
        """Serve ContainerStats, for containers that run."""
        try:
            container = self._core.records.container(request.container_id)
        except Refusal as refusal:
            raise refusal.within("failed to find container") from None
        if container.state != cri.CONTAINER_RUNNING:
            raise unknown("unexpected metrics response: []")
        return cri.ContainerStatsResponse(stats=views.container_stats(container))

    async def list_stats(self, request: cri.ListContainerStatsRequest) -> cri.ListContainerStatsResponse:
        """Serve ListContainerStats, for containers that run."""
        wanted = request.filter
        found = self._selected(wanted.id, wanted.pod_sandbox_id, wanted.label_selector.items())
        running = [views.container_stats(one) for one in found if one.state == cri.CONTAINER_RUNNING]
        return cri.ListContainerStatsResponse(stats=running)

    def _named(self, prefix: str) -> Container:
        try:
            return self._core.records.container(prefix)
        except Refusal as refusal:
            raise refusal.within(f'an error occurred when try to find container "{prefix}"') from None


def _no_task(sandbox_id: str) -> Refusal:
    why = f"no running task found: task {sandbox_id} not found"
    return not_found().within(f"failed to get sandbox container task: {why}")
