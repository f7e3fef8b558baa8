"""One event after the other, each at once; what must be on disk first, and what follows when there is time."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import cast

import pytest

from criproxy.errors import NotEnough, StoreError
from criproxy.model.grant import Change
from criproxy.model.node import Node
from criproxy.model.record import Kind
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.node.counters import Counters
from criproxy.node.record import state
from criproxy.node.record.persister import Persister
from criproxy.node.record.state import NodeState
from criproxy.placement.checked_policy import PolicyFault
from criproxy.placement.events import ContainerCreating, ContainerGone, Event, PodCreated, PolicyChanged
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticPolicy
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from criproxy.store.store import Store
from tests.gates import Gate
from tests.node.record.test_persister import EMPTY, LIMIT_S, PATIENT, Disk
from tests.node.world import STATIC, RecordingLog


def manager_of(disk: Disk, log: RecordingLog | None = None) -> NodeState:
    """A manager of an empty node with four CPUs, one of them reserved."""
    return state_on(cast("Store", disk), EMPTY, STATIC, log or RecordingLog())


def state_on(
    store: Store, node: Node, policy: Policy, log: RecordingLog, clock: Callable[[], float] = time.time
) -> NodeState:
    """The state of *node*, kept on *store*; failures are dated by *clock*."""
    counters, failures = Counters(), Failures(clock, log)
    tasks = Tasks(log, failures)
    persister = Persister(node, store, PATIENT, counters, log, failures, tasks)
    return NodeState(node, policy, persister, counters, log, failures, tasks)


def creating(name: str, cpu_milli: int = 100) -> ContainerCreating:
    """A create of a Guaranteed container."""
    return ContainerCreating(
        Container(
            key=f"r-{name}",
            pod="pod",
            name=name,
            pod_name="pod",
            namespace="default",
            qos=QosClass.GUARANTEED,
            cpu_milli=cpu_milli,
        )
    )


async def done(manager: NodeState, *events: Event) -> list[object]:
    """Submit *events* at once; what came of each."""
    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*(manager.submit(event) for event in events), return_exceptions=True)


async def quiet(disk: Disk | None = None) -> tuple[NodeState, Disk, list[Event]]:
    """A manager of a node with one pod, all of it stored; its disk; the events that are told from now on."""
    disk = disk or Disk()
    disk.answers.set()
    manager, heard = manager_of(disk), list[Event]()
    await done(manager, PodCreated(Pod(key="pod")))
    await manager.flush()
    manager.set_listener(lambda event, _: heard.append(event))
    return manager, disk, heard


async def test_an_event_is_applied_at_once() -> None:
    """Its future is done when it is submitted, whatever the disk does: it is for the caller to wait for that."""
    disk = Disk()
    manager = manager_of(disk)

    futures = [manager.submit(event) for event in (PodCreated(Pod(key="pod")), creating("own", 1000))]
    greedy = manager.submit(creating("greedy", 9000))

    assert all(future.done() for future in futures)
    assert isinstance(greedy.exception(), NotEnough)
    assert list(manager.node.containers) == ["r-own"]
    assert not disk.written
    disk.answers.set()
    await manager.close()


async def test_whoever_listens_hears_what_comes_after_the_node_that_it_got() -> None:
    """What was decided before is told to who listened before, at once."""
    manager, _, heard = await quiet()
    await manager.submit(creating("main"))

    late = list[Event]()
    node = manager.set_listener(lambda event, _: late.append(event))
    assert list(node.containers) == ["r-main"]
    assert [type(event) for event in heard] == [ContainerCreating]

    await manager.submit(ContainerGone("r-main"))
    await manager.flush()
    assert [type(event) for event in late] == [ContainerGone]
    await manager.close()


async def test_the_history_has_the_time_of_the_decision() -> None:
    """Not that at which it was put into words."""
    manager, disk, _ = await quiet()
    await manager.submit(creating("main"))
    decided_s = time.time()

    await manager.close()

    assert [record.at_s <= decided_s for record in disk.records if record.kind is Kind.GRANTED] == [True]


async def test_nobody_gets_a_place_while_the_disk_is_known_to_fail() -> None:
    """Who only shares neither: that is counted with all other failures, so that the bypass takes over."""
    disk = Disk(StoreError("disk is full"))
    disk.answers.set()
    manager = manager_of(disk)

    await manager._persister.check()
    created, shares, owns, greedy = await done(
        manager, PodCreated(Pod(key="pod")), creating("main"), creating("own", 1000), creating("greedy", 9000)
    )

    assert not isinstance(created, Exception)
    assert isinstance(shares, StoreError)
    assert isinstance(owns, StoreError)
    assert isinstance(greedy, NotEnough)
    assert not manager.node.containers
    await manager.close()


async def test_a_disk_that_begins_to_fail_takes_nothing_with_it() -> None:
    """Whoever needed it is told, and gives back what it got; what has happened before and after it counts."""
    manager, disk, _ = await quiet()
    disk.problem = StoreError("disk is full")

    await manager.submit(creating("main", 1000))
    await manager.submit(PodCreated(Pod(key="late")))
    with pytest.raises(StoreError, match="disk is full"):
        await manager._persister.durable("r-main")
    await manager.submit(ContainerGone("r-main"))

    assert (list(manager.node.pods), dict(manager.node.containers)) == (["pod", "late"], {})
    with pytest.raises(StoreError):
        await manager.submit(creating("main", 1000))
    disk.problem = None
    await manager.close()
    assert list(disk.written[-1][1].pods) == ["pod", "late"]


async def test_events_wait_in_order_while_the_whole_node_is_worked_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is done in a thread: the loop goes on, and what comes meanwhile sees the policy that it brings."""
    monkeypatch.setattr(state, "MANY", 0)
    manager, _, heard = await quiet()
    await done(manager, creating("main", 1000))
    begun, go_on = threading.Event(), Gate()

    class Slow(StaticPolicy):
        def place(self, node: Node, container: Container) -> Change:
            begun.set()
            assert go_on.wait(LIMIT_S)
            return super().place(node, container)

    slow = Slow(STATIC.options)
    changing = manager.submit(PolicyChanged(apply_all=True), slow)
    assert await asyncio.to_thread(begun.wait, LIMIT_S)
    behind = manager.submit(ContainerGone("r-main"))
    assert manager.is_ending("r-main")
    assert not changing.done()
    assert not behind.done()

    go_on.set()
    await manager.settled()

    assert manager.policy is slow
    assert not manager.node.containers
    assert not manager.is_ending("r-main")
    assert manager.submit(creating("next")).done()
    await manager.flush()
    assert [type(event) for event in heard] == [ContainerCreating, PolicyChanged, ContainerGone, ContainerCreating]
    await manager.close()


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        pytest.param(RuntimeError("no idea"), "RuntimeError('no idea')", id="exception"),
        pytest.param(PolicyFault("CPU 1 has two owners"), "CPU 1 has two owners", id="invalid-answer"),
    ],
)
async def test_a_policy_that_fails_at_what_has_happened_is_reported_once(error: Exception, reason: str) -> None:
    """One sentence says what it was, and that no container moved."""

    class Broken(StaticPolicy):
        def place(self, node: Node, container: Container) -> Change:
            raise error

    manager, _, _ = await quiet()
    await done(manager, creating("main", 1000))
    manager.policy = Broken(STATIC.options)

    await done(manager, PolicyChanged(apply_all=True))

    told = [(failure.text, failure.times) for failure in manager._failures.recent()]
    assert told == [(f"the policy failed (policy_changed), and no container moved: {reason}", 1)]
    await manager.close()


async def test_what_a_policy_did_wrong_in_a_thread_is_reported_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counters, failures and the log are the event loop's: `status` reads them while a thread works out an event."""
    monkeypatch.setattr(state, "MANY", 0)
    disk, threads = Disk(), list[tuple[str, threading.Thread]]()
    disk.answers.set()

    def clock() -> float:
        threads.append(("failures", threading.current_thread()))
        return time.time()

    class Log(RecordingLog):
        def error(self, event: str, **keys: object) -> None:
            threads.append((event, threading.current_thread()))

    class Broken(StaticPolicy):
        def place(self, node: Node, container: Container) -> Change:
            threads.append(("policy", threading.current_thread()))
            raise RuntimeError("no idea")

    manager = state_on(cast("Store", disk), EMPTY, STATIC, Log(), clock)
    await done(manager, PodCreated(Pod(key="pod")), creating("main", 1000))
    manager.policy = Broken(STATIC.options)

    await done(manager, PolicyChanged(apply_all=True))

    here = threading.main_thread()
    told = ["failures", "policy failed; no container moves"]
    assert [what for what, thread in threads if thread is not here] == ["policy"]
    assert [what for what, thread in threads if thread is here] == told
    assert manager._counters.policy_failures == 1
    await manager.close()
