"""The first process of a container is reported by the kernel, in real cgroups."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from criproxy.controls.arrivals import Arrivals
from tests.controls.cgroups import Cgroup

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

LIMIT_S = 20.0


class Waiting:
    """What has come, in this order."""

    def __init__(self) -> None:
        self.arrivals = Arrivals(Path("/"), self._arrived)
        self.come = asyncio.Queue[str]()

    async def _arrived(self, id: str) -> None:
        self.come.put_nowait(id)

    async def next(self) -> str:
        """Return the next container that has come."""
        async with asyncio.timeout(LIMIT_S):
            return await self.come.get()


@pytest.fixture
def pod() -> Iterator[Cgroup]:
    """The cgroup of a pod, in which those of its containers are made."""
    with Cgroup() as made:
        yield made


@pytest.fixture
async def waiting() -> AsyncIterator[Waiting]:
    """Arrivals that are waited for."""
    waiting = Waiting()
    task = asyncio.create_task(waiting.arrivals.run())
    yield waiting
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def test_a_process_in_a_cgroup_that_is_made_later_is_noticed(pod: Cgroup, waiting: Waiting) -> None:
    """The cgroups of other containers of the pod do not matter."""
    for name in ("one", "other"):
        waiting.arrivals.expect(name, f"{pod.path}/{name}")
    await asyncio.to_thread(pod.nested("stranger").run, "sleep", "1000")
    one, other = pod.nested("one"), pod.nested("other")

    for _ in range(2):
        await asyncio.to_thread(one.run, "sleep", "1000")
    assert await waiting.next() == "one"
    await asyncio.to_thread(other.run, "sleep", "1000")

    # And again: the runtime may not have been done.
    assert sorted([await waiting.next() for _ in range(5)]) == ["one", "one", "other", "other", "other"]
    assert waiting.come.empty()


async def test_a_process_in_an_empty_cgroup_is_noticed(pod: Cgroup, waiting: Waiting) -> None:
    """Also if the wait begins before its watcher runs."""
    one = pod.nested("one")
    waiting.arrivals.expect("one", one.path)

    await asyncio.to_thread(one.run, "sleep", "1000")

    assert await waiting.next() == "one"


async def test_nothing_is_said_of_containers_that_run_or_are_gone(pod: Cgroup, waiting: Waiting) -> None:
    """The first are applied as all; of the others, nobody wants to know any more."""
    runs, gone, last = pod.nested("runs"), f"{pod.path}/gone", f"{pod.path}/last"
    await asyncio.to_thread(runs.run, "sleep", "1000")

    waiting.arrivals.expect("runs", runs.path)
    waiting.arrivals.expect("gone", gone)
    waiting.arrivals.expect("last", last)
    waiting.arrivals.forget("gone")
    for name in ("gone", "last"):
        await asyncio.to_thread(pod.nested(name).run, "sleep", "1000")

    assert await waiting.next() == "last"
    assert waiting.come.empty()


async def test_a_pod_without_a_cgroup_is_no_trouble(waiting: Waiting) -> None:
    """Nothing can be watched then; a process is found by a look."""
    waiting.arrivals.expect("one", f"criproxy-test-{uuid.uuid4().hex}/one")
    waiting.arrivals.expect("none", "../elsewhere")
    await asyncio.sleep(0)
    waiting.arrivals.forget("one")
    waiting.arrivals.forget("none")

    assert waiting.come.empty()
