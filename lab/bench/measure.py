"""Timing calls: batches of all ways in turn, so that noise of the machine hits all alike, and what they come to."""

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from statistics import median

from lab.bench.ways import Call, Way

BatchOf = Callable[[Way], "Batch"]


@dataclass(frozen=True, slots=True)
class Batch:
    """Some calls in a row through one way."""

    calls_ns: Sequence[int]
    """How long each call took."""
    cpu_ns: int
    """CPU time of the process behind the way."""

    @property
    def median_us(self) -> float:
        """The median call."""
        return median(self.calls_ns) / 1000

    @property
    def cpu_us(self) -> float:
        """CPU time per call."""
        return self.cpu_ns / len(self.calls_ns) / 1000


@dataclass(slots=True)
class Series:
    """The batches of one way, in order."""

    batches: list[Batch] = field(default_factory=list)

    @property
    def calls(self) -> int:
        """How many there were."""
        return len(self._calls_ns())

    @property
    def median_us(self) -> float:
        """The median of all calls."""
        return median(self._calls_ns()) / 1000

    @property
    def p99_us(self) -> float:
        """The time that 99 of 100 calls do not exceed."""
        calls_ns = sorted(self._calls_ns())
        return calls_ns[min(len(calls_ns) - 1, len(calls_ns) * 99 // 100)] / 1000

    @property
    def cpu_us(self) -> float:
        """CPU time per call: the median batch, since a neighbour of the machine makes single ones dear."""
        return median(batch.cpu_us for batch in self.batches)

    def added_us(self, direct: "Series") -> float:
        """What this way adds to the median call: the median of the differences round by round."""
        pairs = zip(self.batches, direct.batches, strict=True)
        return median(mine.median_us - its.median_us for mine, its in pairs)

    def _calls_ns(self) -> list[int]:
        return [call_ns for batch in self.batches for call_ns in batch.calls_ns]


Result = dict[str, Series]
"""Way → its series."""


def round_robin(ways: Sequence[Way], batch_of: BatchOf, rounds: int) -> Result:
    """Measure *rounds* batches of each way; each round another way begins. A first batch of each does not count."""
    result: Result = {way.name: Series() for way in ways}
    with no_garbage_collection():
        for way in ways:
            batch_of(way)
        for number in range(rounds):
            first = number % len(ways)
            for way in (*ways[first:], *ways[:first]):
                result[way.name].batches.append(batch_of(way))
    return result


def batch(way: Way, call: Call, requests: Sequence[bytes]) -> Batch:
    """Call with each of *requests*, one after the other."""
    return batch_and_replies(way, call, requests)[0]


def batch_and_replies(way: Way, call: Call, requests: Sequence[bytes]) -> tuple[Batch, list[bytes]]:
    """Call with each of *requests*, one after the other, and keep the replies."""
    calls_ns, replies = [], []
    before_ns = way.cpu_ns()
    for request in requests:
        begun_ns = time.perf_counter_ns()
        reply = call(request)
        calls_ns.append(time.perf_counter_ns() - begun_ns)
        replies.append(reply)
    return Batch(calls_ns, way.cpu_ns() - before_ns), replies


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep our own collector out of what is measured."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
