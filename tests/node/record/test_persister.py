"""What is on disk while the disk fails, hangs and comes back."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from criproxy.errors import StoreError
from criproxy.model.node import Node
from criproxy.model.record import Kind, Record
from criproxy.model.workload import Pod
from criproxy.node.counters import Counters
from criproxy.node.record import persister
from criproxy.node.record.persister import FLUSH_S, MAX_RECORDS, Persister
from criproxy.node.settings import StoreLimits
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from criproxy.store.writing import LeftOut
from tests.node.world import PATIENT_STORE, RecordingLog, soon

EMPTY = Node(machine(nodes=1, cores=4))
PATIENT = replace(PATIENT_STORE, retry_pause_s=0.01, retry_limit_s=0.02)
"""For a disk that answers or fails: on a slow machine, a write in memory may take a while."""
QUICK = replace(PATIENT, timeout_s=0.05)
"""For a disk that hangs."""
LIMIT_S = 60.0


@dataclass
class Disk:
    """A store in memory whose disk fails, or hangs, as told."""

    problem: Exception | None = None
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    tries: int = 0
    written: list[tuple[Node, Node, tuple[str, ...]]] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    """The history, oldest first."""
    wrote: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with each write."""
    then: Exception | None = None
    """The problem after the next write."""

    left_out: tuple[LeftOut, ...] = ()
    lost_records: int = 0

    async def save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        """Write, as soon as `answers` is set, or fail."""
        self.tries += 1
        await self.answers.wait()
        if self.problem:
            raise self.problem
        self.written.append((before, after, tuple(record.sentences[0] for record in records)))
        self.records += records
        self.wrote.set()
        self.problem = self.then

    @property
    def reasons(self) -> list[str]:
        """The history, oldest first."""
        return [reason for *_, reasons in self.written for reason in reasons]


@pytest.fixture
def disk() -> Disk:
    """One that does not answer yet."""
    return Disk()


def decided(keeper: Persister, number: int) -> Node:
    """Let *keeper* have a node and a reason of its own; returns the node."""
    pod = Pod(key=f"pod{number}")
    node = EMPTY.replace(pods={pod.key: pod})
    keeper.put(node)
    keeper.add(Record(0, "", "", Kind.NODE, (f"reason {number}",)))
    return node


def keeper_of(disk: Disk, limits: StoreLimits = PATIENT) -> tuple[Persister, RecordingLog]:
    """A keeper of *disk*, and its log."""
    log = RecordingLog()
    failures = Failures(log=log)
    return Persister(EMPTY, cast("Store", disk), limits, Counters(), log, failures, Tasks(log, failures)), log


def new(disk: Disk, *, hangs: bool = False) -> tuple[Persister, RecordingLog]:
    """The same, of a disk that answers, or hangs for longer than the keeper waits."""
    if hangs:
        return keeper_of(disk, QUICK)
    disk.answers.set()
    return keeper_of(disk)


async def test_what_nobody_waits_for_is_written_soon_and_together(disk: Disk) -> None:
    """A hundred changes are one write of the newest node, with every record in order."""
    keeper, _ = new(disk)
    await keeper.check()
    last = [decided(keeper, number) for number in range(100)][-1]

    await soon(lambda: bool(disk.reasons))

    assert disk.tries == 2
    assert disk.written[-1][:2] == (EMPTY, last)
    assert disk.reasons == [f"reason {number}" for number in range(100)]
    await keeper.close()


def table_of(number: int) -> Record:
    """What a decision was chosen from."""
    return Record(0, "", "", Kind.CONSIDERED, (f"table {number}",))


