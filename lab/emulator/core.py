"""What the services of the embedded runtime share: its parts, delays, and how containers begin and end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from criproxy.cri import api_pb2 as cri
from lab.emulator.hostfiles import HostFiles
from lab.emulator.images import ImageStore
from lab.emulator.records.cpusets import Machine
from lab.emulator.records.events import Events
from lab.emulator.records.records import Container, Records, Sandbox

KILLED = 128 + 9
"""Exit code of a process that got SIGKILL."""


@dataclass(frozen=True, slots=True)
class Core:
    """The parts; *delay_s* says how long a call of the named method takes."""

    machine: Machine
    records: Records
    images: ImageStore
    events: Events
    delay_s: Callable[[str], float]
    files: HostFiles | None

    async def delay(self, method: str) -> None:
        """Wait as long as a call of *method* takes."""
        if seconds := self.delay_s(method):
            await asyncio.sleep(seconds)

    def run_container(self, container: Container, started_ns: int) -> None:
        """Note that the process of *container* runs in the cgroup of its cpuset."""
        container.state, container.started_ns = cri.CONTAINER_RUNNING, started_ns
        container.starting, container.listed = False, None
        container.pid = self.files.add(container.cgroup) if self.files else 0
        self.write_cgroup(container)
        self.events.of_container(cri.CONTAINER_STARTED_EVENT, container)

    def write_cgroup(self, container: Container) -> None:
        """Make the files of its cgroup, if there are any, say what the container has."""
        if self.files and container.cpuset:
            resources = container.resources
            self.files.write(container.cgroup, container.cpuset, resources.cpu_quota, resources.unified)

    def end_container(self, container: Container, exit_code: int = KILLED) -> None:
        """End the process of *container*; one that does not run stays as it is."""
        if container.state != cri.CONTAINER_RUNNING:
            return
        if self.files:
            self.files.remove(container.cgroup, container.pid)
        container.exited(exit_code, "Error" if exit_code else "Completed")
        self.events.of_container(cri.CONTAINER_STOPPED_EVENT, container)

    def remove_container(self, container: Container) -> None:
        """Forget *container*, ending its process first."""
        self.end_container(container)
        del self.records.containers[container.id]
        self.records.names.pop(container.name, None)
        self.events.of_container(cri.CONTAINER_DELETED_EVENT, container)

    def stop_sandbox(self, sandbox: Sandbox) -> None:
        """End *sandbox* with all its containers; a stopped one stays as it is."""
        for container in self.records.of_sandbox(sandbox):
            self.end_container(container)
        if sandbox.ready:
            sandbox.ready, sandbox.listed = False, None
            self.events.of_sandbox(cri.CONTAINER_STOPPED_EVENT, sandbox)
