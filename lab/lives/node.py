"""The node of one life: kubelet, device plugin, criproxy and runtime, each of which starts and ends by itself."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from criproxy.deviceplugin import serve
from criproxy.deviceplugin.cards import inventory, nvml_inventory
from criproxy.deviceplugin.configuration.configuration import Options
from criproxy.deviceplugin.health import nvml_events
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.server.state import Times
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.device_rules import DeviceRules
from lab.lives.machine import Machine
from tests.deviceplugin.hosts import PATIENT
from tests.deviceplugin.joined import KUBELET_FILES
from tests.deviceplugin.kubelet import FakeKubelet
from tests.deviceplugin.news import PATIENT_S
from tests.node.devices.test_hints import AWARE, TWO
from tests.node.world import FAST, RecordingLog, World

EXEMPT = "kube-system"
IN_USE_S = 0.3
"""How often the device plugin asks which ids are in use, while some are listed only for that: else every 5 s."""
CLASSES = (
    NVIDIA,
    DeviceClass(name="ali-npu", resources=("aliyun.com/npu*",), id_format="index", per_device=("/dev/npu{index}",)),
    DeviceClass(name="fast", resources=("example.com/fast*",), id_format="index", per_device=("/dev/fast{index}",)),
)
PAUSE_S = 0.01
"""How often it is looked whether what has to be is."""
KUBELET, PLUGIN, CRIPROXY, RUNTIME = PARTS = ("kubelet", "plugin", "criproxy", "runtime")


class DevicePlugin(serve.DevicePlugin):
    """The program, without its signals."""

    def _handle_signals(self) -> None:
        """One process has many of them, one after the other."""


class Node:
    """All parts; none runs before `start`.

    Args:
        machine: with the cards.
        policy: the file of the device plugin.
    """

    def __init__(self, machine: Machine, policy: Path) -> None:
        root = machine.host.root
        self.kubelet = FakeKubelet(root / "k")
        rules = DeviceRules(classes=CLASSES, kubelet=KUBELET_FILES, exempt_namespaces=(EXEMPT,))
        self.world = World(root, settings=replace(FAST, devices=rules), policy=AWARE, topology=TWO)
        self.world.limit_s = None  # time is virtual
        self.log = RecordingLog()
        self.plugin: DevicePlugin | None = None
        self.up = dict.fromkeys(PARTS, False)
        self._serving: asyncio.Task[None] | None = None
        self._options = Options(
            config=policy,
            hostname="node",
            kubelet_dir=self.kubelet.root,
            control_socket=str(root / "control.sock"),
            host_root=root,
            env={},
        )

    async def start(self, part: str) -> None:
        """Start one part."""
        if part == KUBELET:
            await self._start_kubelet()
        elif part == PLUGIN:
            nowhere: Any = SimpleNamespace(flush=lambda: None)  # what is logged here does not go through it
            self.plugin = DevicePlugin(self._options, nowhere)
            self._serving = asyncio.create_task(self.plugin.serve(), name="device plugin")
        else:
            await (self.world.start_criproxy() if part == CRIPROXY else self.world.runtime.start())
        self.up[part] = True

    async def stop(self, part: str, *, killed: bool = False) -> None:
        """End one part; a kubelet that is *killed* leaves its socket behind."""
        self.up[part] = False
        if part == KUBELET:
            await self.kubelet.stop(killed=killed)
        elif part == PLUGIN:
            await self._stop_plugin()
        else:
            await (self.world.stop_criproxy() if part == CRIPROXY else self.world.runtime.stop())

    async def close(self) -> None:
        """End the connections of the kubelet's own."""
        await self.world.client.close()
        await self.world.direct.close()

    @property
    def complete(self) -> bool:
        """Whether pods can be started and ended."""
        return self.up[KUBELET] and self.up[CRIPROXY] and self.up[RUNTIME]

    def told(self) -> Mapping[str, Mapping[str, bool]]:
        """What the kubelet knows of each id, by resource: whether it is healthy."""
        return {
            name: dict.fromkeys(devices.healthy, True) | dict.fromkeys(devices.unhealthy, False)
            for name, devices in self.kubelet.manager.devices.items()
        }

    def published(self) -> Mapping[str, Mapping[str, bool]]:
        """What the device plugin would tell a kubelet."""
        if self.plugin is None or not hasattr(self.plugin, "_plugins"):
            return {}
        return {
            name: {each.id: each.healthy for each in plugin._servicer.resource.devices.values()}
            for name, plugin in self.plugin._plugins._plugins.items()
        }

    def in_use(self) -> Mapping[str, set[str]]:
        """By resource, the ids that containers have, as the kubelet's checkpoint says also while it is away."""
        resources = {name for given in self.kubelet.manager.given.values() for name in given}
        return {name: self.kubelet.manager.in_use(name) for name in resources}

    # ---------------------------------------------------------------- the parts

    async def _start_kubelet(self) -> None:
        before = self.kubelet.manager
        await self.kubelet.start()
        self.kubelet.manager.init = before.init  # which containers are init containers, it has from the API server

    async def _stop_plugin(self) -> None:
        assert self.plugin
        assert self._serving
        self.plugin._program.stop.set()
        serving, self._serving = self._serving, None
        await serving
        self.plugin = None

    def failed(self) -> str:
        """Why the device plugin has ended by itself; empty: it has not."""
        has_ended = self._serving is not None and self._serving.done()
        return f"the device plugin has ended: {self._serving.exception()!r}" if self._serving and has_ended else ""


@contextmanager
def parts(machine: Machine, log: RecordingLog) -> Iterator[None]:
    """Let the program of the device plugin find the machine, and be as patient as a slow machine needs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serve, "Machine", partial(inventory.Machine, limits=PATIENT))
        pauses = Times(in_use_s=IN_USE_S, preference_s=PATIENT_S)
        patch.setattr(serve, "PluginManager", partial(PluginManager, times=pauses))
        patch.setattr(serve, "log", log)
        patch.setattr(nvml_inventory, "COMMAND", machine.nvml_command)
        patch.setattr(nvml_events, "COMMAND", machine.events_command)
        yield


async def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether *condition* becomes true in time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 (nothing tells)
                await asyncio.sleep(PAUSE_S)
            return True
    return condition()
