"""One run of `criproxy controls`: its socket, the passes beside each other, and the way to put all back."""

import asyncio
import fcntl
import os
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from criproxy.controls.block_io import BlockIoLimits
from criproxy.controls.core import Controls
from criproxy.controls.cpu_burst import CpuBurst
from criproxy.controls.journal import Journal
from criproxy.controls.parts import Part
from criproxy.controls.protocol import LONGEST_REQUEST_BYTES
from criproxy.controls.resctrl.part import RdtClasses
from criproxy.controls.scheduling.threads import ThreadScheduling
from criproxy.errors import CriproxyError
from criproxy.process.control_socket import ControlServer
from criproxy.process.log import LineWriter, structlog
from criproxy.process.program import Program
from criproxy.wire.sockets import listen

LOCK = "lock"
MOST_CLIENTS = 8
PUT_BACK_S = 60.0
"""How long it may take to put all back."""

log = structlog.get_logger("criproxy.controls")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlsOptions:
    """The options of `criproxy controls`."""

    socket: str
    """Where the daemon connects; for root only."""
    state_dir: Path
    """Where is stored what was there before."""
    host_root: Path
    """The folder with /proc, /sys and /run."""


def run(options: ControlsOptions, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT; what is applied stays.

    Raises:
        CriproxyError: it cannot start.
    """

    async def serve() -> None:
        await Service(options, log_writer).serve()  # its parts need the running loop

    with locked(options.state_dir), asyncio.Runner() as runner:
        runner.run(serve())


def put_back(options: ControlsOptions) -> None:
    """Put back all that this program has changed.

    Raises:
        CriproxyError: it serves now, or something could not be put back: the text has a line for each file.
    """

    async def work() -> None:
        controls = await _controls(options)
        try:
            async with asyncio.timeout(PUT_BACK_S):
                await controls.put_back()
        except TimeoutError as error:
            raise CriproxyError(f"not all was put back within {PUT_BACK_S:g} s") from error
        if not controls.is_put_back:
            texts = [f"{trouble.what}: {trouble.text}" for trouble in controls.answer().troubles]
            raise CriproxyError("\n".join(["not all was put back:", *texts]))

    if not options.state_dir.is_dir():
        return  # it has never run
    with locked(options.state_dir), asyncio.Runner() as runner:
        runner.run(work())


def all_parts(host_root: Path, journal: Journal) -> tuple[Part, ...]:
    """Return all parts, for a machine with its files below *host_root*; *journal* has what was there before."""
    scheduling, rdt = ThreadScheduling(host_root), RdtClasses(host_root, journal)
    return scheduling, rdt, BlockIoLimits(host_root, journal), CpuBurst(host_root, journal)


async def _controls(options: ControlsOptions) -> Controls:
    journal = await asyncio.to_thread(Journal.open, options.state_dir, options.host_root)
    return Controls(options.host_root, journal, all_parts(options.host_root, journal))


@contextmanager
def locked(state_dir: Path) -> Iterator[None]:
    """Keep other processes away from what is stored in *state_dir*.

    Raises:
        CriproxyError: one is there.
    """
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(state_dir / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise CriproxyError(f"cannot use {state_dir}: {error.strerror}: {error.filename}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        stop = "stop it first, such as with systemctl stop criproxy-controls"
        raise CriproxyError(f"criproxy controls runs already, with {state_dir}: {stop}") from None
    finally:
        os.close(fd)


class Service:
    """One run of the program."""

    def __init__(self, options: ControlsOptions, log_writer: LineWriter) -> None:
        self._options = options
        self._program = Program(log, log_writer, self._status_text)
        self._controls: Controls | None = None
        self._said: set[str] = set()

    async def serve(self) -> None:
        """Start all parts, wait for the signal, and stop."""
        options, tasks = self._options, self._program.tasks
        async with AsyncExitStack() as stack:
            self._program.start(stack)
            stack.push_async_callback(tasks.stop)
            tasks.watch_callbacks()
            self._controls = controls = await _controls(options)
            commands = {"apply": controls.apply, "status": controls.status}
            server = ControlServer(
                commands,
                notices=["apply"],  # what is desired stays so if its client has given up
                clients_max=MOST_CLIENTS,
                line_max_bytes=LONGEST_REQUEST_BYTES,
            )
            listener = listen(options.socket, 0o600)
            stack.callback(listener.close)
            await server.start(listener.sock)
            stack.push_async_callback(server.stop)
            tasks.forever("apply to files", controls.layout_passes.run)
            tasks.forever("apply to containers", controls.container_passes.run)
            tasks.forever("wait for first processes", controls.arrivals.run)
            tasks.forever("look at what is applied", controls.look)
            self._program.ready()
            await self._program.stop.wait()
            self._program.notifier.stopping()
        log.info("stopped")

    def _status_text(self) -> str:
        """Return one line for systemd, and log each new trouble; called with each heartbeat."""
        if self._controls is None:
            return ""
        answer = self._controls.answer()
        texts = [f"{trouble.what}: {trouble.text}" for trouble in answer.troubles]
        for text in texts:
            if text not in self._said:
                log.warning("not applied", trouble=text)
        self._said = {*texts}
        if not answer.generation:
            return "waits for the daemon"
        if not texts:
            return "applies what the daemon wants"
        return f"{len(texts) + answer.troubles_left_out} troubles, such as: {texts[0]}"
