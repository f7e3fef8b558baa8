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
from typing import Any

from criproxy.cli.client import PATIENCE_S, ask
from criproxy.cri.runtime import RuntimeClient
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
from lab.demo.programs import end, log_file, start
from lab.emulator import runtime
from lab.kubelet.kubelet import MiniKubelet


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime behind criproxy."""

    name: str
    endpoint: str
    image: str
    """The image of the containers; its default command sleeps."""
    read_from: str
    """The source of the sets that `Stage.read_back` returns, for users."""
    host_root: Path
    """The directory whose ``/proc`` has the processes of its containers."""
    cgroups: PodCgroups | None = None

    @property
    def has_processes(self) -> bool:
        """Whether its containers have processes."""
        return self.cgroups is not None


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
    process: asyncio.subprocess.Process | None = None
    device_plugin: asyncio.subprocess.Process | None = None

    @property
    def runs(self) -> bool:
        """Whether criproxy runs."""
        return self.process is not None and self.process.returncode is None

    async def start_criproxy(self) -> None:
        """Start ``criproxy serve`` and wait until it is ready.

        Raises:
            CriproxyError: it ends, or is not ready in time; the text contains its log.
        """
        self.process = await start(self.directory, "serve", *self._arguments())

    async def end_criproxy(self, how: signal.Signals) -> None:
        """Send a signal that ends criproxy, and wait for its end; one that does not end is killed."""
        await end(self.process, how)

    async def start_device_plugin(self) -> None:
        """Start ``criproxy device-plugin``, which offers the card, and wait until it is ready.

        Raises:
            CriproxyError: as for `start_criproxy`.
        """
        assert self.card is not None
        self.device_plugin = await start(
            self.directory,
            *("device-plugin", "--config", str(self.directory / "policy.yaml"), "--log-format", "json"),
            *("--host-root", str(self.runtime.host_root), "--kubelet-dir", str(self.card.kubelet)),
            *("--control-socket", self._control),
        )

    async def end_device_plugin(self) -> None:
        """Stop the device plugin with SIGTERM, if it runs."""
        await end(self.device_plugin, signal.SIGTERM)

    async def query(self, command: str, **arguments: object) -> Any:  # noqa: ANN401 (JSON)
        """Return the daemon's answer to a command on its control socket."""
        return await asyncio.to_thread(ask, self._control, command, arguments, PATIENCE_S)

    async def run_command(self, *arguments: str, width: int) -> tuple[int, str]:
        """Run a command that asks the daemon; return its exit status, and its output for *width* columns."""
        process = await asyncio.create_subprocess_exec(
            *tethered(python("criproxy", *arguments, "--control-socket", self._control)),
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

    @property
    def _control(self) -> str:
        return f"{self.directory}/run/control.sock"

    def log(self, command: str) -> str:
        """Return the log of one of criproxy's programs since its first start."""
        return log_file(self.directory, command).read_text()

    def _arguments(self) -> list[str]:
        run, state = self.directory / "run", self.directory / "state"
        return [
            *("--config", str(self.directory / "policy.yaml")),
            *("--listen", f"unix://{run}/criproxy.sock", "--control-socket", self._control),
            *("--runtime-endpoint", self.runtime.endpoint, "--state-dir", str(state), "--log-format", "json"),
        ]


async def open_stage(stack: AsyncExitStack) -> Stage:
    """Start everything; closing *stack* stops and removes it in any case.

    Raises:
        CriproxyError: the machine has fewer than two CPUs, or something does not start.
    """
    topology = discover()
    if len(topology.cpus) < 2:
        raise CriproxyError(f"the demo needs two CPUs, but pods may use {format_cpuset(topology.cpus)} only")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criproxy-demo-")))
    card = stack.enter_context(create_card(directory))
    behind = await _start_runtime(stack, directory, topology)
    policy = directory / "policy.yaml"
    devices = card.policy(behind.host_root) if card else ""
    policy.write_text(f'policy: static\nreservedCpus: "{min(topology.cpus)}"\n{devices}')
    policy.chmod(0o644)  # `serve` takes no file that others can write, whatever our umask
    through, past = RuntimeClient(f"unix://{directory}/run/criproxy.sock"), RuntimeClient(behind.endpoint)
    stage = Stage(
        directory=directory,
        topology=topology,
        runtime=behind,
        through=through,
        kubelet=MiniKubelet(through, behind.cgroups),
        kernel=Cgroups(past, Path("/")),
        card=card,
    )
    stack.push_async_callback(stage.end_criproxy, signal.SIGTERM)
    stack.push_async_callback(past.close)
    stack.push_async_callback(through.close)
    await stage.start_criproxy()
    return stage


async def _start_runtime(stack: AsyncExitStack, directory: Path, topology: Topology) -> Runtime:
    reason = containerd.available()
    if reason is None:
        private = stack.enter_context(containerd.PrivateContainerd())
        read_from = f"the kernel, below /sys/fs/cgroup/…{private.cgroups.root}"
        return Runtime(
            "a private containerd", private.endpoint, containerd.IMAGE, read_from, Path("/"), private.cgroups
        )
    cpus, mems = format_cpuset(topology.cpus), format_cpuset(topology.mems) or "0"
    host_root = directory / HOST
    options = runtime.RuntimeOptions(cpus=cpus, mems=mems, host_root=host_root)
    embedded = await stack.enter_async_context(runtime.EmbeddedRuntime(directory / "runtime.sock", options))
    name = f"the embedded runtime ({reason})"
    return Runtime(
        name, f"unix://{embedded.path}", runtime.IMAGE, "the calls to that runtime, and its answers", host_root
    )
