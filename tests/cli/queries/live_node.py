"""A node for `criproxy top`: the files of a machine whose counters advance, and a control socket."""

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from criproxy.api.live import encoded
from criproxy.api.views.situation import Situation
from criproxy.api.views.status import collect
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.text.notices import Notice, Refusal
from criproxy.model.workload import Container, Pod, QosClass
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreated, ContainerCreating, ContainerStarted, PodCreated, UpdateApplied
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.process.control_socket import Command
from criproxy.simulate.hosts import GIB, machine
from tests.asking import serving
from tests.sysfs import write_sysfs

RESERVED = frozenset({0, 1})
STATIC = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0,1"}))
NAMES = ("web", "cart", "search", "db", "cache", "train", "etl", "gateway")
NAMESPACES = ("shop", "ml", "infra")
CARD = "GPU-13f6e2a1-58b4-9d0c-77aa-0c1d2e3f4a5b"
HEAD = {"source": "daemon", "version": "0.1.0", "pid": 7, "started": "2026-11-20T09:27:36.000Z"}


def container_id(number: int) -> str:
    """As containerd makes them."""
    return f"{number:064x}"


def a_pod(number: int) -> Pod:
    """One pod for each two containers."""
    name = f"{NAMES[number % len(NAMES)]}-{number}"
    return Pod(
        key=f"s{number}", uid=f"uid{number}", name=name, namespace=NAMESPACES[number % 3], qos=QosClass.BURSTABLE
    )


