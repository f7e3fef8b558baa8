"""A CRI runtime without containers: runtime.v1 on a unix socket, with containerd's rules, codes and texts.

For tests, demonstrations and measurements on machines without root or containerd. Nothing runs and nothing is
isolated; what a container's cgroup would say can be read with `EmbeddedRuntime.cpuset` or as files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import grpc

from criproxy import __version__
from criproxy.cri import api_pb2 as cri
from lab.emulator.core import Core
from lab.emulator.hostfiles import HostFiles
from lab.emulator.images import ImageStore
from lab.emulator.prefill import prefill
from lab.emulator.records.cpusets import Cpuset, Machine
from lab.emulator.records.events import Events
from lab.emulator.records.records import Records
from lab.emulator.serving import NAME, Handlers

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
        machine = Machine.parse(self.options.cpus, self.options.mems)
        records = Records()
        images = ImageStore()
        images.pull(IMAGE)
        files = HostFiles(self.options.host_root) if self.options.host_root else None
        self.core = Core(machine, records, images, Events(records), self.options.delay_s, files)
        prefill(self.core, IMAGE, self.options.containers)

    async def start(self) -> None:
        """Listen; raises OSError if the socket cannot be made."""
        self._server = grpc.aio.server(options=_UNLIMITED)
        self._server.add_generic_rpc_handlers([self._handlers()])
        try:
            self._server.add_insecure_port(f"unix:{self.path}")
        except RuntimeError as error:
            raise OSError(f"cannot listen at {self.path}: {error}") from error
        await self._server.start()
        await self.core.plugins.start()

    def _handlers(self) -> Handlers:
        options = self.options
        return Handlers(self.core, options.missing, (options.name, options.version, options.program))

    async def stop(self, grace_s: float | None = None) -> None:
        """Stop listening; calls get *grace_s* seconds to end."""
        if self._server:
            await self.core.plugins.stop()
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
