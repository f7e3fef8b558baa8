"""One run of `criproxy device-plugin`: builds the parts, connects them, and stops them in reverse order."""

import asyncio
import secrets
import signal
from collections import Counter
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING

from criproxy.deviceplugin.cards import nvml_inventory
from criproxy.deviceplugin.cards.detected_cards import names_of, nvml_problem
from criproxy.deviceplugin.cards.inventory import Inventory, Machine
from criproxy.deviceplugin.cards.vgpu_files import Sweeper, VgpuFiles
from criproxy.deviceplugin.configuration.configuration import Loaded, Options, load
from criproxy.deviceplugin.daemon_client.asking import free_cpus, say_running
from criproxy.deviceplugin.daemon_client.reports import Reports, published
from criproxy.deviceplugin.health import nvml_events
from criproxy.deviceplugin.health.cards_health import CardsHealth
from criproxy.deviceplugin.health.health_monitor import HealthMonitor
from criproxy.deviceplugin.label_updater import LabelUpdater
from criproxy.deviceplugin.nvidia.xids import xid_filter
from criproxy.deviceplugin.reload import Reload, failed_at, log_notes
from criproxy.deviceplugin.resources.kubelet_state import KubeletInUse
from criproxy.deviceplugin.resources.plugin_manager import PluginManager
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.deviceplugin.server.plugin import Place
from criproxy.deviceplugin.server.state import State
from criproxy.deviceplugin.usage import nvml_usage
from criproxy.deviceplugin.usage.quota_methods import Methods
from criproxy.deviceplugin.usage.watcher import Watcher
from criproxy.devices.classes.builtin import NVIDIA
from criproxy.devices.plugin.enforcement import HAMI
from criproxy.devices.plugin.published import Published
from criproxy.errors import CriproxyError
from criproxy.process.children import adopt
from criproxy.process.log import LineWriter, structlog
from criproxy.process.program import Program
from criproxy.process.tasks import PART_S

if TYPE_CHECKING:
    from criproxy.deviceplugin.metrics import Sample

log = structlog.get_logger("criproxy.device-plugin")
NODES_OWN = "the node's own file is in effect"


def run(options: Options, log_writer: LineWriter) -> None:
    """Serve until SIGTERM or SIGINT.

    Raises:
        CriproxyError: It cannot start; a ConfigError has a line for each mistake in the files.
    """
    adopt()
    with asyncio.Runner() as runner:
        runner.run(DevicePlugin(options, log_writer).serve())


