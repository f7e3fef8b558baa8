"""What classes cost: of two nodes that take turns, one has classes and `criproxy controls`, and the other has not.

Each has an embedded runtime of its own, and files of a machine with `CPUS` CPUs and `IRQS` interrupts. All known
containers run, as far as the service can see: their cgroups name a thread, which is always the same one, and has what
the class sets.
"""

import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from criproxy.cri import api_pb2 as api
from lab.bench import bars
from lab.bench.lives import lives
from lab.bench.pods import Pods, Sandbox, container_id
from lab.bench.processes import Serve, embedded
from lab.bench.rows import Effort, create_container
from lab.bench.ways import Way, batch, batch_and_replies, cpu_ns_of
from lab.emulator.runtime import IMAGE
from lab.figures import Figure
from tests.controls.trees import Tree
from tests.daemons import node_files

KNOWN, FEW, IRQS, CPUS = 1000, 20, 600, 128
WITHOUT, WITH, SERVICE = "without classes", "with classes", "criproxy controls"
LOOK_S = 60.0
"""How often the service reads everything: rest is measured for so long."""
STOPPED = 20
"""Containers that come while the service is stopped."""
DELAYED_MS = 100.0
"""A call that takes longer has waited for the service."""
_NICE = 5
_POLICY = 'policy: topology-aware\nreservedCpus: "0"\n'
_CLASSES = f"""{_POLICY}classes:
  batch: {{for: {{qos: [Burstable]}}, cpu: {{maxFreq: base}}, scheduling: {{nice: {_NICE}}}}}
  quiet: {{for: {{qos: [Guaranteed]}}, irq: away}}
"""


@dataclass(frozen=True, slots=True)
class Node:
    """One of the two, with its processes."""

    root: Path
    way: Way
    service: int = 0
    """Process id of `criproxy controls`; 0 without classes."""

    def fill(self, pods: Pods, known: int, thread: int) -> None:
        """Let *known* containers run, each of them with *thread*."""
        pods.fill(self.way, known)
        reply = self.way.call("ListContainers", api.ListContainersRequest())
        assert isinstance(reply, api.ListContainersResponse)
        for each in reply.containers:
            self.way.call("StartContainer", api.StartContainerRequest(container_id=each.id))
        for quota in self.root.glob("sys/fs/cgroup/cpu/**/cpu.cfs_quota_us"):
            quota.with_name("tasks").write_text(f"{thread}\n")

    def service_ns(self) -> int:
        """CPU time of the service."""
        return cpu_ns_of(self.service) if self.service else 0


@contextmanager
def node(name: str, folder: Path, policy: str) -> Iterator[Node]:
    """Run a node until the block ends, with everything in *folder*."""
    root, file, online = folder / "host", folder / "policy.yaml", f"0-{CPUS - 1}"
    tree = Tree(root)
    tree.cpus(CPUS)
    tree.irqs(IRQS, CPUS)
    node_files(root, online)
    (root / "sys/fs/cgroup/cpuset").mkdir(parents=True)  # it is cgroup v1 before the first container, too
    file.write_text(policy)
    with ExitStack() as stack:
        runtime = stack.enter_context(embedded(folder, "--cpus", online, "--host-root", str(root)))
        serve = Serve(runtime.socket, folder, file, root)
        service = stack.enter_context(serve.controls()) if policy == _CLASSES else 0
        way = Way(name, serve.listen, stack.enter_context(serve.running()))
        yield Node(root, stack.enter_context(way), service)


