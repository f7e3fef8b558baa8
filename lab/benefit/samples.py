"""One measurement: a case under one manager, from an empty node to an empty node."""

import json
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
from lab.benefit.cases import BATCH, MIB, WORK, Case, Manager, Neighbours, Workload
from lab.benefit.pods import Node, Pod, SilentError, managed
from lab.containerd.containerd import IMAGE
from lab.kubelet.kubelet import ContainerSpec
from lab.provenance import ROOT
from tests.addresses import free_address

_READY_S = 120.0
_SPARE_S = 60.0
REQUESTS_PER_S = 1500.0
_NEIGHBOUR_BYTES = 256 * MIB
_KEY = "p99_ms"
"""What of the load generator's figures is the one of the service."""


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
    throttled_periods: int
    periods: int
    waited_s: float
    """How long its threads waited for a CPU."""
    stolen: float
    """Part of the machine's time that its hypervisor gave to others."""
    details: dict[str, Any]
    """What its program said."""


class _Counters(NamedTuple):
    """What only grows, at one moment; or, of a measurement, by how much it has grown."""

    done: int
    """By all neighbours."""
    cpu_s: float
    throttled_s: float
    throttled_periods: int
    periods: int
    waited_s: float
    stolen_ticks: int
    ticks: int
    """Of all of the machine's time."""


@dataclass(frozen=True, slots=True)
class Bench:
    """Takes samples on one node."""

    node: Node
    runtime: Path
    peers: dict[str, Path]

    def sample(self, case: Case, manager: Manager, seconds: float, seed: int) -> Sample:
        """Start the manager, the workload and, once that is warm, its neighbours; then measure."""
        with managed(manager, self.runtime, self.peers) as way:
            take = self._service if case.workload.is_service else self._program
            return take(way, case, manager, seconds, seed)

    @contextmanager
    def _neighbours(self, way: Way, neighbours: Neighbours) -> Iterator[list[Pod]]:
        """All neighbours, at work."""
        with ExitStack() as stack:
            spec = _neighbour(self.node, neighbours)
            pods = [stack.enter_context(self._pod(way, spec, BATCH)) for _ in range(neighbours.count)]
            for pod in pods:
                pod.hear(_READY_S)
            yield pods

    @contextmanager
    def _pod(self, way: Way, spec: ContainerSpec, namespace: str, *, lifted: bool = False) -> Iterator[Pod]:
        pod = self.node.run(way, spec, namespace, lifted=lifted)
        try:
            yield pod
        finally:
            self.node.remove(way, pod)

    def _program(self, way: Way, case: Case, manager: Manager, seconds: float, seed: int) -> Sample:
        workload, arguments = case.workload, [str(seconds)]
        if workload.digits:
            arguments.append(str(self.node.equipment.digits))
        spec = _spec(workload, self.node.command(workload.module, *arguments))
        with self._pod(way, spec, WORK, lifted=_lifted(case, manager)) as pod:
            pod.hear(_READY_S)
            with self._neighbours(way, case.neighbours) as neighbours:
                before = self._counters(pod, neighbours)
                pod.go()
                told = pod.hear(seconds + _SPARE_S)
                value = workload.scale * told["took_s"] / told["amount"]
                return self._sample(value, pod, neighbours, before, told["took_s"], told)

    def _service(self, way: Way, case: Case, manager: Manager, seconds: float, seed: int) -> Sample:
        port = int(free_address().rpartition(":")[2])
        program = str(self.node.equipment.redis_server)
        options = ("--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", "/out")
        spec = _spec(case.workload, (program, *options))
        with self._pod(way, spec, WORK, lifted=_lifted(case, manager)) as pod:
            _wait_for_port(port, pod)
            with _load(port, seconds, seed) as load:
                _answer(load)
                with self._neighbours(way, case.neighbours) as neighbours:
                    before = self._counters(pod, neighbours)
                    _tell(load)
                    told = _answer(load)
                    return self._sample(told[_KEY], pod, neighbours, before, seconds, told)

    def _counters(self, pod: Pod, neighbours: list[Pod]) -> _Counters:
        cgroups = self.node.cgroups
        quotas = [cgroups.throttling(each) for each in (pod.pod_cgroup, pod.cgroup)]
        return _Counters(
            done=sum(each.count for each in neighbours),
            cpu_s=cgroups.cpu_s(pod.cgroup),
            throttled_s=max(each.throttled_s for each in quotas),
            throttled_periods=max(each.throttled for each in quotas),
            periods=max(each.periods for each in quotas),
            waited_s=cgroups.waited_s(pod.cgroup),
            **_ticks(),
        )

    def _sample(
        self, value: float, pod: Pod, neighbours: list[Pod], before: _Counters, took_s: float, told: dict[str, Any]
    ) -> Sample:
        after, cgroups = self._counters(pod, neighbours), self.node.cgroups
        grown = _Counters(*(now - then for now, then in zip(after, before, strict=True)))  # type: ignore[arg-type]
        return Sample(
            value=value,
            neighbours_per_s=grown.done / took_s,
            cpus=cgroups.cpus(pod.cgroup),
            neighbours_cpus=sorted({cgroups.cpus(each.cgroup) for each in neighbours}),
            cpu_s=grown.cpu_s,
            throttled_s=grown.throttled_s,
            throttled_periods=grown.throttled_periods,
            periods=grown.periods,
            waited_s=max(0.0, grown.waited_s),  # threads that ended take theirs with them
            stolen=grown.stolen_ticks / max(grown.ticks, 1),
            details=told,
        )


def _spec(workload: Workload, command: tuple[str, ...]) -> ContainerSpec:
    return ContainerSpec(
        workload.name,
        IMAGE,
        command,
        cpu_request_milli=workload.request_milli,
        cpu_limit_milli=workload.limit_milli,
        memory_request_bytes=workload.memory_bytes,
        memory_limit_bytes=workload.memory_bytes,
    )


def _lifted(case: Case, manager: Manager) -> bool:
    """Whether *manager* leaves the pod of the workload, if that gets exclusive CPUs, without quota."""
    workload = case.workload
    whole = workload.request_milli == workload.limit_milli and workload.limit_milli % 1000 == 0
    return manager.lifts_pods and whole


def _neighbour(node: Node, neighbours: Neighbours) -> ContainerSpec:
    return ContainerSpec(
        neighbours.name,
        IMAGE,
        node.command("neighbour", neighbours.kind, "/out/count", str(neighbours.workers)),
        cpu_request_milli=neighbours.request_milli * neighbours.workers,
        memory_request_bytes=_NEIGHBOUR_BYTES * neighbours.workers if neighbours.request_milli else 0,
    )


def _ticks() -> dict[str, int]:
    with Path("/proc/stat").open() as file:
        ticks = [int(word) for word in file.readline().split()[1:9]]
    return {"stolen_ticks": ticks[7], "ticks": sum(ticks)}


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
def _load(port: int, seconds: float, seed: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "lab.benefit.programs.load"]
    arguments = [str(port), str(REQUESTS_PER_S), str(seconds), str(seed)]
    with subprocess.Popen(
        [*command, *arguments], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as load:
        try:
            yield load
        finally:
            load.kill()


def _tell(load: subprocess.Popen[str]) -> None:
    assert load.stdin is not None
    load.stdin.write("go\n")
    load.stdin.flush()


def _answer(load: subprocess.Popen[str]) -> dict[str, Any]:
    assert load.stdout is not None
    line = load.stdout.readline()
    if not line:
        raise SilentError("the load generator ended")
    told: dict[str, Any] = json.loads(line)
    return told
