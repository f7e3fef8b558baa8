"""What is remembered of the cgroups of containers."""

import pytest

from criproxy.cri import api_pb2 as api
from tests.node.world import World, owner


@pytest.mark.parametrize("end", ["RemovePodSandbox", "StopContainer", "RemoveContainer"])
async def test_nothing_is_remembered_of_containers_that_have_gone(world: World, end: str) -> None:
    """Whichever way a container goes: by itself or with its sandbox."""
    sandbox_id, ids = await world.kubelet.run_pod(owner("owner", 1))
    await world.poll(lambda: world.groups() == {ids["main"]})

    if end == "RemovePodSandbox":
        await world.kubelet.remove_pod(sandbox_id)
    elif end == "StopContainer":
        stop = api.StopContainerRequest(container_id=ids["main"])
        await world.client.call(end, stop, api.StopContainerResponse)
    else:
        remove = api.RemoveContainerRequest(container_id=ids["main"])
        await world.client.call(end, remove, api.RemoveContainerResponse)

    await world.poll(lambda: not world.groups())
