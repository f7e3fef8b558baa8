"""How long what the watcher says holds the daemon's event loop, on which the kubelet's calls wait meanwhile.

All is in one process. What a callback of the loop takes of CPU time is what it holds the loop for; what threads do
beside it is not in there, and gives the interpreter free within half a millisecond.
"""

import asyncio
import time
from asyncio import events
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

from criproxy.api.control_socket import ControlServer
from criproxy.api.device_plugin import DevicePluginCommands
from criproxy.api.usage import UsageCommands
from criproxy.node.devices.card_usage import PodFiles
from criproxy.wire.sockets import listen
from lab.bench.ways import no_garbage_collection
from lab.usage.nvml import CARDS
from lab.usage.reporter import Reporter
from tests.node.devices.test_create_checks_vgpu import RULES, pod_with
from tests.node.world import FAST, World

FILES = "files of pods"
WARM = 2
"""Periods before it is measured: modules are loaded."""


class Node:
    """A daemon whose containers have vGPUs, and the watcher's reports."""

    def __init__(self, world: World, folder: Path, holders: list[tuple[str, str]]) -> None:
        controller = world.controller
        self.commands = {**UsageCommands(controller).commands(), **DevicePluginCommands(controller).commands()}
        self.reporter = Reporter(str(folder / "control.sock"), holders)
        usage, holdings = controller.card_usage, controller.devices.holdings
        self.files = PodFiles(folder / "state", controller.context, holdings, usage, controller.known)


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
        listener = listen(str(folder / "control.sock"), 0o600)
        server = ControlServer(there.commands)
        await server.start(listener.sock)
        with _timed() as held_ms:
            for period in range(WARM + periods):
                said = {**there.reporter.said(), FILES: None}
                for name, arguments in said.items():
                    held_ms.clear()
                    if arguments is None:
                        await asyncio.create_task(there.files.update())
                    else:
                        await asyncio.to_thread(there.reporter.ask, name, arguments)
                    if period >= WARM:
                        longest[name] = max(longest.get(name, 0.0), *held_ms)
                there.reporter.turn += 1
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
