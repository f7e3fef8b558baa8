"""What a node does to its runtime."""

import asyncio
from threading import Event

from lab.chaos.nodes import in_thread


async def test_what_is_cancelled_is_over_when_the_next_begins() -> None:
    """An interrupt in the middle of a restart of the runtime waits for it: else it would outlast the run."""
    begun, may_end = Event(), Event()
    done: list[str] = []

    def restart() -> None:
        begun.set()
        may_end.wait()
        done.append("restarted")

    work = asyncio.create_task(in_thread(restart))
    await asyncio.to_thread(begun.wait)
    work.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)

    await asyncio.wait([work])

    assert work.cancelled()
    assert done == ["restarted"]
