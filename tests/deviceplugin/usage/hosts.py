"""A made-up /proc, and a daemon that keeps what the watcher says."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from criproxy.api.control_socket import ControlServer
from criproxy.devices.classes.vgpu_profiles import Quota
from criproxy.devices.usage.values import Grant
from criproxy.model.text.plain import to_plain
from criproxy.wire.sockets import Listener, listen
from tests.deviceplugin.kubelet import PATIENT_S


def container_id(name: str) -> str:
    """Return an id as runtimes make them, of hexadecimal digits."""
    return name.encode().hex().ljust(64, "0")


def put_process(root: Path, pid: int, container: str = "", start_ticks: int = 100) -> None:
    """Let a process be in a container; an empty one is none."""
    folder = root / "proc" / str(pid)
    folder.mkdir(parents=True, exist_ok=True)
    before = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{pid} (a) b) (c) S {before} {start_ticks} 0 0\n")
    path = f"/kubepods/burstable/pod1/{container_id(container)}" if container else "/system.slice/x.service"
    (folder / "cgroup").write_text(f"0::{path}\n")


def put_exited_leader(root: Path, pid: int, *threads: tuple[int, str, str]) -> None:
    """Let the first thread of a process have exited, as cgroup v1 shows it; the others have a state and a container."""
    put_process(root, pid)
    _put_task(root / f"proc/{pid}", pid, "Z", "")
    for tid, state, container in ((pid, "Z", ""), *threads):
        _put_task(root / f"proc/{pid}/task/{tid}", tid, state, container)


def _put_task(folder: Path, tid: int, state: str, container: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    before = " ".join(["0"] * 18)
    (folder / "stat").write_text(f"{tid} (a) b) (c) {state} {before} 100 0 0\n")
    path = f"/kubepods/burstable/pod1/{container_id(container)}" if container else "/"
    (folder / "cgroup").write_text(f"5:memory:{path}\n4:devices:{path}\n")


def grant(container: str, card: str = "npu0", memory_mib: int = 8192, cores: int = 0, **fields: object) -> Grant:
    """Return what a container with a vGPU has been given."""
    given: dict[str, object] = {
        "container_id": container_id(container),
        "namespace": "default",
        "pod": container,
        "container": "main",
        "pod_uid": container,
        "kind": "ali-npu",
        "resource": "criproxy.io/npu-8g",
        "ids": (f"{card}/npu-8g/0",),
        "cards": (card,),
        "quota": Quota(profile="npu-8g", memory_mib=memory_mib, cores_percent=cores),
    }
    return Grant(**given | fields)  # type: ignore[arg-type]


class Daemon:
    """Answers the watcher's commands, and keeps them."""

    def __init__(self, socket: Path, *grants: Grant) -> None:
        self.grants = grants
        self.incidents: list[Mapping[str, Any]] = []
        """Those that it says it has stored."""
        self.hangs: set[str] = set()
        """Commands that get no answer."""
        self.act = True
        """What it answers to incidents."""
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self._socket = socket
        self._news = asyncio.Event()
        self._server: ControlServer
        self._listener: Listener

    async def start(self) -> None:
        """Listen from now on."""
        self._server = ControlServer(
            {
                "free-cpus": self._keep("free-cpus", dict),
                "device-inventory": self._keep("device-inventory", dict),
                "device-incident": self._keep("device-incident", dict),
                "device-usage": self._keep("device-usage", dict),
                "device-grants": self._keep("device-grants", self._grants),
                "quota-incident": self._keep("quota-incident", lambda: {"stored": True, "act": self.act}),
            }
        )
        self._listener = listen(str(self._socket), 0o600)
        await self._server.start(self._listener.sock)

    async def stop(self) -> None:
        """Be gone."""
        await self._server.stop()
        self._listener.close()

    def said(self, command: str) -> list[Mapping[str, Any]]:
        """The arguments of all calls of a command so far."""
        return [arguments for name, arguments in self.told if name == command]

    async def until(self, command: str, times: int = 1) -> list[Mapping[str, Any]]:
        """Return the arguments of a command when it has come so many times."""
        async with asyncio.timeout(PATIENT_S):
            while len(self.said(command)) < times:
                await self._news.wait()
                self._news.clear()
        return self.said(command)

    async def until_said(self, command: str, text: str) -> Mapping[str, Any]:
        """Return the first arguments of a command in which *text* is."""
        async with asyncio.timeout(PATIENT_S):
            while not (found := [each for each in self.said(command) if text in str(each)]):
                await self._news.wait()
                self._news.clear()
        return found[0]

    def _grants(self) -> dict[str, Any]:
        return {"containers": to_plain(self.grants), "incidents": self.incidents}

    def _keep(self, name: str, answer: Any) -> Any:  # noqa: ANN401
        async def command(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
            self.told.append((name, arguments))
            self._news.set()
            if name in self.hangs:
                await asyncio.Event().wait()
            return answer()

        return command
