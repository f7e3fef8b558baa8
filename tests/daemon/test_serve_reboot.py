"""A node reboots with 60 pods: all run again, each with what it asks for, and nothing of the former ones is left.

Criproxy as a process on the state that it had, an embedded runtime that has lost every process, and a kubelet that
brings all pods up at once while podresources is still silent.
"""

import asyncio
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.model.cpuset import CpuSet
from criproxy.simulate.hosts import machine
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.allocations import Allocated, Allocations
from tests.daemons import Serve, until
from tests.rebooted import BootingKubelet
from tests.sysfs import write_sysfs

MIB = 1 << 20
LIMIT_S = 120.0
"""For all of a test, on a busy machine."""
TOPOLOGY = machine(nodes=2, cores=16, threads=2)
GPU, CARDS = "nvidia.com/gpu", 4
DEVICES = """
devices:
  classes: [nvidia]
  podresources: {socket: /k/sock}
  checkpoint: /k/checkpoint
"""
OWNING = ("static", "topology-aware")
"""Policies under which whole CPUs of a Guaranteed container are its own."""
POLICIES = {
    "none": "policy: none\n",
    "static": 'policy: static\nreservedCpus: "0,32"\n',
    "topology-aware": 'policy: topology-aware\nreservedCpus: "0,32"\n',
    "balloons": 'policy: balloons\nreservedCpus: "0"\n'
    "balloonTypes: [{name: quiet, namespaces: [owners], minCPUs: 1, preferNewBalloons: true}]\n",
    "pools": 'policy: pools\nreservedCpus: "0"\n',
}
IN_MAKE_TEST = ("static", "balloons")
SOME_OF_ALL = [pytest.param(name, marks=() if name in IN_MAKE_TEST else pytest.mark.thorough) for name in POLICIES]
NEVER = PodSpec("never", (ContainerSpec("main", IMAGE, cpu_limit_milli=3000, memory_limit_bytes=64 * MIB),), "owners")
"""Its container is created and not started."""


def owner(number: int, wave: str) -> PodSpec:
    """A Guaranteed pod that asks for one, two or three whole CPUs; every fourth has a sidecar that shares."""
    main = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * (1 + number % 3), memory_limit_bytes=64 * MIB)
    sidecar = ContainerSpec("sidecar", IMAGE, cpu_limit_milli=100, memory_limit_bytes=16 * MIB)
    return PodSpec(f"{wave}-owner-{number}", (main, sidecar) if number % 4 == 0 else (main,), "owners")


def mixed(wave: str = "first") -> list[PodSpec]:
    """Sixty pods: 24 of owners, which together take 48 CPUs, 20 Burstable ones and 16 that ask for nothing."""
    burst = ContainerSpec("main", IMAGE, cpu_request_milli=100, memory_request_bytes=16 * MIB)
    return [
        *(owner(number, wave) for number in range(24)),
        *(PodSpec(f"{wave}-burstable-{number}", (burst,)) for number in range(20)),
        *(PodSpec(f"{wave}-idle-{number}", (ContainerSpec("main", IMAGE),)) for number in range(16)),
    ]


def with_cards(pods: Sequence[PodSpec]) -> dict[str, str]:
    """The card of each pod that has one, by UID: one of every class but that which asks for nothing has two."""
    return {pods[number].uid: f"GPU-{minor:04x}" for minor, number in enumerate((1, 30, 50, 51))}


