"""The runtime's side of NRI, for the embedded runtime: what containerd asks a plugin, in its order, and its answers.

As in containerd, one question follows the other, calls in an answer to a create are carried out before it goes on, and
a plugin that does not answer is asked no more.
"""

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeVar

from google.protobuf.message import Message

from criproxy.cri import api_pb2 as cri
from criproxy.errors import StatusCode
from criproxy.nri import api_pb2 as nri
from lab.emulator.core import Core
from lab.emulator.plugins import Plugins
from lab.emulator.records.records import Container, Refusal, Sandbox, merged, unknown
from tests.nri.peer import Peer, Runtime

REQUEST_S = 60.0
"""How long the plugin may take, however slow the machine is."""
NEWER = "v0.12.0"
"""A version of NRI with a call for each event."""
_EVENTS: Mapping[str, Any] = {name.title().replace("_", ""): number for name, number in nri.Event.items()}
_STATES: Mapping[int, nri.ContainerState] = {
    cri.CONTAINER_CREATED: nri.CONTAINER_CREATED,
    cri.CONTAINER_RUNNING: nri.CONTAINER_RUNNING,
    cri.CONTAINER_EXITED: nri.CONTAINER_STOPPED,
}
_PREFIXES = {
    "CreateContainer": "failed to create containerd container: failed to get NRI adjustment for container",
    "StartContainer": "NRI container start failed",
    "UpdateContainer": "NRI container update failed",
}
Reply = TypeVar("Reply", bound=Message)


class NriSide(Plugins):
    """The plugins of an embedded runtime: the one that is connected to *path*.

    Args:
        path: of the socket.
        version: of NRI; empty for those before 0.12.
    """

    def __init__(self, path: Path, version: str = "") -> None:
        self.path, self._version = path, version
        self.codes: dict[str, StatusCode] = {}
        """Of the plugin's refusals, by their sentence: the kubelet does not get them."""
        self.timeouts = 0
        """How often the plugin has not answered in time."""
        self._peer: Peer | None = None
        self._lock = asyncio.Lock()
        self._telling = set[asyncio.Task[None]]()
        self._listening: AsyncExitStack | None = None

    @property
    def has_plugin(self) -> bool:
        """Whether a plugin is asked."""
        return self._peer is not None and not self._peer.is_gone

    async def start(self) -> None:
        """Take plugins."""
        runtime = Runtime(self.path)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(runtime.listening())
            taking = asyncio.create_task(self._take(runtime))
            stack.callback(taking.cancel)
            self._listening = stack.pop_all()

    async def stop(self) -> None:
        """End the connection."""
        self._peer = None
        for task in self._telling:
            task.cancel()
        if self._listening is not None:
            await self._listening.aclose()
            self._listening = None

    async def _take(self, runtime: Runtime) -> None:
        """Configure and synchronize whoever connects; who is here already is replaced."""
        while True:
            peer = await runtime.peers.get()
            configure = nri.ConfigureRequest(
                runtime_name="embedded", runtime_version="1", request_timeout=10_000, NRI_version=self._version
            )
            try:
                async with self._lock:
                    await peer.call("Configure", configure)
                    answer = await peer.call("Synchronize", nri.SynchronizeRequest())
                    assert not answer.status.code
                    self._peer = peer
            except ConnectionError:
                continue

    # ---------------------------------------------------------------- what is asked

    async def tell(self, event: str, sandbox: Sandbox, container: Container | None = None) -> None:
        """As its own call, or within StateChange."""
        pod = _pod(sandbox)
        about = _container(container) if container else None
        async with self._lock:
            if self._version:
                await self._ask(event, nri.StartContainerRequest(pod=pod, container=about), nri.Empty)
            else:
                change = nri.StateChangeEvent(event=_EVENTS[event], pod=pod, container=about)
                await self._ask("StateChange", change, nri.Empty, event)

    async def create(self, core: Core, container: Container) -> None:
        """Adjust *container*, and update others before it is created."""
        request = nri.CreateContainerRequest(pod=_pod(container.sandbox), container=_container(container))
        async with self._lock:
            reply = await self._ask("CreateContainer", request, nri.CreateContainerResponse)
            _update(core, reply.update)
        _adjust(container, reply.adjust)

    async def update(
        self, core: Core, container: Container, asked: cri.LinuxContainerResources
    ) -> cri.LinuxContainerResources:
        """What is asked of *container*, as the plugin has changed it; others are updated before."""
        about, resources = _container(container), _resources(asked)
        request = nri.UpdateContainerRequest(pod=_pod(container.sandbox), container=about, linux_resources=resources)
        async with self._lock:
            reply = await self._ask("UpdateContainer", request, nri.UpdateContainerResponse)
            _update(core, (each for each in reply.update if each.container_id != container.id))
        for each in reply.update:
            if each.container_id == container.id:
                asked = merged(asked, _linux(each.linux.resources))
        return asked

    def ended(self, container: Container) -> None:
        """Tell of it soon, as containerd does, which hears of it by an event."""
        task = asyncio.get_running_loop().create_task(self._stopped(container))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def _stopped(self, container: Container) -> None:
        request = nri.StopContainerRequest(pod=_pod(container.sandbox), container=_container(container))
        async with self._lock:
            await self._ask("StopContainer", request, nri.StopContainerResponse)

    async def _ask(self, method: str, request: Message, reply: type[Reply], event: str = "") -> Reply:
        """Ask the plugin; without one, nothing is changed.

        Raises:
            Refusal: with UNKNOWN, whatever the plugin's code is.
        """
        if (peer := self._peer) is None:
            return reply()
        try:
            async with asyncio.timeout(REQUEST_S):
                answer = await peer.call(method, request)
        except ConnectionError:
            self._peer = None
            return reply()
        except TimeoutError:
            self.timeouts += 1
            self._peer = None
            peer.writer.close()
            return reply()
        if answer.status.code:
            said = answer.status.message
            self.codes[said] = StatusCode(answer.status.code)
            raise unknown(f"{_PREFIXES.get(event or method, 'NRI')}: rpc error: code = Unknown desc = {said}")
        return reply.FromString(answer.payload)


