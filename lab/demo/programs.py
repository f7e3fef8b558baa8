"""Starts criproxy's programs for the demo, waits until they are ready as systemd does, and stops them."""

import asyncio
import os
import signal
import socket
from pathlib import Path

from criproxy.deviceplugin.nvidia.settings import VARIABLES
from criproxy.errors import CriproxyError
from criproxy.process.tether import python, tethered

READY_TIMEOUT_S = 20.0
END_TIMEOUT_S = 10.0


def log_file(directory: Path, command: str) -> Path:
    """Return the file to which all runs of a program append their log."""
    return directory / f"{command}.log"


async def start(directory: Path, command: str, *arguments: str) -> asyncio.subprocess.Process:
    """Start one of criproxy's programs that serve, and wait until it is ready.

    Args:
        directory: the directory of the demo, which contains the log.
        command: the program, such as ``serve``.
        arguments: its arguments.

    Raises:
        CriproxyError: the program ends, or is not ready in time; the text contains its log.
    """
    path = directory / "notify.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify, log_file(directory, command).open("ab") as log:
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
                    f"criproxy {command} did not become ready:\n{log_file(directory, command).read_text()}"
                )
        except BaseException:
            await end(process, signal.SIGTERM)
            raise
    return process


async def end(process: asyncio.subprocess.Process | None, how: signal.Signals) -> None:
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
