"""ExecSync with a few built-in commands, and the URLs of Exec, Attach and PortForward.

The embedded runtime has no processes. The commands are those with which a client asks where its container runs,
waits, or ends it. Nothing listens at the URLs: a client that needs the data to flow needs a real runtime.
"""

import asyncio
import base64
import secrets

from criproxy.cri import api_pb2 as cri
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset
from lab.emulator.core import Core
from lab.emulator.records.cpusets import Cpuset
from lab.emulator.records.records import Container, Refusal, unknown

_BASE_URL = "http://127.0.0.1:1"


class Streaming:
    """One coroutine per method."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def exec_sync(self, request: cri.ExecSyncRequest) -> cri.ExecSyncResponse:
        """Serve ExecSync; *timeout* seconds (0: none) end a command with DEADLINE_EXCEEDED."""
        try:
            container = self._running_in_store(request.container_id)
            return await self._bounded(container, list(request.cmd), request.timeout)
        except Refusal as refusal:
            raise refusal.within("failed to exec in container") from None

    async def _bounded(self, container: Container, command: list[str], timeout_s: int) -> cri.ExecSyncResponse:
        try:
            async with asyncio.timeout(timeout_s or None):
                return await self._run(container, command)
        except TimeoutError:
            text = f"timeout {timeout_s}s exceeded: context deadline exceeded"
            raise Refusal(StatusCode.DEADLINE_EXCEEDED, text) from None

    async def _run(self, container: Container, command: list[str]) -> cri.ExecSyncResponse:
        program = command[0].rpartition("/")[2] if command else ""
        match [program, *command[1:]]:
            case ["echo", *words]:
                return _printed(" ".join(words))
            case ["true"]:
                return cri.ExecSyncResponse()
            case ["false"]:
                return cri.ExecSyncResponse(exit_code=1)
            case ["sleep", seconds]:
                return await _sleep(seconds)
            case ["kill", "1"]:
                self._core.end_container(container, 128 + 15)
                return cri.ExecSyncResponse()
            case ["cat", path]:
                return _cat(path, container.cpuset)
        raise _no_program(command)

    async def exec(self, request: cri.ExecRequest) -> cri.ExecResponse:
        """Serve Exec."""
        self._running_in_store(request.container_id)
        _check_streams(request, "one of stdin, stdout, or stderr must be set")
        return cri.ExecResponse(url=_url("exec"))

    async def attach(self, request: cri.AttachRequest) -> cri.AttachResponse:
        """Serve Attach."""
        self._running(request.container_id, "failed to find container in store")
        _check_streams(request, "one of stdin, stdout, and stderr must be set")
        return cri.AttachResponse(url=_url("attach"))

    async def port_forward(self, request: cri.PortForwardRequest) -> cri.PortForwardResponse:
        """Serve PortForward."""
        try:
            sandbox = self._core.records.sandbox(request.pod_sandbox_id)
        except Refusal as refusal:
            raise refusal.within(f'failed to find sandbox "{request.pod_sandbox_id}"') from None
        if not sandbox.ready:
            raise unknown("sandbox container is not running")
        return cri.PortForwardResponse(url=_url("portforward"))

    def _running_in_store(self, prefix: str) -> Container:
        return self._running(prefix, f'failed to find container "{prefix}" in store')

    def _running(self, prefix: str, wrapper: str) -> Container:
        try:
            container = self._core.records.container(prefix)
        except Refusal as refusal:
            raise refusal.within(wrapper) from None
        if container.state != cri.CONTAINER_RUNNING:
            raise unknown(f"container is in {container.state_name} state")
        return container


async def _sleep(seconds: str) -> cri.ExecSyncResponse:
    if not seconds.isdecimal():
        return cri.ExecSyncResponse(stderr=f"sleep: invalid number '{seconds}'\n".encode(), exit_code=1)
    await asyncio.sleep(int(seconds))
    return cri.ExecSyncResponse()


def _check_streams(request: cri.ExecRequest | cri.AttachRequest, none_set: str) -> None:
    if not (request.stdin or request.stdout or request.stderr):
        raise Refusal(StatusCode.INVALID_ARGUMENT, none_set)
    if request.tty and request.stderr:
        raise Refusal(StatusCode.INVALID_ARGUMENT, "tty and stderr cannot both be true")


def _url(kind: str) -> str:
    return f"{_BASE_URL}/{kind}/{base64.urlsafe_b64encode(secrets.token_bytes(6)).decode()}"


def _printed(line: str) -> cri.ExecSyncResponse:
    return cri.ExecSyncResponse(stdout=f"{line}\n".encode())


def _cat(path: str, cpuset: Cpuset | None) -> cri.ExecSyncResponse:
    numbers = {"cpuset.cpus": "cpus", "cpuset.mems": "mems"}.get(path.rpartition("/")[2])
    if cpuset and numbers:
        return _printed(format_cpuset(getattr(cpuset, numbers)))
    return cri.ExecSyncResponse(stderr=f"cat: can't open '{path}': No such file or directory\n".encode(), exit_code=1)


def _no_program(command: list[str]) -> Refusal:
    why = "args must not be empty"
    if command:
        cause = f"stat {command[0]}: no such file or directory"
        if "/" not in command[0]:
            cause = "executable file not found in $PATH"
        why = f'unable to start container process: exec: "{command[0]}": {cause}'
    identifier = secrets.token_hex(32)
    return unknown(f'failed to start exec "{identifier}": OCI runtime exec failed: exec failed: {why}: unknown')