class DevicePlugin:
    """One run of the program."""

    def __init__(self, options: Options, log_writer: LineWriter) -> None:
        self._options = options
        self._address = options.address()
        self._program = Program(log, log_writer, self._status_text)
        self._tasks = self._program.tasks
        instance = secrets.token_hex(8)
        self._say_running = partial(say_running, options.daemon_socket, instance)
        self._reports = Reports(options.daemon_socket, self._published, log, instance)
        self._sweeper = Sweeper(log, self._reports.request)
        self._vgpu_files = VgpuFiles(options.host_root, self._sweeper.wake)
        nvml = nvml_inventory.NvmlProgram(nvml_inventory.COMMAND)
        self._machine = Machine((), options.host_root, nvml, files=self._vgpu_files)
        self._health = CardsHealth(self._health_changed, self._reports.enqueue, log, self._machine.wake)
        self._health_monitor = HealthMonitor(
            self._health, nvml_events.COMMAND, xid_filter(options.env), self._machine.wake, log
        )
        self._watcher = Watcher(options.daemon_socket, options.host_root, log, nvml_usage.COMMAND)
        self._methods = Methods(self._vgpu_files.exists, self._reports.request, log)
        self._unused = ""
        """Why the configuration that was chosen in the cluster was not used at the start."""
        self._in_use: KubeletInUse
        self._plugins: PluginManager
        self._publisher: Publisher
        self._reload: Reload
        self._label_updater: LabelUpdater

    async def serve(self) -> None:
        """Start all parts, wait for the signal, and stop the parts in reverse order."""
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_sighup)
        async with AsyncExitStack() as stack:
            self._program.start(stack)
            stack.push_async_callback(self._say_goodbye)  # after the last report
            stack.push_async_callback(self._tasks.stop)
            self._tasks.spawn("tell the daemon", self._say_running(running=True))
            loaded = await self._load()
            stack.callback(self._health.stop)
            self._build(stack, loaded)
            await self._serve_http(stack)
            starting = asyncio.create_task(self._start(loaded), name="start")
            stopping = asyncio.create_task(self._program.stop.wait())
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
            starting.cancel()
            await asyncio.wait({starting}, timeout=PART_S)
            self._program.notifier.stopping()
        log.info("stopped")

    async def _load(self) -> Loaded:
        """Read the files; one that was chosen in the cluster does not keep the cards from all pods."""
        without_named = replace(self._options, ignores_named=True)
        try:
            return await asyncio.to_thread(load, self._options)
        except Exception as error:
            text = str(error) if isinstance(error, CriproxyError) else failed_at(error)
            if self._options.named_file.exists():
                with suppress(CriproxyError):
                    loaded = await asyncio.to_thread(load, without_named)
                    self._unused = text
                    return loaded
            await self._say_running(running=True, refused=text.partition("\n")[0])
            raise

    async def _say_goodbye(self) -> None:
        """Tell the daemon of an end that somebody wants; after any other end, it should miss the reports."""
        if self._program.stop.is_set():
            await self._say_running(running=False)

    def _build(self, stack: AsyncExitStack, loaded: Loaded) -> None:
        """Build the parts."""
        options = self._options
        self._machine.classes = loaded.classes
        stack.push_async_callback(self._machine.close)
        way = options.register or loaded.plan.register
        place = Place(kubelet_dir=options.kubelet_folder, way=way, socket=options.kubelet_socket(way))
        self._in_use = KubeletInUse(loaded.podresources, log)
        stack.push_async_callback(self._in_use.close)
        self._plugins = PluginManager(
            place, self._in_use, self._tasks, is_ours=self._is_ours, state_changed=self._reports.request
        )
        free_milli = partial(free_cpus, options.daemon_socket)
        self._publisher = Publisher(loaded, self._plugins, self._health.unhealthy, free_milli, log)
        self._reload = Reload(
            *(options, self._publisher, self._machine, self._program.notifier, self._status_text, self._reloaded),
            *(self._tasks, log, way),
        )
        if self._unused:
            self._reload.failed(self._unused, NODES_OWN)
        self._label_updater = LabelUpdater(options.host_root, self._publisher, log, self._reports.request)
        stack.push_async_callback(self._label_updater.stop)
        log_notes(log, loaded)
        stack.push_async_callback(self._plugins.stop)

    async def _serve_http(self, stack: AsyncExitStack) -> None:
        if self._address is None:
            return
        await asyncio.to_thread(import_module, "criproxy.deviceplugin.metrics")
        from criproxy.deviceplugin.metrics import serve_http

        await serve_http(stack, self._address, self._sample, self._program)

    async def _start(self, loaded: Loaded) -> None:
        """Offer the cards that exist, and start the background tasks."""
        self._use(loaded)
        self._program.notifier.status("looking for cards")
        inventory = await self._machine.scan()
        self._reload.begin(inventory)
        await self._plugins.remove_former_sockets()
        if loaded.podresources is not None:
            await self._plugins.learn()
        self._plugins.start()  # only now: before, it would be wrong about all IDs that containers have
        self._cards_changed(inventory)
        self._start_tasks()
        self._program.ready(file=loaded.source, nvidia=loaded.nvidia_source)

    def _start_tasks(self) -> None:
        """Start the background tasks."""
        self._tasks.forever("look for cards", lambda: self._machine.watch(self._cards_changed))
        self._tasks.forever("reload", self._reload.run)
        self._reload.watch(self._publisher.loaded)
        self._health_monitor.start(self._tasks)
        self._tasks.forever("labels", self._label_updater.run)
        self._tasks.forever("reports to the daemon", self._reports.run)
        self._watcher.start(self._tasks)
        self._tasks.forever("methods of enforcement", self._methods.run)
        self._tasks.forever("remove former directories of vGPUs", self._sweeper.run)

    def _reloaded(self, loaded: Loaded, inventory: Inventory) -> None:
        """Prepare for another configuration, which is about to take effect."""
        self._machine.use(loaded.classes)
        self._tasks.spawn("look for cards", self._rescan())
        self._use(loaded)
        self._health_monitor.update_cards(loaded, inventory)  # a node that is gone in the next scan has vanished

    def _use(self, loaded: Loaded) -> None:
        """Watch and report cards according to *loaded*."""
        self._health_monitor.use(loaded)
        self._in_use.socket = loaded.podresources
        self._reports.action = loaded.plan.on_unhealthy
        self._watcher.use(loaded.plan)
        self._methods.use(loaded)
        self._sweeper.use(self._vgpu_files.below(HAMI.containers))
        self._label_updater.request()

    async def _rescan(self) -> None:
        """Scan even if all cards are as before: the inventory of a reload does not include GPUs that were lost."""
        self._cards_changed(await self._machine.scan())

    def _cards_changed(self, inventory: Inventory) -> None:
        """Update all parts: cards have appeared or disappeared."""
        before, self._publisher.inventory = self._publisher.inventory, inventory
        self._health_monitor.update_cards(self._publisher.loaded, inventory)
        self._watcher.set_cards(
            names_of({key: each.seen for key, each in self._health.known.items()}),
            has_nvml=bool(inventory.driver_version and inventory.gpus),
            nvml_problem=nvml_problem(inventory),
        )
        self._publisher.publish()
        self._reload.machine_changed(before, inventory)
        self._reports.request()
        self._label_updater.request()

    def _health_changed(self) -> None:
        """Publish and report again: the set of unhealthy cards has changed."""
        self._publisher.publish()
        self._reports.request()

    def _published(self) -> Published:
        plugins, known = self._plugins, self._health.known
        served, reports = self._publisher.served, self._reports
        found = published(served, plugins.status, known, plugins.elsewhere, reports.interval_s, action=reports.action)
        inventory, refused = self._publisher.inventory, self._reload.problem.partition("\n")[0]
        wrong = replace(
            found,
            unremoved=self._sweeper.problem,
            refused=refused,
            nvml=inventory.nvml_problem,
            nvml_since_s=inventory.nvml_since_s,
            nvml_pending=inventory.pending and bool(inventory.nvml_problem),
            configuration=self._publisher.loaded.nvidia_source,
            labels=self._label_updater.labels,
        )
        return self._methods.told(wrong)

    def _is_ours(self, resource: str) -> bool:
        return self._publisher.loaded.names(resource)

    def _status_text(self) -> str:
        """Return one line for systemd; empty before the files are read."""
        if not hasattr(self, "_reload"):
            return ""
        statuses = self._plugins.status
        known = sum(each.state is State.REGISTERED for each in statuses)
        text = f"{known} of {len(statuses)} resources registered"
        if self._reload.problem:
            return f"CONFIGURATION NOT USED: {self._reload.problem.splitlines()[0]}; {text}"
        return text

    def _sample(self) -> "Sample":
        from criproxy.deviceplugin.metrics import Sample

        inventory, classes = self._publisher.inventory, self._publisher.served.classes
        cards, incidents = dict[str, Counter[bool]](), self._watcher.incidents
        is_unknown = inventory.pending and bool(inventory.nvml_problem) and NVIDIA.name not in classes.values()
        for (kind, _), known in self._health.known.items():
            counts = cards.setdefault(kind, Counter())
            if kind != NVIDIA.name or not is_unknown:
                counts[known.healthy] += 1
        return Sample(
            status=self._plugins.status,
            classes=classes,
            cards=cards,
            reloads=self._reload.reloads,
            reloads_failed=self._reload.failures,
            failures=self._program.failures.counts,
            config_problem=bool(self._reload.problem),
            inventory_problem=bool(inventory.problems),
            nvml_problem=inventory.nvml_text,
            events_problem=bool(self._health_monitor.events_problem),
            labels_problem=bool(self._label_updater.problem),
            daemon_reached=self._reports.reachable,
            pending_incidents=self._reports.pending,
            usage_problems=self._watcher.problems,
            pending_quota_incidents=incidents.pending,
            kills=incidents.kills,
            kills_failed=incidents.kills_failed,
        )

    def _on_sighup(self) -> None:
        log.info("asked to read the files again", signal="SIGHUP")
        if hasattr(self, "_reload"):
            self._reload.request()
            self._machine.wake()
            self._plugins.retry()
