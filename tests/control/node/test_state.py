"""One event after the other, and what has happened already together to the disk."""

import asyncio
import time

import pytest

from criproxy.control.node.state import MAX_TOGETHER, NodeState, Words
from criproxy.engine.events import (
    ContainerCreated,
    ContainerCreating,
    ContainerGone,
    ContainerStarted,
    Event,
    PodCreated,
    UnknownOutcome,
)
from criproxy.errors import NotEnough, StoreError
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.store.record import Kind
from tests.control.node.test_persister import EMPTY, LIMIT_S, QUICK, Disk
from tests.control.world import STATIC, RecordingLog


def manager_of(disk: Disk, log: RecordingLog | None = None) -> NodeState:
    """A manager of an empty node with four CPUs, one of them reserved."""
    return NodeState(EMPTY, STATIC, disk, log or RecordingLog(), QUICK)


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


async def quiet() -> tuple[NodeState, Disk, list[Event]]:
    """A manager of a node with one pod, all of it stored; its disk; the events that are told from now on."""
    disk = Disk()
    disk.answers.set()
    manager, heard = manager_of(disk), list[Event]()
    await done(manager, PodCreated(Pod(key="pod")))
    await manager.flush()
    manager.heard = lambda event, _: heard.append(event)
    return manager, disk, heard


