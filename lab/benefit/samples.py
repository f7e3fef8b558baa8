"""One measurement: a case under one manager, from an empty node to an empty node."""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from lab.bench.ways import Way
from lab.benefit.cases import BATCH, MIB, PER_IMAGE, WORK, Case, Manager, Neighbours, Workload
from lab.benefit.pods import Node, Pod, SilentError, managed
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec
from lab.provenance import ROOT
from tests.addresses import free_address

_READY_S = 120.0
_SPARE_S = 60.0
REQUESTS_PER_S = 1500.0
_WORK_BYTES, _NEIGHBOUR_BYTES = 2048 * MIB, 256 * MIB
_NEIGHBOURS = 4


@dataclass(frozen=True, slots=True)
class Sample:
    """What was seen of one workload in one round."""

    value: float
    """Its figure, in the unit of its metric; less is better."""
    neighbours_per_s: float
    """What all neighbours together did, in their own units."""
    cpus: str
    """On which CPUs the workload could run."""
    neighbours_cpus: list[str]
    cpu_s: float
    """CPU time that it used."""
    throttled_s: float
    """How long a quota stopped it, added over CPUs: that of its pod or its own, whichever did so longer."""
    waited_s: float
    """How long its threads waited for a CPU."""
    stolen: float
    """Part of the machine's time that its hypervisor gave to others."""
    details: dict[str, Any]
    """What its program said."""


class _Counters(NamedTuple):
    """What only grows, at one moment; or, of a measurement, by how much it has grown."""

    done: float
    """By all neighbours."""
    cpu_s: float
    throttled_s: float
    waited_s: float
    stolen_ticks: float
    ticks: float
    """Of all of the machine's time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Takes samples on one node."""

    node: Node
    runtime: Path

    def sample(self, case: Case, manager: Manager, seconds: float, seed: int) -> Sample:
        """Start the manager, the workload and, once that is warm, its neighbours; then measure."""
        with managed(manager, self.runtime) as way:
            if case.workload.module == "redis":
                return self._service(way, case, seconds, seed)
            return self._program(way, case, seconds)

    @contextmanager
    def _neighbours(self, way: Way, neighbours: Neighbours) -> Iterator[list[Pod]]:
        """All neighbours, at work."""
        with ExitStack() as stack:
            spec = _neighbour(self.node, neighbours)
            pods = [stack.enter_context(self.node.running(way, spec, BATCH)) for _ in range(_NEIGHBOURS)]
            for pod in pods:
                pod.hear(_READY_S)
            yield pods

    def _program(self, way: Way, case: Case, seconds: float) -> Sample:
        workload, arguments = case.workload, [str(seconds)]
        if workload.metric is PER_IMAGE:
            arguments.append(str(self.node.equipment.digits))
        with self.node.running(way, _spec(workload, self.node.command(workload.module, *arguments)), WORK) as pod:
            pod.hear(_READY_S)
            with self._neighbours(way, case.neighbours) as neighbours:
                before = self._counters(pod, neighbours)
                pod.go()
                told = pod.hear(seconds + _SPARE_S)
                value = workload.scale * told["took_s"] / told["amount"]
                return self._sample(value, pod, neighbours, before, told["took_s"], told)

    def _service(self, way: Way, case: Case, seconds: float, seed: int) -> Sample:
        port = int(free_address().rpartition(":")[2])
        program = str(self.node.equipment.redis_server)
        options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/out")
        with self.node.running(way, _spec(case.workload, (program, *options)), WORK) as pod:
            _wait_for_port(port, pod)
            with _load(port, seconds, seed, case.workload.at_once) as load:
                _answer(load)
                with self._neighbours(way, case.neighbours) as neighbours:
                    before = self._counters(pod, neighbours)
                    assert load.stdin
                    load.stdin.write("go\n")
                    load.stdin.flush()
                    told = _answer(load)
                    return self._sample(told["p99_ms"], pod, neighbours, before, seconds, told)

    def _counters(self, pod: Pod, neighbours: list[Pod]) -> _Counters:
        cgroups = self.node.cgroups
        return _Counters(
            sum(each.count for each in neighbours),
            cgroups.cpu_s(pod.cgroup),
            max(cgroups.throttled_s(each) for each in (pod.pod_cgroup, pod.cgroup)),
            cgroups.waited_s(pod.cgroup),
            *_ticks(),
        )

    def _sample(
        self, value: float, pod: Pod, neighbours: list[Pod], before: _Counters, took_s: float, told: dict[str, Any]
    ) -> Sample:
        after, cgroups = self._counters(pod, neighbours), self.node.cgroups
        grown = _Counters(*(now - then for now, then in zip(after, before, strict=True)))
        return Sample(
            value=value,
            neighbours_per_s=grown.done / took_s,
            cpus=cgroups.cpus(pod.cgroup),
            neighbours_cpus=sorted({cgroups.cpus(each.cgroup) for each in neighbours}),
            cpu_s=grown.cpu_s,
            throttled_s=grown.throttled_s,
            waited_s=max(0.0, grown.waited_s),  # threads that ended take theirs with them
            stolen=grown.stolen_ticks / max(grown.ticks, 1),
            details=told,
        )


def _spec(workload: Workload, command: tuple[str, ...]) -> ContainerSpec:
    cpus = workload.request_milli, workload.limit_milli
    return ContainerSpec(workload.name, IMAGE, command, *cpus, _WORK_BYTES, _WORK_BYTES)


def _neighbour(node: Node, neighbours: Neighbours) -> ContainerSpec:
    """Together they ask for everything that the workload and the kubelet's reserve leave, on any machine."""
    workers = max(1, len(os.sched_getaffinity(0)) - 1)
    return ContainerSpec(
        neighbours.name,
        IMAGE,
        node.command("neighbour", neighbours.kind, "/out/count", str(workers)),
        cpu_request_milli=neighbours.request_milli * workers,
        memory_request_bytes=_NEIGHBOUR_BYTES * workers if neighbours.request_milli else 0,
    )


def _ticks() -> tuple[int, int]:
    """The time that the hypervisor has taken, and all of the machine's."""
    with Path("/proc/stat").open() as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return ticks[7], sum(ticks)


def _wait_for_port(port: int, pod: Pod) -> None:
    """Return when the server answers; it says so nowhere else."""
    end = time.monotonic() + _READY_S
    while time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise SilentError(f"{pod.spec.name} does not listen: {pod.log}")


@contextmanager
def _load(port: int, seconds: float, seed: int, at_once: int) -> Iterator[subprocess.Popen[str]]:
    numbers = map(str, (port, REQUESTS_PER_S, seconds, seed, at_once))
    command = [sys.executable, "-m", "lab.benefit.programs.load", *numbers]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as load:
        try:
            yield load
        finally:
            load.kill()


def _answer(load: subprocess.Popen[str]) -> dict[str, Any]:
    assert load.stdout
    if not (line := load.stdout.readline()):
        raise SilentError("the load generator ended")
    return dict(json.loads(line))
