"""A controller between a small kubelet and the embedded runtime, over the real data plane."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from criproxy.api.live import LiveNode
from criproxy.api.metrics import controller_metrics, device_metrics
from criproxy.api.metrics.moment import Moment
from criproxy.api.views.situation import Situation
from criproxy.api.views.status_check import find
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.model.text.notices import Values
from criproxy.node.controller import Controller
from criproxy.node.counters import Counters
from criproxy.node.settings import DeviceLimits, Settings, StoreLimits
from criproxy.nri.front import NriFront
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from criproxy.simulate.hosts import machine
from criproxy.store.store import Store
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import Listener, listen
from lab.emulator.core import Core
from lab.emulator.plugins import Plugins
from lab.emulator.runtime import IMAGE, EmbeddedRuntime, RuntimeOptions
from lab.kubelet.kubelet import CREATE_TIMEOUT_S, ContainerSpec, MiniKubelet, PodSpec, container_config, sandbox_config
from tests import gates

GIB = 1 << 30
NO_EVENTS = RuntimeOptions(missing=frozenset({"GetContainerEvents"}))
"""A runtime whose containers are listed regularly."""
CALL_S = 60.0
"""The deadline of the kubelet's calls: one that is to hang hangs as long as its test."""
ENDING_S = 5.0
"""How long a test that has failed waits for the end of each part of criproxy, which takes less."""
PATIENT_STORE = StoreLimits(timeout_s=60.0)
"""A real disk may take seconds for a write while other tests use it."""
FAST = Settings(
    unknown_pause_s=0.05,
    retry_pause_s=0.02,
    barrier_timeout_s=60.0,
    store=PATIENT_STORE,
    resync_interval_s=3600.0,
    exit_list_beside_events_s=3600.0,
    lost_after_s=0.0,
    device_limits=DeviceLimits(scan_s=60.0, drivers_s=60.0, source_s=60.0, adoption_s=60.0),
)
"""Pauses are short, and what is waited for may take as long as a slow machine makes it: a test in which something hangs
sets the limit itself. What is done from time to time as well is done too late to help a test."""
NO_LOOKS = replace(FAST, exit_list_s=3600.0, drift_period_s=3600.0, unknown_pause_s=3600.0)
"""criproxy looks at nothing by itself: no lists, no comparisons after the first one, and no passes over the cgroups but
the first one, which begins at a time of its own after a start."""
STATIC = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0", "exclusive": {"keep": "none"}}))
"""Whoever ends frees its CPUs at once."""
KEEPING = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0"}))
"""They stay with its pod, as they do where nothing is said."""


def owner(name: str, cpus: int = 1) -> PodSpec:
    """A Guaranteed pod of one container, ``main``, that asks for whole CPUs."""
    spec = ContainerSpec("main", IMAGE, cpu_limit_milli=1000 * cpus, memory_limit_bytes=GIB)
    return PodSpec(name, (spec,))


def sharer(name: str) -> PodSpec:
    """A Burstable pod of one container, ``main``."""
    return PodSpec(name, (ContainerSpec("main", IMAGE, cpu_request_milli=100),))


class Slow(dict[str, float]):
    """Latencies by method; says when a method with one is called, and holds up calls as long as a test needs them."""

    def __init__(self, **latency_s: float) -> None:
        super().__init__(latency_s)
        self.asked = asyncio.Event()
        self._held: dict[str, asyncio.Event] = {}

    def get(self, method: str, default: float = 0.0) -> float:  # type: ignore[override]  # narrower than that of a dict
        """The latency of *method*."""
        if method in self:
            self.asked.set()
        return super().get(method, default)

    def hold(self, method: str) -> None:
        """From now on the runtime does nothing about a call of *method* before `let_go`."""
        self[method], self._held[method] = 0.001, asyncio.Event()

    def let_go(self, method: str) -> None:
        """The runtime goes on with such calls, and holds up no others."""
        del self[method]
        self._held.pop(method).set()

    async def passed(self, method: str) -> None:
        """Wait until a call of *method* may go on."""
        if method in self._held:
            await self._held[method].wait()


