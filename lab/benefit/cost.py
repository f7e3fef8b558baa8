"""What is reported beside the cases: what criproxy itself takes, and how it places pods on other machines.

It takes CPU and memory, time added to creates, and time when 60 pods start at once. On machines with several NUMA nodes
it is simulated, not measured, how near containers would be to their CPUs, memory and cards. These machines are
snapshots in the shared facts, of real ones except those whose names end in ``-made``; the pods come from examples of
`simulate --load`. The policy `none` stands for a kubelet without managers: every container may use all CPUs and memory.
"""

import json
import statistics
import subprocess
import sys
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
from lab.benefit.cases import KUBELET, NOBODY, TOPOLOGY_AWARE, Manager
from lab.benefit.pods import managed
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import IMAGE
from lab.provenance import ROOT, SHARED

_THREADS = 8
MIB = 1 << 20
MACHINES = ("xeon-2s2n-smt-pci", "xeon-2s4n-snc2", "xeon-4s4n-144", "epyc9654-2s8n-384-made", "kunpeng-128")
LOADS = ROOT / "docs/examples/loads"
_POLICIES = {
    "none": "policy: none\n",
    KUBELET.name: KUBELET.policy,
    "topology-aware": 'policy: topology-aware\nreservedCpus: "0"\n',
    "balloons": 'policy: balloons\nreservedCpus: "0"\n',
}
_KEPT = {"mixed": ("cpu_on_one_node", "memory_on_one_node", "distance", "fragmentation"), "gpus": ("at_cards",)}
"""Load → the scores that are kept of it."""


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


def simulate(directory: Path) -> dict[str, Any]:
    """Machine → policy → its scores; empty where there are no snapshots. Files are written to *directory*."""
    found: dict[str, Any] = {}
    for machine in MACHINES:
        archive = SHARED / f"topologies/snapshots/{machine}.tar.xz"
        if archive.exists():
            found[machine] = _scores(archive, directory)
    return found


def _scores(archive: Path, directory: Path) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in _POLICIES}
    for load, kept in _KEPT.items():
        for told in _simulated(load, archive, directory)["policies"]:
            found[told["policy"]] |= {name: round(float(told[name]), 4) for name in kept}
    return found


def _simulated(load: str, archive: Path, directory: Path) -> dict[str, Any]:
    options = []
    for name, text in _POLICIES.items():
        (directory / f"{name}.yaml").write_text(text)
        options += ["--policy", str(directory / f"{name}.yaml")]
    command = [sys.executable, "-m", "criproxy", "simulate", "--load", str(LOADS / f"{load}.yaml")]
    command += ["--host-root", str(archive), *options, "--format", "json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"simulate failed on {archive.name}: {done.stderr[-1000:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told
