"""The two nodes: a runtime with its cgroups, the relay before it, and criproxy before that, behind a socket that stays.

What a node is told here happens beside criproxy, unless it says otherwise.
"""

import asyncio
import os
import re
import signal
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path

from criproxy.cri import api_pb2 as api
from criproxy.cri.runtime import RuntimeClient
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.simulate.hosts import unpack
from lab.chaos.journal import Journal
from lab.chaos.relay import Relay
from lab.containerd.cgroups import PodCgroups
from lab.containerd.containerd import PrivateContainerd
from lab.provenance import ROOT, SHARED
from tests.daemons import Serve

SNAPSHOT = SHARED / "topologies/snapshots/xeon-2s2n-smt-pci.tar.xz"
_FILES = re.compile(r"/cpu/|cpu\d+/online|/topology/|/cache/|/node/|mounts|cgroup|cpuset")
"""What of a snapshot matters for placement."""
_LATENCY_MS = 4
_BACKLOG = 128


class Node:
    """One node, for the length of `running`."""

    runtime: str
    """Its name in `phases.RUNTIMES`."""
    cpus: CpuSet
    """All that pods may use."""
    reserved: CpuSet
    cgroups: PodCgroups | None
    """Makes the pods' cgroups, where that is not the runtime's own work."""
    cgroup_root: Path
    """The cpuset cgroup of all pods."""
    host_root: Path = Path("/")
    endpoint: Path
    """The runtime's socket."""
    pause_s = 0.0
    """How long kubelets wait after a failed try."""
    tries = 4
    """How often it is tried to bring criproxy into a phase: whether a start has to wait depends on the churn, too."""
    bundles: Path | None = None
    """The folder of the OCI bundles of what runs, where containers may start without criproxy having been asked."""
    exits = False
    """Whether processes run in containers, and end by themselves."""

    def __init__(self, directory: Path, policy: str, plant: str) -> None:
        self.directory = directory
        self.policy = policy
        self._plant = plant
        self.journal = Journal(directory / "journal")
        self.store = directory / "state" / "criproxy.db"
        self.relay: Relay
        self.serve: Serve
        self.direct: RuntimeClient
        self.serving = asyncio.Event()
        """Criproxy is there."""

    @property
    def assignable(self) -> int:
        """How many CPUs may have owners."""
        return len(self.cpus - self.reserved)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Everything of the node runs; afterwards nothing of it is left but its directory."""
        async with AsyncExitStack() as stack:
            await self._start_runtime(stack)
            self.direct = RuntimeClient(f"unix://{self.endpoint}")
            stack.push_async_callback(self.direct.close)
            self.journal.path.touch()
            self.relay = Relay(self.directory / "runtime.sock", self.endpoint)
            await self.relay.start()
            stack.push_async_callback(self.relay.stop)
            (self.directory / "run").mkdir()
            self.serve = Serve(
                self.directory,
                *("--host-root", str(self.host_root), *self._heard_by()),
                policy=f'policy: {self.policy}\nreservedCpus: "{format_cpuset(self.reserved)}"\n',
                passed=None if self._heard_by() else self._passed(stack),
                program=("-m", "lab.chaos.launcher", self._plant),
                limit_s=60.0,
                PYTHONPATH=str(ROOT),
            )
            await stack.enter_async_context(self.serve)
            await self.placing()
            self.serving.set()
            yield

    def _heard_by(self) -> tuple[str, ...]:
        """Options of criproxy that tell how it hears of calls, where it has no socket of its own."""
        return ()

    def _passed(self, stack: AsyncExitStack) -> socket.socket:
        passed = stack.enter_context(socket.socket(socket.AF_UNIX))
        passed.bind(str(self.kubelets))
        passed.listen(_BACKLOG)
        return passed

    @property
    def kubelets(self) -> Path:
        """The socket for kubelets."""
        return self.directory / "run" / "criproxy.sock"

    async def placing(self) -> None:
        """Wait until whatever is created has its place."""

    async def cut_plugin(self) -> None:
        """Break the connection over which criproxy is asked, where that is none of the kubelets'."""

    def lose(self) -> None:
        """Criproxy is about to be away, or not asked."""
        self.journal.away()
        self.serving.clear()

    def back(self) -> None:
        """Criproxy is there and asked again."""
        self.journal.back()
        self.serving.set()

    async def kill(self) -> None:
        """SIGKILL to criproxy; its socket stays."""
        self.lose()
        self.serve.signal(signal.SIGKILL)
        await self.serve.exit_status()

    def failures(self) -> list[str]:
        """What criproxy has logged as an error so far: whatever else is done to it, nothing of its own may fail."""
        return [line for line in self.serve.log.read_text().splitlines() if "[error " in line]

    def group(self, container_id: str) -> Path | None:
        """The cpuset cgroup of a container that runs."""
        return next(self.cgroup_root.glob(f"**/{container_id}"), None)

    def has(self, container_id: str) -> CpuSet | None:
        """What a running container's cgroup says."""
        text = self.reads(container_id, "cpuset.cpus")
        return parse_cpuset(text) if text else None

    def reads(self, container_id: str, name: str) -> str:
        """A file of a container's cgroup; empty if there is none."""
        group = self.group(container_id)
        try:
            return (group / name).read_text().strip() if group else ""
        except OSError:  # gone meanwhile
            return ""

    async def end_left(self, container_id: str = "") -> None:
        """End tasks of containers that do not run by the runtime's words, as an operator would.

        Args:
            container_id: whose; all that have processes if not given.
        """

    async def end(self, container_id: str) -> None:
        """The container's process ends, and nobody has asked for it."""
        request = api.StopContainerRequest(container_id=container_id)
        await self.direct.call("StopContainer", request, api.StopContainerResponse)

    async def _start_runtime(self, stack: AsyncExitStack) -> None:
        """Start it, and set what is told above."""
        raise NotImplementedError

    async def restart_runtime(self) -> None:
        """End and start it; containers go on."""
        raise NotImplementedError


