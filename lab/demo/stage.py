"""The environment of the demo: a private runtime, the real ``criproxy serve`` in front of it, and its device plugin.

The runtime is a private containerd, or the embedded one without root or containerd.
"""

import asyncio
import os
import signal
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from criproxy.cri.runtime import RuntimeClient
from criproxy.deviceplugin.nvidia.settings import VARIABLES
from criproxy.errors import CriproxyError
from criproxy.host.machine import discover
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.node.cgroups import Cgroups
from criproxy.process.tether import python, tethered
from lab.containerd import containerd
from lab.containerd.cgroups import PodCgroups
from lab.demo.card import HOST, Card, create_card
from lab.emulator import runtime
from lab.kubelet.kubelet import MiniKubelet
from tests.daemons import Process, Serve

READY_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime behind criproxy; its containers have processes if there are *cgroups*."""

    name: str
    image: str
    """The image of the containers; its default command sleeps."""
    read_from: str
    """The source of the sets that `Stage.read_back` returns, for users."""
    host_root: Path
    """The directory whose ``/proc`` has the processes of its containers."""
    cgroups: PodCgroups | None = None


@dataclass(slots=True)
class Stage:
    """A running runtime, and criproxy in front of it; see `open_stage`."""

    directory: Path
    topology: Topology
    runtime: Runtime
    through: RuntimeClient
    """A client of criproxy."""
    kubelet: MiniKubelet
    """A kubelet that uses it."""
    kernel: Cgroups
    """Reads the cgroups of containers, without criproxy."""
    card: Card | None
    """None if none can be created."""
    serve: Serve
    runs: bool = True
    """Whether criproxy runs."""

    async def kill_criproxy(self) -> None:
        """Kill criproxy with SIGKILL."""
        self.runs = False
        self.serve.signal(signal.SIGKILL)
        await self.serve.exit_status()

    async def start_criproxy(self) -> None:
        """Start criproxy again, and wait until it is ready."""
        await self.serve.spawn()
        await self.serve.message("READY=1")
        self.runs = True

    def device_plugin(self) -> Process:
        """Return ``criproxy device-plugin``, which offers the card."""
        assert self.card is not None
        return Process(
            self.directory,
            "device-plugin",
            *(*_program("device-plugin", "--config", str(self.serve.policy)), "--log-format", "json"),
            *("--host-root", str(self.runtime.host_root), "--kubelet-dir", str(self.card.kubelet)),
            *("--control-socket", str(self.serve.control)),
            limit_s=READY_TIMEOUT_S,
        )

    async def run_command(self, *arguments: str, width: int) -> tuple[int, str]:
        """Run a command that asks the daemon; return its exit status, and its output for *width* columns."""
        process = await asyncio.create_subprocess_exec(
            *tethered(python("criproxy", *arguments, "--control-socket", str(self.serve.control))),
            env={**os.environ, "COLUMNS": str(width)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        return process.returncode or 0, output.decode()

    async def read_back(self, container_id: str) -> Applied | None:
        """Return the sets in the cgroup of a container; None if it does not run."""
        return (await self.kernel.read(container_id)).applied


def _program(*arguments: str) -> tuple[str, ...]:
    """Return Python's arguments for a program of criproxy that ends with the demo, also if that is killed."""
    return tethered(python("criproxy", *arguments))[1:]


async def open_stage(stack: AsyncExitStack) -> Stage:
    """Start everything; closing *stack* stops and removes it in any case.

    Raises:
        CriproxyError: the machine has fewer than two CPUs, or something does not start.
    """
    for name in VARIABLES:  # of NVIDIA's device plugin, which are for another kubelet
        os.environ.pop(name, None)
    topology = discover()
    if len(topology.cpus) < 2:
        raise CriproxyError(f"the demo needs two CPUs, but pods may use {format_cpuset(topology.cpus)} only")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criproxy-demo-")))
    card = stack.enter_context(create_card(directory))
    behind = await _start_runtime(stack, directory, topology)
    serve = Serve(
        directory,
        *("--config", str(directory / "policy.yaml"), "--log-format", "json"),
        program=_program(),
        limit_s=READY_TIMEOUT_S,
    )
    devices = card.policy(behind.host_root) if card else ""
    serve.policy.write_text(f'policy: static\nreservedCpus: "{min(topology.cpus)}"\n{devices}')
    serve.policy.chmod(0o644)  # `serve` takes no file that others can write, whatever our umask
    await stack.enter_async_context(serve)
    through, past = RuntimeClient(f"unix://{serve.socket}"), RuntimeClient(f"unix://{serve.runtime}")
    for client in (past, through):
        stack.push_async_callback(client.close)
    kubelet = MiniKubelet(through, behind.cgroups)
    return Stage(directory, topology, behind, through, kubelet, Cgroups(past, Path("/")), card, serve)


async def _start_runtime(stack: AsyncExitStack, directory: Path, topology: Topology) -> Runtime:
    socket = directory / "runtime.sock"
    if (reason := containerd.available()) is None:
        private = stack.enter_context(containerd.PrivateContainerd())
        socket.symlink_to(private.socket)
        read_from = f"the kernel, below /sys/fs/cgroup/…{private.cgroups.root}"
        return Runtime("a private containerd", containerd.IMAGE, read_from, Path("/"), private.cgroups)
    cpus, mems = format_cpuset(topology.cpus), format_cpuset(topology.mems) or "0"
    options = runtime.RuntimeOptions(cpus=cpus, mems=mems, host_root=directory / HOST)
    await stack.enter_async_context(runtime.EmbeddedRuntime(socket, options))
    read_from = "the calls to that runtime, and its answers"
    return Runtime(f"the embedded runtime ({reason})", runtime.IMAGE, read_from, directory / HOST)
