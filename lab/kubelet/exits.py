"""How the kubelet learns that a container has exited: the runtime's events say so, or it asks again and again."""

import asyncio
from contextlib import suppress

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient

RELIST_S = 0.2
"""Between two questions: containerd 1.6 has no events, and a stream of events may begin too late."""


async def exited(client: RuntimeClient, container_id: str) -> api.ContainerStatus:
    """The status of a container once it has exited.

    Raises:
        RuntimeCallError: the runtime cannot be asked, or does not know the container.
    """
    news = asyncio.Event()
    following = asyncio.create_task(_follow(client, news))
    try:
        while True:
            news.clear()
            status = (await client.container_status(container_id)).status
            if status.state == api.CONTAINER_EXITED:
                return status
            with suppress(TimeoutError):
                async with asyncio.timeout(RELIST_S):
                    await news.wait()
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def _follow(client: RuntimeClient, news: asyncio.Event) -> None:
    with suppress(RuntimeCallError):
        async for _ in client.container_events():
            news.set()
