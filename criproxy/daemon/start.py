"""The start of the controller: the machine, the policy file, the store.

The controller and its dependencies are imported here: a thread imports this module while the data plane serves.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from criproxy.cri.runtime import RuntimeClient
from criproxy.daemon.options import Endpoints, Options
from criproxy.host.machine import discover
from criproxy.host.patience import Patience
from criproxy.model.machine.topology import Topology
from criproxy.model.node import LastConfiguration
from criproxy.node.configuration.in_place import AtStart, Found, InPlaceOfFile, at_start
from criproxy.node.configuration.keepers import ConfigurationKeeper
from criproxy.node.configuration.load import DEFAULT_CONFIG, BadFile, failed_at, load_configuration
from criproxy.node.configuration.reload import Reload, first_of
from criproxy.node.configuration.try_out import TryOut
from criproxy.node.controller import Controller
from criproxy.node.devices.plugin import read_expected
from criproxy.node.devices.pod_files import PodFiles
from criproxy.node.settings import DeviceLimits, Settings
from criproxy.process.log import structlog
from criproxy.process.systemd import Notifier
from criproxy.process.tasks import Tasks, wait_at_most
from criproxy.store.configurations import TRIED_NAME, is_new, read_good, read_tried
from criproxy.store.store import InUse, Store

if TYPE_CHECKING:
    from criproxy.nri.plugin import Plugin

P = ParamSpec("P")
T = TypeVar("T")

log = structlog.get_logger("criproxy.daemon")
SILENT_S = 2.0
"""After this time without an answer, the log says which files or disk hang."""
FIRST_S = 2.0
"""How long parts that no call needs wait for the first comparison with the runtime, which may be away."""
RETRY_S = 0.1
"""Between two attempts to get a state directory that a `criproxy release` has."""


@dataclass(frozen=True, slots=True)
class Started:
    """The controller and the parts that were started with it."""

    controller: Controller
    reload: Reload
    try_out: TryOut
    keeper: ConfigurationKeeper
    pod_files: PodFiles
    plugin: "Plugin | None" = None
    """Our side of NRI, instead of proxies."""


def _runtime(endpoints: Endpoints, host_root: Path) -> "tuple[RuntimeClient, Plugin | None]":
    """Return what the controller's own calls go through, and with NRI our plugin."""
    endpoint = f"unix://{endpoints.runtime}"
    if not endpoints.nri:
        return RuntimeClient(endpoint), None
    from criproxy.nri.front import NriFront
    from criproxy.nri.plugin import Plugin
    from criproxy.nri.runtime import NriRuntime

    front = NriFront(host_root)
    return NriRuntime(endpoint, front), Plugin(endpoints.nri, front)


async def start_controller(
    stack: AsyncExitStack, options: Options, endpoints: Endpoints, notifier: Notifier, status: Callable[[], str]
) -> Started:
    """Build the controller, and start it; *stack* stops it.

    Args:
        stack: closes what is opened here.
        options: the options of the daemon.
        endpoints: the addresses of the daemon.
        notifier: reports reloads to the service manager.
        status: returns the status of the daemon, in one line.

    Raises:
        CriproxyError: the machine or the state cannot be read, or the first policy file of a node cannot be used.
    """
    topology = await _answered("/sys or /proc", discover, options.host_root)
    found = await _answered(f"the policy file or {options.state_dir}", _read_policy, options, topology)
    store = await opened_store(options.state_dir)
    stack.callback(store.close)
    if store.set_aside is not None:
        log.error("state could not be used; the runtime is asked instead", reason=store.set_aside)
    begun = await _answered(f"the state directory {options.state_dir}", _chosen, options, topology, found, store)
    configuration = begun.configuration
    configuration.log_to(log)
    runtime, plugin = await asyncio.to_thread(_runtime, endpoints, options.host_root)
    policy, node_log = configuration.policy, structlog.get_logger("criproxy.node")
    controller = Controller(configuration.settings, topology, policy, store, runtime, node_log)
    bring_in(begun, controller)
    controller.controls.socket = str(Path(endpoints.control).parent / "controls/controls.sock")
    stack.push_async_callback(controller.stop)
    await controller.start()
    keeper = ConfigurationKeeper(options.state_dir, log)
    controller.context.tasks.forever("keep the policy file", keeper.run)
    stack.push_async_callback(keeper.close)
    if begun.tried is None or begun.tried.is_kept:
        keeper.keep(configuration.good)
    context, holdings, usage = controller.context, controller.devices.holdings, controller.card_usage
    await _remember_plugin(controller, options.state_dir)
    pod_files = PodFiles(options.state_dir, context, holdings, usage, controller.known)
    context.tasks.forever("write the files of pods with cards", pod_files.run)
    in_place, switch = InPlaceOfFile(options.state_dir, context), controller.policy_switch
    had_file = configuration.source is not None or bool(configuration.problem)
    reload = Reload(options.config, had_file, context, switch, in_place, notifier, status, keeper)
    try_out = await _with_tries(reload, in_place, keeper, begun)
    return Started(controller, reload, try_out, keeper, pod_files, plugin)