@dataclass(frozen=True)
class _HoldingCore(Core):
    """Of a runtime whose calls `Slow` may hold up."""

    slow: Slow = field(default_factory=Slow)

    async def delay(self, method: str) -> None:
        """Wait as long as a call of *method* takes."""
        await super().delay(method)
        await self.slow.passed(method)


async def soon(happened: Callable[[], bool]) -> None:
    """Wait until *happened* is true, where nothing tells of it, and not for ever."""
    async with asyncio.timeout(CALL_S):
        while not happened():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.002)


async def cut(call: Coroutine[object, object, object], slow: Slow) -> None:
    """Cancel *call* as soon as the runtime is at it: unlike a deadline, of which it learns nothing by itself.

    Args:
        call: of a method that is slow; the runtime goes on with it.
        slow: the runtime's latencies.
    """
    slow.asked.clear()
    task = asyncio.create_task(call)
    await slow.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def refusal(call: Awaitable[object], match: str = "") -> RuntimeCallError:
    """Await a *call*, which fails; returns the error, whose text has *match*."""
    with pytest.raises(RuntimeCallError, match=match or None) as caught:
        await call
    return caught.value


class RecordingLog:
    """A log whose lines a test can look at."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self.error_lines: list[tuple[str, dict[str, object]]] = []
        """Those of the lines that are errors."""

    def info(self, event: str, **keys: object) -> None:
        """Keep a line."""
        self.lines.append((event, keys))

    warning = info

    def error(self, event: str, **keys: object) -> None:
        """Keep a line, as an error."""
        self.info(event, **keys)
        self.error_lines.append((event, keys))

    def events(self) -> list[str]:
        """The sentences, without their keys."""
        return [event for event, _ in self.lines]


def situation(controller: Controller) -> Situation:
    """What `status` is made of, at this moment."""
    return LiveNode(controller).now()


def problems(now: Situation) -> Values:
    """What `status --check` answers about it."""
    return find(now).to_json()


def said(world: "World", word: str = "") -> list[str]:
    """What `status --check` says is wrong, as far as it has *word* in it."""
    return [text for text in problems(situation(world.controller))["problems"] if word in text]


def metric(controller: Controller, name: str) -> Any:  # noqa: ANN401 (a number, or numbers by label)
    """What a scrape reads as the metric *name*, which has no prefix."""
    return {**controller_metrics.METRICS, **device_metrics.METRICS}[name].read(Moment(controller))


class World:
    """Runtime, store and data plane below one directory; `restart` ends and starts criproxy.

    What is done with it has to end within `limit_s`, so that a test that hangs says where.

    Args:
        directory: for sockets, cgroup files and the state.
        options: of the runtime, beside machine and host files.
        settings: of the controller, beside the host's root.
        policy: of the controller.
        topology: of the machine; four CPUs where nothing is said.
    """

    limit_s: float | None = 180.0

    def __init__(
        self,
        directory: Path,
        options: RuntimeOptions | None = None,
        settings: Settings = FAST,
        policy: Policy = STATIC,
        topology: Topology | None = None,
    ) -> None:
        self._directory = directory
        self._topology = topology
        there = topology or machine(nodes=1, cores=4, threads=1)
        self._settings = replace(self.limited(settings), host_root=directory)
        self._policy = policy
        chosen = replace(
            options or RuntimeOptions(),
            cpus=format_cpuset(there.cpus),
            mems=format_cpuset(there.mems),
            host_root=directory,
        )
        self.runtime = EmbeddedRuntime(directory / "runtime.sock", chosen)
        core = self.runtime.core
        parts = core.machine, core.records, core.images, core.events, core.delay_s, core.files, self.plugins()
        slow = chosen.latency_s
        self.runtime.core = _HoldingCore(*parts, slow) if isinstance(slow, Slow) else Core(*parts)
        self.log = RecordingLog()
        self.direct = RuntimeClient(f"unix://{self.runtime.path}", CALL_S)
        self.client = RuntimeClient(self.kubelets_endpoint, CALL_S)
        self.kubelet = MiniKubelet(self.client)
        self.controller: Controller
        self.proxy: Proxy
        """Between the kubelet and the runtime, where criproxy is that."""
        self.front: Proxy | NriFront
        """What takes the calls."""
        self._criproxy = AsyncExitStack()
        self._listener: Listener
        self._ending_s: float | None = None
        """How long each part may take to end."""
        self._limit: asyncio.Timeout
        self.prepare: Callable[[Controller], None] = lambda _: None
        """Called with a controller before it starts."""
        self.make_store: Callable[[], Store] = lambda: Store(directory / "state", may_fail=True)

    async def __aenter__(self) -> Self:
        """Start the runtime and criproxy in front of it."""
        self._limit = await asyncio.timeout(self.limit_s).__aenter__()
        async with AsyncExitStack() as stack:
            stack.push_async_exit(self.__aexit__)  # what has begun ends although something else does not begin
            await self.runtime.start()
            await self.start_criproxy()
            stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything, even what comes after a part that fails; a test that has failed waits for none of it long."""
        if kind is not None:
            self._ending_s = ENDING_S
            gates.open_all()
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._end, self.runtime.stop)
                stack.push_async_callback(self.stop_criproxy)
                stack.push_async_callback(self._end, self.direct.close)
                stack.push_async_callback(self._end, self.client.close)
        finally:
            await self._limit.__aexit__(kind, error, trace)

    async def _end(self, end: Callable[[], Awaitable[None]]) -> None:
        """Call *end*; go on without it if a test has failed and it hangs: the error of the test says more."""
        try:
            async with asyncio.timeout(self._ending_s):
                await end()
        except TimeoutError:
            if self._ending_s is None:
                raise

    async def start_criproxy(self) -> None:
        """A new data plane and controller on the state that the last one left."""
        async with AsyncExitStack() as stack:
            store = self.make_store()
            stack.callback(store.close)
            own_client = self.own_client()
            topology = self._topology or machine(nodes=1, cores=4, threads=1)  # tests may say that it has changed
            self.controller = Controller(self._settings, topology, self._policy, store, own_client, self.log)
            self.prepare(self.controller)
            await self.controller.start()
            stack.push_async_callback(self._end, self.controller.stop)
            await self.start_front(stack)
            self._criproxy = stack.pop_all()

    async def start_known(self) -> None:
        """The same, and wait until it is known what runs."""
        await self.start_criproxy()
        await self.poll(lambda: self.controller.ready)

    def limited(self, settings: Settings) -> Settings:
        """The settings as they are for the kind of front."""
        return settings

    def plugins(self) -> Plugins:
        """The plugins of the runtime."""
        return Plugins()

    @property
    def kubelets_endpoint(self) -> str:
        """Whom the kubelet calls."""
        return f"unix://{self._directory}/criproxy.sock"

    def own_client(self) -> RuntimeClient:
        """What the controller's own calls go through."""
        return RuntimeClient(f"unix://{self.runtime.path}")

    async def start_front(self, stack: AsyncExitStack) -> None:
        """Let the controller be asked about calls; *stack* ends that."""
        self.front = self.proxy = proxy = Proxy(
            str(self.runtime.path),
            self.controller.table(),
            on_error=self.controller.fallback.on_error,
            on_runtime_lost=self.controller.runtime_lost,
        )
        self.controller.policy_switch.changed = lambda: proxy.use(self.controller.table())
        self._listener = listener = listen(str(self._directory / "criproxy.sock"), 0o600)
        stack.callback(listener.close)
        await proxy.start(listener.sock)
        stack.push_async_callback(self._end, partial(proxy.drain, 0.5))

    def cut_front(self) -> None:
        """End what takes the calls, as SIGKILL does."""
        for link in self.proxy.links:
            for side in (link.client, link.runtime):
                if side.transport:
                    side.transport.abort()

    def close_front(self) -> None:
        """Let go of what is left of it."""
        self.proxy._server.close()  # type: ignore[union-attr]  # it has begun
        self._listener.close()

    def use(self, policy: Policy = STATIC, **settings: Any) -> None:  # noqa: ANN401 (those of `Settings`)
        """With the next start, another policy and other settings."""
        self._policy, self._settings = policy, replace(self._settings, **settings)

    async def stop_criproxy(self) -> None:
        """End criproxy as SIGTERM does; the runtime and the state stay."""
        await self._criproxy.aclose()

    async def kill_criproxy(self, die: Callable[[], None]) -> None:
        """End criproxy as SIGKILL does: nothing is sent, written or undone any more; *die* says so to the store."""
        self.cut_front()
        context = self.controller.context
        for task in (*context.tasks._running, *context.persister._tasks._running):
            task.cancel()
        die()
        await context.runtime.close()
        await context.tasks.stop()
        await context.persister._tasks.stop()
        await self.controller.devices.close()
        self.close_front()
        self._criproxy.pop_all()

    async def restart(self) -> None:
        """End criproxy, and start it anew."""
        await self.stop_criproxy()
        await self.start_criproxy()

    async def restart_known(self) -> None:
        """The same, and wait until it is known what runs."""
        await self.stop_criproxy()
        await self.start_known()

    async def run(self, pod: PodSpec) -> str:
        """Run a pod of one container; returns the container's id."""
        _, ids = await self.kubelet.run_pod(pod)
        return ids["main"]

    async def at_rest(self, pod: PodSpec) -> str:
        """The same, and wait until nothing is on its way to it."""
        container_id = await self.run(pod)
        await self.rested()
        return container_id

    async def created(self, pod: PodSpec) -> tuple[str, str]:
        """Run the sandbox of a pod of one container, and create that; returns their ids."""
        sandbox_id = await self.kubelet.run_sandbox(pod)
        return sandbox_id, await self.kubelet.create(pod, sandbox_id, pod.containers[0])

    async def create_as(
        self,
        pod: PodSpec,
        change: Callable[[api.CreateContainerRequest], object] = lambda _: None,
        *,
        by: RuntimeClient | None = None,
        sandbox_by: RuntimeClient | None = None,
        config: api.PodSandboxConfig | None = None,
        handler: str = "",
    ) -> tuple[str, api.ContainerConfig]:
        """Run a sandbox for *pod*, and create its container with a request as *change* makes it.

        Args:
            pod: of one container.
            change: edits the request of the create.
            by: makes both calls; the kubelet where nothing is said.
            sandbox_by: makes the first one.
            config: of the sandbox, where it is another one.
            handler: of the sandbox.

        Returns:
            The container's id, and its configuration as the runtime got it.
        """
        by, config = by or self.client, config or sandbox_config(pod)
        run = api.RunPodSandboxRequest(config=config, runtime_handler=handler)
        sandbox = await (sandbox_by or by).call("RunPodSandbox", run, api.RunPodSandboxResponse, CREATE_TIMEOUT_S)
        request = api.CreateContainerRequest(
            pod_sandbox_id=sandbox.pod_sandbox_id,
            config=container_config(pod, pod.containers[0], 8 * GIB),
            sandbox_config=config,
        )
        change(request)
        reply = await by.call("CreateContainer", request, api.CreateContainerResponse, CREATE_TIMEOUT_S)
        return reply.container_id, self.runtime.core.records.containers[reply.container_id].config

    async def booked(self) -> None:
        """Wait until starts that were answered are booked, too: before that, the end of a pod leaves them in doubt."""
        await self.poll(lambda: not self.controller.context.in_flight.sent())

    async def rested(self) -> None:
        """Wait until all of that is booked and nobody's cgroup is being read: nothing is on its way to the disk."""
        await self.controller.idle()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait for a change of the node after which *happened* is true."""
        while not happened():
            await self.controller.context.state.changed()

    def cpus(self, container_id: str) -> str:
        """The CPUs that the cgroup of a running container says."""
        cpuset = self.runtime.cpuset(container_id)
        return "" if cpuset is None else format_cpuset(cpuset.cpus)

    def owned(self) -> CpuSet:
        """CPUs that somebody owns, as the controller sees it."""
        return self.controller.node.exclusive_cpus

    async def poll(self, happened: Callable[[], bool]) -> None:
        """Wait until *happened* is true, where no change of the node tells of it."""
        while not happened():  # noqa: ASYNC110 (nothing tells)
            await asyncio.sleep(0.005)

    @property
    def counters(self) -> Counters:
        """What the controller counts."""
        return self.controller.context.counters

    def groups(self) -> set[str]:
        """The containers of whose cgroups the controller knows the place."""
        return set(self.controller.context.cgroups.groups)
