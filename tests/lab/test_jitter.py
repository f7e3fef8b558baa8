"""`--jitter` delays threads, sockets and the event loop, and keeps asyncio's promises."""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from lab.jitter import SOCKET, STANDSTILL, THREAD, Jitter

COUNT = 50
KINDS = {STANDSTILL.name, THREAD.name, SOCKET.name}


async def test_what_has_an_order_keeps_it() -> None:
    """Work of one thread, its reports, and bytes of a socket; each kind of delay happens on the way."""
    loop, jitter, began, reported = asyncio.get_running_loop(), Jitter("1"), list[int](), list[int]()

    def work(number: int) -> None:
        began.append(number)
        loop.call_soon_threadsafe(reported.append, number)

    with jitter.applied(), ThreadPoolExecutor(1) as pool:
        near, far = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=near)
        far.setblocking(False)
        pings = list[int]()
        while len(pings) < COUNT or jitter.happened.keys() < KINDS:
            pool.submit(partial(work, len(pings)))
            await loop.sock_sendall(far, len(pings).to_bytes(4))
            pings.append(int.from_bytes(await reader.readexactly(4)))
        await asyncio.to_thread(pool.shutdown)
        while len(reported) < len(pings):  # noqa: ASYNC110 (each is a turn of the loop)
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        far.close()

    assert began == reported == pings == list(range(len(pings)))


async def test_nothing_is_left_of_it() -> None:
    """After the block, no delay happens any more."""
    jitter = Jitter("1")
    submit = ThreadPoolExecutor.submit
    with jitter.applied():
        assert ThreadPoolExecutor.submit is not submit
    before = jitter.happened.copy()

    for _ in range(COUNT):
        await asyncio.to_thread(int)

    assert jitter.happened == before
    assert ThreadPoolExecutor.submit is submit