async def begin_late(tasks: Tasks, started: Started, config: Path | None) -> None:
    """Watch the policy file and tune the C library's allocator. The first create need not wait for their imports.

    Args:
        tasks: supervise what begins here.
        started: the controller, which may not know yet what runs.
        config: the place of the policy file; None: the default one.
    """
    if started.controller.policy_switch.active:
        await wait_at_most(FIRST_S, started.controller.resync.first())
    for module in ("config.watch", "process.allocator"):
        await asyncio.to_thread(import_module, f"criproxy.{module}")
    from criproxy.config.watch import PolicyFileWatch
    from criproxy.process import allocator

    watch = PolicyFileWatch(config or DEFAULT_CONFIG, started.reload.file_changed)
    tasks.forever("watch the policy file", watch.run)
    tasks.forever("give memory back", allocator.give_back_after_peaks)
    if not allocator.keep_large_buffers():
        log.info("the C library has no mallopt: long lists cost more CPU time")


def bring_in(begun: AtStart, controller: Controller) -> None:
    """Tell the controller which policy file is in force, or why it is not and what is in force instead."""
    in_force, configuration = controller.context.in_force, begun.configuration
    in_force.loaded = configuration.loaded()
    if configuration.problem:
        in_force.problem, in_force.instead = first_of(configuration.problem), configuration.instead
    controller.policy_switch.going_back = begun.back


async def _remember_plugin(controller: Controller, state_dir: Path) -> None:
    """Tell the controller what a former daemon knew of the device plugin, and write what the next one has to know."""
    plugin = controller.device_plugin
    plugin.restore(await _answered(f"the state directory {state_dir}", read_expected, state_dir))
    controller.context.tasks.forever("remember the device plugin", partial(plugin.remember, state_dir))


async def opened_store(state_dir: Path) -> Store:
    """Open the state directory, and wait for a disk that hangs, or for a process that has it and gives it back.

    That is a `criproxy release`, or a process that has been killed.

    Meanwhile, calls that need no decision pass, and the others wait. To begin without the state would be worse: the
    node may be released, and the history would be overwritten. The service manager is not told to wait longer: other
    units, such as the kubelet's, may wait for this one.

    Raises:
        InUse: another daemon has it.
    """
    told, is_first, begun_s = "", True, asyncio.get_running_loop().time()
    while True:
        try:
            return await _answered(f"the state directory {state_dir}", partial(Store, may_fail=True), state_dir)
        except InUse as error:
            if not (error.by_release or error.ending or is_first):
                raise
            is_first = False  # once more: a release may just have taken the lock, and not have written its name yet
            is_late = asyncio.get_running_loop().time() - begun_s > SILENT_S
            if (error.by_release or (error.ending and is_late)) and str(error) != told:
                told = str(error)
                log.warning("calls that need a decision wait", reason=told)
            await asyncio.sleep(RETRY_S)


