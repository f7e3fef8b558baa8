"""`criproxy device-plugin` as a process of its own, beside a made-up kubelet and on a made-up machine."""

import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from criproxy.devices.usage.values import Grant
from tests.deviceplugin.daemon import Daemon
from tests.deviceplugin.fake_nvml import FakeNvml
from tests.deviceplugin.hosts import Host
from tests.deviceplugin.kubelet import FakeKubelet
from tests.deviceplugin.news import PATIENT_S, News
from tests.nvml import Driver

NPU = "aliyun.com/npu"
CLASSES = """\
  classes:
    - nvidia
    - {name: ali-npu, resources: [aliyun.com/npu], idFormat: index, nodes: {perDevice: ["/dev/npu{index}"]}}
"""


def policy(plugin: str) -> str:
    """Return a policy file with NVIDIA's class and one for ``/dev/npuN``, and *plugin* as the section of that name."""
    return f"policy: none\ndevices:\n{CLASSES}  plugin: {plugin}\n"


class Program(News):
    """One device plugin with everything that belongs to it below *folder*, whose path has to be short.

    Args:
        folder: for all files.
        arguments: of the command line.
        driver: what NVML says, below pynvml as tests replace it, or by a library below the real pynvml.
        environ: variables.
    """

    def __init__(self, folder: Path, *arguments: str, driver: Driver | FakeNvml | None = None, **environ: str) -> None:
        super().__init__()
        self.folder = folder
        self.host = Host(folder, driver if isinstance(driver, Driver) else None)
        self.policy = folder / "policy.yaml"
        self.control = folder / "control.sock"
        self.kubelet = FakeKubelet(folder / "k")
        self.lines: list[Mapping[str, Any]] = []
        """Of its log."""
        self.other: list[str] = []
        """What it wrote beside log lines."""
        self.told: list[str] = []
        """What it told systemd, a line each."""
        self._process: asyncio.subprocess.Process | None = None
        for gpu in self.host.driver.gpus:
            self.host.gpu(gpu)
        self._arguments = arguments
        self._environ = environ
        self._module: tuple[str, ...] = ("tests.deviceplugin.wired", str(self.host.nvml))
        if isinstance(driver, FakeNvml):
            driver.plug(self.host)
            self._environ = {**driver.environ, **environ}
            self._module = ("criproxy",)
        self._daemons: list[Daemon] = []
        self._readers: list[asyncio.Task[None]] = []
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.setblocking(False)

    async def __aenter__(self) -> Self:
        """Start nothing yet."""
        self._notify.bind(str(self.folder / "notify.sock"))
        self._readers.append(asyncio.create_task(self._read_notify()))
        (self.host.root / "dev").mkdir(parents=True, exist_ok=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End everything."""
        if self._process is not None and self.process.returncode is None:
            self.process.kill()
            await self.process.wait()
        for reader in self._readers:
            reader.cancel()
        await asyncio.gather(*self._readers, return_exceptions=True)
        await self.kubelet.stop()
        for daemon in self._daemons:
            await daemon.stop()
        self._notify.close()

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The one that was started last."""
        assert self._process is not None
        return self._process

    async def start(self) -> None:
        """Start the program, ready or not."""
        environ = {name: value for name, value in os.environ.items() if not name.startswith("NVIDIA_")}
        environ |= {"NOTIFY_SOCKET": str(self.folder / "notify.sock"), **self._environ}
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", *self._module, "device-plugin"),
            *(f"--config={self.policy}", f"--host-root={self.host.root}", f"--kubelet-dir={self.kubelet.root}"),
            *(f"--control-socket={self.control}", "--log-format=json", *self._arguments),
            stderr=asyncio.subprocess.PIPE,
            env=environ,
        )
        self._readers.append(asyncio.create_task(self._read_log()))

    async def begin(self, section: str, *nodes: str) -> None:
        """Start it with a section, on a machine with these device nodes, beside a kubelet; return when it is ready."""
        self.policy.write_text(policy(section))
        for each in nodes:
            self.host.plug(each)
        await self.kubelet.start()
        await self.ready()

    async def with_daemon(self, *grants: Grant, **answers: Any) -> Daemon:  # noqa: ANN401
        """Start a daemon for it, which ends with it."""
        daemon = Daemon(self.control, *grants, **answers)
        await daemon.start()
        self._daemons.append(daemon)
        return daemon

    async def ready(self) -> None:
        """Start it, and return when it says that it is ready."""
        await self.start()
        await self.until(lambda: "READY=1" in self.told)

    async def ended(self) -> int:
        """Its exit status, when it has ended."""
        async with asyncio.timeout(PATIENT_S):
            status = await self.process.wait()
            await self._readers[-1]
        return status

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    async def until(self, condition: Callable[[], object], timeout_s: float = PATIENT_S) -> None:
        """Return when *condition* is true: it is judged after each line of the log, and each message to systemd."""
        try:
            await super().until(condition, timeout_s)
        except TimeoutError:
            raise AssertionError(f"not in time; its log: {self.lines}, {self.other}") from None

    async def until_said(self, text: str, times: int = 1) -> None:
        """Return when the log has *text* in so many lines."""
        await self.until(lambda: self.said(text) >= times)

    def said(self, text: str) -> int:
        """How many lines of the log have *text*, in their sentence or a value."""
        return sum(text in str(line) for line in self.lines)

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            try:
                self.lines.append(json.loads(line))
            except ValueError:
                self.other.append(line.decode())
            self.wake()
        self.wake()

    async def _read_notify(self) -> None:
        with suppress(OSError):
            while True:
                message = await asyncio.get_running_loop().sock_recv(self._notify, 65_536)
                self.told += message.decode().splitlines()
                self.wake()
