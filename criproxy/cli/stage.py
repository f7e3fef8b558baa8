"""What the demo is played on: a runtime of its own, and the real ``criproxy serve`` in front of it.

The runtime is a private containerd, or the embedded one where there is no root or no containerd.
"""

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from criproxy.control.containers.cgroups import Cgroups
from criproxy.cri.runtime import RuntimeClient
from criproxy.discovery.machine import discover
from criproxy.emulator import containerd, runtime
from criproxy.emulator.cgroups import PodCgroups
from criproxy.emulator.kubelet import MiniKubelet
from criproxy.errors import CriproxyError
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied
from criproxy.model.topology import Topology

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Runtime:
    """The runtime behind criproxy."""

    name: str
    endpoint: str
    image: str
    """For containers; its default command sleeps."""
    read_from: str
    """Where `Stage.read_back` finds what it tells."""
    cgroups: PodCgroups | None = None


@dataclass(slots=True)
class Stage:
    """A running runtime, and criproxy in front of it. Make one with `open_stage`."""

    directory: Path
    topology: Topology
    runtime: Runtime
    kubelet: MiniKubelet
    """Talks to criproxy."""
    kernel: Cgroups
    """Looks at containers past criproxy."""
    process: asyncio.subprocess.Process | None = None

    async def start_criproxy(self) -> None:
        """Start ``criproxy serve`` and wait until it says that it is ready.

        Raises:
            CriproxyError: if it ends or is not ready in time; the text has its log.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, (self.directory / "log").open("ab") as log:
            path = self.directory / "notify.sock"
            path.unlink(missing_ok=True)
            notify.bind(str(path))
            notify.setblocking(False)
            self.process = await asyncio.create_subprocess_exec(
                *self._command(),
                env={**os.environ, "NOTIFY_SOCKET": str(path)},
                stdout=log,
                stderr=log,
                start_new_session=True,  # an interrupt at the terminal is for us: we end it in order
            )
            if not await _ready(notify, self.process):
                raise CriproxyError(f"criproxy serve did not become ready:\n{(self.directory / 'log').read_text()}")

    async def end_criproxy(self, how: signal.Signals) -> None:
        """Send a signal that ends criproxy, and wait for its end; one that does not end is killed."""
        if self.process is None or self.process.returncode is not None:
            return
        self.process.send_signal(how)
        try:
            async with asyncio.timeout(END_TIMEOUT_S):
                await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()

    async def ask(self, *arguments: str, width: int) -> tuple[int, str]:
        """Run one of criproxy's commands that ask the daemon; its exit status, and what it says in *width* columns."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "criproxy", *arguments, "--control-socket", self._control),
            env={**os.environ, "COLUMNS": str(width)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        return process.returncode or 0, said.decode()

    async def read_back(self, container_id: str) -> Applied | None:
        """The sets in the cgroup of a running container; None for one that does not run."""
        return (await self.kernel.read(container_id)).applied

    def reasons(self, container: str) -> Iterator[list[str]]:
        """The reasons of each decision about *container* (its title) in criproxy's log, oldest first."""
        for line in (self.directory / "log").read_text().splitlines():
            logged = json.loads(line) if line.startswith("{") else {}
            if logged.get("container") == container and "reasons" in logged:
                yield logged["reasons"]

    @property
    def _control(self) -> str:
        return f"{self.directory}/run/control.sock"

    def _command(self) -> list[str]:
        run, state = self.directory / "run", self.directory / "state"
        return [
            *(sys.executable, "-m", "criproxy", "serve", "--config", str(self.directory / "policy.yaml")),
            *("--listen", f"unix://{run}/criproxy.sock", "--control-socket", self._control),
            *("--runtime-endpoint", self.runtime.endpoint, "--state-dir", str(state), "--log-format", "json"),
        ]


async def open_stage(stack: AsyncExitStack) -> Stage:
    """Set everything up; closing *stack* takes it down again, whatever has happened.

    Raises:
        CriproxyError: if this machine has no two CPUs to show anything with, or a part does not start.
    """
    topology = discover()
    if len(topology.cpus) < 2:
        raise CriproxyError(f"the demo needs two CPUs, but pods may use {format_cpuset(topology.cpus)} only")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="criproxy-demo-")))
    policy = directory / "policy.yaml"
    policy.write_text(f'policy: static\nreservedCpus: "{min(topology.cpus)}"\n')
    policy.chmod(0o644)  # `serve` takes no file that others can write, whatever our umask
    behind = await _start_runtime(stack, directory, topology)
    through, past = RuntimeClient(f"unix://{directory}/run/criproxy.sock"), RuntimeClient(behind.endpoint)
    stage = Stage(
        directory=directory,
        topology=topology,
        runtime=behind,
        kubelet=MiniKubelet(through, behind.cgroups),
        kernel=Cgroups(past, Path("/")),
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
        return Runtime("a private containerd", private.endpoint, containerd.IMAGE, read_from, private.cgroups)
    cpus, mems = format_cpuset(topology.cpus), format_cpuset(topology.mems) or "0"
    options = runtime.RuntimeOptions(cpus=cpus, mems=mems)
    embedded = await stack.enter_async_context(runtime.EmbeddedRuntime(directory / "runtime.sock", options))
    name = f"the embedded runtime ({reason})"
    return Runtime(name, f"unix://{embedded.path}", runtime.IMAGE, "the calls to that runtime, and its answers")


async def _ready(notify: socket.socket, process: asyncio.subprocess.Process) -> bool:
    """Whether READY=1 comes before the process ends and in time."""
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