async def test_what_was_compared_waits_for_another_change(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is written with it, or alone where none comes; who reads or ends does not wait."""
    keeper, _ = new(disk)
    await keeper.check()
    keeper.add(table_of(1))
    await asyncio.sleep(3 * FLUSH_S)
    assert disk.tries == 1

    decided(keeper, 1)
    await soon(lambda: bool(disk.reasons))
    assert (disk.tries, disk.reasons) == (2, ["table 1", "reason 1"])
    keeper.add(table_of(2))
    await keeper.flush()
    assert disk.reasons[2:] == ["table 2"]

    monkeypatch.setattr(persister, "LATER_S", 0.01)
    other, _ = new(disk)
    other.add(table_of(3))
    await soon(lambda: disk.reasons[3:] == ["table 3"])
    keeper.add(table_of(4))
    await keeper.close()
    assert disk.reasons[4:] == ["table 4"]
    await other.close()


async def test_what_is_to_be_kept_together_is_one_write(disk: Disk) -> None:
    """Who waits for the node alone gets it without the history, but for what nothing else would tell after a crash."""
    keeper, _ = new(disk)
    await keeper.check()
    decided(keeper, 1)
    await keeper.durable()
    assert disk.reasons == []

    decided(keeper, 2)
    keeper.keep_together()
    decided(keeper, 3)
    await keeper.durable()
    assert disk.reasons == ["reason 1", "reason 2", "reason 3"]
    decided(keeper, 4)
    await keeper.durable()
    assert len(disk.reasons) == 3
    await keeper.close()


async def test_who_waits_is_told_when_its_own_version_is_written(disk: Disk) -> None:
    """What came while the disk was at work goes with the next write, which begins at once; the history follows."""
    keeper, _ = keeper_of(disk)
    decided(keeper, 1)
    first = asyncio.create_task(keeper.durable())
    await soon(lambda: disk.tries == 1)
    node = decided(keeper, 2)
    second = asyncio.create_task(keeper.durable())
    await asyncio.sleep(0)

    disk.answers.set()
    await first
    await second

    assert [after for _, after, _ in disk.written][-1] is node
    await keeper.durable()
    assert disk.tries == len(disk.written) == 2
    assert "reason 2" not in disk.reasons
    await soon(lambda: disk.reasons == ["reason 1", "reason 2"])
    await keeper.close()


async def test_an_event_loop_that_stood_still_is_no_failing_disk() -> None:
    """A virtual machine was paused, or the CPU was somebody else's: the disk has had no time to answer."""
    disk, limit_s = Disk(), 1.0
    keeper, log = keeper_of(disk, replace(PATIENT, timeout_s=limit_s))
    decided(keeper, 1)
    saving = asyncio.create_task(keeper.durable())
    while not disk.tries:  # noqa: ASYNC110 (it has begun)
        await asyncio.sleep(0)
    time.sleep(1.5 * limit_s)  # noqa: ASYNC251 (that is it)
    asyncio.get_running_loop().call_later(0.01, disk.answers.set)

    await saving

    assert keeper.error is None
    assert not log.lines
    await keeper.close()


async def test_a_failing_disk_is_told_of_once_and_caught_up_with() -> None:
    """Who waits for it is told, and the newest state is written when the disk is back, without an event."""
    disk = Disk(StoreError("disk is full"))
    keeper, log = new(disk)

    decided(keeper, 1)
    for _ in range(2):
        with pytest.raises(StoreError, match="disk is full"):
            await keeper.durable()
    last = decided(keeper, 2)
    assert str(keeper.error) == "disk is full"
    assert log.events() == ["state cannot be stored; criproxy continues in memory"]
    assert not keeper._failures.recent()  # criproxy works, and `error` tells of the disk

    disk.problem = None
    await soon(lambda: keeper.error is None)
    await keeper.flush()

    assert disk.reasons == ["reason 1", "reason 2"]
    assert disk.written[0][0] is EMPTY
    assert disk.written[-1][1] is last
    assert log.events()[1:] == ["state is stored again"]
    await keeper.close()


async def test_a_write_that_has_begun_answers_no_check(disk: Disk) -> None:
    """It may have taken the last free space: whoever ends a release then would give exclusive CPUs unstored."""
    keeper, _ = keeper_of(disk)
    disk.then = StoreError("disk is full")
    decided(keeper, 1)
    flushing = asyncio.create_task(keeper.flush())
    await soon(lambda: disk.tries == 1)
    checking = asyncio.create_task(keeper.check())
    await asyncio.sleep(0)

    disk.answers.set()
    await flushing
    await checking

    assert "disk is full" in str(keeper.error)
    disk.problem = disk.then = None
    await keeper.close()


async def test_only_the_timer_tries_a_failing_disk() -> None:
    """A disk with errors may take long for each: no event waits for it."""
    disk = Disk(OSError("input/output error"))
    keeper, _ = keeper_of(disk, replace(PATIENT, retry_pause_s=60.0))
    disk.answers.set()
    for number in range(50):
        decided(keeper, number)
        await keeper.flush()

    assert disk.tries == 1
    assert "input/output error" in str(keeper.error)
    await keeper.close()


async def test_a_disk_that_hangs_stops_nobody(disk: Disk) -> None:
    """After the limit a write counts as failed, no other is begun before it ends, and late success is success."""
    keeper, _ = new(disk, hangs=True)

    decided(keeper, 1)
    with pytest.raises(StoreError, match=r"has not answered for 0\.05 s"):
        await keeper.durable()
    decided(keeper, 2)
    with pytest.raises(StoreError, match="has not answered"):
        await keeper.durable()
    await asyncio.sleep(3 * QUICK.retry_limit_s)
    assert disk.tries == 1

    disk.answers.set()
    await soon(lambda: keeper.error is None)
    await keeper.flush()

    befores = [before for before, *_ in disk.written]
    afters = [after for _, after, _ in disk.written]
    assert befores == [EMPTY, *afters[:-1]]
    assert disk.reasons == ["reason 1", "reason 2"]
    await keeper.close()


async def test_calls_without_a_pause_do_not_keep_the_history_from_the_disk(disk: Disk) -> None:
    """There is always a caller that waits for the node alone, and no entry is lost."""
    keeper, _ = new(disk)
    await keeper.check()
    numbers = range(MAX_RECORDS + 500)
    for number in numbers:
        decided(keeper, number)
        if number % 50 == 49:
            await keeper.durable()

    await keeper.flush()

    assert keeper._failures.counts["telling"] == 0
    assert disk.reasons == [f"reason {number}" for number in numbers]
    await keeper.close()


async def test_memory_is_bounded_while_the_disk_is_away() -> None:
    """A day without a disk keeps the latest state and the latest history, and says how much of it is lost."""
    disk = Disk(StoreError("read-only"))
    keeper, _ = new(disk)
    last = EMPTY
    for number in range(MAX_RECORDS + 10):
        last = decided(keeper, number)
        if number == MAX_RECORDS // 2:
            await keeper.flush()  # those that were tried come first

    disk.problem = None
    await soon(lambda: keeper.error is None)
    await keeper.flush()

    assert disk.reasons == [f"reason {number}" for number in range(10, MAX_RECORDS + 10)]
    assert disk.written[0][0] is EMPTY
    assert disk.written[-1][1] is last
    (lost,) = keeper._failures.recent()
    assert (lost.kind, lost.times) == ("telling", 10)
    await keeper.close()


class MoodyDisk(Disk):
    """A disk that works, fails, or takes long and then works or fails, in the order of *moods*; it works at last."""

    def __init__(self, moods: list[str]) -> None:
        super().__init__()
        self.moods = moods
        self.content = EMPTY
        self.busy = False

    async def save(self, before: Node, after: Node, records: Sequence[Record]) -> None:
        """Write on top of *before*, which must be what is there."""
        assert not self.busy
        assert before is self.content
        self.busy = True
        mood = self.moods.pop(0) if self.moods else "works"
        await asyncio.sleep(0.01 if mood.startswith("hangs") else 0)
        self.busy = False
        if mood.endswith("fails"):
            raise StoreError("an error of the disk")
        self.content = after
        self.written.append((before, after, tuple(record.sentences[0] for record in records)))


MOODS = ["works", "fails", "hangs and works", "hangs and fails"]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.sampled_from(MOODS), max_size=12), st.lists(st.booleans(), min_size=1, max_size=12))
def test_whatever_the_disk_does_it_ends_with_the_truth(moods: list[str], waits: list[bool]) -> None:
    """Each write builds on what is there, the history has every line once and in order, and the last state is kept."""

    async def life() -> tuple[MoodyDisk, Node]:
        disk, node = MoodyDisk(list(moods)), EMPTY
        keeper, _ = keeper_of(disk, StoreLimits(timeout_s=0.003, retry_pause_s=0.001))
        for number, waiting in enumerate(waits):
            node = decided(keeper, number)
            if waiting:
                try:
                    await keeper.durable()
                except StoreError:
                    continue
                assert disk.content is node
            await asyncio.sleep(0)
        await soon(lambda: keeper.error is None and len(disk.reasons) == len(waits))
        await keeper.close()
        return disk, node

    disk, node = asyncio.run(life())

    assert disk.reasons == [f"reason {number}" for number in range(len(waits))]
    assert disk.content is node


