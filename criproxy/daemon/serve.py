"""One run of the daemon: sockets, proxies, signals, the bypass, and the messages to systemd."""

import asyncio
import gc
import os
import signal
import sys
from collections.abc import Coroutine, Mapping
from contextlib import AsyncExitStack, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

import uvloop

from criproxy import __version__
from criproxy.cri.here import TABLE as HERE
from criproxy.cri.touched_methods import touched_paths
from criproxy.daemon.options import MAIN, Endpoints, Options, agent, read_only
from criproxy.errors import UsageError
from criproxy.node.bypass import Bypass, BypassMode
from criproxy.process.heartbeat import Heartbeat
from criproxy.process.log import LineWriter, structlog
from criproxy.process.systemd import Notifier, adopt_sockets
from criproxy.process.tasks import end_process_soon
from criproxy.wire.calls import Call, ErrorHandler, Table, Verdict
from criproxy.wire.early import Early
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import Listener, listen, listen_within, turn_away

if TYPE_CHECKING:
    from criproxy.daemon.behind import Serve
    from criproxy.daemon.commands import Commands
    from criproxy.daemon.problems import Problems
    from criproxy.daemon.start import Started
    from criproxy.node.controller import Controller
    from criproxy.nri.front import NriFront

DRAIN_S = 2.0
"""How long calls in flight may take to finish when the daemon is stopped."""
SWITCH_INTERVAL_S = 0.0005
"""How long another thread may keep the interpreter while a call waits; Python's 5 ms are more than a hundred calls."""
CYCLES_AFTER = 3_000
"""The number of new objects after which Python collects reference cycles. criproxy makes almost none (9 objects in 300
creates), and a collection traverses maps of all containers: with 1,000 of them and Python's default of 700 it stopped
the process for 1 to 2 ms, 20 to 28 times in 300 creates; now once, for 4 ms."""

CONTROL, READ_ONLY, AGENT, HTTP = "control", "read-only", "agent", "http"
"""The names of the listeners for commands, for those that change nothing, for the agent, and for metrics and health."""
READERS_MAX = 16
"""The clients at once of the sockets for queries and for the agent, which may be in a container: they do not use up our
descriptors."""

log = structlog.get_logger("criproxy.daemon")