async def in_thread(work: Callable[[], None]) -> None:
    """Do what blocks in a thread; if this is cancelled, at its end, since a thread goes on: nothing overtakes it."""
    thread = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        await asyncio.shield(thread)
    finally:
        await asyncio.wait([thread])


class ContainerdNode(Node):
    """This machine, with a private containerd."""

    runtime = "containerd"
    exits = True

    async def _start_runtime(self, stack: AsyncExitStack) -> None:
        self._containerd = self._new_containerd()
        stack.push_async_callback(in_thread, self._containerd.stop)
        await in_thread(self._containerd.start)
        stack.callback(lambda: (self.directory / "containerd.log").write_text(self._containerd.log))
        self.endpoint, self.cgroups = self._containerd.socket, self._containerd.cgroups
        mount = Path("/sys/fs/cgroup/cpuset")
        self.cpus = parse_cpuset((mount / "cpuset.cpus").read_text().strip())
        self.reserved = frozenset([min(self.cpus)])
        self.cgroup_root = mount / self._containerd.cgroups.root.lstrip("/") / "kubepods"

    def _new_containerd(self) -> PrivateContainerd:
        return PrivateContainerd()

    async def end_left(self, container_id: str = "") -> None:
        """Containerd 1.6 leaves them where the call of a start was cut."""
        ended = (api.CONTAINER_EXITED, api.CONTAINER_UNKNOWN)
        lost = [] if container_id else [one.id for one in await self.direct.list_containers() if one.state in ended]
        for each in [container_id] if container_id else [one for one in lost if self.reads(one, "cgroup.procs")]:
            await in_thread(partial(self._containerd.end_task, each))

    async def restart_runtime(self) -> None:
        """As systemd would, for an upgrade."""
        await in_thread(self._containerd.restart)


class EmbeddedNode(Node):
    """The machine of a snapshot, with the embedded runtime as a process of its own."""

    runtime = "embedded"
    cgroups = None

    async def _start_runtime(self, stack: AsyncExitStack) -> None:
        self.host_root = Path(stack.enter_context(self._unpacked()))
        self.cpus = parse_cpuset((self.host_root / "sys/devices/system/cpu/online").read_text().strip())
        self.reserved = frozenset(sorted(self.cpus)[:2])
        self.cgroup_root = self.host_root / "sys/fs/cgroup/cpuset/kubepods"
        self.endpoint = self.directory / "embedded.sock"
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "lab.emulator", "--socket", str(self.endpoint), "--latency-ms", str(_LATENCY_MS)),
            *("--cpus", format_cpuset(self.cpus), "--mems", "0-1", "--host-root", str(self.host_root)),
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        stack.push_async_callback(self._end)
        await self._listening()

    @contextmanager
    def _unpacked(self) -> Iterator[str]:
        memory = Path("/dev/shm")  # small files are slow elsewhere
        place = memory if memory.is_dir() else None
        with tempfile.TemporaryDirectory(prefix="criproxy-chaos-", dir=place) as folder:
            unpack(SNAPSHOT, Path(folder), _FILES.search)
            yield folder

    async def _end(self) -> None:
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def _listening(self) -> None:
        assert self._process.stdout
        line = await self._process.stdout.readline()
        assert b"listening" in line, "the embedded runtime did not start"

    async def restart_runtime(self) -> None:
        """It forgets nothing."""
        self._process.send_signal(signal.SIGHUP)
        await self._listening()
