"""In a guest: criproxy as a process between a small kubelet and containerd, and what the kernel says of containers.

Cpusets are read from the files of cgroup v2 and /proc alone, with nothing of criproxy between.
"""

import asyncio
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.model.cpuset import CpuSet, parse_cpuset
from lab.containerd.cgroups import CgroupDriver
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from lab.vm.qemu import GuestMachine, Hardware
from tests.daemons import Serve
from tests.lives import Life, Step

MIB = 1 << 20
STEP_TIMEOUT_S = 120.0
"""What follows a call is done soon after its reply; a guest may be emulated on a busy machine."""

_CGROUPS = Path("/sys/fs/cgroup")
_ANON_PAGES = re.compile(r" N(\d+)=\d+")


class Sets(NamedTuple):
    """The CPUs and NUMA nodes of a container."""

    cpus: CpuSet
    mems: CpuSet


@dataclass(frozen=True, slots=True)
class Placed:
    """A running container, alone in its pod."""

    sandbox_id: str
    container_id: str
    group: Path
    """Its cgroup."""

    def __repr__(self) -> str:
        """For the report of a check that failed: where it is."""
        try:
            return f"Placed({self.effective}, written {self.written})"
        except OSError as error:
            return f"Placed({error})"

    @property
    def written(self) -> Sets:
        """What the runtime has written for it."""
        return self._read("")

    @property
    def effective(self) -> Sets:
        """What the kernel makes of it."""
        return self._read(".effective")

    @property
    def sets(self) -> Sets:
        """Its sets, which were written and came into force as they are."""
        written, effective = self.written, self.effective
        assert written == effective, f"the kernel made {effective} of {written}"
        return effective

    @property
    def heap_nodes(self) -> CpuSet:
        """The NUMA nodes that hold private memory of its process."""
        pid = int((self.group / "cgroup.procs").read_text().split()[0])
        lines = Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
        private = [line for line in lines if "stack" in line.split() or "heap" in line.split()]
        assert private, lines
        return frozenset(int(node) for line in private for node in _ANON_PAGES.findall(line))

    def _read(self, suffix: str) -> Sets:
        cpus, mems = ((self.group / f"cpuset.{kind}{suffix}").read_text().strip() for kind in ("cpus", "mems"))
        return Sets(parse_cpuset(cpus), parse_cpuset(mems))


class World:
    """What a check has at hand; it finds no pods and leaves none."""

    def __init__(
        self, hardware: Hardware, serve: Serve, containerd: PrivateContainerd, cgroup_driver: CgroupDriver
    ) -> None:
        self.hardware = hardware
        self.serve = serve
        self.client = RuntimeClient(f"unix://{serve.socket}", STEP_TIMEOUT_S)
        cgroups = containerd.cgroups if cgroup_driver == "cgroupfs" else None
        self.kubelet = MiniKubelet(self.client, cgroups, cgroup_driver=cgroup_driver)
        self._containerd = containerd
        self._sandboxes: list[str] = []

    @property
    def machine(self) -> GuestMachine:
        """What was booted."""
        return self.hardware.machine

    @property
    def every_node(self) -> CpuSet:
        """All NUMA nodes."""
        return frozenset(range(len(self.machine.nodes)))

    async def owner(self, name: str, count: int, memory_mib: int = 64) -> Placed:
        """Run a Guaranteed container that asks for *count* whole CPUs."""
        spec = ContainerSpec("c0", IMAGE, cpu_limit_milli=1000 * count, memory_limit_bytes=memory_mib * MIB)
        return await self.run(PodSpec(name, (spec,)))

    async def sharer(self, name: str) -> Placed:
        """Run a BestEffort container."""
        return await self.run(PodSpec(name, (ContainerSpec("c0", IMAGE),)))

    async def run(self, pod: PodSpec) -> Placed:
        """Run a pod of one container; RuntimeCallError if it is refused."""
        sandbox_id = await self.kubelet.run_sandbox(pod)
        self._sandboxes.append(sandbox_id)
        container_id = await self.kubelet.create(pod, sandbox_id, pod.containers[0])
        await self.kubelet.start(container_id)
        return Placed(sandbox_id, container_id, _cgroup_of(container_id))

    async def remove(self, placed: Placed) -> None:
        """Remove a pod as the kubelet does."""
        await self.kubelet.remove_pod(placed.sandbox_id)
        self._sandboxes.remove(placed.sandbox_id)

    async def kernel_sets(self, placed: Placed) -> tuple[CpuSet, CpuSet]:
        """The sets in force for a container."""
        return placed.effective

    async def use(self, policy: str) -> None:
        """Go on with *policy* as the text of the policy file."""
        if policy != self.serve.policy.read_text():
            await self.serve.reload(policy)

    def life(self) -> Life[Placed]:
        """A life that has not begun."""
        return Life[Placed](self, STEP_TIMEOUT_S)

    async def live(self, policy: str, *steps: Step) -> None:
        """Play a life, all of whose steps have to come out as they say, under *policy*."""
        await self.use(policy)
        await self.life().play(*steps)

    async def clear(self) -> None:
        """Remove all pods that are left."""
        while self._sandboxes:
            await self.kubelet.remove_pod(self._sandboxes[-1])
            self._sandboxes.pop()

    async def recover(self) -> None:
        """After a check that failed: a daemon that runs, and no pods."""
        await self.restart(signal.SIGKILL)
        await self.clear()

    async def settles(self, placed: Placed, cpus: CpuSet) -> None:
        """Wait until the container may run on *cpus* and nowhere else."""
        try:
            async with asyncio.timeout(STEP_TIMEOUT_S):
                while not placed.written.cpus == placed.effective.cpus == cpus:  # noqa: ASYNC110 (the kernel tells nobody)
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"{placed} should have the CPUs {set(cpus)}") from None

    async def criproxy(self, *words: str) -> None:
        """Run a command of criproxy that asks the daemon, to its good end."""
        command = ("-m", "criproxy", *words, "--control-socket", str(self.serve.control))
        process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()

    async def restart(self, how: signal.Signals) -> None:
        """End criproxy and start it again on the same state."""
        if self.serve.process and self.serve.process.returncode is None:
            self.serve.signal(how)
            await self.serve.exit_status()
        await self.serve.spawn()
        await self.serve.message("READY=1")

    async def restart_runtime(self) -> None:
        """Kill containerd and start it again, until calls get through; containers go on."""
        await asyncio.to_thread(self._containerd.restart, signal.SIGKILL)
        async with asyncio.timeout(STEP_TIMEOUT_S):
            while True:
                with suppress(RuntimeCallError):  # connections end with it
                    await self.client.call("Version", api.VersionRequest(), api.VersionResponse)
                    return
                await asyncio.sleep(0.05)


def _cgroup_of(container_id: str) -> Path:
    return next(_CGROUPS.glob(f"**/*{container_id}*"))


@asynccontextmanager
async def proxied(hardware: Hardware, policy: str, cgroup_driver: CgroupDriver) -> AsyncIterator[World]:
    """Criproxy in front of a containerd of its own, with *policy* as the text of its policy file."""
    with (
        tempfile.TemporaryDirectory(prefix="criproxy-") as scratch,
        PrivateContainerd(cgroup_driver) as containerd,
    ):
        directory = Path(scratch)
        (directory / "runtime.sock").symlink_to(containerd.socket)
        serve = Serve(directory, "--config", str(directory / "policy.yaml"), limit_s=STEP_TIMEOUT_S)
        serve.policy.write_text(policy)
        async with serve:
            world = World(hardware, serve, containerd, cgroup_driver)
            try:
                yield world
            finally:
                await world.client.close()