def a_container(number: int, cpus: int = 0) -> Container:
    """A container with so many exclusive CPUs."""
    pod = a_pod(number // 2)
    return Container(
        key=f"r{number}",
        pod=pod.key,
        name="main" if number % 2 == 0 else "sidecar",
        pod_name=pod.name,
        namespace=pod.namespace,
        qos=QosClass.GUARANTEED if cpus else QosClass.BURSTABLE,
        cpu_milli=cpus * 1000 or 100,
        cpu_limit_milli=cpus * 1000 or None,
        memory_limit_bytes=GIB // 2,
    )


@dataclass
class LiveNode:
    """The node and its files below *directory*."""

    directory: Path
    topology: Topology
    policy: Policy
    node: Node = field(init=False)
    notices: tuple[Notice, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    loads: dict[int, float] = field(default_factory=dict)
    """By CPU: how busy it is; see `advance`."""
    uses: dict[str, float] = field(default_factory=dict)
    """By container id: how many CPUs it uses."""
    asked: list[str] = field(default_factory=list)
    """The commands that were asked for."""
    hold: asyncio.Event = field(default_factory=asyncio.Event)
    """Answers wait for it."""
    outstanding: int = 0
    most_outstanding: int = 0
    _ticks: dict[int, list[int]] = field(default_factory=dict)
    _cpu_ns: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.node = Node(self.topology)
        self.hold.set()
        write_sysfs(self.host, self.topology)
        self.advance()

    @property
    def host(self) -> Path:
        """The root of the machine's files."""
        return self.directory / "host"

    @property
    def options(self) -> list[str]:
        """Of a command that asks this node."""
        state = str(self.directory / "state")
        control = str(self.directory / "control.sock")
        return ["--control-socket", control, "--state-dir", state, "--host-root", str(self.host)]

    def run(self, container: Container, pod: Pod | None = None) -> str:
        """Create and start a container; return its id."""
        pod = pod or next((a_pod(n) for n in [int(container.pod[1:])]), None)
        if pod and pod.key not in self.node.pods:
            self.node = step(self.node, PodCreated(pod), self.policy).node
        key = container_id(int(container.key[1:]))
        events = (ContainerCreating(container), ContainerCreated(container.key, key), ContainerStarted(key))
        for event in events:
            self.node = step(self.node, event, self.policy).node
        self._cpu_ns[key] = 0
        self._write_cgroup(key)
        return key

    def settle(self) -> None:
        """Let every container be where it was placed."""
        for key, grant in self.node.grants.items():
            self.node = step(self.node, UpdateApplied(key, Applied(grant.cpus, grant.mems)), self.policy).node

    def advance(self, passed_s: float = 1.0) -> None:
        """Let the time pass, with `loads` and `uses`."""
        lines = ["cpu  0 0 0 0 0 0 0 0 0 0"]
        for cpu in sorted(self.topology.online_cpus):
            ticks, load = self._ticks.setdefault(cpu, [0, 0]), self.loads.get(cpu, 0.0)
            ticks[0] += round(load * passed_s * 1000)
            ticks[1] += round((1 - load) * passed_s * 1000)
            lines.append(f"cpu{cpu} {ticks[0]} 0 0 {ticks[1]} 0 0 0 0 0 0")
        self._write("proc/stat", "\n".join(lines))
        self._write(
            "proc/meminfo",
            "MemTotal: 16777216 kB\nMemFree: 1 kB\nMemAvailable: 6710886 kB\nBuffers: 0 kB\nCached: 0 kB\n"
            "Shmem: 0 kB\nActive: 0 kB\nInactive: 0 kB",
        )
        for key in self._cpu_ns:
            self._cpu_ns[key] += round(self.uses.get(key, 0.0) * passed_s * 1e9)
            self._write_cgroup(key)

    def _write_cgroup(self, key: str) -> None:
        folder = f"sys/fs/cgroup/kubepods.slice/kubepods-pod{key[-6:]}.slice/cri-containerd-{key}.scope"
        self._write(f"{folder}/cpu.stat", f"usage_usec {self._cpu_ns[key] // 1000}\nuser_usec 1")
        self._write(f"{folder}/memory.current", str(int(key, 16) % 300 * (1 << 20) + (1 << 22)))
        self._write(f"{folder}/memory.stat", f"anon 1\ninactive_file {1 << 20}\nactive_file 2")

    def _write(self, name: str, content: str) -> None:
        path = self.host / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}")
        new.write_text(content + "\n")
        new.replace(path)

    @asynccontextmanager
    async def answering(self) -> AsyncIterator[None]:
        """The daemon's side of the control socket."""
        commands = {"status": self._status, "events": self._events, "usage": self._usage}
        async with serving(self.directory, {name: self._counted(name, each) for name, each in commands.items()}):
            try:
                yield
            finally:
                self.hold.set()

    def _counted(self, name: str, command: Command) -> Command:
        async def counted(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
            self.asked.append(name)
            self.outstanding += 1
            self.most_outstanding = max(self.most_outstanding, self.outstanding)
            try:
                await self.hold.wait()
                return await command(arguments)
            finally:
                self.outstanding -= 1

        return counted

    async def _status(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        situation = Situation(
            node=self.node, policy="static", reserved=RESERVED, notices=self.notices, refusals=self.refusals
        )
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())
        return encoded({**HEAD, "time": stamp, **collect(situation, {})})

    async def _events(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return {"events": [], "last": 0, "has_more": False}

    async def _usage(self, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 (JSON)
        return {"cards": [], "containers": []}


def small(directory: Path) -> LiveNode:
    """Eight CPUs, two of them reserved; one container that owns two, and one that shares."""
    node = LiveNode(directory, machine(nodes=2, cores=2, threads=2), STATIC)
    first, second = node.run(a_container(0, cpus=2)), node.run(a_container(1))
    node.settle()
    node.uses = {first: 1.5, second: 0.25}
    node.loads = dict.fromkeys(node.node.grants[first].exclusive, 0.75)
    return node


def large(directory: Path, containers: int = 500) -> LiveNode:
    """384 CPUs in two sockets and eight NUMA nodes; one in eight containers owns CPUs."""
    topology = machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=128 * GIB)
    node = LiveNode(directory, topology, STATIC)
    chance = random.Random(7)
    for number in range(containers):
        key = node.run(a_container(number, cpus=(2, 4, 8)[number % 3] if number % 8 == 0 else 0))
        node.uses[key] = chance.random() ** 4 * 2
    node.settle()
    node.loads = {cpu: chance.random() ** 2 for cpu in topology.online_cpus}
    return node
