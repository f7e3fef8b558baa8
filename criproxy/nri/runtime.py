"""The runtime of a plugin, as the controller calls it."""

from collections.abc import Sequence

from criproxy.cri import api_pb2 as cri
from criproxy.cri.runtime import RuntimeClient
from criproxy.nri.front import NriFront


class NriRuntime(RuntimeClient):
    """The runtime: asked over CRI, and told of updates over NRI, which then does not ask about them.

    Args:
        endpoint: of CRI.
        front: sends the updates while it is connected.
    """

    def __init__(self, endpoint: str, front: NriFront) -> None:
        super().__init__(endpoint, reads_specs=True)
        self._front = front

    async def list_containers(self, sandbox_id: str = "") -> Sequence[cri.Container]:
        """List the containers in all states, or those of one sandbox."""
        told = frozenset(self._front.told)
        items = await super().list_containers(sandbox_id)
        if not sandbox_id and (told := told & self._front.told):
            is_without = told.isdisjoint(item.id for item in items)
            self._front.lists_without = self._front.lists_without + 1 if is_without else 0
        return items

    async def update_container_resources(self, container_id: str, linux: cri.LinuxContainerResources) -> None:
        """Change the fields set in *linux*; empty or 0 means unchanged.

        Not by UpdateContainers of NRI: where that meets an event, containerd waits for itself for ever (1.7.24: the one
        takes the lock of its NRI service before that of its plugins, the other after it).
        """
        if await self._front.update(container_id, linux):
            return
        request = cri.UpdateContainerResourcesRequest(container_id=container_id, linux=linux)
        self._front.own.append(request)
        try:
            await super().update_container_resources(container_id, linux)
        finally:
            self._front.own.remove(request)
