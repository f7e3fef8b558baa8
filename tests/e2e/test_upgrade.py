"""Version N → N + 1 → N under calls that never cease, with systemd's socket and real containers."""

import asyncio
import compileall
import itertools
import json
import re
import shutil
import signal
import socket
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from criproxy import __version__
from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeCallError, RuntimeClient
from criproxy.cri.translate import pid_in
from criproxy.discovery.container_cgroup import find_group
from criproxy.discovery.machine import discover
from criproxy.emulator.containerd import IMAGE, PrivateContainerd
from criproxy.emulator.kubelet import ContainerSpec, MiniKubelet, PodSpec
from criproxy.model.cpuset import format_cpuset
from criproxy.store.schema import VERSION
from tests.daemons import Serve

PACKAGE = Path(__file__).resolve().parents[2] / "criproxy"
NEXT_VERSION = "99.0.0"
LONGEST_FAILURE_S = 1.0
PACE_S = 0.005
"""Between two calls of a kind: a load, but one that leaves the two versions a machine to run on."""
ROUNDS_EACH = 6
"""Calls of each kind that a version must have answered before the next one takes over."""
MIB = 1 << 20
ALL = discover().cpus
OWNED = frozenset([min(ALL - {min(ALL)})])

OWNER = PodSpec("owner", (ContainerSpec("main", IMAGE, cpu_limit_milli=1000, memory_limit_bytes=64 * MIB),))
SHARER = PodSpec("sharer", (ContainerSpec("main", IMAGE),))


def next_version(directory: Path) -> Path:
    """Copy the package as version N + 1: another number, and a store one migration ahead."""
    copy = directory / "criproxy"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    init, schema = copy / "__init__.py", copy / "store" / "schema.py"
    init.write_text(init.read_text().replace(__version__, NEXT_VERSION))
    migration = '"CREATE TABLE planted (key TEXT PRIMARY KEY) WITHOUT ROWID;",'
    text, count = re.subn(r"^\)$", f"    {migration}\n)", schema.read_text(), count=1, flags=re.MULTILINE)
    assert count == 1, "the end of MIGRATIONS"
    schema.write_text(text)
    compileall.compile_dir(copy, quiet=1)  # as an installation does: the first start shall be as fast as all others
    return directory


@dataclass
class Line:
    """Calls of one kind, one after the other."""

    name: str
    call: Callable[[], Awaitable[object]]
    answered: int = 0
    failing_since_s: float | None = None
    longest_failure_s: float = 0.0
    longest_wait_s: float = 0.0
    errors: list[str] = field(default_factory=list)

    async def run(self, ended: asyncio.Event) -> None:
        """Call until the end; note how long no call succeeded, from the first that failed."""
        while not ended.is_set():
            begin = time.monotonic()
            try:
                await self.call()
            except RuntimeCallError as error:
                self.errors.append(str(error))
                self.failing_since_s = self.failing_since_s or begin
            else:
                self._note(begin, time.monotonic())
            await asyncio.sleep(PACE_S)

    def _note(self, begin_s: float, end_s: float) -> None:
        self.answered += 1
        self.longest_wait_s = max(self.longest_wait_s, end_s - begin_s)
        if self.failing_since_s is not None:
            self.longest_failure_s = max(self.longest_failure_s, end_s - self.failing_since_s)
            self.failing_since_s = None


class Load:
    """What the kubelet asks all the time, and pods that come and go, through one address."""

    def __init__(self, path: Path, containerd: PrivateContainerd) -> None:
        self._client = RuntimeClient(f"unix://{path}", timeout_s=20)
        self._kubelet = MiniKubelet(self._client, containerd.cgroups)
        self._numbers: Iterator[int] = itertools.count()
        self._ended = asyncio.Event()
        self.lines = [
            Line("Version", self._client.version),
            Line("ListContainers", self._client.list_containers),
            Line("create, start, remove", self._pod),
        ]

    def __str__(self) -> str:
        return "".join(
            f"{line.name}: {line.answered} answered, the slowest in {line.longest_wait_s:.2f} s, "
            f"{len(line.errors)} failed, for {line.longest_failure_s:.2f} s at most\n"
            for line in self.lines
        )

    async def _pod(self) -> None:
        pod = PodSpec(f"guest-{next(self._numbers)}", SHARER.containers)
        sandbox_id, _ = await self._kubelet.run_pod(pod)
        await self._kubelet.remove_pod(sandbox_id)

    async def run(self, *pods: PodSpec) -> dict[str, str]:
        """Run pods that stay; returns name → id of its container."""
        return {pod.name: (await self._kubelet.run_pod(pod))[1]["main"] for pod in pods}

    async def more(self, count: int) -> None:
        """Wait until each line has *count* more answers."""
        wanted = {line.name: line.answered + count for line in self.lines}
        async with asyncio.timeout(60):
            while any(line.answered < wanted[line.name] for line in self.lines):  # noqa: ASYNC110
                await asyncio.sleep(0.02)  # each line is at its own pace

    async def __aenter__(self) -> Self:
        self._tasks = [asyncio.create_task(line.run(self._ended)) for line in self.lines]
        return self

    async def end(self) -> None:
        """Call no more."""
        self._ended.set()
        await asyncio.gather(*self._tasks)

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self._client.close()


class Node:
    """containerd, systemd's socket, and the two containers that nothing may touch."""

    def __init__(self, directory: Path, containerd: PrivateContainerd) -> None:
        self.directory = directory
        self.path = directory / "kubelet.sock"
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))
        self.socket.listen(128)
        (directory / "runtime.sock").symlink_to(containerd.socket)
        self.policy = directory / "policy.yaml"
        self.policy.write_text(f'policy: static\nreservedCpus: "{min(ALL)}"\n')
        self.past = RuntimeClient(containerd.endpoint)
        self.ids: dict[str, str] = {}

    @asynccontextmanager
    async def serving(self, tree: Path) -> AsyncIterator[Serve]:
        """Criproxy of the tree *tree*, until it is told to stop."""
        arguments = ("--config", str(self.policy), "--log-format", "json")
        async with Serve(
            self.directory, *arguments, passed=self.socket, PYTHONPATH=str(tree), PYTHONSAFEPATH="1"
        ) as serve:
            yield serve
            serve.signal(signal.SIGTERM)
            assert await serve.exit_status() == 0

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
    newer = next_version(tmp_path / "newer")
    this = PACKAGE.parent
    where: list[dict[str, tuple[int, str, str]]] = []
    versions: list[int] = []
    async with Load(node.path, containerd) as load:
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

    assert [line.name for line in load.lines if line.failing_since_s is not None] == []


@pytest.mark.thorough  # for a quiet machine
async def test_no_call_fails_for_longer_than_a_second(
    node: Node, containerd: PrivateContainerd, tmp_path: Path
) -> None:
    """Over an upgrade and a downgrade."""
    load = await upgraded(node, containerd, tmp_path)

    print(load)
    for line in load.lines:
        assert line.longest_failure_s <= LONGEST_FAILURE_S, line
