"""A CRI runtime without containers: runtime.v1 on a unix socket, with containerd's rules, codes and texts.

For tests, demonstrations and measurements on machines without root or containerd. Nothing runs and nothing is
isolated; what a container's cgroup would say can be read with `EmbeddedRuntime.cpuset` or as files.
"""

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc

from criproxy import __version__
from criproxy.cri import api_pb2 as cri
from criproxy.model.cpuset import parse_cpuset
from lab.emulator.core import Core, HostFiles
from lab.emulator.images import Images
from lab.emulator.records.cpusets import Cpuset, Machine
from lab.emulator.records.records import Container, Records, Sandbox, as_created, container_name
from lab.emulator.records.views import Events
from lab.emulator.serving import NAME, Handlers
from lab.kubelet.kubelet import ContainerSpec, PodSpec, container_config, sandbox_config

CONTAINERS_PER_POD = 4
_CPU_MILLI = 100
_MEMORY_BYTES = 8 << 30


def prefill(core: Core, image: str, count: int) -> None:
    """Add *count* running containers of the stored *image*, four to a pod; their ids are the same every time."""
    image_id = core.images.required(image)
    cpuset = core.machine.cpuset("", "")
    for pod, sandbox, number in itertools.islice(_places(core, image), count):
        config = container_config(pod, pod.containers[number], _MEMORY_BYTES)
        name = container_name(config.metadata, sandbox.config.metadata)
        resources = as_created(config.linux.resources)
        container = Container(_digest(name), sandbox, name, config, image_id, resources, cpuset=cpuset)
        core.records.reserve(name, container.id)
        core.records.containers[container.id] = container
        core.run_container(container, container.created_ns)


def _places(core: Core, image: str) -> Iterator[tuple[PodSpec, Sandbox, int]]:
    ports = {"io.kubernetes.container.ports": '[{"name":"http","containerPort":8080,"protocol":"TCP"}]'}
    for number in itertools.count():
        names = (f"container-{number}-{at}" for at in range(CONTAINERS_PER_POD))
        specs = tuple(ContainerSpec(name, image, (), _CPU_MILLI, annotations=ports) for name in names)
        pod = PodSpec(f"prefilled-{number}", specs)
        sandbox = Sandbox(_digest(pod.name), sandbox_config(pod))
        core.records.reserve(sandbox.name, sandbox.id)
        core.records.sandboxes[sandbox.id] = sandbox
        yield from ((pod, sandbox, at) for at in range(CONTAINERS_PER_POD))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


IMAGE = "criproxy.test/busybox:1"
"""The image that is in the store from the start."""
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@dataclass(frozen=True, slots=True)
class RuntimeOptions:
    """What the embedded runtime is like.

    *cpus* and *mems* are the lists of the machine; *latency_s* is the duration of every call, or per method
    (``{"CreateContainer": 0.05}``); *containers* run from the start; *program* is what the default handler runs;
    *missing* names methods that are unknown, as they are in older runtimes; *name* and *version* are what Version says;
    below *host_root* files like those of /proc and cgroup v1 say where the processes of containers run.
    """

    cpus: str = "0-3"
    mems: str = "0"
    latency_s: float | Mapping[str, float] = 0.0
    containers: int = 0
    program: str = "/usr/bin/runc"
    missing: frozenset[str] = frozenset()
    name: str = NAME
    version: str = __version__
    host_root: Path | None = None

    def delay_s(self, method: str) -> float:
        """Return how long a call of *method* takes."""
        if isinstance(self.latency_s, Mapping):
            return self.latency_s.get(method, 0.0)
        return self.latency_s


@dataclass(slots=True, eq=False)
class EmbeddedRuntime:
    """Serves CRI at *path* between `start` and `stop`, or as an async context manager.

    What it knows survives `stop`: starting it again is a restart of the runtime with its containers.

    Raises:
        ValueError: for options that name no CPUs or memory nodes, or lists that cannot be read.
    """

    path: Path | str
    options: RuntimeOptions = RuntimeOptions()
    core: Core = field(init=False)
    _server: grpc.aio.Server | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        machine = Machine(parse_cpuset(self.options.cpus), parse_cpuset(self.options.mems))
        records, images = Records(), Images()
        images.pull(IMAGE)
        files = HostFiles(self.options.host_root) if self.options.host_root else None
        self.core = Core(machine, records, images, Events(records), self.options.delay_s, files)
        prefill(self.core, IMAGE, self.options.containers)

    async def start(self) -> None:
        """Listen; raises OSError if the socket cannot be made."""
        self._server = grpc.aio.server(options=_UNLIMITED)
        options = self.options
        runtime = options.name, options.version, options.program
        self._server.add_generic_rpc_handlers([Handlers(self.core, options.missing, runtime)])
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen at {self.path}: {error}") from error
        await self._server.start()

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop listening; calls get *grace_s* seconds to end."""
        if self._server:
            await self._server.stop(grace_s)
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def cpuset(self, container_id: str) -> Cpuset | None:
        """Return what the cgroup of a container says; None where it has none, since it does not run."""
        return self.core.records.container(container_id).cpuset

    def forget_process(self, container_id: str, *, restarted: bool = False) -> None:
        """Call a running container exited while its process goes on: what containerd 1.6 makes of some cut starts.

        Args:
            container_id: its id.
            restarted: the runtime has restarted since: the state is unknown then.
        """
        container = self.core.records.container(container_id)
        container.exited(128, "StartError", "context canceled")
        if restarted:
            container.state = cri.CONTAINER_UNKNOWN

    def leave_out(self, *ids: str) -> None:
        """From now on no list has these containers and sandboxes, though they are as they were; no others are left out.

        So does a runtime that has just started and has not read all that it knows.
        """
        self.core.records.unlisted = frozenset(ids)

    def lose_status(self, container_id: str, why: str = "failed to get container info") -> None:
        """From now on the status of a container cannot be told, as where what the runtime keeps of it is broken."""
        self.core.records.container(container_id).unreadable = why

    def exit_container(self, container_id: str, exit_code: int = 0) -> None:
        """Let the process of a running container end by itself."""
        self.core.end_container(self.core.records.container(container_id), exit_code)