# -------------------------------------------------------------------- messages


def _pod(sandbox: Sandbox) -> nri.PodSandbox:
    config = sandbox.config
    return nri.PodSandbox(
        id=sandbox.id,
        name=config.metadata.name,
        uid=config.metadata.uid,
        namespace=config.metadata.namespace,
        labels=config.labels,
        annotations=config.annotations,
        runtime_handler=sandbox.runtime_handler,
        linux=nri.LinuxPodSandbox(
            cgroup_parent=config.linux.cgroup_parent,
            pod_resources=_resources(config.linux.resources) if config.linux.HasField("resources") else None,
        ),
    )


def _container(container: Container) -> nri.Container:
    """What a plugin is told: the specification, in which variables of the runtime are before those of the kubelet."""
    config = container.config
    variables = ["PATH=/usr/bin:/bin", f"HOSTNAME={container.sandbox.config.metadata.name}"]
    return nri.Container(
        id=container.id,
        pod_sandbox_id=container.sandbox.id,
        name=config.metadata.name,
        state=_STATES.get(container.state, nri.CONTAINER_UNKNOWN),
        labels=config.labels,
        annotations={**config.annotations, **container.added},
        args=[*config.command, *config.args],
        env=[*variables, *(f"{each.key}={each.value.decode()}" for each in config.envs)],
        mounts=[
            nri.Mount(destination=each.container_path, source=each.host_path, type="bind", options=["rbind"])
            for each in config.mounts
        ],
        linux=nri.LinuxContainer(
            devices=[nri.LinuxDevice(path=each.container_path, type="c") for each in config.devices],
            resources=_resources(container.resources),
            oom_score_adj=nri.OptionalInt(value=config.linux.resources.oom_score_adj),
            cgroups_path=container.cgroup,
        ),
        pid=container.pid,
    )


def _resources(linux: cri.LinuxContainerResources) -> nri.LinuxResources:
    found = nri.LinuxResources(
        cpu=nri.LinuxCPU(
            shares=nri.OptionalUInt64(value=linux.cpu_shares),
            quota=nri.OptionalInt64(value=linux.cpu_quota),
            period=nri.OptionalUInt64(value=linux.cpu_period),
            cpus=linux.cpuset_cpus,
            mems=linux.cpuset_mems,
        ),
        memory=nri.LinuxMemory(limit=nri.OptionalInt64(value=linux.memory_limit_in_bytes)),
        hugepage_limits=[
            nri.HugepageLimit(page_size=each.page_size, limit=each.limit) for each in linux.hugepage_limits
        ],
        unified=linux.unified,
    )
    if linux.memory_swap_limit_in_bytes:
        found.memory.swap.value = linux.memory_swap_limit_in_bytes
    return found


def _linux(resources: nri.LinuxResources) -> cri.LinuxContainerResources:
    cpu, memory = resources.cpu, resources.memory
    return cri.LinuxContainerResources(
        cpu_period=cpu.period.value,
        cpu_quota=cpu.quota.value,
        cpu_shares=cpu.shares.value,
        cpuset_cpus=cpu.cpus,
        cpuset_mems=cpu.mems,
        memory_limit_in_bytes=memory.limit.value,
        memory_swap_limit_in_bytes=memory.swap.value,
        hugepage_limits=[
            cri.HugepageLimit(page_size=each.page_size, limit=each.limit) for each in resources.hugepage_limits
        ],
        unified=resources.unified,
    )


def _update(core: Core, updates: Iterable[nri.ContainerUpdate]) -> None:
    """Update containers; as in containerd, failures are nobody's business."""
    for each in updates:
        try:
            core.update_container(core.records.container(each.container_id), _linux(each.linux.resources))
        except Refusal:
            continue


def _adjust(container: Container, adjust: nri.ContainerAdjustment) -> None:
    """Change what *container* is to get; a name after ``-`` goes."""
    config = container.config
    container.added.update(adjust.annotations)
    gone = {each.key.removeprefix("-") for each in adjust.env}
    kept = [each for each in config.envs if each.key not in gone]
    _replace(config.envs, kept)
    for each in adjust.env:
        if not each.key.startswith("-"):
            config.envs.add(key=each.key, value=each.value.encode())
    gone = {each.destination.removeprefix("-") for each in adjust.mounts if each.destination.startswith("-")}
    _replace(config.mounts, [each for each in config.mounts if each.container_path not in gone])
    for mount in adjust.mounts:
        if not mount.destination.startswith("-"):
            config.mounts.add(container_path=mount.destination, host_path=mount.source)
    gone = {each.path.removeprefix("-") for each in adjust.linux.devices}
    _replace(config.devices, [each for each in config.devices if each.container_path not in gone])
    for device in adjust.linux.devices:
        if not device.path.startswith("-"):
            config.devices.add(container_path=device.path, host_path=device.path)
    container.resources = merged(container.resources, _linux(adjust.linux.resources))


def _replace(field: Any, values: Iterable[Any]) -> None:  # noqa: ANN401 (a repeated field)
    values = [*values]
    del field[:]
    field.extend(values)
