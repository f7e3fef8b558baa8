"""The scheduling of a class in real containers: set after the create, seen by the program at its first instruction."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from criproxy.controls.arrivals import Arrivals
from criproxy.controls.container_threads import ContainerThreads
from criproxy.controls.scheduling.calls import Attributes, Policy, read
from criproxy.controls.scheduling.threads import ThreadScheduling
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import cgroup_in, pid_in
from criproxy.model.controls import ContainerControls, Scheduling
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import LIMIT_S, until

ROOT = Path("/")
SCRIPT = """read -r mine </proc/self/stat
echo "$mine" >/first.part
/bin/busybox ionice -p $$ >>/first.part
/bin/busybox mv /first.part /first
sleep 1000 &
wait"""
"""Reads its own scheduling before it does anything else, and starts another process."""
POD = PodSpec("program", (ContainerSpec("c0", IMAGE, ("/bin/sh", "-c", SCRIPT)),))
NICE, PRIORITY, POLICY = 18, 39, 40
"""Where these are in /proc/PID/stat, from 0; see proc_pid_stat(5)."""
RT_LIMIT = Path("/sys/fs/cgroup/cpu")
"""Where cgroup v1 says how much real-time threads may have."""


class Created:
    """A container that is created, and not started."""

    def __init__(self, client: RuntimeClient, kubelet: MiniKubelet, container_id: str, cgroup: str) -> None:
        self.client, self.kubelet, self.id, self.cgroup = client, kubelet, container_id, cgroup

    def controls(self, scheduling: Scheduling) -> ContainerControls:
        """Return what the service gets for it."""
        return ContainerControls(cgroup=self.cgroup, scheduling=scheduling)

    async def first_words(self) -> list[str]:
        """Start it; return what it says of itself: the fields of its stat file, and its I/O class."""
        await self.kubelet.start(self.id)
        status = await self.client.container_status(self.id, verbose=True)
        file = Path(f"/proc/{pid_in(status.info)}/root/first")
        await until(file.exists, 0.01)
        return file.read_text().splitlines()  # noqa: ASYNC240 (of a container)

    def threads(self) -> dict[int, Attributes]:
        """Return how all of its threads are scheduled."""
        return {number: read(number) for number in ContainerThreads(ROOT).numbers(self.cgroup)}


@pytest.fixture
async def created(containerd: PrivateContainerd) -> AsyncIterator[Created]:
    """A container of a program that tells how it is scheduled."""
    client = RuntimeClient(containerd.endpoint, timeout_s=LIMIT_S)
    kubelet = MiniKubelet(client, containerd.cgroups)
    sandbox_id = await kubelet.run_sandbox(POD)
    container_id = await kubelet.create(POD, sandbox_id, POD.containers[0])
    status = await client.container_status(container_id, verbose=True)
    yield Created(client, kubelet, container_id, cgroup_in(status.info).lstrip("/"))
    await client.close()


@pytest.mark.parametrize(
    ("scheduling", "expected"),
    [
        pytest.param(Scheduling(policy="batch"), Attributes(Policy(3)), id="batch"),
        pytest.param(Scheduling(policy="idle"), Attributes(Policy(5)), id="idle"),
        pytest.param(Scheduling(nice=-5), Attributes(nice=-5), id="nice"),
        pytest.param(Scheduling(io_class="idle"), Attributes(io=(3, 0)), id="io-idle"),
    ],
)
async def test_a_program_begins_with_its_class(created: Created, scheduling: Scheduling, expected: Attributes) -> None:
    """What it starts has it as well, and a process of an exec after the next look; in the end all are as usual."""
    part, controls, troubles = ThreadScheduling(ROOT), created.controls(scheduling), list[str]()
    assert part.apply(created.id, controls, None) == []

    async def arrived(container_id: str) -> None:
        troubles.extend(part.apply(container_id, controls, controls))

    arrivals = Arrivals(ROOT, arrived)
    waiting = asyncio.create_task(arrivals.run())
    arrivals.expect(created.id, created.cgroup)
    await asyncio.sleep(0)

    stat, io = await created.first_words()

    fields = stat.split()
    policy = Policy(int(fields[POLICY]), int(fields[PRIORITY]))
    assert (policy, int(fields[NICE])) == (expected.policy, expected.nice)
    assert io.startswith("idle") == (expected.io == (3, 0))
    await until(lambda: len(created.threads()) == 2, 0.01)
    assert {*created.threads().values()} == {expected}
    assert part.look(created.id, controls) == troubles == []

    executed = asyncio.create_task(
        created.kubelet.call("ExecSync", container_id=created.id, cmd=["/bin/sleep", "1000"])
    )
    await until(lambda: len(created.threads()) == 3, 0.01)
    assert part.look(created.id, controls) == []
    assert {*created.threads().values()} == {expected}
    assert part.drift == 0

    assert part.forget(created.id, controls) == []
    assert {*created.threads().values()} == {Attributes()}
    await created.kubelet.stop(created.id)
    waiting.cancel()
    await asyncio.wait({executed, waiting})
