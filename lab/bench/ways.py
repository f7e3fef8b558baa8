"""A way to the runtime: a gRPC channel of raw bytes, and the process whose CPU and memory it costs."""

import gc
import socket
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Self

import grpc
from google.protobuf.message import Message

from criproxy.cri.methods import METHODS

DIRECT = "direct"
"""The way that all others are compared with."""

Call = Callable[[bytes], bytes]

_CPU_CLOCK = 2
"""CPUCLOCK_SCHED in the kernel's clock ids: CPU time of a whole process, ended threads included."""
_UNLIMITED = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process occupies, in bytes: resident, and what nobody else uses."""

    rss_bytes: int
    uss_bytes: int


def memory_of(pid: int) -> Memory:
    """Read the memory of a process from /proc."""
    kib: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, value, *_ = line.split()
        kib[name.rstrip(":")] = int(value)
    return Memory(kib["Rss"] << 10, kib["Private_Clean"] + kib["Private_Dirty"] << 10)


def cpu_ns_of(pid: int) -> int:
    """CPU time that a process has used, all threads, to the nanosecond."""
    return time.clock_gettime_ns(~pid << 3 | _CPU_CLOCK)


class Way:
    """Calls CRI at a socket. Nothing is serialised or parsed here, so only transport is measured.

    Args:
        name: what the table calls it; `DIRECT` is the runtime itself.
        path: the unix socket.
        pid: the process behind it; asked of the kernel where it is not given.
    """

    def __init__(self, name: str, path: Path, pid: int | None = None) -> None:
        self.name = name
        self.path = path
        self.pid = listener_pid(path) if pid is None else pid
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_UNLIMITED)
        self._methods: dict[str, grpc.UnaryUnaryMultiCallable[bytes, bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def bytes_call(self, method: str) -> Call:
        """Return a function that calls *method*, such as ``Version``, with a serialised message."""
        multi = self._multi(method)
        return lambda request: multi(request, timeout=_TIMEOUT_S, wait_for_ready=True)

    def begin(self, method: str, request: bytes, *, wait_for_ready: bool = False) -> "grpc.Future[bytes]":
        """Start a call without waiting for its answer."""
        return self._multi(method).future(request, timeout=_TIMEOUT_S, wait_for_ready=wait_for_ready)

    def call(self, method: str, request: Message) -> Message:
        """Call *method* with messages, where time does not matter."""
        return METHODS[method].reply.FromString(self.bytes_call(method)(request.SerializeToString()))

    def cpu_ns(self) -> int:
        """CPU time of the process behind the socket."""
        return cpu_ns_of(self.pid)

    def _multi(self, method: str) -> "grpc.UnaryUnaryMultiCallable[bytes, bytes]":
        if method not in self._methods:
            self._methods[method] = self._channel.unary_unary(METHODS[method].paths[0])
        return self._methods[method]


def listener_pid(path: Path) -> int:
    """The process that listens at *path*, as it was when it began to."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.connect(str(path))
        credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])


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
