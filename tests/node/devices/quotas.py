"""A node with vGPUs, and a runtime that says what it was told to stop."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.cri import api_pb2 as api
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.vgpu_profiles import Enforcement
from criproxy.devices.device_rules import DeviceRules
from criproxy.model.incident import Incident
from lab.emulator.containers import Containers
from lab.kubelet.kubelet import PodSpec
from tests.node.devices.test_create_checks_vgpu import pod_with
from tests.node.devices.test_guard import host
from tests.node.reconcile.test_trouble import FailingStore
from tests.node.world import FAST, World
from tests.watchers import Watcher

RULES = DeviceRules(
    classes=(replace(NVIDIA, resources=(*NVIDIA.resources, "criproxy.io/gpu-8g")),), exempt_namespaces=("kube-*",)
)
SAID = ("GPUMemoryQuotaExceeded", "9000 MiB used, 8192 MiB allowed on GPU-a")
OVER: Mapping[str, Any] = {
    "device_class": "nvidia",
    "card": "GPU-a",
    "quantity": "memory",
    "used": 9000.0,
    "allowed": 8192,
    "since_s": 1700000000.5,
}


def node_with_vgpus(directory: Path) -> World:
    """A node with two cards, GPU-a and GPU-b, of which vGPUs are made."""
    host(directory)
    return World(directory, settings=replace(FAST, devices=RULES))


@asynccontextmanager
async def on_failing_disk(directory: Path) -> AsyncIterator[tuple[World, FailingStore]]:
    """The same, with a disk that is full as soon as a test says so."""
    store, world = FailingStore(directory / "state"), node_with_vgpus(directory)
    store.full, world.make_store = False, lambda: store
    async with world:
        await world.poll(lambda: world.controller.ready)
        yield world, store


async def has_space(world: World, store: FailingStore) -> None:
    """The disk works again, which criproxy notices."""
    store.full = False
    world.controller.context.persister.check_soon()
    await world.poll(lambda: world.controller.context.persister.error is None)


def pod(name: str, number: int = 0, namespace: str = "default", enforce: Enforcement = "watch") -> PodSpec:
    """A pod with one of the vGPUs of GPU-a: 8192 MiB and 25 percent of its computing units."""
    return replace(pod_with(f"GPU-a/gpu-8g/{number}", name, enforce), namespace=namespace)


async def report(world: World, key: str, action: str = "stop", **other: object) -> Mapping[str, Any]:
    """The watcher reports that a container is over its quota."""
    arguments = {**OVER, "container_id": key, "action": action, **other}
    answer: Mapping[str, Any] = await DevicePluginCommands(world.controller).commands()["quota-incident"](arguments)
    return answer


async def within(world: World, key: str) -> Mapping[str, Any]:
    """The watcher reports that it is within its quota of memory again."""
    return await report(world, key, over=False)


async def status(world: World, key: str) -> api.ContainerStatus:
    """What the kubelet reads of a container."""
    return (await world.client.container_status(key)).status


async def direct(world: World, key: str) -> api.ContainerStatus:
    """What the runtime itself says of it."""
    return (await world.direct.container_status(key)).status


def why(status: api.ContainerStatus) -> tuple[str, str]:
    """Why it has ended."""
    return status.reason, status.message


def watcher(world: World) -> Watcher:
    """One that asks the controller of *world*, also after a restart."""
    return Watcher(lambda command, arguments: DevicePluginCommands(world.controller).commands()[command](arguments))


def incidents(world: World) -> list[Incident]:
    """Those that are remembered."""
    return list(world.controller.node.incidents.values())


async def restart(world: World) -> None:
    """Criproxy is started anew, and knows again what runs."""
    await world.restart()
    await known(world)


async def known(world: World) -> None:
    """Wait until criproxy knows what runs, and who has which card."""
    await world.poll(lambda: world.controller.ready and world.controller.devices._begun)


@dataclass
class Stopped:
    """What the runtime was told to stop, and with which timeout.

    With *holds* it waits for *go_on*; with *fails* it fails, after *begun* was called; with *lies* it does nothing.
    """

    calls: list[tuple[str, int]] = field(default_factory=list)
    fails: bool = False
    holds: bool = False
    lies: bool = False
    begun: Callable[[], None] = lambda: None
    at_it: asyncio.Event = field(default_factory=asyncio.Event)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> "Stopped":
        """Have the runtime tell it."""
        stop = Containers.stop

        async def note(runtime: Containers, request: api.StopContainerRequest) -> api.StopContainerResponse:
            self.calls.append((request.container_id, request.timeout))
            self.begun()
            self.at_it.set()
            if self.holds:
                await self.go_on.wait()
            if self.fails:
                raise RuntimeError("the runtime is broken")
            return api.StopContainerResponse() if self.lies else await stop(runtime, request)

        monkeypatch.setattr(Containers, "stop", note)
        return self

    @property
    def ids(self) -> list[str]:
        """Who was stopped, as often as it was."""
        return [key for key, _ in self.calls]
