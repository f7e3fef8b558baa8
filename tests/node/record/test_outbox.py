"""What is told of what happens: in order, after the calls, bounded, and harmless where it fails."""

import asyncio
import time

import pytest

from criproxy.model.record import Kind, Record
from criproxy.model.workload import Container, Pod
from criproxy.node.record import outbox
from criproxy.node.record.outbox import Outbox
from criproxy.node.record.refusals import Refusals
from criproxy.placement.decision import Decision, Step
from criproxy.placement.events import Event, PodCreated
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.none import NonePolicy
from criproxy.placement.records.history import Entry
from criproxy.process.failures import Failures
from criproxy.process.tasks import Tasks
from tests.node.record.test_persister import EMPTY
from tests.node.world import RecordingLog, soon

ONE = Container(key="r", pod="s", name="one")


class Told:
    """An outbox, and what it has told so far."""

    def __init__(self) -> None:
        self.log, self.records = RecordingLog(), list[Record]()
        self.failures = Failures(log=self.log)
        tasks = Tasks(self.log, self.failures, first_pause_s=0.01)
        self.outbox = Outbox(self.records.append, Refusals(), self.log, self.failures, tasks)
        self.heard = list[str]()
        self.outbox.listener = self.hear

    def hear(self, event: Event, _: Decision | Exception) -> None:
        """Keep the name of the pod that came."""
        assert isinstance(event, PodCreated)
        self.heard.append(event.pod.key)

    def put(self, name: str) -> None:
        """A pod came."""
        policy = NonePolicy(Options())
        self.outbox.put(Step(PodCreated(Pod(key=name)), EMPTY, Decision(EMPTY), 0.0, time.time(), policy))

    async def until(self, count: int) -> None:
        """Wait until so many were heard of."""
        await soon(lambda: len(self.heard) >= count)


async def test_what_happens_is_told_a_little_later_and_in_order() -> None:
    """Nothing is told while the call that led to it is at work; entries keep their place between steps."""
    told = Told()
    told.put("first")
    told.outbox.put(Entry(ONE, Kind.STARTED, ("it is running",), {}))
    told.put("second")
    await asyncio.sleep(0)
    assert (told.heard, told.records) == ([], [])

    await told.until(2)

    assert told.heard == ["first", "second"]
    assert [record.kind for record in told.records] == [Kind.STARTED]


async def test_of_too_much_the_oldest_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old nodes do not pile up, whatever comes in one turn of the loop, and nothing is lost."""
    monkeypatch.setattr(outbox, "MAX_WAITING", 3)
    told = Told()
    for number in range(5):
        told.put(f"pod{number}")
    assert told.heard == ["pod0", "pod1"]

    monkeypatch.setattr(outbox, "MAX_REMEMBERED", 1)
    told.put("last")
    assert told.heard == ["pod0", "pod1", "pod2", "pod3", "pod4"]

    told.outbox.drain()
    assert told.heard[-1] == "last"


async def test_what_cannot_be_put_into_words_is_left_out() -> None:
    """It is counted, and what comes before and after it is written."""

    def fails() -> Entry:
        raise ValueError("no words")

    told = Told()
    told.outbox.put(Entry(ONE, Kind.GRANTED, ("first",), {}))
    told.outbox.put(fails)
    told.outbox.put(Entry(ONE, Kind.STARTED, ("last",), {}))
    told.outbox.drain()

    assert [record.sentences for record in told.records] == [("first",), ("last",)]
    assert told.failures.counts["telling"] == 1
    (failure,) = told.failures.recent()
    assert "no words" in failure.text
