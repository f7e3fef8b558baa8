"""The service on a container of a runtime that makes its cgroup and its process only when it is started."""

import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from criproxy.controls.block_io import V1_FILES
from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.cpu_burst import BURST
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import cgroup_in
from criproxy.model.controls import NOTHING_DESIRED, BlockIo, ContainerControls, Desired, Scheduling, Throttle
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.controls.cgroups import UNIFIED, Cgroup
from tests.controls.disks import Disk
from tests.controls.test_service import Service
from tests.daemons import LIMIT_S, until

ROOT = Path("/")
POD = PodSpec("program", (ContainerSpec("c0", IMAGE, cpu_limit_milli=500),))
CLASS = Attributes(Policy(3), nice=5)
MIB = 1 << 20


class Created:
    """A container that is created, and not started."""

    def __init__(self, kubelet: MiniKubelet, container_id: str, cgroup: str) -> None:
        self.kubelet, self.id, self.cgroup = kubelet, container_id, Cgroup.at(cgroup)

    def threads(self) -> set[Attributes]:
        """Return in which ways its threads are scheduled."""
        return {read(number) for number in ContainerThreads(ROOT).numbers(self.cgroup.path)}

    @property
    def limits(self) -> str:
        """The file with the limits of its reads."""
        return self.cgroup.file("io.max" if UNIFIED else V1_FILES["rbps"]).read_text()

    @property
    def burst(self) -> str:
        """Its CPU burst, which the runtime sets with cgroup v2."""
        return "" if UNIFIED else self.cgroup.file(BURST).read_text().strip()


@pytest.fixture
async def created(containerd: PrivateContainerd) -> AsyncIterator[Created]:
    """A container of a pod that runs."""
    client = RuntimeClient(containerd.endpoint, timeout_s=LIMIT_S)
    kubelet = MiniKubelet(client, containerd.cgroups)
    sandbox_id = await kubelet.run_sandbox(POD)
    container_id = await kubelet.create(POD, sandbox_id, POD.containers[0])
    status = await client.container_status(container_id, verbose=True)
    yield Created(kubelet, container_id, cgroup_in(status.info).lstrip("/"))
    await client.close()


async def test_a_container_has_its_classes_when_it_starts(created: Created, tmp_path: Path) -> None:
    """Without a look of the timer; a kill of the service changes nothing, and all is put back in the end."""
    with Disk(tmp_path, "disk") as disk:
        controls = ContainerControls(
            cgroup=created.cgroup.path,
            scheduling=Scheduling(policy="batch", nice=5),
            block_io=BlockIo(throttles=(Throttle(devices=(disk.path,), read_bps=MIB),)),
        )
        controls = controls if UNIFIED else replace(controls, burst_us=20_000)

        def is_applied() -> bool:
            return created.threads() == {CLASS} and disk.number in created.limits and created.burst in ("", "20000")

        async with Service(tmp_path, ROOT) as service:
            assert not (await service.apply(Desired(containers={created.id: controls}))).get("troubles")
            await created.kubelet.start(created.id)
            await until(is_applied)

            service.signal(signal.SIGKILL)
            await service.exit_status()
            await service.spawn()
            await service.message("READY=1")
            assert is_applied()

            answer = await service.apply(NOTHING_DESIRED)
            assert not answer.get("troubles")
            assert not answer.get("drift")
        assert created.threads() == {Attributes()}
        assert disk.number not in created.limits
        assert created.burst in ("", "0")