async def test_the_end_tries_once_more() -> None:
    """A disk that came back just before we stop gets what waits for it; one that did not is told of."""
    for problem, reasons in ((None, ["reason 1"]), (StoreError("still full"), [])):
        disk = Disk(StoreError("disk is full"))
        disk.answers.set()
        keeper, log = keeper_of(disk, replace(PATIENT, retry_pause_s=60.0))
        decided(keeper, 1)
        await keeper.flush()
        disk.problem = problem
        await keeper.close()

        assert disk.reasons == reasons
        assert ("state lost: the runtime is asked at the next start" in log.events()) is (problem is not None)


async def test_a_disk_that_hangs_at_the_end_holds_up_nobody_for_long(disk: Disk) -> None:
    """It gets its time once, and what is lost is told."""
    keeper, log = new(disk, hangs=True)
    decided(keeper, 1)

    async with asyncio.timeout(LIMIT_S):
        await keeper.close()

    assert disk.tries == 1
    assert log.events()[-1] == "state lost: the runtime is asked at the next start"


async def test_a_mistake_of_ours_does_not_end_the_tries(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is raised while the disk is tried: it is tried again, else nobody would own CPUs any more."""
    keeper, log = new(disk)
    write, planted = Persister._write, [ValueError("planted")]

    async def fails_once(self: Persister) -> None:
        if planted:
            raise planted.pop()
        await write(self)

    monkeypatch.setattr(Persister, "_write", fails_once)
    decided(keeper, 1)

    await keeper.flush()
    assert "planted" in str(keeper.error)
    await soon(lambda: keeper.error is None)
    (failure,) = keeper._failures.recent()
    assert (failure.kind, "ValueError('planted')" in failure.text) == ("background", True)
    assert [keys["exc_info"] is not None for event, keys in log.lines if event == "background work failed"] == [True]

    assert disk.reasons == ["reason 1"]
    await keeper.close()