async def test_what_has_happened_goes_to_the_disk_together() -> None:
    """A hundred events need a few transactions, and all is there when the last one is done."""
    disk = Disk()
    disk.answers.set()
    manager = manager_of(disk)
    pods = [PodCreated(Pod(key=f"pod{number}")) for number in range(100)]

    await done(manager, *pods)

    checks = 1
    assert disk.tries == checks + -(-100 // MAX_TOGETHER)
    assert list(disk.written[-1][1].pods) == [f"pod{number}" for number in range(100)]
    await manager.close()


async def test_nobody_acts_on_what_is_not_stored() -> None:
    """Neither a reservation nor what comes before it is done while the disk is at work."""
    disk = Disk()
    manager = manager_of(disk)
    futures = [manager.submit(event) for event in (PodCreated(Pod(key="pod")), creating("main", 1000))]
    await asyncio.sleep(0.01)
    assert not any(future.done() for future in futures)
    assert manager.node is EMPTY

    disk.answers.set()
    await asyncio.gather(*futures)

    assert list(manager.node.containers) == ["r-main"]
    await manager.close()


async def test_who_only_shares_does_not_wait_for_the_disk() -> None:
    """The create goes on and everybody sees it; it is written soon, and with the next change at the latest."""
    disk = Disk()
    disk.answers.set()
    manager = manager_of(disk)
    await done(manager, PodCreated(Pod(key="pod")))
    disk.answers.clear()

    async with asyncio.timeout(LIMIT_S):
        decision = await manager.submit(creating("main"))
    assert decision.grant is not None
    assert list(manager.node.containers) == ["r-main"]
    next_one = manager.submit(creating("own", 1000))
    await asyncio.sleep(0.01)
    assert not next_one.done()

    disk.answers.set()
    await next_one
    assert list(disk.written[-1][1].containers) == ["r-main", "r-own"]
    await manager.submit(creating("last"))
    await manager.close()
    assert list(disk.written[-1][1].containers) == ["r-main", "r-own", "r-last"]


async def test_on_a_quiet_node_who_only_shares_need_not_wait_at_all() -> None:
    """It is placed when it was submitted, and told of in its turn; who owns waits for the disk as ever."""
    disk = Disk()
    disk.answers.set()
    manager, heard = manager_of(disk), list[tuple[Event, object]]()
    manager.heard = lambda event, result: heard.append((event, result))
    await done(manager, PodCreated(Pod(key="pod")))
    await manager.flush()

    placed = manager.submit(creating("main"))
    assert placed.done()
    assert list(manager.node.containers) == ["r-main"]
    confirmed = manager.submit(ContainerCreated("r-main", "id"))
    assert confirmed.done()
    assert list(manager.node.containers) == ["id"]
    waiting = [manager.submit(creating("greedy", 9000)), manager.submit(creating("own", 1000))]
    assert not any(future.done() for future in waiting)

    await asyncio.gather(*waiting, return_exceptions=True)
    await manager.close()
    assert [type(event) for event, _ in heard] == [
        PodCreated,
        ContainerCreating,
        ContainerCreated,
        ContainerCreating,
        ContainerCreating,
    ]
    assert heard[1][1] is placed.result()
    assert isinstance(heard[3][1], NotEnough)
    assert list(disk.written[-1][1].containers) == ["id", "r-own"]


async def test_what_is_seen_already_is_told_after_a_while() -> None:
    """Nothing else is to be done meanwhile, and it goes to the disk although nobody asks for it."""
    manager, disk, heard = await quiet()

    await manager.submit(creating("main"))
    await manager.submit(ContainerCreated("r-main", "id"))
    await manager.settled()
    assert not heard
    disk.wrote.clear()

    async with asyncio.timeout(LIMIT_S):
        await disk.wrote.wait()
    assert list(disk.written[-1][1].containers) == ["id"]
    assert [type(event) for event in heard] == [ContainerCreating, ContainerCreated]
    await manager.close()


async def test_what_is_seen_already_is_told_before_anything_else_is_done() -> None:
    """In its order, with the time at which it was decided."""
    manager, disk, heard = await quiet()
    await manager.submit(creating("main"))
    decided_s = time.time()

    await manager.submit(ContainerGone("r-main"))

    assert type(heard[0]) is ContainerCreating
    await manager.close()
    assert [record.at_s <= decided_s for record in disk.records if record.kind is Kind.GRANTED] == [True]


async def test_a_confirmation_that_history_does_not_tell_is_stored_too() -> None:
    """A list had taken the container in before its call was answered."""
    manager, disk, _ = await quiet()
    await done(manager, creating("main"), ContainerCreated("r-main", "id"), UnknownOutcome("id"))
    await manager.flush()

    await manager.submit(ContainerCreated("r-main", "id"))

    await manager.flush()
    assert disk.written[-1][1].containers["id"].state is ContainerState.CREATED
    await manager.close()


async def test_a_refusal_on_a_quiet_node_is_told_once() -> None:
    """It was worked out when it was submitted, and the policy is not asked again."""
    disk = Disk()
    disk.answers.set()
    manager, heard = manager_of(disk), list[object]()
    manager.heard = lambda _, result: heard.append(result)
    await done(manager, PodCreated(Pod(key="pod")))
    await manager.flush()

    (refused,) = await done(manager, creating("greedy", 9000))

    await manager.close()
    assert isinstance(refused, NotEnough)
    assert heard[1:] == [refused]
    assert not manager.node.containers


async def test_events_go_on_where_telling_of_one_fails() -> None:
    """Whoever hears of a decision cannot end all others: it stands, and the log has what went wrong."""
    disk = Disk()
    disk.answers.set()
    log = RecordingLog()
    manager = manager_of(disk, log)

    def fail(event: Event, result: object) -> None:
        raise RuntimeError(f"no ears for {event}")

    manager.heard = fail
    for name in ("one", "two"):
        await done(manager, PodCreated(Pod(key=name)))

    await manager.close()
    assert list(manager.node.pods) == ["one", "two"]
    assert log.events() == ["what happened stands, but could not be reported"] * 2


async def test_who_only_shares_fails_with_a_disk_that_is_known_to_fail() -> None:
    """That is counted with all other failures, so that the bypass takes over."""
    disk = Disk(StoreError("disk is full"))
    disk.answers.set()
    manager = manager_of(disk)

    created, shares = await done(manager, PodCreated(Pod(key="pod")), creating("main"))

    assert not isinstance(created, Exception)
    assert isinstance(shares, StoreError)
    assert not manager.node.containers
    await manager.close()


async def test_a_refused_event_stands_alone() -> None:
    """Those around it happen, in their order."""
    disk = Disk()
    disk.answers.set()
    manager = manager_of(disk)

    results = await done(
        manager,
        creating("first"),
        ContainerCreated("r-first", "id1"),
        creating("greedy", 9000),
        ContainerStarted("id1"),
        creating("second"),
    )

    assert [type(result) for result in results if isinstance(result, Exception)] == [NotEnough]
    assert isinstance(results[2], NotEnough)
    states = {container.name: container.state for container in manager.node.containers.values()}
    assert states == {"first": ContainerState.RUNNING, "second": ContainerState.CREATING}
    await manager.close()


async def test_a_reservation_that_cannot_be_stored_takes_nothing_with_it() -> None:
    """What has happened before and after it counts."""
    disk = Disk(StoreError("disk is full"))
    disk.answers.set()
    manager = manager_of(disk)

    created, refused, late = await done(
        manager, PodCreated(Pod(key="pod")), creating("main", 1000), PodCreated(Pod(key="late"))
    )

    assert isinstance(refused, StoreError)
    assert not isinstance(created, Exception)
    assert not isinstance(late, Exception)
    assert (list(manager.node.pods), dict(manager.node.containers)) == (["pod", "late"], {})
    with pytest.raises(StoreError):
        await manager.submit(creating("main", 1000))
    await manager.close()


async def test_words_that_fail_keep_nothing_from_the_disk() -> None:
    """A history record that raises is left out once, and told of; this event and the next are stored."""
    manager, disk, _ = await quiet()

    def fails() -> Words:
        raise ValueError("no words")

    event = creating("one", 1000)
    manager.note_later(event.container, Kind.ASKED, fails)
    await done(manager, event)
    await manager.flush()
    await done(manager, ContainerCreated("r-one", "id1"), ContainerStarted("id1"))
    await manager.flush()

    assert manager.store_error is None
    assert disk.written[-1][1].containers["id1"].state is ContainerState.RUNNING
    assert manager.failures.counts["telling"] == 1
    await manager.close()
