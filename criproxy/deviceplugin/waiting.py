"""Waiting for an event; apart, because programs that have nothing to do with gRPC wait, too."""

import asyncio


async def set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Wait for *event*; return whether it was set within *timeout_s*."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False
