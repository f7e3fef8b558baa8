"""Looks at what may hang: bounded, apart from everybody else, and known."""

import asyncio
import threading
import time
from concurrent.futures import Future

import pytest

from criproxy.host.patience import FIRST_PAUSE_S, Hangs, Patience
from tests.gates import Gate


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now_s


@pytest.fixture
def gate() -> threading.Event:
    """What a hanging look waits for."""
    return Gate()


async def test_what_comes_back_in_time_is_the_answer() -> None:
    """Its errors come to whoever waits, too, and nothing is left."""
    patience = Patience()

    assert (await patience.wait("a", lambda: 1, 60.0), patience.ask("a", lambda: 2, 60.0)) == (1, 2)
    with pytest.raises(ZeroDivisionError):
        await patience.wait("a", lambda: 1 // 0, 60.0)
    with pytest.raises(TimeoutError, match="its own"):
        await patience.wait("a", lambda: _raise(TimeoutError("its own")), 60.0)
    assert not patience.hanging


async def test_what_ends_at_the_last_moment_is_the_answer(gate: threading.Event) -> None:
    """And no error: the limit and the end of the look come in the same turn of the loop."""
    patience, begun, limit_s = Patience(), threading.Event(), 0.05

    def look() -> int:
        begun.set()
        gate.wait()
        return 1

    asked = asyncio.create_task(patience.wait("a", look, limit_s))
    await asyncio.to_thread(begun.wait)
    future, end_s = patience.begin("a", look), asyncio.get_running_loop().time() + limit_s
    gate.set()
    while not future.done() or time.monotonic() < end_s:
        time.sleep(0.001)  # noqa: ASYNC251 (the loop has no turn until both are over)

    assert await asked == 1
    assert not patience.hanging


def _raise(error: Exception) -> int:
    raise error


async def test_what_hangs_is_waited_for_once(gate: threading.Event) -> None:
    """Who asks later hears at once that it hangs, and since when; when it comes back, it is asked again."""
    clock = Clock()
    patience = Patience(clock)
    with pytest.raises(Hangs, match=r"^/proc/x has not answered for 0\.01 s$"):
        await patience.wait("/proc/x", gate.wait, 0.01)
    clock.now_s += 5

    with pytest.raises(Hangs, match=r"for 5 s$"):  # a wait of an hour would outlast the test
        await patience.wait("/proc/x", gate.wait, 3600.0)
    assert (patience.hanging, patience.ask("/proc/y", lambda: 1, 60.0)) == ({"/proc/x": 5.0}, 1)

    gate.set()
    while patience.hanging:  # noqa: ASYNC110 (a thread ends)
        await asyncio.sleep(0.001)
    assert await patience.wait("/proc/x", lambda: 2, 60.0) == 2


async def test_what_hangs_is_tried_again_after_a_while(gate: threading.Event) -> None:
    """In the background: nobody waits for that, either; the pause doubles."""
    clock, tried = Clock(), list[float]()
    patience = Patience(clock)

    def look() -> int:
        tried.append(clock.now_s)
        gate.wait()
        return 1

    for moment_s in (0, FIRST_PAUSE_S - 1, FIRST_PAUSE_S, 3 * FIRST_PAUSE_S - 1, 3 * FIRST_PAUSE_S):
        clock.now_s = 100 + moment_s
        with pytest.raises(Hangs):
            await patience.wait("x", look, 0.01)

    assert tried == [100, 100 + FIRST_PAUSE_S, 100 + 3 * FIRST_PAUSE_S]
    gate.set()


async def test_no_thread_that_hangs_is_waited_for_at_the_end(gate: threading.Event) -> None:
    """They are daemonic, and none of the loop's own pool."""
    patience = Patience()
    for number in range(40):
        with pytest.raises(Hangs):
            patience.ask(f"look {number}", gate.wait, 0.0)

    mine = [thread for thread in threading.enumerate() if thread.name.startswith("look at look")]
    assert len(mine) == 40
    assert all(thread.daemon for thread in mine)
    assert await asyncio.to_thread(lambda: 1) == 1
    gate.set()


def test_without_a_thread_there_is_no_answer_until_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a limit of processes; the next caller does not wait for what has not begun."""
    patience = Patience()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", lambda _: _raise(RuntimeError("can't start new thread")))
        with pytest.raises(Hangs, match=r"^x cannot be read: can't start new thread$"):
            patience.ask("x", lambda: 1, 60.0)

    assert patience.ask("x", lambda: 2, 60.0) == 2


@pytest.mark.parametrize("turns", range(4))
async def test_a_caller_that_is_cancelled_as_the_answer_comes_is_cancelled(
    monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """In whichever turn of the loop: a call that has ended must not go on to reserve CPUs."""
    answer = Future[int]()
    monkeypatch.setattr(Patience, "begin", lambda *_: answer)
    waiting = asyncio.create_task(Patience().wait("a", lambda: 1, 60.0))
    await asyncio.sleep(0)
    answer.set_result(1)
    for _ in range(turns):
        await asyncio.sleep(0)
    is_over = waiting.done()

    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled() is not is_over
