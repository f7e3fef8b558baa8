"""Whether the watcher delays the kubelet's calls: creates and lists take turns with and without its reports.

criproxy runs as a process before the embedded runtime, with a node of eight cards and 64 containers that have a vGPU.
Only the reports differ from one batch to the next, so that a phase in which the machine is slow hits both alike.
"""

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.vgpu_profiles import Profile, Vgpu, annotations_of
from criproxy.devices.evidence.device_request import Response, joined
from criproxy.devices.plugin.enforcement import EnforcementBuilder, enforced_by, with_enforcement
from lab.bench.measure import Batch, Result, batch_and_replies, round_robin
from lab.bench.pods import Pods, container_id, remove_containers
from lab.bench.processes import EMBEDDED, Serve, started
from lab.bench.rows import calls_for, sandboxes
from lab.bench.ways import Way, cpu_ns_of
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from lab.usage.nvml import CARDS

WITH, WITHOUT = "with", "without"
POLICY = """\
policy: topology-aware
reservedCpus: "0"
devices:
  classes: [nvidia]
  plugin:
    profiles: [{name: gpu-8g, class: nvidia, memory: 8192Mi, cores: 12}]
"""
RESOURCE = "criproxy.io/gpu-8g"
PROFILE = Profile(name="gpu-8g", kind="nvidia", memory_mib=8192, cores_percent=12)
MEMORY_BYTES = 8 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured."""

    containers: int = 64
    rounds: int = 40
    """Batches of each call, with reports and without."""
    batch_s: float = 1.0
    period_s: float = 1.0
    """Between two reports."""
    alone: int = 200
    """Reports one after the other, by which their CPU time is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delays:
    """What was measured."""

    calls: dict[str, Result]
    """By method, the calls with reports and those without."""
    reports: int
    """Of the use, meanwhile; with each came one about a quota."""
    incidents: int
    """Containers over their quota that the daemon has stored, of those."""
    report_cpu_ms: float
    """CPU time of the daemon for what the watcher says in one period, by itself."""


class Switch:
    """The reporter, which reports while it is on."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def turn(self, word: str) -> tuple[int, int]:
        """Turn it on or off; how much was reported until then."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(word + "\n")
        self._process.stdin.flush()
        turns, incidents = json.loads(self._process.stdout.readline())
        return turns, incidents

    @contextmanager
    def on(self, *, wanted: bool) -> Iterator[None]:
        """Reports come while the block lasts, if they are *wanted*."""
        if wanted:
            self.turn("on")
        try:
            yield
        finally:
            if wanted:
                self.turn("off")


def measure(effort: Effort) -> Delays:
    """Measure all."""
    with TemporaryDirectory(prefix="d") as name, started(EMBEDDED, Path(name)) as runtime:
        folder = Path(name)
        policy = folder / "policy.yaml"
        policy.write_text(POLICY)
        serve = Serve(runtime.socket, folder, policy)
        with serve.running() as pid:
            ways = [Way(name, serve.listen, pid) for name in (WITHOUT, WITH)]
            with ways[0], ways[1]:
                return _measured(effort, ways, folder / "control.sock", Pods(IMAGE))


def _measured(effort: Effort, ways: Sequence[Way], socket: Path, pods: Pods) -> Delays:
    holders = [_holder(ways[0], number) for number in range(effort.containers)]
    with _reporter(socket, holders, effort.period_s) as switch:
        calls = {
            "ListContainers": round_robin(ways, lambda way: _lists(way, switch, effort.batch_s), effort.rounds),
            "CreateContainer": _creates(ways, switch, effort, pods),
        }
        reports, incidents = switch.turn("off")
    with _reporter(socket, holders, 0.0) as switch:
        cpu_ms = _alone_ms(switch, ways[0].pid, effort.alone)
    return Delays(calls=calls, reports=reports, incidents=incidents, report_cpu_ms=cpu_ms)


def _holder(way: Way, number: int) -> tuple[str, str]:
    """A container that has a vGPU, and runs; its id and card."""
    card = f"GPU-{number % CARDS}"
    vgpu = Vgpu(
        id=f"{card}/{PROFILE.name}/{number // CARDS}",
        card=card,
        profile=PROFILE.name,
        memory_mib=PROFILE.memory_mib,
        cores_percent=PROFILE.cores_percent,
    )
    pod = _pod(vgpu, number)
    config = sandbox_config(pod)
    sandbox = way.call("RunPodSandbox", api.RunPodSandboxRequest(config=config))
    assert isinstance(sandbox, api.RunPodSandboxResponse)
    created = way.call(
        "CreateContainer",
        api.CreateContainerRequest(
            pod_sandbox_id=sandbox.pod_sandbox_id,
            config=container_config(pod, pod.containers[0], MEMORY_BYTES),
            sandbox_config=config,
        ),
    )
    assert isinstance(created, api.CreateContainerResponse)
    way.call("StartContainer", api.StartContainerRequest(container_id=created.container_id))
    return created.container_id, card


def _pod(vgpu: Vgpu, number: int) -> PodSpec:
    """A pod whose container has the annotations of our device plugin for a vGPU."""
    found = enforced_by(PROFILE, vgpu, EnforcementBuilder(resource=RESOURCE), lambda path: False)
    answer = joined(Response(), RESOURCE, [vgpu.id])
    answer = with_enforcement(replace(answer, annotations={**answer.annotations, **annotations_of(vgpu)}), found)
    spec = ContainerSpec("main", IMAGE, cpu_request_milli=100, annotations=answer.annotations)
    return PodSpec(f"holder-{number}", (spec,))


@contextmanager
def _reporter(socket: Path, holders: Sequence[tuple[str, str]], period_s: float) -> Iterator[Switch]:
    command = [sys.executable, "-m", "lab.usage.reporter", str(socket), f"{period_s:g}"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(holders) + "\n")
        yield Switch(process)
        process.stdin.close()


def _lists(way: Way, switch: Switch, batch_s: float) -> Batch:
    """ListContainers again and again."""
    with switch.on(wanted=way.name == WITH):
        return calls_for(way, "ListContainers", b"", batch_s)


def _creates(ways: Sequence[Way], switch: Switch, effort: Effort, pods: Pods) -> Result:
    """CreateContainer again and again; what is created is removed again, which is not measured."""
    with sandboxes(ways, pods) as of:

        def creating(way: Way) -> Batch:
            call, all_ns, cpu_ns = way.bytes_call("CreateContainer"), list[int](), 0
            end_s = time.monotonic() + effort.batch_s
            with switch.on(wanted=way.name == WITH):
                while not all_ns or time.monotonic() < end_s:
                    done, replies = batch_and_replies(way, call, of[way.name].requests(1))
                    remove_containers(way, [container_id(reply) for reply in replies])
                    all_ns += done.calls_ns
                    cpu_ns += done.cpu_ns
            return Batch(all_ns, cpu_ns)

        return round_robin(ways, creating, effort.rounds)


def _alone_ms(switch: Switch, pid: int, reports: int) -> float:
    """CPU time of a process for what comes in one period, when that and nothing else comes to it so many times."""
    before_ns, done = cpu_ns_of(pid), 0
    while done < reports:
        switch.turn("on")
        done, _ = switch.turn("off")
    return (cpu_ns_of(pid) - before_ns) / done / 1e6
