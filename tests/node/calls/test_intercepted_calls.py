"""Time limits of calls, on one timer for all."""

import asyncio

import pytest

from criproxy.node.calls.intercepted_calls import SharedTimer

LIMIT_S = 60.0


async def hang(timer: SharedTimer, limit_s: float) -> str:
    """Wait for ever within a limit; says how that ended."""
    limit = timer.begin(limit_s)
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        if timer.end(limit):
            return "over"
        raise
    raise AssertionError


@pytest.mark.parametrize("limits_s", [(0.01, 0.05), (0.05, 0.01), (0.01, 0.01)])
async def test_each_call_has_a_limit_of_its_own(limits_s: tuple[float, ...]) -> None:
    """Whichever begins first; a call that ends in time is left alone, and so is one whose limit is far away."""
    timer = SharedTimer()
    far = asyncio.create_task(hang(timer, LIMIT_S))
    async with asyncio.timeout(LIMIT_S):
        done = timer.begin(0.001)
        assert not timer.end(done)
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        assert await asyncio.gather(*(hang(timer, limit_s) for limit_s in limits_s)) == ["over", "over"]
        assert loop.time() - begun_s >= max(limits_s)
        assert await hang(timer, 0.01) == "over"  # the timer goes on

    assert not far.done()
    far.cancel()
    with pytest.raises(asyncio.CancelledError):
        await far


async def test_who_is_cancelled_by_others_is_not_over_its_limit() -> None:
    """Even if both happen at once: what others wanted counts."""
    timer = SharedTimer()
    task = asyncio.create_task(hang(timer, 0.0))
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task

    both = asyncio.create_task(hang(timer, 0.0))
    asyncio.get_running_loop().call_later(0.0, both.cancel)
    async with asyncio.timeout(LIMIT_S):
        (result,) = await asyncio.gather(both, return_exceptions=True)
    assert result == "over" or isinstance(result, asyncio.CancelledError)
