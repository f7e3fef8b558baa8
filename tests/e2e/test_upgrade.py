"""Version N → N + 1 → N under calls that never cease, with systemd's socket and real containers.

N + 1 has a newer schema number, the worst case: N cannot read its database. `tests.daemon.test_serve_upgrade` has both
cases on the embedded runtime, where it also looks at a release, kept CPUs, incidents and the history.
"""

import json
import socket
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from criproxy import __version__
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.cri.translate import pid_in
from criproxy.host.cgroup import find_group
from criproxy.model.cpuset import format_cpuset
from criproxy.store.schema import VERSION
from lab.containerd.containerd import IMAGE, PrivateContainerd
from lab.kubelet.kubelet import ContainerSpec, MiniKubelet, PodSpec
from tests.daemons import Serve
from tests.e2e.scene import ALL, MIB, OWNED
from tests.upgrading import LONGEST_FAILURE_S, NEXT_VERSION, PACKAGE, Load, next_version

ROUNDS_EACH = 6
"""Calls of each kind that a version must have answered before the next one takes over."""
OWNER = PodSpec("owner", (ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB),))
SHARER = PodSpec("sharer", (ContainerSpec("main", IMAGE),))


class Node:
    """containerd, systemd's socket, and the two containers that nothing may touch."""

    def __init__(self, directory: Path, containerd: PrivateContainerd) -> None:
        self.directory = directory
        self.path = directory / "kubelet.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen(128)
        (directory / "runtime.sock").symlink_to(containerd.socket)
        self.past = RuntimeClient(containerd.endpoint)
        self.ids: dict[str, str] = {}

    @asynccontextmanager
    async def serving(self, tree: Path) -> AsyncIterator[Serve]:
        """Criproxy of the tree *tree*, until it is told to stop."""
        async with Serve(
            self.directory,
            *("--log-format", "json"),
            policy=f'policy: static\nreservedCpus: "{min(ALL)}"\n',
            passed=self.socket,
            PYTHONPATH=str(tree),
            PYTHONSAFEPATH="1",
        ) as serve:
            yield serve
            assert await serve.stop() == 0

    async def untouched(self) -> dict[str, tuple[int, str, str]]:
        """Pod → first process, cgroup and CPUs of its container."""
        found: dict[str, tuple[int, str, str]] = {}
        for name, container_id in self.ids.items():
            status = await self.past.container_status(container_id, verbose=True)
            pid = pid_in(status.info)
            assert status.status.state == api.CONTAINER_RUNNING
            assert pid is not None
            group = find_group(Path("/"), pid, container_id)
            found[name] = (pid, str(group.path), format_cpuset(group.read().cpus))
        return found

    def served(self) -> list[str]:
        """The versions that said that they serve, in order."""
        lines = map(json.loads, (self.directory / "serve.log").read_text().splitlines())
        return [line["version"] for line in lines if line["event"] == "serving"]

    def store_version(self) -> int:
        """The version of the database on disk."""
        with sqlite3.connect(self.directory / "state" / "criproxy.db") as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])


@pytest.fixture
async def node(tmp_path: Path, containerd: PrivateContainerd) -> AsyncIterator[Node]:
    """A node on which criproxy does not run yet."""
    node = Node(tmp_path, containerd)
    yield node
    await node.past.close()
    node.socket.close()


async def upgraded(node: Node, containerd: PrivateContainerd, tmp_path: Path) -> Load:
    """Upgrade and downgrade: what runs keeps its processes, groups and CPUs, and owners stay alone."""
    newer = next_version(tmp_path / "newer", newer_number=True)
    this = PACKAGE.parent
    where: list[dict[str, tuple[int, str, str]]] = []
    versions: list[int] = []
    client = RuntimeClient(f"unix://{node.path}", timeout_s=20)
    async with Load(client, MiniKubelet(client, containerd.cgroups), SHARER.containers) as load:
        for tree in (this, newer, this):
            async with node.serving(tree):
                if not node.ids:
                    node.ids = await load.run(SHARER, OWNER)
                await load.more(ROUNDS_EACH)
                where.append(await node.untouched())
                versions.append(node.store_version())
                if len(versions) == 3:
                    node.ids |= await load.run(PodSpec("late", SHARER.containers))
                    where.append(await node.untouched())
                    await load.end()
    assert node.served() == [__version__, NEXT_VERSION, __version__]
    assert versions == [VERSION, VERSION + 1, VERSION]
    _, _, late_cpus = where[3].pop("late")
    assert late_cpus == format_cpuset(ALL - OWNED), "what the older version has rebuilt knows the owner"
    assert where[0] == where[1] == where[2] == where[3]
    assert {name: cpus for name, (_, _, cpus) in where[0].items()} == {
        "owner": format_cpuset(OWNED),
        "sharer": format_cpuset(ALL - OWNED),
    }
    return load


async def test_upgrade_and_downgrade_under_load(node: Node, containerd: PrivateContainerd, tmp_path: Path) -> None:
    """What runs is not touched, and calls of each kind that fail are followed by one that succeeds."""
    load = await upgraded(node, containerd, tmp_path)

    assert load.failing() == []


@pytest.mark.thorough  # for a quiet machine
async def test_no_call_fails_for_longer_than_a_second(
    node: Node, containerd: PrivateContainerd, tmp_path: Path
) -> None:
    """Over an upgrade and a downgrade."""
    load = await upgraded(node, containerd, tmp_path)

    print(load)
    for line in load.lines:
        assert line.longest_failure_s <= LONGEST_FAILURE_S, line
