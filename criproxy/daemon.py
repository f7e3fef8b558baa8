"""Builds all parts of the daemon and connects them: the only file that knows them all.

The data plane serves first: it needs little, and calls that nobody touches need nothing else. What decides about
containers is three times as much to load, which a thread does meanwhile; the calls that concern it wait (`wire.early`).
"""

import asyncio
import gc
import os
import signal
import sys
import time
from collections.abc import Awaitable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import uvloop

from criproxy import __version__
from criproxy.cri.here import TABLE as HERE
from criproxy.cri.paths import touched_paths
from criproxy.errors import UsageError
from criproxy.observe.address import Address
from criproxy.observe.bypass import Bypass, BypassMode
from criproxy.observe.control_socket import ControlServer
from criproxy.observe.heartbeat import STALE_S, Heartbeat
from criproxy.observe.log import structlog
from criproxy.observe.systemd import Notifier, adopt_sockets
from criproxy.observe.writer import LineWriter
from criproxy.wire.calls import Call, ErrorHandler, Table, Verdict
from criproxy.wire.early import Early
from criproxy.wire.server import Proxy
from criproxy.wire.sockets import Listener, listen, unix_path

if TYPE_CHECKING:
    from criproxy.api.recordings import Recorder
    from criproxy.api.situation import Situations
    from criproxy.control.configuration.last_good import Keeping
    from criproxy.control.configuration.load import BadFile, Configuration
    from criproxy.control.configuration.reload import Reload
    from criproxy.control.controller import Controller
    from criproxy.model.topology import Topology
    from criproxy.views.notices import Notice

DRAIN_S = 2.0
"""What calls under way get to finish when we are told to stop."""
SWITCH_INTERVAL_S = 0.0005
"""How long a thread of ours (store, imports of the HTTP server) may keep the interpreter while a call waits for it;
Python's own 5 ms are more than a hundred calls' worth."""
CYCLES_AFTER = 3_000
"""So many objects more than before, and Python looks for cycles among the new ones. We make next to none (9 objects in
300 creates), and a look goes through maps of all containers: with 1,000 of them and Python's own 700 it stopped
everything for 1 to 2 ms, 20 to 28 times in 300 creates; now once, for 4 ms."""
BEHIND_FIRST_S, BEHIND_PAUSE_S = 2.0, 60.0
"""When it is looked for a criproxy behind this one: after a start and while nobody answers, and from then on."""
PROBE_S = 1.0
"""How long the runtime may take to accept the connection that tells whether it is there."""

CONTROL_MODULES = (
    "criproxy.control.configuration.load",
    "criproxy.control.controller",
    "criproxy.control.configuration.reload",
)
"""What a thread imports while the data plane serves."""

MAIN = "criproxy"
"""The name of the socket for the kubelet, among those of `systemd.SOCKET_NAMES`."""
HTTP = "http"
"""The name among our listeners of the one for metrics and health."""

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
    sys.setswitchinterval(SWITCH_INTERVAL_S)
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
    http: Address | None

    @classmethod
    def of(cls, options: Options) -> "Endpoints":
        """Check the addresses.

        Raises:
            UsageError: if one is malformed, missing or used twice.
        """
        runtime = unix_path(options.runtime_endpoint, "--runtime-endpoint")
        pairs = {MAIN: (unix_path(options.listen, "--listen"), runtime)}
        if (options.image_listen is None) != (options.image_endpoint is None):
            raise UsageError(
                "--image-listen and --image-endpoint go together: "
                "a separate image service needs a socket of its own, and that socket a service behind it"
            )
        if options.image_listen is not None and options.image_endpoint is not None:
            image = unix_path(options.image_endpoint, "--image-endpoint")
            pairs["criproxy-image"] = (unix_path(options.image_listen, "--image-listen"), image)
        control = unix_path(options.control_socket, "--control-socket")
        http = Address.parse(options.http) if options.http is not None else None
        beside, behind = pairs.get("criproxy-image", ("", ""))
        named = {"--listen": pairs[MAIN][0], "--image-listen": beside, "--control-socket": control}
        named["--http"] = http.path or "" if http else ""
        _hold_apart(named, {"--runtime-endpoint": runtime, "--image-endpoint": behind})
        return cls(pairs, control, http)


