"""Builds all parts of the daemon and connects them: the only file that knows them all."""

import asyncio
import gc
import os
import signal
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from criproxy.cri.methods import KNOWN_METHODS
from criproxy.cri.trace import resolve, traced
from criproxy.errors import UsageError
from criproxy.observe.control_socket import ControlServer
from criproxy.observe.heartbeat import STALE_S, Heartbeat
from criproxy.observe.log import structlog
from criproxy.observe.systemd import Notifier, adopt_sockets
from criproxy.observe.writer import LineWriter
from criproxy.wire.calls import Table
from criproxy.wire.server import Proxy, pass_on_error
from criproxy.wire.sockets import Listener, listen, unix_path

DRAIN_S = 2.0
"""What calls under way get to finish when we are told to stop."""
PROBE_S = 1.0
"""How long the runtime may take to accept the connection that tells whether it is there."""

log = structlog.get_logger("criproxy.daemon")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What `criproxy serve` was called with."""

    config: Path | None
    listen: str
    runtime_endpoint: str
    image_listen: str | None
    image_endpoint: str | None
    state_dir: Path
    host_root: Path
    http: str | None
    control_socket: str
    trace_calls: tuple[str, ...]


def run(options: Options, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CriproxyError: if it cannot start; everything that was opened is closed again.
    """
    gc.disable()  # until the start is over: nothing of what it makes is garbage
    endpoints = Endpoints.of(options)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Daemon(options, endpoints, log_writer).serve())


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses in `Options`, as paths."""

    pairs: Mapping[str, tuple[str, str]]
    """Name of the socket (of `systemd.SOCKET_NAMES`) → where we listen, and the runtime behind it."""
    control: str

    @classmethod
    def of(cls, options: Options) -> "Endpoints":
        """Check the addresses.

        Raises:
            UsageError: if one is malformed, missing or used twice.
        """
        runtime = unix_path(options.runtime_endpoint, "--runtime-endpoint")
        pairs = {"criproxy": (unix_path(options.listen, "--listen"), runtime)}
        if (options.image_listen is None) != (options.image_endpoint is None):
            raise UsageError(
                "--image-listen and --image-endpoint go together: "
                "a separate image service needs a socket of its own, and that socket a service behind it"
            )
        if options.image_listen is not None and options.image_endpoint is not None:
            image = unix_path(options.image_endpoint, "--image-endpoint")
            pairs["criproxy-image"] = (unix_path(options.image_listen, "--image-listen"), image)
        control = unix_path(options.control_socket, "--control-socket")
        used = [control, *(path for pair in pairs.values() for path in pair[:1])]
        used += {path for _, path in pairs.values()}
        if len(set(used)) != len(used):
            raise UsageError("two of the sockets have the same path; the proxy would talk to itself")
        return cls(pairs, control)


class Bypass:
    """The switch that makes all proxies a pure splice."""

    def __init__(self, proxies: list[Proxy], notifier: Notifier, status: str) -> None:
        self._proxies = proxies
        self._notifier = notifier
        self._status = status
        self.on = False
        self.reason = ""
        self.since = ""

    def set(self, on: bool, reason: str) -> None:
        """Switch; loudly, since containers are not placed while it is on."""
        if on != self.on:
            self.on, self.reason, self.since = on, reason, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            log.warning("bypass is on: no container is placed" if on else "bypass is off", reason=reason)
        for proxy in self._proxies:
            proxy.bypass = on
        self._notifier.status(f"BYPASS since {self.since}: {reason}" if on else self._status)

    async def command(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Answer ``criproxy bypass``.

        Raises:
            UsageError: if the state that is asked for is none.
        """
        match arguments.get("state"):
            case "on" | "off" as state:
                self.set(state == "on", "asked for by criproxy bypass")
            case "status":
                pass
            case other:
                raise UsageError(f"bypass is on, off or status, not {other!r}")
        return {"bypass": self.on, "since": self.since, "reason": self.reason}


