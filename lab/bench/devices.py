"""What rules about devices add to a held CreateContainer: two controllers take turns, and one of them has rules.

Everything else is the same for both: they read the message, place the container and write the message anew. What the
kubelet allocated is known by then, since it was asked when the sandbox was made, so nothing is waited for and CPU time
is all there is. The history is written by another thread, as at every create.
"""

import asyncio
import gc
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from statistics import quantiles

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
from lab.bench.bars import DEVICES_MS, STEP_P99_MS
from lab.bench.engine import StepLine, build, large_machine
from lab.emulator.runtime import IMAGE
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config
from tests.allocations import Allocated, Allocations
from tests.node.devices.test_guard import host
from tests.node.world import RecordingLog

CREATE = paths("CreateContainer")[0]
ENVS = 40
"""Variables of a pod in a cluster with a few services."""
VISIBLE = "NVIDIA_VISIBLE_DEVICES"
SCENES = {"create, given a card": ("web", "GPU-b"), "create, given none": ("plain", "all")}
"""Title → the pod, and what its image or plugin says of cards."""


def measure(repeats: int) -> Iterator[StepLine]:
    """One line for a container with a card, and one for a container without."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        for title, (pod, value) in SCENES.items():
            added_ms = sorted(runner.run(_added_ms(pod, value, repeats)))
            cuts = quantiles(added_ms, n=100, method="inclusive")
            bars = DEVICES_MS, STEP_P99_MS
            yield StepLine("devices", title, repeats, round(cuts[49], 3), round(cuts[98], 3), True, bars, 0)


async def _added_ms(pod: str, value: str, repeats: int) -> list[float]:
    """How much longer each create takes with rules than the one before it without."""
    with tempfile.TemporaryDirectory(prefix="criproxy-bench-") as directory:
        root = Path(directory)
        host(root)
        kubelet = Allocations(root / "k/sock", root / "k/checkpoint")
        kubelet.entries = [Allocated(pod="web", pod_uid="u1", resource="nvidia.com/gpu", ids=("GPU-b",))]
        kubelet.write()
        files = KubeletFiles(socket="/k/sock", checkpoint="/k/checkpoint")
        rules = DeviceRules(classes=tuple(BUILTIN.values()), kubelet=files)
        async with AsyncExitStack() as stack:
            await kubelet.start()
            stack.push_async_callback(kubelet.stop)
            without = await stack.enter_async_context(_controller(root, "without", None))
            with_rules = await stack.enter_async_context(_controller(root, "with", rules))
            spec = PodSpec(pod, (ContainerSpec("main", IMAGE, cpu_request_milli=100),), given_uid="u1")
            message = _message(spec, value)
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


def _message(spec: PodSpec, value: str) -> bytes:
    config = container_config(spec, spec.containers[0], 8 << 30)
    config.envs.add(key=VISIBLE, value=value.encode())
    for number in range(ENVS):
        config.envs.add(key=f"SERVICE_{number}_PORT", value=b"tcp://10.96.0.1:443")
    request = api.CreateContainerRequest(pod_sandbox_id="s", config=config, sandbox_config=sandbox_config(spec))
    return request.SerializeToString()


async def _create_ms(controller: Controller, message: bytes) -> float:
    """CPU time of the loop for one held create, which comes to nothing afterwards."""
    creates, call = controller.handlers.creates, Call(CREATE, 1, 1, "identity")
    gc.disable()
    try:
        began_ns = time.thread_time_ns()
        verdict = await creates.hold(call, message)
        took_ns = time.thread_time_ns() - began_ns
    finally:
        gc.enable()
    assert isinstance(verdict, Proceed)
    creates.done(call, Outcome(OutcomeKind.NOT_SENT))
    await controller.context.state.settled()
    return took_ns / 1e6