@dataclass(slots=True)
class Rebooting:
    """A node on which criproxy, the runtime and the kubelet end and begin."""

    directory: Path
    runtime: EmbeddedRuntime
    serve: Serve
    client: RuntimeClient
    allocations: Allocations

    def kubelet(self, pods: Sequence[PodSpec]) -> BootingKubelet:
        """One that wants these pods; those with cards get their plugin's variable."""
        envs = {each.pod_uid: {"NVIDIA_VISIBLE_DEVICES": each.ids[0]} for each in self.allocations.entries}
        return BootingKubelet(self.client, pods, envs)

    def allocate(self, pods: Sequence[PodSpec]) -> None:
        """As at their admission."""
        cards = with_cards(pods)
        self.allocations.entries = [
            Allocated(namespace=pod.namespace, pod=pod.name, pod_uid=pod.uid, resource=GPU, ids=(cards[pod.uid],))
            for pod in pods
            if pod.uid in cards
        ]

    async def lose_power(self) -> None:
        """Criproxy is gone at once, the runtime comes back without a process, and podresources is silent."""
        self.serve.signal(signal.SIGKILL)
        await self.serve.exit_status()
        await self.runtime.stop()
        for sandbox in self.runtime.core.records.sandboxes.values():
            self.runtime.core.stop_sandbox(sandbox)
        self.allocations.answers.clear()
        await self.runtime.start()

    async def late(self, kubelet: BootingKubelet) -> dict[str, list[str]]:
        """Bring pods up while criproxy starts, podresources answering only after the first creates have come."""
        coming = asyncio.create_task(kubelet.bring_up())
        await self.serve.message("READY=1")
        await asyncio.wait([coming], timeout=0.2)
        self.allocations.answers.set()
        return await coming

    async def rested(self) -> None:
        """Wait until criproxy finds nothing wrong and has nothing to do."""
        await until(self._is_well)

    async def _is_well(self) -> bool:
        answer = await self.serve.ask("status", check=True)
        return not (answer["problems"] or answer["under_way"])

    async def containers(self) -> list[dict[str, Any]]:
        """Those that criproxy knows."""
        found: list[dict[str, Any]] = (await self.serve.ask("status"))["containers"]
        return found

    async def gives_up(self, pod: PodSpec) -> None:
        """Wait until nobody of *pod* holds a place: a start of before that might be under way is in doubt for 10 s."""

        async def is_gone() -> bool:
            return not [each for each in await self.containers() if each["pod"] == pod.name and each["cpus"]]

        await until(is_gone, 0.1)

    def cpus(self, container_id: str) -> CpuSet:
        """What its cgroup says."""
        cpuset = self.runtime.cpuset(container_id)
        assert cpuset is not None, f"{container_id} does not run"
        return cpuset.cpus


@asynccontextmanager
async def booted(directory: Path, policy: str) -> AsyncIterator[Rebooting]:
    """A node with the policy and four GPUs; its socket stays when criproxy goes, as with systemd."""
    write_sysfs(directory, TOPOLOGY)
    (directory / "dev").mkdir()
    for minor in range(CARDS):
        (directory / f"dev/nvidia{minor}").touch()
        folder = directory / f"proc/driver/nvidia/gpus/0000:{minor:02x}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t GPU-{minor:04x}\nDevice Minor: \t {minor}\n")
    options = RuntimeOptions(cpus="0-63", mems="0-1", host_root=directory)
    async with AsyncExitStack() as stack:
        stack.enter_context(passed := socket.socket(socket.AF_UNIX))
        (directory / "run").mkdir()
        passed.bind(str(directory / "run/criproxy.sock"))
        passed.listen(256)
        allocations = Allocations(directory / "k/sock", directory / "k/checkpoint")
        await allocations.start()
        stack.push_async_callback(allocations.stop)
        runtime = await stack.enter_async_context(EmbeddedRuntime(directory / "runtime.sock", options))
        where = ("--host-root", str(directory))
        serve = Serve(directory, *where, policy=policy + DEVICES, passed=passed, limit_s=60.0)
        await stack.enter_async_context(serve)
        client = RuntimeClient(f"unix://{serve.socket}", timeout_s=LIMIT_S)  # while criproxy starts, calls wait
        stack.push_async_callback(client.close)
        yield Rebooting(directory, runtime, serve, client, allocations)


