"""Calls about sandboxes, as the embedded runtime answers them."""

from collections.abc import Iterable

from criproxy.cri import api_pb2 as cri
from lab.emulator.core import Core
from lab.emulator.records import views
from lab.emulator.records.records import Refusal, Sandbox, new_id, selected, unknown

HANDLERS = ("", "runc")
"""The runtime handlers that exist."""


class Sandboxes:
    """One coroutine per method."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def run(self, request: cri.RunPodSandboxRequest) -> cri.RunPodSandboxResponse:
        """Serve RunPodSandbox."""
        if not request.config.HasField("metadata"):
            raise unknown("sandbox config must include metadata")
        sandbox = Sandbox(new_id(), request.config, request.runtime_handler)
        if request.runtime_handler not in HANDLERS:
            raise unknown(f'failed to get sandbox runtime: no runtime for "{request.runtime_handler}" is configured')
        try:
            self._core.records.reserve(sandbox.name, sandbox.id)
        except Refusal as refusal:
            raise refusal.within(f'failed to reserve sandbox name "{sandbox.name}"') from None
        await self._core.delay("RunPodSandbox")
        self._core.records.sandboxes[sandbox.id] = sandbox
        self._core.events.of_sandbox(cri.CONTAINER_CREATED_EVENT, sandbox)
        self._core.events.of_sandbox(cri.CONTAINER_STARTED_EVENT, sandbox)
        await self._core.plugins.tell("RunPodSandbox", sandbox)
        return cri.RunPodSandboxResponse(pod_sandbox_id=sandbox.id)

    async def stop(self, request: cri.StopPodSandboxRequest) -> cri.StopPodSandboxResponse:
        """Serve StopPodSandbox: its containers end with it."""
        sandbox = self._named(request.pod_sandbox_id)
        self._core.stop_sandbox(sandbox)
        await self._core.plugins.tell("StopPodSandbox", sandbox)
        return cri.StopPodSandboxResponse()

    async def remove(self, request: cri.RemovePodSandboxRequest) -> cri.RemovePodSandboxResponse:
        """Serve RemovePodSandbox: a missing one is no error."""
        try:
            sandbox = self._named(request.pod_sandbox_id)
        except Refusal as refusal:
            if refusal.missing:
                return cri.RemovePodSandboxResponse()
            raise
        self._core.stop_sandbox(sandbox)
        for container in self._core.records.of_sandbox(sandbox):
            self._core.remove_container(container)
            await self._core.plugins.tell("RemoveContainer", sandbox, container)
        del self._core.records.sandboxes[sandbox.id]
        self._core.records.names.pop(sandbox.name, None)
        self._core.events.of_sandbox(cri.CONTAINER_DELETED_EVENT, sandbox)
        await self._core.plugins.tell("RemovePodSandbox", sandbox)
        return cri.RemovePodSandboxResponse()

    async def status(self, request: cri.PodSandboxStatusRequest) -> cri.PodSandboxStatusResponse:
        """Serve PodSandboxStatus; as in newer runtimes, the containers' come along."""
        try:
            sandbox = self._core.records.sandbox(request.pod_sandbox_id)
        except Refusal as refusal:
            raise refusal.within("an error occurred when try to find sandbox") from None
        statuses = [views.container_status(each) for each in self._core.records.of_sandbox(sandbox)]
        return cri.PodSandboxStatusResponse(status=views.sandbox_status(sandbox), containers_statuses=statuses)

    async def list(self, request: cri.ListPodSandboxRequest) -> bytes:
        """Serve ListPodSandbox, as bytes; every part of the filter must fit."""
        sandboxes: Iterable[Sandbox] = self._core.records.sandboxes.values()
        if request.HasField("filter"):
            sandboxes = self._filtered(request.filter)
        if unlisted := self._core.records.unlisted:
            sandboxes = (one for one in sandboxes if one.id not in unlisted)
        return views.listed_sandboxes(sandboxes)

    def _filtered(self, wanted: cri.PodSandboxFilter) -> Iterable[Sandbox]:
        table = self._core.records.sandboxes
        identifier = self._core.records.full_id(table, wanted.id)
        for sandbox in selected(table.values(), wanted.label_selector):
            if wanted.id and sandbox.id != identifier:
                continue
            if wanted.HasField("state") and sandbox.state != wanted.state.state:
                continue
            yield sandbox

    async def stats(self, request: cri.PodSandboxStatsRequest) -> cri.PodSandboxStatsResponse:
        """Serve PodSandboxStats."""
        identifier = request.pod_sandbox_id
        try:
            sandbox = self._core.records.sandbox(identifier)
        except Refusal as refusal:
            raise refusal.within(f"an error occurred when trying to find sandbox {identifier}") from None
        return cri.PodSandboxStatsResponse(stats=self._stats(sandbox))

    async def list_stats(self, request: cri.ListPodSandboxStatsRequest) -> cri.ListPodSandboxStatsResponse:
        """Serve ListPodSandboxStats."""
        table = self._core.records.sandboxes
        identifier = self._core.records.full_id(table, request.filter.id)
        found = [
            self._stats(sandbox)
            for sandbox in selected(table.values(), request.filter.label_selector)
            if sandbox.ready and (not request.filter.id or sandbox.id == identifier)
        ]
        return cri.ListPodSandboxStatsResponse(stats=found)

    async def update_resources(
        self, request: cri.UpdatePodSandboxResourcesRequest
    ) -> cri.UpdatePodSandboxResourcesResponse:
        """Serve UpdatePodSandboxResources: what the sandbox was asked for changes, its containers do not."""
        linux = self._named(request.pod_sandbox_id).config.linux
        if request.HasField("overhead"):
            linux.overhead.CopyFrom(request.overhead)
        if request.HasField("resources"):
            linux.resources.CopyFrom(request.resources)
        return cri.UpdatePodSandboxResourcesResponse()

    def _stats(self, sandbox: Sandbox) -> cri.PodSandboxStats:
        running = [one for one in self._core.records.of_sandbox(sandbox) if one.state == cri.CONTAINER_RUNNING]
        return views.sandbox_stats(sandbox, running)

    def _named(self, prefix: str) -> Sandbox:
        try:
            return self._core.records.sandbox(prefix)
        except Refusal as refusal:
            raise refusal.within(f'an error occurred when try to find sandbox "{prefix}"') from None
