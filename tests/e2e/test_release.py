"""Release and undo on real containers, with the daemon alive and killed: the cgroups say whether it is true."""

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from criproxy.control.kernel import Kernel
from criproxy.cri.runtime import RuntimeClient
from criproxy.discovery.machine import discover
from criproxy.model.cpuset import CpuSet
from criproxy.sim.containerd import IMAGE, PrivateContainerd
from criproxy.sim.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import Serve

MACHINE = discover()
ALL = MACHINE.cpus
OWNED = frozenset([min(ALL - {min(ALL)})])
"""The CPU that the first owner of one CPU gets: the lowest that is not reserved."""


class Scene:
    """Criproxy as a process between a small kubelet and containerd."""

    def __init__(self, serve: Serve, containerd: PrivateContainerd) -> None:
        self.serve = serve
        self.client = RuntimeClient(f"unix://{serve.socket}")
        self.direct = RuntimeClient(containerd.endpoint)
        self._kubelet = MiniKubelet(self.client, containerd.cgroups)
        self._kernel = Kernel(self.direct, Path("/"))

    async def run(self, name: str, cpu_milli: int) -> str:
        """Run a Guaranteed pod of one container; its id."""
        spec = ContainerSpec("main", IMAGE, cpu_limit_milli=cpu_milli, memory_limit_bytes=64 << 20)
        return (await self._kubelet.run_pod(PodSpec(name, (spec,))))[1]["main"]

    async def sets(self, container_id: str) -> tuple[CpuSet, CpuSet]:
        """CPUs and memory nodes that the cgroup says."""
        seen = await self._kernel.look(container_id)
        assert seen.applied is not None
        return seen.applied.cpus, seen.applied.mems

    async def release(self, *arguments: str) -> dict[str, Any]:
        """Call the command; its answer."""
        directory = self.serve.directory
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", "release", "--format", "json"),
            *("--control-socket", str(self.serve.control), "--state-dir", str(directory / "state")),
            *("--runtime-endpoint", self.direct.endpoint, *arguments),
            stdout=asyncio.subprocess.PIPE,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output
        answer: dict[str, Any] = json.loads(output)
        return answer


@pytest.fixture
async def scene(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Scene]:
    """The static policy, with the lowest CPU reserved."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(f'policy: static\nreservedCpus: "{min(ALL)}"\n')
    (tmp_path / "runtime.sock").symlink_to(containerd.socket)
    async with asyncio.timeout(60), Serve(tmp_path, "--config", str(policy)) as serve:
        scene = Scene(serve, containerd)
        yield scene
        await scene.client.close()
        await scene.direct.close()


async def test_nobody_stays_pinned(scene: Scene) -> None:
    """Everybody gets what pods may use, newcomers are not placed, and undone everybody is where they were."""
    owner, shared = await scene.run("owner", 1000), await scene.run("shared", 500)
    before = await scene.sets(owner), await scene.sets(shared)
    assert [cpus for cpus, _ in before] == [OWNED, ALL - OWNED]

    answer = await scene.release()

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("daemon", ["released", "released"])
    late = await scene.run("late", 500)
    for container_id in (owner, shared, late):
        assert await scene.sets(container_id) == (ALL, MACHINE.mems)

    answer = await scene.release("--undo")

    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    assert [(await scene.sets(each))[0] for each in (owner, shared, late)] == [OWNED, ALL - OWNED, ALL - OWNED]


async def test_nobody_stays_pinned_when_criproxy_was_killed(scene: Scene) -> None:
    """The command does it alone; the next daemon knows of it, and an undo places everybody again."""
    owner, shared = await scene.run("owner", 1000), await scene.run("shared", 500)
    scene.serve.signal(signal.SIGKILL)
    await scene.serve.exit_status()

    answer = await scene.release()

    assert (answer["source"], [row["outcome"] for row in answer["containers"]]) == ("store", ["released", "released"])
    for container_id in (owner, shared):
        assert await scene.sets(container_id) == (ALL, MACHINE.mems)

    await scene.serve.spawn()
    status = await scene.serve.message("READY=1")
    assert any(line.startswith("STATUS=RELEASED, no container is placed: criproxy release, ") for line in status)
    late = await scene.run("late", 500)
    assert await scene.sets(late) == (ALL, MACHINE.mems)

    answer = await scene.release("--undo")

    assert {row["outcome"] for row in answer["containers"]} == {"placed"}
    assert [(await scene.sets(each))[0] for each in (owner, shared, late)] == [OWNED, ALL - OWNED, ALL - OWNED]