async def _answered(what: str, read: Callable[P, T], *of: P.args, **others: P.kwargs) -> T:
    """Return what *read* returns in a thread, where it may block; after `SILENT_S`, the log says that *what* hangs.

    The thread keeps this process from nothing: it can be stopped meanwhile.
    """
    reading = asyncio.wrap_future(Patience().begin(what, partial(read, *of, **others)))
    if not (await asyncio.wait([reading], timeout=SILENT_S))[0]:
        log.warning("calls that need a decision wait", reason=f"{what} does not answer")
    return await reading


async def _with_tries(reload: Reload, in_place: InPlaceOfFile, keeper: ConfigurationKeeper, begun: AtStart) -> TryOut:
    """Let *reload* know what is in place of the policy file, and write down what comes into force."""
    context, reload.current = reload.context, begun.configuration.said
    keeper.note(begun.configuration.said, context.settings.policy_name, context.in_force.loaded, _how(begun))
    if begun.ended:
        context.counters.tries_ended[begun.ended] += 1
    try_out = TryOut(context, reload, in_place)
    await try_out.resume(begun.tried)
    context.tasks.forever("end tries", try_out.run)
    return try_out


def _how(begun: AtStart) -> str:
    if begun.tried is None:
        return "file" if begun.back is None else "back"
    return "kept" if begun.tried.is_kept else "tried"


def _read_policy(options: Options, topology: Topology) -> Found:
    """Read the policy file. May block.

    If criproxy fails at it, that is as for a file with a mistake: its containers run, and the kubelet needs the socket.
    The reload, which reads the file when the start is over, tries again.

    Raises:
        BadFile: the file cannot be used, and no daemon has run here before.
    """
    required = read_good(options.state_dir) is not None  # once there was a file, its absence is a mistake
    try:
        return load_configuration(options.config, topology, _base(options), required=required)
    except Exception as error:
        if is_new(options.state_dir):
            raise
        if isinstance(error, BadFile):
            return error
        log.error("criproxy failed at the policy file", exc_info=error)  # noqa: TRY400 (as in the other logs)
        return failed_at(error)


def _base(options: Options) -> Settings:
    return base_settings(options.host_root, is_plugin=options.nri is not None)


def base_settings(host_root: Path, *, is_plugin: bool) -> Settings:
    """Return the settings that no policy file changes.

    With NRI, the runtime waits with everything else until it has an answer, and gives up after two seconds: what would
    take long is left to later.
    """
    if not is_plugin:
        return Settings(host_root=host_root)
    return Settings(
        host_root=host_root,
        device_limits=DeviceLimits(scan_s=0.02, drivers_s=0.01, source_s=0.03),
        durable_s=0.02,
        bypass_timeout_s=0.5,
        handler_timeout_s=0.5,
        moves_created=False,
        barrier_timeout_s=0.04,
        resync_timeout_s=0.05,
        create_pause_s=0.5,
    )


def _chosen(options: Options, topology: Topology, found: Found, store: Store) -> AtStart:
    """Return *found*, or what is in force in its place: what is tried or, if the file is bad, the last good one.

    May block.
    """
    tried = read_tried(options.state_dir)
    if tried is None and (file := options.state_dir / TRIED_NAME).exists():
        log.warning("what was tried or kept cannot be read, and is forgotten", file=str(file))
    if tried is None and not isinstance(found, BadFile):
        return AtStart(found)
    before = LastConfiguration.parse(store.load(topology).configuration)
    if tried is not None and not tried.has_begun(before.digest):
        log.warning("a try that had not come into effect, or has ended, does not count", tried=tried.good.source)
        tried = tried.former()
    base = replace(_base(options), configuration=before.digest)
    chosen = at_start(found, tried, topology, base, read_good(options.state_dir), log)
    if tried is None or tried.good.configuration == before.digest:
        return chosen
    return replace(chosen, back=None, ended="")  # the try had not begun, or had ended already