@dataclass(slots=True)
class _Found:
    """What was measured in each run."""

    values: dict[tuple[str, str, str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    """What, way, name and unit of a figure → its values."""

    def add(self, what: str, way: str, name: str, value: float, unit: str) -> None:
        self.values[what, way, name, unit].append(value)

    def figures(self) -> Iterator[Figure]:
        for (what, way, name, unit), values in self.values.items():
            yield Figure(what, way, name, median(values), unit, bars.CLASSES.get((what, name)))


def measure(effort: Effort, runs: int, known: int = KNOWN) -> list[Figure]:
    """What *known* containers with classes cost: medians of *runs* runs."""
    found, pods = _Found(), Pods(IMAGE)
    command = ["nice", "-n", str(_NICE), "sleep", "infinity"]
    with TemporaryDirectory(prefix="criproxy-bench-") as name, ExitStack() as stack:
        nodes = []
        for title, policy in ((WITHOUT, _POLICY), (WITH, _CLASSES)):
            (folder := Path(name, title.split()[0])).mkdir()
            nodes.append(stack.enter_context(node(title, folder, policy)))
        sleeper = stack.enter_context(subprocess.Popen(command))
        stack.callback(sleeper.kill)
        for each in nodes:
            each.fill(pods, known, sleeper.pid)
        for _ in range(runs):
            _creates(nodes, effort, pods, found)
            _rest(nodes, LOOK_S if effort.rest_s > 1 else effort.rest_s, found)
        _stopped(nodes[1], pods, found)
    return list(found.figures())


def _creates(nodes: Sequence[Node], effort: Effort, pods: Pods, found: _Found) -> None:
    """What creates cost, and what a create and a removal cost with all that follows from them."""
    created = create_container([each.way for each in nodes], effort, pods)
    for each in nodes:
        way, before_ns = each.way, each.service_ns()
        found.add("create", way.name, "median", created[way.name].median_us, "µs")
        found.add("create", way.name, "CPU", created[way.name].cpu_us, "µs")
        found.add("create and remove", way.name, "CPU", lives(way, effort, pods).cpu_us, "µs")
        if each.service:
            service_us = (each.service_ns() - before_ns) / effort.creates / 1000
            found.add("create and remove", SERVICE, "CPU", service_us, "µs")
    found.add("create", WITH, "added", created[WITH].added_us(created[WITHOUT]), "µs")
    found.add("create", WITH, "CPU added", created[WITH].cpu_us - created[WITHOUT].cpu_us, "µs")


def _rest(nodes: Sequence[Node], duration_s: float, found: _Found) -> None:
    """What they cost while nothing happens, both at the same time; what is added is that of the service, too."""

    def now_ns() -> list[int]:
        return [*(each.way.cpu_ns() for each in nodes), nodes[-1].service_ns()]

    before_ns = now_ns()
    time.sleep(duration_s)
    spent = [100 * (after - before) / 1e9 / duration_s for before, after in zip(before_ns, now_ns(), strict=True)]
    without, with_classes, service = spent
    for way, percent in zip((WITHOUT, WITH, SERVICE), spent, strict=True):
        found.add("at rest", way, "CPU", percent, "%")
    found.add("at rest", WITH, "CPU added", with_classes + service - without, "%")


def _stopped(node: Node, pods: Pods, found: _Found) -> None:
    """Creates and starts while the service does not answer: one start waits for it, and no create does."""
    sandbox = Sandbox(pods, node.way)
    create, start = (node.way.bytes_call(method) for method in ("CreateContainer", "StartContainer"))
    took_ms: dict[str, list[float]] = {"creates": [], "starts": []}
    os.kill(node.service, signal.SIGSTOP)
    try:
        for request in sandbox.requests(STOPPED):
            created, (reply,) = batch_and_replies(node.way, create, [request])
            started = api.StartContainerRequest(container_id=container_id(reply)).SerializeToString()
            took_ms["creates"].append(created.calls_ns[0] / 1e6)
            took_ms["starts"].append(batch(node.way, start, [started]).calls_ns[0] / 1e6)
    finally:
        os.kill(node.service, signal.SIGCONT)
    for calls, each_ms in took_ms.items():
        what = f"{STOPPED} {calls}, service stopped"
        found.add(what, WITH, "longest", max(each_ms), "ms")
        found.add(what, WITH, "delayed", sum(ms > DELAYED_MS for ms in each_ms), "")
    sandbox.remove(node.way)