def assert_all_run(node: Rebooting, pods: Sequence[PodSpec], ids: dict[str, list[str]]) -> None:
    """Every container of every pod, in a sandbox that is ready, and no others."""
    containers = node.runtime.core.records.containers.values()
    running = {one.id: one for one in containers if one.state == api.CONTAINER_RUNNING}
    assert {pod.name: len(pod.containers) for pod in pods} == {name: len(found) for name, found in ids.items()}
    assert {each for found in ids.values() for each in found} == set(running)
    assert all(one.sandbox.ready for one in running.values())


def assert_alone(node: Rebooting, pods: Sequence[PodSpec], ids: dict[str, list[str]]) -> None:
    """Owners have as many CPUs as they ask for, and nobody else runs on them."""
    others = {each: node.cpus(each) for found in ids.values() for each in found}
    for pod in pods:
        if pod.namespace == "owners":
            main = ids[pod.name][0]
            assert len(others[main]) == pod.containers[0].cpu_milli // 1000, pod.name
            assert not [one for one, cpus in others.items() if one != main and cpus & others[main]], pod.name


def assert_cards(node: Rebooting, pods: Sequence[PodSpec], ids: dict[str, list[str]]) -> None:
    """Each pod sees the card that it was given; all others see none."""
    cards = with_cards(pods)
    for pod in pods:
        config = node.runtime.core.records.containers[ids[pod.name][0]].config
        shown = [env.value.decode() for env in config.envs if env.key == "NVIDIA_VISIBLE_DEVICES"]
        assert shown == [cards.get(pod.uid, "void")], pod.name


async def assert_nothing_left(node: Rebooting, pods: Sequence[PodSpec]) -> None:
    """Without pods criproxy soon knows of nobody, and all CPUs are free."""
    await BootingKubelet(node.client, [*pods, NEVER]).take_down()
    node.allocations.entries.clear()

    async def is_empty() -> bool:
        return not await node.containers()

    await until(is_empty)  # removals are booked after their replies
    await node.rested()


async def assert_room_for_all(node: Rebooting) -> None:
    """As many pods again find room, none of them refused."""
    again = node.kubelet(mixed("second"))
    ids = await again.bring_up()
    assert not again.refused
    await node.rested()
    assert_alone(node, again.pods, ids)


async def never_started(node: Rebooting) -> None:
    """A container whose start the power cut came before."""
    kubelet = MiniKubelet(node.client)
    await kubelet.create(NEVER, await kubelet.run_sandbox(NEVER), NEVER.containers[0])


async def assert_as_before(node: Rebooting, name: str, pods: Sequence[PodSpec], ids: dict[str, list[str]]) -> None:
    """Everybody runs, owners alone on their CPUs, and sees their own cards; without pods nothing is left of them."""
    await node.rested()
    assert_all_run(node, pods, ids)
    assert_cards(node, pods, ids)
    if name in OWNING:
        assert_alone(node, pods, ids)
    await assert_nothing_left(node, pods)


@pytest.mark.parametrize(
    ("name", "store"),
    [
        *(pytest.param(*each.values, "kept", marks=each.marks, id=f"{each.values[0]}") for each in SOME_OF_ALL),
        pytest.param("static", "lost", id="static-store-lost"),
        pytest.param("topology-aware", "lost", id="topology-aware-store-lost", marks=pytest.mark.thorough),
    ],
)
async def test_a_reboot(tmp_path: Path, name: str, store: str) -> None:
    """No create is refused, and a container that was only created holds no place; nobody sees another's card.

    Where the store is lost, it is as if it had never been there: what the runtime lists of before holds nothing.
    """
    pods = mixed()
    async with asyncio.timeout(LIMIT_S), booted(tmp_path, POLICIES[name]) as node:
        node.allocate(pods)
        await node.kubelet(pods).bring_up()
        await never_started(node)

        await node.lose_power()
        if store == "lost":
            shutil.rmtree(tmp_path / "state")
        await node.serve.spawn()
        after = node.kubelet(pods)
        ids = await node.late(after)

        assert not after.refused
        if name == "static" or store == "lost":
            await node.gives_up(NEVER)
        await assert_as_before(node, name, pods, ids)
        if name in OWNING and store == "kept":
            await assert_room_for_all(node)
