"""The environment of the demo: a private runtime, the real ``criproxy serve`` in front of it, and its device plugin.

The runtime is a private containerd, or the embedded one without root or containerd.
"""

import asyncio
import os
import signal
import socket
import tempfile
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from criproxy.cli.client import PATIENCE_S, ask
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

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0


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
        self.process = await _start(self.directory, "serve", *self._arguments())

    async def end_criproxy(self, how: signal.Signals) -> None:
        """Send a signal that ends criproxy, and wait for its end; one that does not end is killed."""
        await _end(self.process, how)

    async def start_device_plugin(self) -> None:
        """Start ``criproxy device-plugin``, which offers the card, and wait until it is ready.

        Raises:
            CriproxyError: as for `start_criproxy`.
        """
        assert self.card is not None
        self.device_plugin = await _start(
            self.directory,
            *("device-plugin", "--config", str(self.directory / "policy.yaml"), "--log-format", "json"),
            *("--host-root", str(self.runtime.host_root), "--kubelet-dir", str(self.card.kubelet)),
            *("--control-socket", self._control),
        )

    async def end_device_plugin(self) -> None:
        """Stop the device plugin with SIGTERM, if it runs."""
        await _end(self.device_plugin, signal.SIGTERM)

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
        return _log_file(self.directory, command).read_text()

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


def _log_file(directory: Path, command: str) -> Path:
    """Return the file to which all runs of a program append their log."""
    return directory / f"{command}.log"


async def _start(directory: Path, command: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start one of criproxy's programs that serve, and wait until it is ready.

    Args:
        directory: the directory of the demo, which contains the log.
        command: the program, such as ``serve``.
        arguments: its arguments.

    Raises:
        CriproxyError: the program ends, or is not ready in time; the text contains its log.
    """
    path = directory / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, _log_file(directory, command).open("ab") as log:
        path.unlink(missing_ok=True)
        notify.bind(str(path))
        notify.setblocking(False)
        process = await asyncio.create_subprocess_exec(
            *tethered(python("criproxy", command, *arguments)),
            env={**_environ(), "NOTIFY_SOCKET": str(path)},
            stdout=log,
            stderr=log,
            start_new_session=True,  # an interrupt at the terminal is only for the demo, which then stops the program
        )
        try:
            if not await _ready(notify, process):
                raise CriproxyError(
                    f"criproxy {command} did not become ready:\n{_log_file(directory, command).read_text()}"
                )
        except BaseException:
            await _end(process, signal.SIGTERM)
            raise
    return process


async def _end(process: asyncio.subprocess.Process | None, how: signal.Signals) -> None:
    """Send a signal that ends a program, and wait for its end; one that does not end is killed."""
    if process is None or process.returncode is not None:
        return
    process.send_signal(how)
    try:
        async with asyncio.timeout(END_TIMEOUT_S):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def _environ() -> dict[str, str]:
    """Return our environment without the variables of NVIDIA's device plugin, which are for another kubelet."""
    return {name: value for name, value in os.environ.items() if name not in VARIABLES}


async def _ready(notify: socket.socket, process: asyncio.subprocess.Process) -> bool:
    """Wait for READY=1; return whether it arrives in time and before the process ends."""
    loop = asyncio.get_running_loop()
    ended = asyncio.create_task(process.wait())
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            while True:
                message = asyncio.create_task(loop.sock_recv(notify, 65_536))
                await asyncio.wait([message, ended], return_when=asyncio.FIRST_COMPLETED)
                if not message.done():
                    message.cancel()
                    return False
                if b"READY=1" in message.result().splitlines():
                    return True
    except TimeoutError:
        return False
    finally:
        ended.cancel()