class Daemon:
    """One run of the daemon."""

    def __init__(self, options: Options, endpoints: Endpoints, log_writer: LineWriter) -> None:
        self._options = options
        self._endpoints = endpoints
        self._log_writer = log_writer
        self._notifier = Notifier(os.environ)
        self._heartbeat = Heartbeat(self._notifier.alive, self._notifier.watchdog_interval_s)
        self._traced = resolve(options.trace_calls)
        self._proxies: list[Proxy] = []
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Start everything, wait for the signal, stop everything in the opposite order."""
        self._handle_signals()
        async with AsyncExitStack() as stack:
            listeners = self._listen(stack)
            await self._start_proxies(stack, listeners)
            status = f"serving on {', '.join(listener.path for listener in listeners.values())}"
            bypass = Bypass(self._proxies, self._notifier, status)
            await self._start_control(stack, listeners["control"], bypass)
            self._heartbeat.start()
            stack.callback(self._heartbeat.stop)
            self._notifier.ready(status)
            log.info("serving", listen=self._endpoints.pairs["criproxy"][0], pid=os.getpid())
            await self._start_http(stack, bypass)
            gc.enable()
            gc.freeze()
            await self._stop.wait()
            self._notifier.stopping()
        log.info("stopped")

    def _listen(self, stack: AsyncExitStack) -> dict[str, Listener]:
        """All our sockets: systemd's where it passed one, else made by us."""
        passed = adopt_sockets(os.environ)
        wanted = {name: (pair[0], 0o660) for name, pair in self._endpoints.pairs.items()}
        wanted["control"] = (self._endpoints.control, 0o600)
        for name in passed.keys() - wanted.keys():
            raise UsageError(f"systemd passed the socket {name!r}, but --image-endpoint does not say what is behind it")
        listeners: dict[str, Listener] = {}
        for name, (path, mode) in wanted.items():
            sock = passed.get(name)
            listeners[name] = listen(path, mode) if sock is None else Listener(sock, sock.getsockname())
            stack.callback(listeners[name].close)
        return listeners

    async def _start_proxies(self, stack: AsyncExitStack, listeners: Mapping[str, Listener]) -> None:
        for name, (_, runtime) in self._endpoints.pairs.items():
            table: Table = traced({}, self._traced, log.info)
            proxy = Proxy(runtime, table, on_error=pass_on_error)
            self._proxies.append(proxy)
            await proxy.start(listeners[name].sock)
        stack.push_async_callback(self._drain)

    async def _drain(self) -> None:
        await asyncio.gather(*(proxy.drain(DRAIN_S) for proxy in self._proxies))

    async def _start_control(self, stack: AsyncExitStack, listener: Listener, bypass: Bypass) -> None:
        server = ControlServer({"bypass": bypass.command})
        await server.start(listener.sock)
        stack.push_async_callback(server.stop)

    async def _start_http(self, stack: AsyncExitStack, bypass: Bypass) -> None:
        if self._options.http is None:
            return
        from criproxy.observe.http import Address, HttpServer, Sources
        from criproxy.observe.metrics import Gauges, Metrics

        gauges = Gauges(
            window_debt_bytes=lambda: sum(proxy.window_debt for proxy in self._proxies),
            bypass=lambda: bypass.on,
            dropped_log_lines=lambda: self._log_writer.dropped_lines,
        )
        stats = [proxy.stats for proxy in self._proxies]
        metrics = Metrics(stats, self._heartbeat, gauges, KNOWN_METHODS)
        server = HttpServer(Sources(metrics.render, self._healthy, self._ready))
        address = Address.parse(self._options.http)
        stack.push_async_callback(server.stop)
        await server.start(address)
        log.info("serving metrics and health", address=str(address))

    async def _healthy(self) -> str | None:
        overdue_s = self._heartbeat.overdue_s()
        return None if overdue_s < STALE_S else f"the event loop is {overdue_s:.1f} s late"

    async def _ready(self) -> str | None:
        for _, runtime in self._endpoints.pairs.values():
            if (problem := await _probe(runtime)) is not None:
                return problem
        return None

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_on, number)
        loop.add_signal_handler(
            signal.SIGHUP, log.warning, "a changed configuration is read at a restart only: nothing happened"
        )

    def _stop_on(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stop.set()


async def _probe(path: str) -> str | None:
    """None if somebody listens on *path*, else what is wrong."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or "no answer"
        return f"the runtime on {path} cannot be reached: {reason}"
    writer.close()
    return None
