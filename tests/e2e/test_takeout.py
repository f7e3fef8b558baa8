"""How criproxy is taken out of a node, well or broken: containers go on running, and none is pinned at the end.

The commands are those of docs/install.md; a kubelet that is pointed back at the runtime is one with another socket.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from criproxy.node.cgroups import Cgroups
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import Serve

MIB = 1 << 20
ALL = discover().cpus
OWNED = frozenset([min(ALL - {min(ALL)})])
EVERYWHERE, OWNER, OTHERS = map(format_cpuset, (ALL, OWNED, ALL - OWNED))

TRADER = PodSpec("trader", (ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB),))
WEB = PodSpec("web", (ContainerSpec("main", IMAGE),))
LATE = PodSpec("late", TRADER.containers)


@dataclass
class Node:
    """A node on which criproxy has placed two pods."""

    directory: Path
    serve: Serve
    through: RuntimeClient
    past: RuntimeClient
    containerd: PrivateContainerd
    sandboxes: dict[str, str]
    containers: dict[str, str]

    async def run(self, pod: PodSpec, client: RuntimeClient) -> None:
        """Run *pod* as a kubelet does that has *client* as its runtime."""
        sandbox_id, ids = await MiniKubelet(client, self.containerd.cgroups).run_pod(pod)
        self.sandboxes[pod.name], self.containers[pod.name] = sandbox_id, ids["main"]

    async def cpus(self) -> dict[str, str]:
        """Pod → the CPUs in the cgroup of its container, which must run."""
        kernel = Cgroups(self.past, Path("/"))
        found = {name: (await kernel.read(container_id)).applied for name, container_id in self.containers.items()}
        return {name: format_cpuset(applied.cpus) if applied else "ended" for name, applied in found.items()}

    async def started_at(self) -> dict[str, int]:
        """Pod → when its container was started: the same as before, if nobody started it again."""
        statuses = {name: await self.past.container_status(each) for name, each in self.containers.items()}
        assert all(each.status.state == api.CONTAINER_RUNNING for each in statuses.values())
        return {name: each.status.started_at for name, each in statuses.items()}

    async def command(self, *arguments: str, status: int = 0) -> str:
        """Run a command of criproxy that must end with *status*; what it says."""
        places = ("--control-socket", str(self.serve.control), "--state-dir", str(self.directory / "state"))
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", *arguments, *places, "--runtime-endpoint", self.containerd.endpoint),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "COLUMNS": "200"},
        )
        async with asyncio.timeout(60):
            said, _ = await process.communicate()
        assert process.returncode == status, said.decode()
        return said.decode()


@pytest.fixture
async def node(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Node]:
    """The static policy, an owner, and one that was moved off its CPU."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(f'policy: static\nreservedCpus: "{min(ALL)}"\n')
    (tmp_path / "runtime.sock").symlink_to(containerd.socket)
    async with Serve(tmp_path, "--config", str(policy)) as serve:
        through, past = RuntimeClient(f"unix://{serve.socket}"), RuntimeClient(containerd.endpoint)
        node = Node(tmp_path, serve, through, past, containerd, {}, {})
        for pod in (WEB, TRADER):
            await node.run(pod, through)
        assert await node.cpus() == {"web": OTHERS, "trader": OWNER}
        yield node
        await through.close()
        await past.close()


async def test_criproxy_is_taken_out_while_it_is_well(node: Node) -> None:
    """Released, the kubelet pointed back, stopped: everybody is everywhere, and nobody was restarted."""
    before = await node.started_at()

    await node.command("release")
    assert await node.cpus() == {"web": EVERYWHERE, "trader": EVERYWHERE}
    await node.run(LATE, node.past)
    node.serve.signal(signal.SIGTERM)
    assert await node.serve.exit_status() == 0

    assert await node.cpus() == dict.fromkeys(("web", "trader", "late"), EVERYWHERE)
    assert {name: at for name, at in (await node.started_at()).items() if name in before} == before
    await MiniKubelet(node.past).remove_pod(node.sandboxes["trader"])


async def test_between_release_and_the_end_nobody_is_pinned(node: Node) -> None:
    """Who comes through a criproxy that is released runs everywhere, however long the kubelet keeps it."""
    await node.command("release")

    await node.run(LATE, node.through)

    assert await node.cpus() == dict.fromkeys(("web", "trader", "late"), EVERYWHERE)


@pytest.mark.parametrize("state_left", [True, False])
async def test_criproxy_is_taken_out_when_it_is_broken(node: Node, state_left: bool) -> None:
    """With a daemon that is dead, release does the work itself, whatever is left of the state."""
    before = await node.started_at()
    node.serve.signal(signal.SIGKILL)
    await node.serve.exit_status()
    if not state_left:
        shutil.rmtree(node.directory / "state")

    await node.command("release", status=0 if state_left else 1)  # that it cannot be remembered is said
    await node.run(LATE, node.past)

    assert await node.cpus() == dict.fromkeys(("web", "trader", "late"), EVERYWHERE)
    assert {name: at for name, at in (await node.started_at()).items() if name in before} == before


async def test_criproxy_comes_back_after_it_was_taken_out(node: Node) -> None:
    """Started again it goes on without placing, until the release is undone: then everybody has a place again."""
    node.serve.signal(signal.SIGKILL)
    await node.serve.exit_status()
    await node.command("release")
    await node.serve.spawn()
    await node.serve.message("READY=1")
    assert await node.cpus() == {"web": EVERYWHERE, "trader": EVERYWHERE}

    await node.command("release", "--undo")

    assert await node.cpus() == {"web": OTHERS, "trader": OWNER}
