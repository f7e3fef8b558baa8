"""What cards add to a create: the rule alone, and the whole create through data plane, rule and policy.

For the rule, two controllers take turns, and one of them has rules. What the kubelet allocated is known by then, since
it was asked when the sandbox was made, so nothing is waited for and CPU time is all there is. The history is written by
another thread, as at every create.

For the whole, four creates take turns: one past criproxy, and through it one without a card, one with, and one with a
part of a card, which the machine does not list. All is in one process, so that their times can be compared, and say
little beside that.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import uvloop

from criproxy.cri import api_pb2 as api
from criproxy.cri.methods import paths
from criproxy.cri.runtime import RuntimeClient
from criproxy.devices.classes.builtin import BUILTIN
from criproxy.devices.device_rules import DeviceRules, KubeletFiles
from criproxy.model.workload import Pod
from criproxy.node.controller import Controller
from criproxy.node.settings import Settings
from criproxy.placement.events import PodCreated
from criproxy.store.store import Store
from criproxy.wire.calls import Call, Outcome, OutcomeKind, Proceed
from lab.bench.bars import DEVICES_MS, STEP_P99_MS, WHOLE_MS, WHOLE_P99_MS
from lab.bench.engine import build, figures, large_machine
from lab.emulator.runtime import IMAGE
from lab.figures import Figure
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.node.devices.test_guard import host
from tests.node.world import FAST, RecordingLog, World

CREATE = paths("CreateContainer")[0]
ENVS = 40
"""Variables of a pod in a cluster with a few services."""
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
RULES = DeviceRules(classes=tuple(BUILTIN.values()), kubelet=KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint"))
SCENES = {"create, given a card": ("web", "GPU-b"), "create, given none": ("plain", "all")}
"""Title → the pod, and what its image or plugin says of cards."""
TITLES = {
    "none": "whole create, no card",
    "card": "whole create with a card",
    "part": "whole create with a part of a card",
}


def measure(repeats: int) -> Iterator[Figure]:
    """What the rule adds for a container with a card and for one without; and what criproxy adds to whole creates."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for title, (pod, value) in SCENES.items():
            added_ms = runner.run(_rule_ms(pod, value, repeats))
            yield from figures("devices", title, added_ms, (DEVICES_MS, STEP_P99_MS))
        took = runner.run(_whole_ms(repeats))
    for name, title in TITLES.items():
        added_ms = [each[name] - each["direct"] for each in took]
        yield from figures("devices", title, added_ms, (WHOLE_MS, WHOLE_P99_MS))


@asynccontextmanager
async def _kubelet() -> AsyncIterator[tuple[Path, Allocations]]:
    """A host with cards below a folder, and a kubelet that tells who was given them."""
    with tempfile.TemporaryDirectory(prefix="criproxy-bench-") as directory:
        root = Path(directory)
        host(root)
        kubelet = Allocations(root / "k/sock", root / "k/checkpoint")
        await kubelet.start()
        try:
            yield root, kubelet
        finally:
            await kubelet.stop()


async def _rule_ms(pod: str, value: str, repeats: int) -> list[float]:
    """How much longer each create takes with rules than the one before it without."""
    async with _kubelet() as (root, kubelet), AsyncExitStack() as stack:
        kubelet.entries = [Allocated(pod="web", pod_uid="u1", resource="nvidia.com/gpu", ids=("GPU-b",))]
        kubelet.write()
        without = await stack.enter_async_context(_controller(root, "without", None))
        with_rules = await stack.enter_async_context(_controller(root, "with", RULES))
        spec = PodSpec(pod, (ContainerSpec("main", IMAGE, cpu_request_milli=100),), given_uid="u1")
        message = _request(spec, "s", value, ENVS).SerializeToString()
        for controller in (without, with_rules):
            controller.devices.sandbox_run(api.RunPodSandboxRequest(config=sandbox_config(spec)), "s")
            await _create_ms(controller, message)  # waits for the kubelet and looks for cards
        return [-await _create_ms(without, message) + await _create_ms(with_rules, message) for _ in range(repeats)]


@asynccontextmanager
async def _controller(root: Path, name: str, rules: DeviceRules | None) -> AsyncIterator[Controller]:
    """One that knows the sandbox; nobody starts it, since there is no runtime to be asked."""
    settings = Settings(devices=rules, host_root=root)
    store, client = Store(root / name), RuntimeClient(f"unix://{root}/none.sock")
    policy = build("topology-aware", {})
    controller = Controller(settings, large_machine(), policy, store, client, RecordingLog())
    await controller.context.state.apply(PodCreated(Pod(key="s", uid="u1", name="web", namespace="default")))
    yield controller
    await controller.stop()
    store.close()


def _request(spec: PodSpec, sandbox_id: str, visible: str, envs: int = 0) -> api.CreateContainerRequest:
    config = container_config(spec, spec.containers[0], 8 << 30)
    config.envs.add(key=VISIBLE, value=visible.encode())
    for number in range(envs):
        config.envs.add(key=f"SERVICE_{number}_PORT", value=b"tcp://10.96.0.1:443")
    return api.CreateContainerRequest(pod_sandbox_id=sandbox_id, config=config, sandbox_config=sandbox_config(spec))


async def _create_ms(controller: Controller, message: bytes) -> float:
    """CPU time of the loop for one held create, which comes to nothing afterwards."""
    creates, call = controller.handlers.creates, Call(CREATE, 1, 1, "identity")
    gc.disable()
    began_ns = time.thread_time_ns()
    verdict = await creates.hold(call, message)
    took_ns = time.thread_time_ns() - began_ns
    gc.enable()
    assert isinstance(verdict, Proceed)
    creates.done(call, Outcome(OutcomeKind.NOT_SENT))
    await controller.context.state.settled()
    return took_ns / 1e6


async def _whole_ms(repeats: int) -> list[dict[str, float]]:
    """The time of each kind of create, in milliseconds, again and again."""
    async with _kubelet() as (root, kubelet), AsyncExitStack() as stack:
        world = World(root, settings=replace(FAST, devices=RULES), policy=build("topology-aware", {}))
        turns = _Turns(await stack.enter_async_context(world), kubelet)
        for _ in range(5):  # imports, the first scan for cards, caches
            await turns.all()
        return [await turns.all() for _ in range(repeats)]


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
        sandbox_id = reply.pod_sandbox_id
        await self._told(sandbox_id)
        request = _request(spec, sandbox_id, card or "all")
        began_s = time.perf_counter()
        await client.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        took_ms = (time.perf_counter() - began_s) * 1000
        await MiniKubelet(client).remove_pod(sandbox_id)
        await self.world.controller.context.state.flush()
        return took_ms

    async def _told(self, sandbox_id: str) -> None:
        """Return when the kubelet has answered what it was asked of a sandbox, if it was."""
        await self.world.controller.context.state.flush()
        source = self.world.controller.devices.evidence.source
        if inquiry := source._inquiries.get(sandbox_id):
            await asyncio.wait({inquiry.asking, inquiry.reading})
