"""How long what the watcher says holds the daemon's event loop, on which the kubelet's calls wait meanwhile.

All is in one process. What a callback of the loop takes of CPU time is what it holds the loop for; what threads do
beside it is not in there, and gives the interpreter free within half a millisecond.
"""

import asyncio
import time
from asyncio import events
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.api.usage import UsageCommands
from criproxy.deviceplugin.daemon_client.asking import ask
from criproxy.node.devices.pod_files import PodFiles
from criproxy.process.control_socket import ControlServer
from criproxy.wire.sockets import listen
from lab.bench.ways import no_garbage_collection
from lab.usage.nvml import CARDS
from tests.node.devices.test_create_checks_vgpu import RULES, pod_with
from tests.node.world import FAST, World

FILES = "files of pods"
TIMEOUT_S = 10.0
ALLOWED_MIB, OVER_MIB = 8192, 9000
_FIRST_S = 1_700_000_000.0
WARM = 2
"""Periods before it is measured: modules are loaded."""


class Node:
    """A daemon whose containers have vGPUs, and the watcher's reports.

    Args:
        world: the daemon's.
        folder: for its socket and its state.
        holders: the ids and cards of the containers.
    """

    def __init__(self, world: World, folder: Path, holders: list[tuple[str, str]]) -> None:
        controller = world.controller
        self.commands = {**UsageCommands(controller).commands(), **DevicePluginCommands(controller).commands()}
        usage, holdings = controller.card_usage, controller.devices.holdings
        self.files = PodFiles(folder / "state", controller.context, holdings, usage, controller.known)
        self.socket = str(folder / "control.sock")
        self.turn = 0
        """Reports of use so far."""
        self._holders = holders

    def said(self) -> dict[str, Mapping[str, Any]]:
        """The commands of the watcher in one period, and their arguments."""
        return {"device-grants": {}, "device-usage": self._use(), "quota-incident": self._quota()}

    def ask(self, command: str, arguments: Mapping[str, Any]) -> None:
        """Ask the daemon; what is reported, it has to keep."""
        answer = ask(self.socket, command, arguments, TIMEOUT_S)
        if command == "quota-incident" and not answer["stored"]:
            raise ValueError(f"the daemon has not stored an incident: {answer}")

    def _use(self) -> Mapping[str, Any]:
        """Another use in each report, as of containers that work."""
        totals = {"memory_mib": 40_000 + self.turn % 7, "total_mib": 81_920, "cores_percent": 40.0 + self.turn % 5}
        use = {"kind": "nvidia", "memory_mib": 4096 + self.turn % 7, "cores_percent": 5.0 + self.turn % 3}
        cards = [{"card": card, **totals} for card in sorted({card for _, card in self._holders})]
        containers = [{"container_id": key, "card": card, **use} for key, card in self._holders]
        nvidia = {"kind": "nvidia", "source": "nvml", "cards": cards, "containers": containers}
        return {"at_s": time.time(), "period_s": 1.0, "classes": [nvidia]}

    def _quota(self) -> Mapping[str, Any]:
        """One container after the other is over its quota, and within it again."""
        key, card = self._holders[self.turn // 2 % len(self._holders)]
        about = {"container_id": key, "device_class": "nvidia", "card": card, "quantity": "memory"}
        if self.turn % 2:
            return {**about, "over": False}
        amounts = {"used": OVER_MIB, "allowed": ALLOWED_MIB, "since_s": _FIRST_S + self.turn}
        return {**about, **amounts, "action": "annotate"}


@asynccontextmanager
async def node(folder: Path, containers: int) -> AsyncIterator[Node]:
    """So many containers on eight cards."""
    _put_cards(folder)
    world = World(folder, settings=replace(FAST, devices=RULES))
    world.limit_s = None
    async with world:
        await world.controller.known()
        holders = []
        for number in range(containers):
            card = f"GPU-{number % CARDS}"
            key = await world.run(pod_with(f"{card}/gpu-8g/{number // CARDS}", f"holder-{number}"))
            holders.append((key, card))
        yield Node(world, folder, holders)


def measure(containers: int, periods: int) -> dict[str, float]:
    """By what is done, the longest time for which it has held the loop, in milliseconds."""
    with TemporaryDirectory(prefix="h") as name:
        return asyncio.run(_measured(Path(name), containers, periods))


async def _measured(folder: Path, containers: int, periods: int) -> dict[str, float]:
    longest: dict[str, float] = {}
    async with node(folder, containers) as there:
        listener = listen(there.socket, 0o600)
        server = ControlServer(there.commands)
        await server.start(listener.sock)
        with _timed() as held_ms:
            for period in range(WARM + periods):
                said = {**there.said(), FILES: None}
                for name, arguments in said.items():
                    held_ms.clear()
                    if arguments is None:
                        await asyncio.create_task(there.files.update())
                    else:
                        await asyncio.to_thread(there.ask, name, arguments)
                    if period >= WARM:
                        longest[name] = max(longest.get(name, 0.0), *held_ms)
                there.turn += 1
        await server.stop()
        listener.close()
    return longest


@contextmanager
def _timed() -> Iterator[list[float]]:
    """The milliseconds of each callback that has run."""
    found: list[float] = []
    run = events.Handle._run

    def timed(handle: events.Handle) -> None:
        begun_ns = time.thread_time_ns()
        run(handle)
        found.append((time.thread_time_ns() - begun_ns) / 1e6)

    with no_garbage_collection(), patch.object(events.Handle, "_run", timed):  # nothing public sees them
        yield found


def _put_cards(root: Path) -> None:
    """The cards of the machine."""
    (root / "dev").mkdir()
    (root / "dev" / "nvidiactl").touch()
    for minor in range(CARDS):
        (root / "dev" / f"nvidia{minor}").touch()
        folder = root / f"proc/driver/nvidia/gpus/0000:{minor}b:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"GPU UUID: \t GPU-{minor}\nDevice Minor: \t {minor}\n")
