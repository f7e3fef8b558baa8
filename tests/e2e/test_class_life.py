"""What the service sets for a container, through the whole chain, from its start to the end of its class.

Scheduling, limits of a disk and, with cgroup v1, the CPU burst at once: kubelet, criproxy, containerd and the service,
which looks for drift all the time, as processes.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from criproxy.controls.block_io import V1_FILES
from criproxy.controls.cpu_burst import BURST
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError
from criproxy.cri.translate import cgroup_in
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, PodSpec
from tests.controls.cgroups import UNIFIED, Cgroup
from tests.controls.disks import Disk
from tests.controls.test_service import Service
from tests.daemons import until
from tests.e2e.scene import ALL, MIB, Ran, proxied
from tests.e2e.test_classes import Classes

POD = PodSpec("program", (ContainerSpec("c0", IMAGE, cpu_request_milli=100, cpu_limit_milli=500),))
PLACED = f'policy: static\nreservedCpus: "{min(ALL)}"\n'
Seen = tuple[Attributes, str, str]
"""How the first process is scheduled, the limit of its reads, and the burst."""


class Life:
    """A container with its class."""

    def __init__(self, classes: Classes, containerd: PrivateContainerd, disk: Disk) -> None:
        self.classes, self.scene, self.containerd, self.disk = classes, classes.scene, containerd, disk
        self.one: Ran
        self._pid, self._cgroup = 0, Cgroup.at("")

    def policy(self, nice: int, read_bps: int, burst: int) -> str:
        """The policy file with a class for all."""
        block_io = f"{{devices: [{{paths: [{self.disk.path}], readBps: {read_bps}}}]}}"
        kinds = f"scheduling: {{policy: batch, nice: {nice}}}, blockIO: {block_io}, cpu: {{burst: {burst}%}}"
        return f"{PLACED}classes: {{all: {{for: {{namespaces: ['*']}}, {kinds}}}}}\n"

    def expected(self, nice: int, read_bps: int, burst_us: int) -> Seen:
        """What is seen then."""
        line = f"{self.disk.number} rbps={read_bps} wbps=max riops=max wiops=max" if UNIFIED else ""
        return Attributes(Policy(3), nice=nice), line or f"{self.disk.number} {read_bps}", f"{burst_us}"

    async def runs(self) -> None:
        """Run the pod."""
        self.one = await self.classes.run(POD)
        status = await self.scene.direct.container_status(self.one.container_id, verbose=True)
        self._pid, self._cgroup = (
            await self.scene.pid(self.one.container_id),
            Cgroup.at(cgroup_in(status.info).lstrip("/")),
        )

    @property
    def limits(self) -> Path:
        """The file with the limits of its reads."""
        return self._cgroup.file("io.max" if UNIFIED else V1_FILES["rbps"])

    @property
    def burst(self) -> Path:
        """The file with its burst."""
        return self._cgroup.file("cpu.max.burst" if UNIFIED else BURST)

    def seen(self) -> Seen:
        """What there is now."""
        return read(self._pid), self.limits.read_text().strip(), self.burst.read_text().strip()

    async def becomes(self, expected: Seen) -> None:
        """Wait for that."""
        try:
            async with asyncio.timeout(30):
                await until(lambda: self.seen() == expected)
        except TimeoutError:
            assert self.seen() == expected

    async def is_resized(self) -> bool:
        """Lower its quota, as the kubelet does until it succeeds: on a busy machine the burst may be lowered late."""
        less = api.LinuxContainerResources(cpu_shares=102, cpu_quota=15_000, cpu_period=100_000)
        with suppress(RuntimeCallError):
            await self.scene.kubelet.update(self.one.container_id, less)
            return True
        return False

    def disturb(self) -> None:
        """Change all of it beside criproxy."""
        os.sched_setscheduler(self._pid, os.SCHED_OTHER, os.sched_param(0))
        self.limits.write_text(f"{self.disk.number} rbps=7" if UNIFIED else f"{self.disk.number} 7")
        self.burst.write_text("0")


@pytest.fixture
async def life(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Life]:
    """All parts, without a class."""
    folder = tmp_path / "run" / "controls"
    folder.mkdir(parents=True)
    service = Service(folder, Path("/"), "tests.controls.modelled")
    with Disk(tmp_path, "disk") as disk:
        async with asyncio.timeout(120), service, proxied(tmp_path, containerd, PLACED) as scene:
            yield Life(Classes(scene, service), containerd, disk)


async def test_a_container_has_its_class_from_its_start_to_the_end_of_that(life: Life) -> None:
    """Over a reload, restarts of all three, foreign changes, a resize, a release and its end; and then as before."""
    first, second = life.expected(5, MIB, 10_000), life.expected(7, 2 * MIB, 20_000)
    nothing: Seen = (Attributes(), "", "0")

    await life.scene.serve.reload(life.policy(5, MIB, 20))
    await life.classes.answers()
    await life.runs()
    await life.becomes(first)
    await life.scene.serve.reload(life.policy(7, 2 * MIB, 40))
    await life.becomes(second)

    await life.scene.restart(signal.SIGKILL)
    life.classes.service.signal(signal.SIGKILL)
    await life.classes.service.exit_status()
    life.classes.service.forget()
    await asyncio.to_thread(life.containerd.restart, signal.SIGKILL)
    assert life.seen() == second
    await life.classes.service.spawn()
    await life.classes.answers()
    assert life.seen() == second
    life.disturb()
    await life.becomes(second)

    await until(life.is_resized)
    resized = (*second[:2], "6000")
    await life.becomes(resized)
    await life.scene.release()
    await life.becomes(nothing)
    await life.scene.release("--undo")
    await life.becomes(resized)
    await life.scene.serve.reload(PLACED)
    await life.becomes(nothing)
