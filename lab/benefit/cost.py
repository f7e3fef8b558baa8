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
from collections.abc import Callable, Sequence
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
from lab.benefit.cases import KUBELET, MIB, NOBODY, TOPOLOGY_AWARE
from lab.benefit.pods import managed
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import IMAGE
from lab.provenance import ROOT, SHARED

_THREADS = 8
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


def measure(runtime: Path, cgroups: PodCgroups, extent: Extent, say: Callable[[str], None]) -> dict[str, Any]:
    """All figures of what criproxy takes on one runtime."""
    pods = Pods(IMAGE, cgroups)
    with ExitStack() as stack:
        ways = [stack.enter_context(managed(manager, runtime)) for manager in (NOBODY, TOPOLOGY_AWARE)]
        through = ways[1:]
        say("creates, one after the other")
        effort = Effort(rounds=0, calls=0, creates=extent.creates, loaded_rounds=0, load_s=0)
        created = rows.create_container(ways, effort, pods)
        added_us = {way.name: created[way.name].added_us(created[DIRECT]) for way in through}
        starts = [_round(ways, pods, extent.pods, say, number) for number in range(extent.repeats)]
        took_s, cpu_s = (
            {way.name: statistics.median(each[way.name][place] for each in starts) for way in ways} for place in (0, 1)
        )
        return {
            "create_added_ms": {name: round(each / 1000, 2) for name, each in added_us.items()},
            "pods_at_once": extent.pods,
            "pods_at_once_s": {name: round(each, 2) for name, each in took_s.items()},
            "cpu_per_pod_ms": {name: round(1000 * each, 2) for name, each in cpu_s.items()},
            "memory_mib": {way.name: round(way.memory().uss_bytes / MIB, 1) for way in through},
        }


def _round(
    ways: Sequence[Way], pods: Pods, count: int, say: Callable[[str], None], number: int
) -> dict[str, tuple[float, float]]:
    """Way → seconds until all pods ran, and seconds of CPU of the process behind it for each."""
    found = {}
    for way in ways if number % 2 else ways[::-1]:
        say(f"{count} pods at once, {way.name}, round {number + 1}")
        found[way.name] = _pods_at_once(way, pods, count)
    return found


def _pods_at_once(way: Way, pods: Pods, count: int) -> tuple[float, float]:
    def start(_: int) -> Sandbox:
        sandbox = Sandbox(pods, way)
        (container,) = sandbox.create(way, sandbox.requests(1))
        way.call("StartContainer", api.StartContainerRequest(container_id=container))
        return sandbox

    with ThreadPoolExecutor(_THREADS) as pool:
        before_ns, begun = way.cpu_ns(), time.perf_counter()
        sandboxes = list(pool.map(start, range(count)))
        took_s, cpu_s = time.perf_counter() - begun, (way.cpu_ns() - before_ns) / 1e9
        list(pool.map(lambda sandbox: sandbox.remove(way), sandboxes))
    return took_s, cpu_s / count


def simulate(directory: Path) -> dict[str, Any]:
    """Machine → policy → its scores; empty where there are no snapshots. Files are written to *directory*."""
    options = []
    for name, text in _POLICIES.items():
        (directory / f"{name}.yaml").write_text(text)
        options += ["--policy", str(directory / f"{name}.yaml")]
    archives = {machine: SHARED / f"topologies/snapshots/{machine}.tar.xz" for machine in MACHINES}
    return {machine: _scores(archive, options) for machine, archive in archives.items() if archive.exists()}


def _scores(archive: Path, options: Sequence[str]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {name: {} for name in _POLICIES}
    for load, kept in _KEPT.items():
        command = [sys.executable, "-m", "criproxy", "simulate", "--load", str(LOADS / f"{load}.yaml")]
        command += ["--host-root", str(archive), *options, "--format", "json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for told in json.loads(done.stdout)["policies"]:
            found[told["policy"]] |= {name: round(float(told[name]), 4) for name in kept}
    return found