def _hold_apart(ours: Mapping[str, str], theirs: Mapping[str, str]) -> None:
    """See that no socket of *ours* is another one, or one of *theirs*; they may be one. An empty path is none.

    Raises:
        UsageError: two are the same, by their paths or by where links lead.
    """
    taken: dict[str, str] = {}
    for option, path in [*ours.items(), *theirs.items()]:
        if not path:
            continue
        real = os.path.realpath(path)
        if (other := taken.get(real)) is not None:
            raise UsageError(f"{other} and {option} are both {real}, so that one would take the other's calls")
        if option in ours:
            taken[real] = option


class Daemon:
    """One run of the daemon."""

    def __init__(self, options: Options, endpoints: Endpoints, log_writer: LineWriter) -> None:
        self._options = options
        self._endpoints = endpoints
        self._log_writer = log_writer
        self._notifier = Notifier(os.environ)
        self._heartbeat = Heartbeat(self._beat, self._notifier.watchdog_interval_s, self._beat_failed)
        self._dropped_lines = 0
        self._traced = _resolved(options.trace_calls)
        self._proxies: list[Proxy] = []
        self._serving = ""
        self._bypass = Bypass(self._proxies, self._bypassed, self._state, self._ailing)
        self._bypass_text: str | None = None
        self._controller: Controller | None = None
        self._bypassed_configuration = ("", "")
        """The policy and configuration with which the automatic bypass began."""
        self._reload: Reload | None = None
        self._keeping: Keeping | None = None
        self._behind = ""
        """That the runtime is no runtime, in a sentence."""
        self._recorder: Recorder | None = None
        self._situations: Situations | None = None
        self._stop = asyncio.Event()

    async def serve(self) -> None:
        """Start everything, wait for the signal, stop everything in the opposite order."""
        self._handle_signals()
        async with AsyncExitStack() as stack:
            listeners = self._listen(stack)
            self._heartbeat.start()
            stack.callback(self._heartbeat.stop)
            early = await self._start_proxies(listeners)
            controller = await self._start_controller(stack, early)
            stack.push_async_callback(self._drain)
            stack.callback(self._bypass.close)
            self._touch(controller, early)
            await self._start_control(stack, listeners["control"], controller)
            self._announce(listeners)
            await self._start_http(stack, listeners.get(HTTP), controller)
            await self._start_reload(stack, controller)
            await _tune_allocator()
            gc.enable()
            gc.freeze()
            gc.set_threshold(CYCLES_AFTER)
            await self._stop.wait()
            self._notifier.stopping()
        log.info("stopped")

    def _listen(self, stack: AsyncExitStack) -> dict[str, Listener]:
        """All our sockets: systemd's where it passed one, else made by us."""
        passed = adopt_sockets(os.environ)
        wanted = {name: (pair[0], 0o660) for name, pair in self._endpoints.pairs.items()}
        wanted["control"] = (self._endpoints.control, 0o600)
        if passed.keys() - wanted.keys():
            raise UsageError(
                "systemd passed a socket for images: --image-listen and --image-endpoint must be given, too"
            )
        listeners: dict[str, Listener] = {}
        for name, (path, mode) in wanted.items():
            sock = passed.get(name)
            listeners[name] = listen(path, mode) if sock is None else Listener(sock, sock.getsockname())
            stack.callback(listeners[name].close)
        if self._endpoints.http is not None:
            listeners[HTTP] = self._endpoints.http.listen()
            stack.callback(listeners[HTTP].close)
        return listeners

    async def _start_proxies(self, listeners: Mapping[str, Listener]) -> Early:
        """Serve; calls that the controller may want wait for it."""
        early = Early(touched_paths() | self._traced)
        for name, (_, runtime) in self._endpoints.pairs.items():
            # What is behind the image socket has no containers: nothing there is for the controller.
            if name == MAIN:
                proxy = Proxy(runtime, early.table, on_error=early.on_error)
            else:
                proxy = Proxy(runtime, self._table({}))
            self._proxies.append(proxy)
            await proxy.start(listeners[name].sock)
        return early

    async def _start_controller(self, stack: AsyncExitStack, early: Early) -> "Controller":
        """Load what decides about containers, and let it begin; where that fails, nobody is left waiting."""
        try:
            for module in CONTROL_MODULES:
                await asyncio.to_thread(import_module, module)
            topology, configuration = await asyncio.to_thread(self._read_machine)
            return await self._controller_on(stack, topology, configuration)
        except BaseException as error:
            early.fail(f"criproxy cannot serve: {error}")
            await self._drain()
            raise

    def _read_machine(self) -> "tuple[Topology, Configuration | BadFile]":
        """What there is, and what the policy file says; may block.

        Raises:
            BadFile: nobody has ever run here, and it cannot be used.
        """
        from criproxy.control.configuration.last_good import is_new, read_good
        from criproxy.control.configuration.load import BadFile, load_configuration
        from criproxy.control.settings import Settings
        from criproxy.discovery.machine import discover

        topology, state_dir = discover(self._options.host_root), self._options.state_dir
        base, good = Settings(host_root=self._options.host_root), read_good(state_dir)
        required = good is not None  # once there was a file, its absence is a mistake of somebody
        try:
            return topology, load_configuration(self._options.config, topology, base, required=required)
        except BadFile as error:
            if is_new(state_dir):
                raise
            return topology, error

    def _instead(self, bad: "BadFile", topology: "Topology", configuration: str) -> "Configuration":
        """What is in force where the file is *bad* and *configuration* was the last that decided; may block."""
        from criproxy.control.configuration.last_good import read_good
        from criproxy.control.configuration.load import configuration_instead
        from criproxy.control.settings import Settings

        base = Settings(host_root=self._options.host_root, configuration=configuration)
        return configuration_instead(bad, read_good(self._options.state_dir), topology, base)

    async def _controller_on(
        self, stack: AsyncExitStack, topology: "Topology", found: "Configuration | BadFile"
    ) -> "Controller":
        from criproxy.control.configuration.last_good import Keeping
        from criproxy.control.configuration.load import BadFile
        from criproxy.control.configuration.reload import Reload, first_of
        from criproxy.control.controller import Controller
        from criproxy.cri.runtime import RuntimeClient
        from criproxy.store.store import Store

        store = Store(self._options.state_dir, may_fail=True)
        stack.callback(store.close)
        if store.set_aside is not None:
            log.error("state could not be used; the runtime is asked instead", reason=store.set_aside)
        if isinstance(found, BadFile):
            last = (await asyncio.to_thread(store.load, topology)).configuration
            configuration = await asyncio.to_thread(self._instead, found, topology, last)
        else:
            configuration = found
        configuration.tell(log)
        controller = Controller(
            configuration.settings,
            topology,
            configuration.policy,
            store,
            RuntimeClient(f"unix://{self._endpoints.pairs[MAIN][1]}"),
            structlog.get_logger("criproxy.control"),
        )
        if configuration.problem:
            controller.context.in_force.problem = first_of(configuration.problem)
            controller.context.in_force.instead = configuration.instead
        stack.push_async_callback(controller.stop)
        await controller.start()
        self._controller = controller
        self._keeping = keeping = Keeping(self._options.state_dir, log)
        stack.push_async_callback(keeping.close)
        if not (configuration.misfits or configuration.problem):
            keeping.keep(configuration.good)
        self._reload = Reload(
            self._options.config,
            configuration,
            controller.context,
            controller.policy_switch,
            self._notifier,
            self._status_text,
            keeping.keep,
        )
        return controller

    def _touch(self, controller: "Controller", early: Early) -> None:
        """From now on the controller says what becomes of which calls, of those that wait, too."""
        main, table = self._proxies[0], self._table(controller.table())
        controller.policy_switch.changed = partial(self._mode_changed, controller, main)
        main.on_error = self._on_error(controller)
        main.on_runtime_lost = controller.runtime_lost
        main.use(table)
        early.settle(table, main.on_error)

    def _table(self, table: Table) -> Table:
        """*table* with what every criproxy answers, and the calls that are traced."""
        table = {**table, **HERE}
        if not self._traced:
            return table
        from criproxy.cri.trace import traced

        return traced(table, self._traced, log.info)

    def _on_error(self, controller: "Controller") -> ErrorHandler:
        """Who wants refusals gets them: only otherwise failures that repeat switch the bypass on."""
        from criproxy.control.settings import OnError

        watched = self._bypass.watch(controller.fallback.on_error)

        async def on_error(call: Call, message: bytes | None, error: Exception) -> Verdict:
            refuses = controller.settings.on_error is OnError.REFUSE  # another one after a reload
            return await (controller.fallback.on_error if refuses else watched)(call, message, error)

        return on_error

    def _mode_changed(self, controller: "Controller", proxy: Proxy) -> None:
        changed = self._deciding(controller) != self._bypassed_configuration
        if changed and self._bypass.mode is BypassMode.AUTOMATIC:
            self._bypass.set(BypassMode.OFF, "trying another configuration")
        proxy.use(self._table(controller.table()))
        if self._serving:
            self._notifier.status(self._status_text())

    async def _drain(self) -> None:
        await asyncio.gather(*(proxy.drain(DRAIN_S) for proxy in self._proxies))

    async def _start_control(self, stack: AsyncExitStack, listener: Listener, controller: "Controller") -> None:
        started_s = time.time()

        async def ask(command: str, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
            await asyncio.to_thread(import_module, "criproxy.api.queries")  # not before somebody asks
            from criproxy.api.queries import Answers
            from criproxy.api.situation import Situations

            unreachable = (
                await self._unreachable(controller) if command != "names" else ""
            )  # the latter sits at a prompt
            notices = partial(self._notices, unreachable)
            self._situations = self._situations or Situations(controller)
            answers = Answers(self._situations, notices, started_s)
            return await answers.commands()[command](arguments)

        async def record(arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401 - JSON
            await asyncio.to_thread(import_module, "criproxy.api.recordings")
            from criproxy.api.recordings import Recorder

            self._recorder = self._recorder or Recorder(controller)
            return await self._recorder.command(arguments)

        asked = {command: partial(ask, command) for command in ("status", "explain", "devices", "names")}
        server = ControlServer(
            {"bypass": self._bypass.command, "release": controller.policy_switch.command, "record": record, **asked}
        )
        await server.start(listener.sock)
        stack.push_async_callback(server.stop)

    async def _unreachable(self, controller: "Controller") -> str:
        """Which socket that calls are passed to does not answer, unless the controller asks there itself; or nothing.

        With the policy none it asks nobody, and of a separate image service it knows nothing.
        """
        asked = (MAIN,) if controller.policy_switch.active else ()
        for name, (_, path) in self._endpoints.pairs.items():
            if name not in asked and (problem := await _probe(path, name)) is not None:
                return problem
        return ""

    def _notices(self, unreachable: str = "") -> "list[Notice]":
        """What `criproxy status` tells beside what the controller knows."""
        from criproxy.views.notices import Notice

        bypass, unkept = self._bypass, self._keeping.problem if self._keeping else ""
        found = [Notice("bypass", f"{bypass.sentence} ({bypass.reason}; since {bypass.since})")] if bypass.on else []
        if unreachable:
            found.append(Notice("runtime", unreachable))
        if self._behind:
            found.append(Notice("criproxy-behind", self._behind))
        if unkept:
            found.append(Notice("config-not-kept", f"a start with a bad policy file could not go on as now: {unkept}"))
        return found

    def _announce(self, listeners: Mapping[str, Listener]) -> None:
        places = ", ".join(listeners[name].path for name in self._endpoints.pairs)
        self._serving = f"serving on {places}"
        self._notifier.ready(self._status_text())
        log.info("serving", version=__version__, listen=places, runtime=self._endpoints.pairs[MAIN][1], pid=os.getpid())

    async def _start_http(self, stack: AsyncExitStack, listener: Listener | None, controller: "Controller") -> None:
        """Serve metrics and health; who asks earlier waits, and the kubelet does not."""
        if listener is None:
            return
        for module in ("criproxy.observe.http", "criproxy.observe.metrics", "criproxy.api.measures"):
            await asyncio.to_thread(import_module, module)  # 0.1 s, in which calls shall not wait
        from criproxy.api.measures import measure
        from criproxy.cri.methods import KNOWN_METHODS
        from criproxy.observe.http import HttpServer, Sources
        from criproxy.observe.metrics import Gauges, Metrics

        gauges = Gauges(
            window_debt_bytes=lambda: sum(proxy.window_debt for proxy in self._proxies),
            oldest_held_s=lambda: max(proxy.oldest_held_s for proxy in self._proxies),
            bypass=lambda: self._bypass.mode,
            dropped_log_lines=lambda: self._log_writer.dropped_lines,
        )
        stats = [proxy.stats for proxy in self._proxies]
        metrics = Metrics(stats, self._heartbeat, gauges, KNOWN_METHODS, partial(measure, controller))
        server = HttpServer(Sources(metrics.render, self._healthy, lambda: self._ready(controller)))
        stack.push_async_callback(server.stop)
        await server.start(listener)
        if self._endpoints.http is not None and not self._endpoints.http.is_local:
            text = "--http is open to everybody who reaches this node: nobody is asked who they are"
            log.warning(text, address=str(self._endpoints.http))
        log.info("serving metrics and health", address=str(self._endpoints.http))

    async def _start_reload(self, stack: AsyncExitStack, controller: "Controller") -> None:
        assert self._reload is not None
        await asyncio.to_thread(import_module, "criproxy.config.watch")
        from criproxy.config.watch import PolicyFileWatch
        from criproxy.control.configuration.load import DEFAULT_CONFIG
        from criproxy.control.tasks import Tasks

        tasks = Tasks(log, controller.context.failures)
        stack.push_async_callback(tasks.stop)
        tasks.forever("reload", self._reload.run)
        tasks.forever("look for a criproxy behind", lambda: self._look_behind(controller))
        watch = PolicyFileWatch(self._options.config or DEFAULT_CONFIG, self._reload.look)
        tasks.forever("watch the policy file", lambda: _told_if_impossible(watch.run()))

    async def _look_behind(self, controller: "Controller") -> None:
        """See again and again whether what is behind is another criproxy: both would place the same containers."""
        while not controller.policy_switch.active:  # noqa: ASYNC110 (nothing is placed here, and gRPC is not loaded for it)
            await asyncio.sleep(BEHIND_PAUSE_S)
        from criproxy.cri.here import criproxy_behind
        from criproxy.cri.runtime import RuntimeCallError, RuntimeClient

        path = self._endpoints.pairs[MAIN][1]
        await asyncio.sleep(BEHIND_FIRST_S)  # others load much at a start
        while True:
            client = RuntimeClient(f"unix://{path}", PROBE_S)
            found: str | None = None
            try:
                found = await criproxy_behind(client)
            except RuntimeCallError:
                pass  # it is away: what comes may be another one
            finally:
                await client.close()
            if found is not None:
                self._tell_behind(path, found)
            await asyncio.sleep(BEHIND_FIRST_S if found is None else BEHIND_PAUSE_S)

    def _tell_behind(self, path: str, found: str) -> None:
        text = f"what listens on {path} is another criproxy ({found}), and no runtime: name the runtime's own socket"
        text = f"{text} with --runtime-endpoint, or two of them place the same containers"
        if found and not self._behind:
            log.error("the runtime is another criproxy", endpoint=path, found=found)
        self._behind = text if found else ""

    def _bypassed(self, mode: BypassMode) -> None:
        if self._controller is not None:
            self._bypassed_configuration = self._deciding(self._controller)
            self._controller.bypass(mode)

    @staticmethod
    def _deciding(controller: "Controller") -> tuple[str, str]:
        return controller.settings.policy_name, controller.settings.configuration

    def _ailing(self) -> bool:
        return self._controller is not None and self._controller.problem is not None

    def _state(self, bypass: str | None) -> None:
        self._bypass_text = bypass
        self._notifier.status(self._status_text())

    def _status_text(self) -> str:
        """One line for systemd: what is wrong or unusual, else that we serve."""
        controller = self._controller
        unusual = [self._bypass_text] if self._bypass_text else []
        if controller is not None and controller.node.released:
            unusual.append(f"RELEASED, no container is placed: {controller.node.released}")
        if controller is not None and controller.context.in_force.problem is not None:
            instead = controller.context.in_force.instead or "the one before is in force"
            unusual.append(f"POLICY FILE NOT USED, {instead}: {controller.context.in_force.problem}")
        return "; ".join(unusual) or self._serving

    async def _healthy(self) -> str | None:
        overdue_s = self._heartbeat.overdue_s()
        return None if overdue_s < STALE_S else f"the event loop is {overdue_s:.1f} s late"

    async def _ready(self, controller: "Controller") -> str | None:
        for name, (_, path) in self._endpoints.pairs.items():
            if (problem := await _probe(path, name)) is not None:
                return problem
        return controller.problem or controller.devices.problem

    def _beat(self) -> None:
        self._notifier.alive()
        self._log_writer.flush()
        dropped = self._log_writer.dropped_lines
        if dropped != self._dropped_lines:
            log.warning("log lines were dropped: nobody read them in time", lines=dropped - self._dropped_lines)
            self._dropped_lines = dropped

    def _beat_failed(self, error: Exception) -> None:
        if self._controller is None or self._controller.context.failures.add(
            "watcher", f"a heartbeat failed: {error!r}"
        ):
            log.error("a heartbeat failed", exc_info=error)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop_on, number)
        loop.add_signal_handler(signal.SIGHUP, self._reload_asked)

    def _reload_asked(self) -> None:
        log.info("asked to read the policy file again", signal="SIGHUP")
        if self._reload is not None:
            self._reload.ask()

    def _stop_on(self, number: signal.Signals) -> None:
        log.info("stopping", signal=number.name)
        self._stop.set()


def _resolved(names: tuple[str, ...]) -> frozenset[str]:
    """The paths of the calls to be traced; raises UsageError for a name that CRI has not."""
    if not names:
        return frozenset()
    from criproxy.cri.trace import resolve  # it loads the messages of CRI

    return resolve(names)


async def _told_if_impossible(watch: Awaitable[None]) -> None:
    try:
        await watch
    except OSError as error:
        log.warning("a changed policy file is not noticed: send SIGHUP after a change", error=str(error))
        raise


async def _tune_allocator() -> None:
    """Only now: the import costs 10 ms, and the first calls of a start are small."""
    allocator = await asyncio.to_thread(import_module, "criproxy.wire.allocator")
    if not allocator.keep_large_buffers():
        log.info("the C library has no mallopt: long lists cost more CPU time")


async def _probe(path: str, name: str) -> str | None:
    """None if somebody listens on *path*, which is behind the socket *name*, else what is wrong."""
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_unix_connection(path)
    except (OSError, TimeoutError) as error:
        reason = getattr(error, "strerror", None) or "no answer"
        return f"the {'runtime' if name == MAIN else 'image service'} on {path} cannot be reached: {reason}"
    writer.close()
    return None