def run(options: Options, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CriproxyError: the daemon cannot start; everything that was opened is closed again.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.disable()  # until the start is over: none of its objects is garbage
    endpoints = Endpoints.of(options)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(Daemon(options, endpoints, log_writer).serve())


class Daemon:
    """One run of the daemon."""

    def __init__(self, options: Options, endpoints: Endpoints, log_writer: LineWriter) -> None:
        self._options = options
        self._endpoints = endpoints
        self._log_writer = log_writer
        self._notifier = Notifier(os.environ)
        self._heartbeat = Heartbeat(self._beat, self._beat_failed, self._notifier.watchdog_interval_s)
        self._dropped_lines = 0
        self._traced = _resolved(options.trace_calls)
        self._proxies: list[Proxy | NriFront] = []
        self._serving = ""
        self._bypass = Bypass(self._proxies, self._bypassed, self._ailing)
        self._bypassed_configuration = ("", "")
        """The policy and configuration with which the automatic bypass began."""
        self._started: Started | None = None
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Start everything, wait for the signal, stop everything in the opposite order."""
        self._handle_signals()
        async with AsyncExitStack() as stack:
            listeners = self._listen(stack)
            self._heartbeat.start()
            stack.callback(self._heartbeat.stop)
            early = await self._start_proxies(listeners)
            started = await self._unless_stopped(self._start_controller(stack, early))
            if started is not None:
                stack.push_async_callback(self._drain)
                stack.callback(self._bypass.close)
                self._connect(started.controller, early)
                await self._start_beside(stack, listeners, started)
                gc.enable()
                gc.freeze()
                gc.set_threshold(CYCLES_AFTER)
                await self._stop.wait()
                self._notifier.stopping()
        log.info("stopped")

    async def _unless_stopped(self, starting: "Coroutine[None, None, Started]") -> "Started | None":
        """Return what *starting* returns; None if the daemon is stopped before: a start may wait for a disk."""
        start, stop = asyncio.ensure_future(starting), asyncio.ensure_future(self._stop.wait())
        await asyncio.wait({start, stop}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if start.done():
            return start.result()
        self._notifier.stopping()
        start.cancel()
        with suppress(asyncio.CancelledError):
            await start
        return None

    def _listen(self, stack: AsyncExitStack) -> dict[str, Listener]:
        """Return all listeners: those that systemd passed, and new ones for the others."""
        passed = adopt_sockets(os.environ)
        wanted = {name: (pair[0], 0o660) for name, pair in self._endpoints.pairs.items()}
        wanted[CONTROL] = (self._endpoints.control, 0o600)
        unused = passed.keys() - wanted.keys()
        if unused and not self._endpoints.nri:
            raise UsageError("systemd passed a socket for images: --image-listen and --image-endpoint are needed, too")
        for each in map(passed.__getitem__, unused):
            asyncio.get_running_loop().add_reader(each, turn_away, each)
        listeners: dict[str, Listener] = {}
        for name, (path, mode) in wanted.items():
            sock = passed.get(name)
            listeners[name] = listen(path, mode) if sock is None else Listener(sock, sock.getsockname())
            stack.callback(listeners[name].close)
        for name, place in ((READ_ONLY, read_only), (AGENT, agent)):
            listeners[name] = listen_within(place(self._endpoints.control))
            stack.callback(listeners[name].close)
        if self._endpoints.http is not None:
            listeners[HTTP] = self._endpoints.http.listen()
            stack.callback(listeners[HTTP].close)
        return listeners

    async def _start_proxies(self, listeners: Mapping[str, Listener]) -> Early:
        """Begin to serve; calls that the controller may hold or watch wait for it."""
        early = Early(touched_paths() | self._traced)
        for name, (_, runtime) in self._endpoints.pairs.items():
            # The image service has no containers, so the controller does not handle its calls.
            if name == MAIN:
                proxy = Proxy(runtime, {**early.table, **HERE}, on_error=early.on_error)
            else:
                proxy = Proxy(runtime, self._table({}))
            self._proxies.append(proxy)
            await proxy.start(listeners[name].sock)
        return early

    async def _start_controller(self, stack: AsyncExitStack, early: Early) -> "Started":
        """Import and start the controller; if that fails, the waiting calls fail, too."""
        try:
            await asyncio.to_thread(import_module, "criproxy.daemon.start")
            from criproxy.daemon.start import start_controller

            self._started = await start_controller(
                stack, self._options, self._endpoints, self._notifier, self._status_text
            )
        except BaseException as error:
            is_stopped = isinstance(error, asyncio.CancelledError)
            early.fail("criproxy is stopping" if is_stopped else f"criproxy cannot serve: {error}")
            await self._drain()
            raise
        if self._started.plugin is not None:
            self._proxies.append(self._started.plugin.front)
        return self._started

    def _connect(self, controller: "Controller", early: Early) -> None:
        """Let the controller handle calls from now on, including those that wait."""
        main, table = self._proxies[0], self._table(controller.table())
        controller.policy_switch.changed = partial(self._mode_changed, controller, main)
        main.on_error = self._on_error(controller)
        main.on_runtime_lost = controller.runtime_lost
        main.use(table)
        early.settle(table, main.on_error)

    async def _start_beside(self, stack: AsyncExitStack, listeners: Mapping[str, Listener], started: "Started") -> None:
        """Answer commands, report that the daemon serves, then serve metrics and watch the policy file."""
        from criproxy.daemon.behind import Behind, KubeletCpus, SocketFiles, raise_open_files
        from criproxy.daemon.commands import Commands
        from criproxy.daemon.problems import Problems

        raise_open_files()
        behind = Behind(self._endpoints, started.controller)
        kubelet_cpus = KubeletCpus(self._options.host_root, started.controller, nri=bool(self._endpoints.nri))
        problems = Problems(started, self._bypass, behind, kubelet_cpus, [proxy.stats for proxy in self._proxies])
        commands = Commands(problems)
        served = await self._answer_commands(stack, listeners, commands)
        problems.sockets = SocketFiles({name: (listeners[name], start) for name, start in served.items()})
        places = ", ".join(listeners[name].path for name in self._endpoints.pairs) or f"NRI {self._endpoints.nri}"
        self._serving = f"serving on {places}"
        self._notifier.ready(self._status_text())
        log.info("serving", version=__version__, listen=places, runtime=self._endpoints.runtime, pid=os.getpid())
        listener, token_file = listeners.get(HTTP), self._options.http_token_file
        if listener is not None:
            await asyncio.to_thread(import_module, "criproxy.daemon.http")
            from criproxy.daemon.http import serve_http

            await serve_http(stack, listener, commands, self._proxies, self._heartbeat, self._log_writer, token_file)
        elif token_file is not None:
            log.warning("--http-token-file has no effect without --http: no page is served")
        await self._start_watches(stack, problems)

    async def _answer_commands(
        self, stack: AsyncExitStack, listeners: Mapping[str, Listener], commands: "Commands"
    ) -> "dict[str, Serve]":
        """Answer commands on the control socket, and some of them on others; return what serves which Unix socket."""
        from criproxy.daemon.commands import NOTICES, WAITING
        from criproxy.process.control_socket import ControlServer

        servers = {
            CONTROL: ControlServer(commands.table(), NOTICES, WAITING),
            READ_ONLY: ControlServer(commands.queries(), clients_max=READERS_MAX),
            AGENT: ControlServer(commands.agent(), (), WAITING, clients_max=READERS_MAX),
        }
        for name, server in servers.items():
            await server.start(listeners[name].sock)
            stack.push_async_callback(server.stop)
        started: dict[str, Serve] = {name: each.start for name, each in servers.items()}
        proxies = [each for each in self._proxies if isinstance(each, Proxy)]
        return started | {name: each.start for name, each in zip(self._endpoints.pairs, proxies, strict=True)}

    async def _start_watches(self, stack: AsyncExitStack, problems: "Problems") -> None:
        """Start to watch the policy file, the sockets, the kubelet's configuration, and our memory."""
        from criproxy.daemon.start import begin_late
        from criproxy.process.tasks import Tasks

        started = problems.started
        tasks = Tasks(log, started.controller.context.failures)
        stack.push_async_callback(tasks.stop)
        tasks.forever("reload", started.reload.run)
        tasks.forever("check for a criproxy behind this one", problems.behind.watch)
        tasks.forever("read which CPUs the kubelet reserves", problems.kubelet_cpus.watch)
        if (plugin := started.plugin) is not None:
            parts = (started.controller.known, started.controller.reconciler.blockers, tasks.failed)
            tasks.forever("be a plugin of the runtime", partial(plugin.run, *parts))
        if problems.sockets is not None:
            tasks.forever("look for the files of the sockets", problems.sockets.watch)
        tasks.spawn("begin what no call waits for", begin_late(tasks, started, self._options.config))

    def _table(self, table: Table) -> Table:
        """Return *table* with the rules that every criproxy has, and with tracing."""
        table = {**table, **HERE}
        if not self._traced:
            return table
        from criproxy.cri.logged_calls import traced

        return traced(table, self._traced, log.info)

    def _on_error(self, controller: "Controller") -> ErrorHandler:
        """Return the error handler; repeated failures switch the bypass on unless ``onError`` is ``refuse``."""
        from criproxy.node.settings import OnError

        watched = self._bypass.watch(controller.fallback.on_error)

        async def on_error(call: Call, message: bytes | None, error: Exception) -> Verdict:
            refuses = controller.context.settings.on_error is OnError.REFUSE  # a reload may change it
            return await (controller.fallback.on_error if refuses else watched)(call, message, error)

        return on_error

    def _mode_changed(self, controller: "Controller", proxy: "Proxy | NriFront") -> None:
        changed = _deciding(controller) != self._bypassed_configuration
        if changed and self._bypass.mode is BypassMode.AUTOMATIC:
            self._bypass.set(BypassMode.OFF, "trying another configuration")
        proxy.use(self._table(controller.table()))
        if self._serving:
            self._notifier.status(self._status_text())

    async def _drain(self) -> None:
        await asyncio.gather(*(proxy.drain(DRAIN_S) for proxy in self._proxies))

    def _bypassed(self, mode: BypassMode) -> None:
        if self._started is not None:
            self._bypassed_configuration = _deciding(self._started.controller)
            self._started.controller.bypass(mode)
        self._notifier.status(self._status_text())

    def _ailing(self) -> bool:
        return self._started is not None and self._started.controller.problem is not None

    def _status_text(self) -> str:
        """Return one line for systemd: problems and unusual modes, or the addresses that the daemon serves."""
        bypass = self._bypass
        unusual = [f"BYPASS ({bypass.mode.value}) since {bypass.since}: {bypass.reason}"] if bypass.on else []
        if self._started is not None:
            controller = self._started.controller
            if released := controller.node.released:
                unusual.append(f"RELEASED, so no container is placed: {released}")
            in_force = controller.context.in_force
            if in_force.trial and in_force.trial.until_s:
                unusual.append(f"TRYING {in_force.loaded.file}, which goes back unless it is kept")
            if in_force.problem is not None:
                instead = in_force.instead or "the previous one stays in effect"
                unusual.append(f"POLICY FILE NOT USED, {instead}: {in_force.problem}")
        return "; ".join(unusual) or self._serving

    def _beat(self) -> None:
        self._notifier.alive()
        self._log_writer.flush()
        dropped = self._log_writer.dropped_lines
        if dropped != self._dropped_lines:
            log.warning("log lines were dropped: they were not read in time", lines=dropped - self._dropped_lines)
            self._dropped_lines = dropped

    def _beat_failed(self, error: Exception) -> None:
        failures = self._started.controller.context.failures if self._started else None
        if failures is None or failures.add("watcher", f"a heartbeat failed: {error!r}"):
            log.error("a heartbeat failed", exc_info=error)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_on, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked)

    def _reload_asked(self) -> None:
        log.info("asked to read the policy file again", signal="SIGHUP")
        if self._started is not None:
            self._started.reload.ask()

    def _stop_on(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stop.set()
        end_process_soon()


def _deciding(controller: "Controller") -> tuple[str, str]:
    return controller.context.settings.policy_name, controller.context.settings.configuration


def _resolved(names: tuple[str, ...]) -> frozenset[str]:
    """Return the paths of the calls to trace; raise UsageError for a name that CRI does not have."""
    if not names:
        return frozenset()
    from criproxy.cri.logged_calls import resolve  # it imports the messages of CRI

    return resolve(names)
