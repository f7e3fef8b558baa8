"""Applies changed files. A file that cannot be used leaves the old one in effect, with a log line and a metric."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from criproxy.config.watch import PolicyFileWatch
from criproxy.deviceplugin.cards.inventory import Inventory, Machine
from criproxy.deviceplugin.configuration.configuration import Loaded, Options, load
from criproxy.deviceplugin.nvidia.resources import ResourceError
from criproxy.deviceplugin.resources.publisher import Publisher
from criproxy.deviceplugin.resources.resource_builder import build_resources
from criproxy.devices.plugin.plan import Register
from criproxy.errors import CriproxyError
from criproxy.process.logger import Log
from criproxy.process.systemd import Notifier
from criproxy.process.tasks import Tasks

_MOST_LOGGED = 10
"""Number of mistakes that are logged, one line each."""
OLD = "the previous configuration stays in effect"
EMPTIED = "is empty, perhaps because it is still being written; for NVIDIA's defaults write 'version: v1'"
REST = "all other resources are offered"


@dataclass(slots=True, repr=False)
class Reload:
    """Reloads the files on request and after changes."""

    options: Options
    publisher: Publisher
    machine: Machine
    manager: Notifier
    status: Callable[[], str]
    on_apply: Callable[[Loaded, Inventory], None]
    """Called with a new configuration and the cards of its classes before its resources are published."""
    tasks: Tasks
    log: Log
    register: Register
    """How the plugin registers with the kubelet until the program ends."""
    problem: str = ""
    """Why the files are not in effect; empty if they are."""
    reloads: int = 0
    failures: int = 0
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _is_requested: bool = False
    _watched: set[Path] = field(default_factory=set)

    def request(self) -> None:
        """Reload soon, and log the result even if nothing has changed."""
        self._is_requested = True
        self._wanted.set()

    def machine_changed(self, before: Inventory, now: Inventory) -> None:
        """Reload if the new cards may agree with the files now, or can be compared with them for the first time."""
        is_first = (now.gpus and not before.gpus) or (before.pending and not now.pending)
        if self.problem or is_first:
            self._wanted.set()

    def begin(self, inventory: Inventory) -> None:
        """Check whether the configuration agrees with the cards at startup; log the result.

        If not, all other resources are offered: a card that is broken at boot does not take all others away.
        """
        self._agrees(self.publisher.loaded, inventory, REST, requested=False)

    def watch(self, loaded: Loaded) -> None:
        """Watch the files of *loaded*, too; files that were watched before still are."""
        for path in loaded.watched:
            if path not in self._watched:
                self._watched.add(path)
                self.tasks.forever(f"watch {path}", PolicyFileWatch(path, self._wanted.set).run)

    async def run(self) -> None:
        """Process requests to reload, one after the other, forever."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            requested, self._is_requested = self._is_requested, False
            if requested:
                self.manager.reloading()
            try:
                await self._reload_once(requested=requested)
            finally:
                self.manager.ready(self.status())

    def failed(self, text: str, instead: str = OLD, *, requested: bool = False) -> None:
        """Log why the files are not in effect: once for each reason, and after each request of the user."""
        if text == self.problem and not requested:
            return
        self.problem = text
        self.failures += 1
        for mistake in text.splitlines()[:_MOST_LOGGED]:
            self.log.error("the configuration cannot be used", instead=instead, mistake=mistake)

    async def _reload_once(self, *, requested: bool) -> None:
        try:
            new = await asyncio.to_thread(load, self.options)
        except CriproxyError as error:
            self.failed(str(error), requested=requested)
            return
        except Exception as error:
            self._wanted.set()  # the supervision restarts this task after a pause
            self.failed(failed_at(error), requested=requested)
            raise
        if new == self.publisher.loaded:
            self._keep_configuration(requested=requested)
            return
        if new.nvidia_is_empty and not self.publisher.loaded.nvidia_is_empty:
            self.failed(f"{new.nvidia_source}: {EMPTIED}", requested=requested)
            return
        inventory = await self._scan(new)
        if not self._agrees(new, inventory, OLD, requested=requested):
            self._await_cards(new)
            return
        self.problem = ""
        self.reloads += 1
        self.watch(new)
        self.on_apply(new, inventory)
        self.publisher.use(new, inventory)
        self.log.info("configuration reloaded", file=new.source, nvidia=new.nvidia_source)
        if self.options.register is None and new.plan.register != self.register:
            text = "devices.plugin.register is not in effect yet: restart the device plugin"
            self.log.warning(text, file=new.source, said=new.plan.register, in_force=self.register)
        log_notes(self.log, new)

    async def _scan(self, loaded: Loaded) -> Inventory:
        """Return the cards of the classes that *loaded* advertises."""
        other, inventory = self.machine.beside(loaded.classes), self.publisher.inventory
        was_scanned = inventory.stocks.keys() == {kind.name for kind in other.classes}  # or it is only going to be
        return inventory if was_scanned and other.classes == self.machine.classes else await other.scan()

    def _await_cards(self, loaded: Loaded) -> None:
        """Scan for cards of the classes of *loaded*, too, which is tried again when some appear.

        The files in effect define a class that is in both.
        """
        kinds = {kind.name: kind for kind in (*loaded.classes, *self.publisher.loaded.classes)}
        if kinds.keys() != {kind.name for kind in self.machine.classes}:
            self.machine.use(kinds.values())

    def _agrees(self, loaded: Loaded, inventory: Inventory, instead: str, *, requested: bool) -> bool:
        """Whether files and cards do not contradict each other; logs the reason if they do."""
        try:
            build_resources(loaded, inventory, strict=True)
        except ResourceError as error:
            file = loaded.file_of(error.kind)
            self.failed(f"{file}: {error}" if file else str(error), instead, requested=requested)
            return False
        return True

    def _keep_configuration(self, *, requested: bool) -> None:
        if not self._agrees(self.publisher.loaded, self.publisher.inventory, REST, requested=requested):
            return
        if requested or self.problem:
            self.log.info("the files match the configuration in effect", file=self.publisher.loaded.source)
        self.problem = ""
        self._await_cards(self.publisher.loaded)


def failed_at(error: Exception) -> str:
    """Return why the files are not in effect if they have no mistake, but criproxy fails with an *error* at them."""
    return f"criproxy failed at the configuration: {error!r}"


def log_notes(log: Log, loaded: Loaded) -> None:
    """Log the notes about settings that have no effect."""
    for note in loaded.notes:
        log.warning("note about the configuration", note=note)
