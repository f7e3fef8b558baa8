"""What is measured of calls: each function is one row of the table, in one run, over all ways."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import grpc

from criproxy.cri import api_pb2 as api
from lab.bench.pods import Pods, Sandbox, container_id, remove_containers
from lab.bench.ways import Batch, Result, Way, batch, batch_and_replies, round_robin

VERSION = api.VersionRequest(version="0.1.0").SerializeToString()
CREATES_PER_S = 20


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is measured in one run."""

    rounds: int
    calls: int
    """Reading calls in a batch."""
    creates: int
    """CreateContainer calls of each way."""
    loaded_rounds: int
    load_s: float
    """How long a way is under load in a round."""
    rest_s: float
    """How long a way is watched to which nothing happens."""


FULL = Effort(rounds=40, calls=100, creates=200, loaded_rounds=4, load_s=1.2, rest_s=10.0)
"""Long enough that a phase of a few seconds, in which the machine is slow, does not decide about a run."""
QUICK = Effort(rounds=2, calls=30, creates=4, loaded_rounds=2, load_s=0.2, rest_s=0.5)


def version(ways: Sequence[Way], effort: Effort) -> Result:
    """The shortest call."""
    return round_robin(ways, lambda way: batch(way, way.bytes_call("Version"), [VERSION] * effort.calls), effort.rounds)


def list_containers(ways: Sequence[Way], effort: Effort) -> Result:
    """The call whose answer grows with the node."""
    requests = [b""] * effort.calls
    return round_robin(ways, lambda way: batch(way, way.bytes_call("ListContainers"), requests), effort.rounds)


def create_container(ways: Sequence[Way], effort: Effort, pods: Pods) -> Result:
    """The call that is held; what is created is removed again, which is not measured.

    Ways take turns with every call: a runtime is slow for seconds at a time, and then for all of them.
    """
    with sandboxes(ways, pods) as of:

        def creating(way: Way) -> Batch:
            done, replies = batch_and_replies(way, way.bytes_call("CreateContainer"), of[way.name].requests(1))
            remove_containers(way, [container_id(reply) for reply in replies])
            return done

        return round_robin(ways, creating, effort.creates)


def version_under_creates(ways: Sequence[Way], effort: Effort, pods: Pods) -> Result:
    """Version, one call after the other, while containers are created on the same connection."""
    with sandboxes(ways, pods) as of:

        def loaded(way: Way) -> Batch:
            with creating(way, of[way.name]):
                return calls_for(way, "Version", VERSION, effort.load_s)

        return round_robin(ways, loaded, effort.loaded_rounds)


def calls_for(way: Way, method: str, request: bytes, duration_s: float) -> Batch:
    """Calls one after the other for so long, at least one."""
    call, calls_ns = way.bytes_call(method), list[int]()
    before_ns, end_ns = way.cpu_ns(), time.perf_counter_ns() + int(duration_s * 1e9)
    begun_ns = time.perf_counter_ns()
    while begun_ns < end_ns or not calls_ns:
        call(request)
        calls_ns.append((now_ns := time.perf_counter_ns()) - begun_ns)
        begun_ns = now_ns
    return Batch(calls_ns, way.cpu_ns() - before_ns)


@contextmanager
def creating(way: Way, sandbox: Sandbox) -> Iterator[None]:
    """Create `CREATES_PER_S` containers a second through *way* while the block lasts, then remove them."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        calls = pool.submit(_create_until, way, sandbox, ended)
        try:
            yield
        finally:
            ended.set()
    remove_containers(way, [container_id(call.result()) for call in calls.result()])


def _create_until(way: Way, sandbox: Sandbox, ended: threading.Event) -> "list[grpc.Future[bytes]]":
    calls: list[grpc.Future[bytes]] = []
    begun = time.monotonic()
    while not ended.wait(max(0.0, begun + len(calls) / CREATES_PER_S - time.monotonic())):
        (request,) = sandbox.requests(1)
        calls.append(way.begin("CreateContainer", request))
    return calls


@contextmanager
def sandboxes(ways: Sequence[Way], pods: Pods) -> Iterator[dict[str, Sandbox]]:
    """A sandbox for each way while the block lasts, made and removed through it."""
    of: dict[str, Sandbox] = {}
    with ExitStack() as stack:
        for way in ways:
            of[way.name] = Sandbox(pods, way)
            stack.callback(of[way.name].remove, way)
        yield of
