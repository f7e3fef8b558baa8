"""A node for the page: a made-up machine, the embedded runtime, containers, and a daemon with ``--http``.

Nothing runs in the containers, so that 500 of them cost nothing but their place.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from time import time
from typing import Any

from criproxy.model.cpuset import format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.simulate.hosts import GIB, machine
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.addresses import free_address
from tests.daemons import Serve
from tests.node.devices.test_create_checks_vgpu import pod_with
from tests.node.devices.test_guard import host
from tests.sysfs import write_sysfs

POLICY = """
policy: topology-aware
reservedCpus: "0-1"
pinMemory: true
devices:
  podresources: {socket: ''}
  checkpoint: ''
  classes: [nvidia]
  plugin: {profiles: [{name: gpu-8g, class: nvidia, memory: 8192Mi, cores: 25}]}
"""
SMALL = machine(nodes=2, cores=8, threads=2, memory_bytes=64 * GIB)
"""32 CPUs."""
AT_ONCE = 8
"""Pods that are started side by side."""
SHOPS = ("web", "cart", "search", "checkout", "stock", "mail", "trader", "ledger", "quotes", "cache")


def large() -> Topology:
    """Two sockets of four NUMA nodes each, whose 24 cores have three level 3 caches: 384 CPUs."""
    made = machine(nodes=8, cores=24, threads=2, packages=2, memory_bytes=96 * GIB)
    cores = [core.cpus for core in made.cores]
    caches = [frozenset[int]().union(*cores[first : first + 8]) for first in range(0, len(cores), 8)]
    return replace(made, l3_groups=tuple(caches))


@dataclass(slots=True)
class Stage:
    """A node with a page."""

    serve: Serve
    runtime: EmbeddedRuntime
    kubelet: MiniKubelet
    url: str

    async def run(self, pods: Iterable[PodSpec]) -> list[str]:
        """Run *pods*, several at once; the ids of their containers."""
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(pod: PodSpec) -> list[str]:
            async with turns:
                _, ids = await self.kubelet.run_pod(pod)
                return [*ids.values()]

        found = await asyncio.gather(*map(one, pods))
        return [key for keys in found for key in keys]

    async def ask(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """The answer of a command on the control socket."""
        return await self.serve.ask(command, **arguments)

    async def report(self, containers: Iterable[tuple[str, str, int]]) -> None:
        """Say, as the watcher does, how much memory containers use of a card: their ids, cards and MiB."""
        uses = [
            {"kind": "nvidia", "container_id": key, "card": card, "memory_mib": mib, "cores_percent": 18.0}
            for key, card, mib in containers
        ]
        totals = {"memory_mib": 14_200, "total_mib": 40_960, "cores_percent": 37.0}
        cards = [{"card": card, **totals} for card in ("GPU-a", "GPU-b")]
        found = {"kind": "nvidia", "source": "nvml", "cards": cards, "containers": uses}
        await self.ask("device-usage", at_s=time(), period_s=60.0, classes=[found])


@asynccontextmanager
async def stage(
    directory: Path, topology: Topology = SMALL, *, options: Sequence[str] = (), address: str = "", more: str = ""
) -> AsyncIterator[Stage]:
    """A node with two cards and no containers, whose page is on a loopback address unless another one is given.

    Its policy file has *more* options.
    """
    write_sysfs(directory, topology)
    host(directory)
    made = RuntimeOptions(cpus=format_cpuset(topology.cpus), mems=format_cpuset(topology.mems), host_root=directory)
    address = address or free_address()
    daemon = Serve(directory, "--host-root", str(directory), "--http", address, *options, policy=POLICY + more)
    async with EmbeddedRuntime(daemon.runtime, made) as runtime, daemon as serve, serve.kubelet() as kubelet:
        local = address.replace("0.0.0.0", "127.0.0.1")
        await accepting(local)
        yield Stage(serve, runtime, kubelet, f"http://{local}/")


async def accepting(address: str) -> None:
    """Wait until somebody accepts connections: the daemon listens before it says that it is ready."""
    name, _, port = address.rpartition(":")
    _, writer = await asyncio.open_connection(name, int(port))
    writer.close()


def crowd(count: int) -> list[PodSpec]:
    """Pods as on a busy node: one in five has exclusive CPUs."""
    return [_pod(number) for number in range(count)]


def _pod(number: int) -> PodSpec:
    shop, namespace = SHOPS[number % len(SHOPS)], ("shop", "bank", "infra")[number % 3]
    name = f"{shop}-{number // len(SHOPS)}"
    if number % 5 == 0:
        cpus = (1, 2, 4)[number // 5 % 3]
        spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=cpus * GIB // 2)
    elif number % 7 == 0:
        spec = ContainerSpec("main", IMAGE)
    else:
        spec = ContainerSpec(
            "main", IMAGE, cpu_request_milli=50 + 50 * (number % 4), memory_limit_bytes=GIB * (1 + number % 3) // 4
        )
    return PodSpec(name, (spec,), namespace=namespace)


def vgpu_pods() -> list[PodSpec]:
    """Pods with parts of cards."""
    return [pod_with(f"GPU-{card}/gpu-8g/{index}", f"model-{card}{index}") for card in "ab" for index in range(2)]
