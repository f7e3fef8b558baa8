"""Objects that are followed stay true, whatever the API server does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from criproxy.agent.kubernetes.client import NODE_POLICIES, NODES, ApiClient, Object
from criproxy.agent.kubernetes.watch import Watched
from lab.apiserver.server import ApiServer


@asynccontextmanager
async def following(watched: Watched) -> AsyncIterator[Watched]:
    """Run it, and end it."""
    task = asyncio.create_task(watched.run())
    try:
        yield watched
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(watched: Watched, holds: Callable[[], bool]) -> None:
    """Return once *holds*."""
    async with asyncio.timeout(10):
        while not holds():
            await watched.changed()


def policy(name: str, priority: int = 0) -> Object:
    """A NodePolicy."""
    return {"metadata": {"name": name}, "spec": {"priority": priority}}


async def test_objects_are_read_and_followed(apiserver: ApiServer, api_client: ApiClient) -> None:
    """What is there at first, what comes, what changes, and what goes."""
    apiserver.objects.create(NODE_POLICIES, policy("a"))
    async with following(Watched(api_client, NODE_POLICIES)) as watched:
        await until(watched, lambda: watched.known)
        assert [*watched.objects] == ["a"]
        apiserver.objects.create(NODE_POLICIES, policy("b"))
        await until(watched, lambda: len(watched.objects) == 2)
        await api_client.merge_patch(NODE_POLICIES, "b", {"spec": {"priority": 7}})
        await until(watched, lambda: watched.objects["b"]["spec"]["priority"] == 7)
        await api_client.delete(NODE_POLICIES, "a")
        await until(watched, lambda: [*watched.objects] == ["b"])
    assert apiserver.requests["list", "nodepolicies"] == 1


async def test_a_watch_goes_on_after_a_reset(apiserver: ApiServer, api_client: ApiClient) -> None:
    """From the last version, without reading all again."""
    async with following(Watched(api_client, NODES, name="n1", metadata_only=True)) as watched:
        await until(watched, lambda: watched.known)
        await apiserver.until(lambda: len(apiserver.watches) == 1)
        apiserver.watches.reset()
        apiserver.objects.create(NODES, {"metadata": {"name": "n1", "labels": {"x": "y"}}})
        await until(watched, lambda: "n1" in watched.objects)
    assert watched.objects["n1"]["metadata"]["labels"] == {"x": "y"}
    assert apiserver.requests["list", "nodes"] == 1
