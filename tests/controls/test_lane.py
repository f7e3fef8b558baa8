"""Work that may hang: what hangs waits alone, and passes follow each other."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import suppress
from threading import Event, active_count

import pytest

from criproxy.controls.lane import MOST_HANGING, Lane, Passes
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from tests.daemons import until
from tests.node.world import RecordingLog

HANG_S = 0.05


class Gate:
    """Holds up threads until it is opened."""

    def __init__(self) -> None:
        self.open = Event()

    def __call__(self) -> str:
        """Wait; return a word."""
        self.open.wait()
        return "late"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is opened at the end."""
    gate = Gate()
    yield gate
    gate.open.set()


def word(text: str) -> Callable[[], str]:
    """Work that is done at once."""
    return lambda: text


async def test_results_and_errors_come_by_name() -> None:
    """Of any kind; one error ends nothing else."""

    def fails() -> str:
        raise KeyError("x")

    done = await Lane("test", lambda: None).run([("a", word("1")), ("b", fails), ("c", word("3"))])

    assert (done["a"], type(done["b"]), done["c"]) == ("1", KeyError, "3")


async def test_what_hangs_is_named_and_waits_alone(gate: Gate) -> None:
    """Others are done, it is not begun a second time, and its end is told."""
    came_back = asyncio.Event()
    lane = Lane("test", came_back.set, HANG_S)

    items: list[tuple[str, Callable[[], str]]] = [("a", word("1")), ("b", gate), ("c", word("3"))]
    assert await lane.run(items) == {"a": "1", "c": "3"}
    assert list(lane.hanging) == ["b"]
    assert await lane.run([("b", word("again")), ("c", word("4"))]) == {"c": "4"}
    gate.open.set()
    await came_back.wait()
    assert not lane.hanging
    assert await lane.run([("b", word("again"))]) == {"b": "again"}


async def test_the_same_work_may_hang_twice(gate: Gate) -> None:
    """A container that starts is applied to beside a pass; the end of each is told."""
    ends, raised = list[int](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: raised.append(context))
    lane = Lane("test", lambda: ends.append(len(lane.hanging)), HANG_S)

    first, second = await asyncio.gather(lane.run([("a", gate)]), lane.run([("a", gate)]))
    assert first == second == {}
    gate.open.set()
    await until(lambda: len(ends) + len(raised) == 2)

    assert (ends, raised) == ([0, 0], [])


async def test_hanging_work_takes_few_threads(gate: Gate) -> None:
    """Beyond them, nothing is begun until one comes back."""
    threads, come = active_count(), asyncio.Event()
    lane = Lane("test", come.set, HANG_S)

    done = await lane.run([(str(number), gate) for number in range(2 * MOST_HANGING)])
    assert (done, len(lane.hanging)) == ({}, MOST_HANGING)
    assert await lane.run([("a", word("1"))]) == {}
    assert active_count() <= threads + MOST_HANGING
    gate.open.set()
    await until(lambda: not lane.hanging)
    assert await lane.run([("a", word("1"))]) == {"a": "1"}


async def test_whoever_asks_can_wait_for_a_pass_that_began_later() -> None:
    """What is asked during a pass is done by another one; several requests make one."""
    begun, go = list[bool](), asyncio.Event()

    async def work(look: bool) -> None:
        begun.append(look)
        await go.wait()

    passes = Passes(work)
    running = asyncio.create_task(passes.run())
    passes.ask()
    await until(lambda: begun)
    passes.ask(look=True)
    passes.ask()
    waiting = asyncio.create_task(passes.wait(None))
    assert not await passes.wait(0.01)
    go.set()
    assert await waiting
    assert (begun, passes.pending) == ([False, True], False)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running


async def test_a_pass_that_fails_is_repeated() -> None:
    """With the look that it was to take."""
    looks = list[bool]()

    async def work(look: bool) -> None:
        looks.append(look)
        if len(looks) == 1:
            raise ValueError("as planned")

    log = RecordingLog()
    tasks, passes = Tasks(log, Failures(log=log), first_pause_s=0.01), Passes(work)
    passes.ask(look=True)
    tasks.forever("passes", passes.run)
    assert await passes.wait(60.0)
    await tasks.stop()
    assert looks == [True, True]
