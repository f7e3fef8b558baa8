"""What criproxy itself takes: CPU and memory, time added to creates, and 60 pods that start at once."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy.cri import api_pb2 as api
from lab.bench import rows
from lab.bench.pods import Pods, Sandbox
from lab.bench.rows import Effort
from lab.bench.ways import DIRECT, Way
from lab.benefit.cases import NOBODY, TOPOLOGY_AWARE, Manager
from lab.benefit.managers import managed
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import IMAGE

_THREADS = 8
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """How much is measured."""

    pods: int = 60
    repeats: int = 3
    creates: int = 60


QUICK = Extent(pods=4, repeats=1, creates=2)


@dataclass(frozen=True, slots=True)
class Cost:
    """Measures on one runtime."""

    runtime: Path
    cgroups: PodCgroups
    peers: Mapping[str, Path]
    extent: Extent

    def measure(self, say: Callable[[str], None]) -> dict[str, Any]:
        """All figures."""
        pods = Pods(IMAGE, self.cgroups)
        with ExitStack() as stack:
            managers = [NOBODY, TOPOLOGY_AWARE, *(Manager(name, name) for name in self.peers)]
            ways = [stack.enter_context(managed(manager, self.runtime, dict(self.peers))) for manager in managers]
            say("creates, one after the other")
            effort = Effort(rounds=0, calls=0, creates=self.extent.creates, loaded_rounds=0, load_s=0)
            created = rows.create_container(ways, effort, pods)
            added_ms = {
                way.name: round(created[way.name].added_us(created[DIRECT]) / 1000, 2)
                for way in ways
                if not way.is_direct
            }
            starts = [self._round(ways, pods, say, number) for number in range(self.extent.repeats)]
            return {
                "create_direct_ms": round(created[DIRECT].median_us / 1000, 2),
                "create_added_ms": added_ms,
                "create_cpu_ms": {name: round(each.cpu_us / 1000, 2) for name, each in created.items()},
                "pods_at_once": self.extent.pods,
                "pods_at_once_s": {
                    way.name: round(statistics.median(each[way.name][0] for each in starts), 2) for way in ways
                },
                "cpu_per_pod_ms": {
                    way.name: round(1000 * statistics.median(each[way.name][1] for each in starts), 2) for way in ways
                },
                "memory_mib": {way.name: round(way.memory().uss_bytes / MIB, 1) for way in ways if not way.is_direct},
            }

    def _round(
        self, ways: Sequence[Way], pods: Pods, say: Callable[[str], None], number: int
    ) -> dict[str, tuple[float, float]]:
        """Way → seconds until all pods ran, and seconds of CPU of the process behind it for each."""
        found = {}
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            say(f"{self.extent.pods} pods at once, {way.name}, {number + 1} of {self.extent.repeats}")
            found[way.name] = self._pods_at_once(way, pods)
        return found

    def _pods_at_once(self, way: Way, pods: Pods) -> tuple[float, float]:
        def start(_: int) -> Sandbox:
            sandbox = Sandbox(pods, way)
            (container,) = sandbox.create(way, sandbox.requests(1))
            way.call("StartContainer", api.StartContainerRequest(container_id=container))
            return sandbox

        with ThreadPoolExecutor(_THREADS) as pool:
            before_ns, begun = way.cpu_ns(), time.perf_counter()
            sandboxes = list(pool.map(start, range(self.extent.pods)))
            took_s, cpu_s = time.perf_counter() - begun, (way.cpu_ns() - before_ns) / 1e9
            list(pool.map(lambda sandbox: sandbox.remove(way), sandboxes))
        return took_s, cpu_s / self.extent.pods
