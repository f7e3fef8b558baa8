"""What the services of the embedded runtime share: its parts, delays, and how containers begin and end."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from criproxy.cri import api_pb2 as cri
from lab.emulator.hostfiles import HostFiles
from lab.emulator.images import ImageStore
from lab.emulator.plugins import Plugins
from lab.emulator.records.cpusets import BadCpuset, Cpuset, Machine
from lab.emulator.records.events import Events
from lab.emulator.records.records import Container, Records, Sandbox, merged, unknown

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
    plugins: Plugins = field(default_factory=Plugins)

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

    def update_container(self, container: Container, asked: cri.LinuxContainerResources) -> None:
        """Give *container* what is *asked*: zero and empty keep what was; nothing changes if the kernel refuses.

        Raises:
            Refusal: the kernel does.
        """
        resources = merged(container.resources, asked)
        if container.state == cri.CONTAINER_RUNNING:
            container.cpuset = self._applied(container, resources)
        container.resources = resources
        self.write_cgroup(container)

    def _applied(self, container: Container, resources: cri.LinuxContainerResources) -> Cpuset:
        prefix = "failed to update resources: failed to update resources: runc did not terminate successfully: "
        if resources.cpu_shares == 1:
            raise unknown(f"{prefix}exit status 1: the minimum allowed cpu-shares is 2\n: unknown")
        try:
            return self.machine.cpuset(resources.cpuset_cpus, resources.cpuset_mems)
        except BadCpuset as bad:
            raise unknown(f"{prefix}exit status 1: {write_failed(container, bad)}\n: unknown") from None

    def end_container(self, container: Container, exit_code: int = KILLED) -> None:
        """End the process of *container*; one that does not run stays as it is."""
        if container.state != cri.CONTAINER_RUNNING:
            return
        if self.files:
            self.files.remove(container.cgroup, container.pid)
        container.exited(exit_code, "Error" if exit_code else "Completed")
        self.events.of_container(cri.CONTAINER_STOPPED_EVENT, container)
        self.plugins.ended(container)

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


def write_failed(container: Container, bad: BadCpuset) -> str:
    """Return what runc says of a write to a cpuset file that the kernel refuses."""
    path = f"/sys/fs/cgroup/cpuset{container.cgroup}/{bad.file}"
    return f'failed to write "{bad.value}": write {path}: {bad.reason}'
