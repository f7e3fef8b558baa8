"""What a create with a card takes as a whole: through the data plane, the rule and the policy, to the runtime and back.

Four creates take turns: one past criproxy, and through it one without a card, one with, and one with a part of a card,
which the machine does not list. Their sandboxes
are there before, and so is what the kubelet tells of them, as it is on a node by the time that images have been looked
at. All is in one process, so that their times can be compared, and say little beside that.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import quantiles

import uvloop

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.node.devices.kubelet import Kubelet
from lab.bench.bars import WHOLE_MS, WHOLE_P99_MS
from lab.bench.engine import StepLine, build
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, PodSpec, container_config, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.node.devices.test_guard import host
from tests.node.world import FAST, World

FILES = KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint")
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
TITLES = {
    "none": "whole create, no card",
    "card": "whole create with a card",
    "part": "whole create with a part of a card",
}


def measure(repeats: int) -> Iterator[StepLine]:
    """What criproxy adds to a create past it: without a card, with one, and with a part of one."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        added_ms = runner.run(_added_ms(repeats))
    for name, title in TITLES.items():
        cuts = quantiles(added_ms[name], n=100, method="inclusive")
        bars = WHOLE_MS, WHOLE_P99_MS
        yield StepLine("devices", title, repeats, round(cuts[49], 3), round(cuts[98], 3), True, bars, 0)


async def _added_ms(repeats: int) -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory(prefix="criproxy-bench-") as directory:
        root = Path(directory)
        host(root)
        kubelet = Allocations(root / "k/sock", root / "k/checkpoint")
        rules = DeviceRules(classes=tuple(BUILTIN.values()), kubelet=FILES)
        world = World(root, settings=replace(FAST, devices=rules), policy=build("topology-aware", {}))
        world.limit_s = None
        async with AsyncExitStack() as stack:
            await kubelet.start()
            stack.push_async_callback(kubelet.stop)
            await stack.enter_async_context(world)
            turns = _Turns(world, kubelet)
            for _ in range(5):  # imports, the first scan for cards, caches
                await turns.all()
            took = [await turns.all() for _ in range(repeats)]
    return {name: [each[name] - each["direct"] for each in took] for name in TITLES}


@dataclass(slots=True)
class _Turns:
    """Creates of pods that are gone after it."""

    world: World
    kubelet: Allocations
    number: int = 0

    async def all(self) -> dict[str, float]:
        """One of each, in milliseconds."""
        return {
            "direct": await self.one(self.world.direct),
            "none": await self.one(self.world.client),
            "card": await self.one(self.world.client, "GPU-b"),
            "part": await self.one(self.world.client, "MIG-1"),
        }

    async def one(self, client: RuntimeClient, card: str = "") -> float:
        """Make a sandbox, wait for what the kubelet tells of it, and create its container."""
        self.number += 1
        spec = PodSpec(f"pod-{self.number}", (ContainerSpec("main", IMAGE, cpu_request_milli=100),))
        given = Allocated(pod=spec.name, pod_uid=spec.uid)
        self.kubelet.entries = [given, *([replace(given, resource="nvidia.com/gpu", ids=(card,))] if card else [])]
        self.kubelet.write()
        run = api.RunPodSandboxRequest(config=sandbox_config(spec))
        reply = await client.call("RunPodSandbox", run, api.RunPodSandboxResponse, CREATE_TIMEOUT_S)
        await self._told(reply.pod_sandbox_id)
        config = container_config(spec, spec.containers[0], 8 << 30)
        config.envs.add(key=VISIBLE, value=card.encode() or b"all")
        request = api.CreateContainerRequest(
            pod_sandbox_id=reply.pod_sandbox_id, config=config, sandbox_config=sandbox_config(spec)
        )
        began_s = time.perf_counter()
        await client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        took_ms = (time.perf_counter() - began_s) * 1000
        await self._end(client, reply.pod_sandbox_id)
        return took_ms

    async def _told(self, sandbox_id: str) -> None:
        """Return when the kubelet has answered what it was asked of a sandbox, if it was."""
        await self.world.controller.context.state.flush()
        source = self.world.controller.devices.evidence.source
        if isinstance(source, Kubelet) and (inquiry := source._inquiries.get(sandbox_id)):
            await asyncio.wait({inquiry.asking, inquiry.reading})

    async def _end(self, client: RuntimeClient, sandbox_id: str) -> None:
        for name, request, reply in (
            ("StopPodSandbox", api.StopPodSandboxRequest, api.StopPodSandboxResponse),
            ("RemovePodSandbox", api.RemovePodSandboxRequest, api.RemovePodSandboxResponse),
        ):
            await client.call(name, request(pod_sandbox_id=sandbox_id), reply, CREATE_TIMEOUT_S)
        await self.world.controller.context.state.flush()
