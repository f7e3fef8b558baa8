"""What containers cost that come and go, and what it costs to rest: CPU, bytes on disk, wake-ups."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.bench.pods import Pods, Sandbox, container_id, remove_containers
from lab.bench.rows import Effort
from lab.bench.ways import Way

_SETTLE_S = 2.5
"""By then, what is done later is done: the log, the history with its explanations, and the disk."""


@dataclass(frozen=True, slots=True)
class Lives:
    """A create and a removal, one after the other, with all that follows from them."""

    cpu_us: float
    """CPU time of each."""
    written_bytes: float
    """What each makes the kernel write to a disk."""


@dataclass(frozen=True, slots=True)
class Rest:
    """A process to which nothing happens."""

    wakeups_per_s: float
    """How often one of its threads waits again."""
    cpu_ratio: float
    """Of one core."""
    threads: int


def lives(way: Way, effort: Effort, pods: Pods) -> Lives:
    """Create containers and remove each at once, in one sandbox."""
    sandbox = Sandbox(pods, way)
    create, requests = way.bytes_call("CreateContainer"), sandbox.requests(effort.creates)
    _live(way, create(requests[0]))
    time.sleep(_SETTLE_S)
    cpu_ns, written_bytes = way.cpu_ns(), _written_bytes(way.pid)
    for request in requests:
        _live(way, create(request))
    time.sleep(_SETTLE_S)
    cpu_ns, written_bytes = way.cpu_ns() - cpu_ns, _written_bytes(way.pid) - written_bytes
    sandbox.remove(way)
    return Lives(cpu_ns / len(requests) / 1000, written_bytes / len(requests))


def at_rest(way: Way, duration_s: float) -> Rest:
    """Look at the process for so long; the caller calls nothing meanwhile."""
    time.sleep(_SETTLE_S)
    cpu_ns, waits = way.cpu_ns(), sum(_waits(way.pid))
    time.sleep(duration_s)
    threads = list(_waits(way.pid))
    return Rest((sum(threads) - waits) / duration_s, (way.cpu_ns() - cpu_ns) / 1e9 / duration_s, len(threads))


def _live(way: Way, created: bytes) -> None:
    remove_containers(way, [container_id(created)])


def _written_bytes(pid: int) -> int:
    return _number(Path(f"/proc/{pid}/io"), "write_bytes")


def _waits(pid: int) -> Iterator[int]:
    """How often each thread has given up its CPU by itself."""
    return (_number(path, "voluntary_ctxt_switches") for path in Path(f"/proc/{pid}/task").glob("*/status"))


def _number(path: Path, name: str) -> int:
    (value,) = (line.split()[1] for line in path.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(value)
