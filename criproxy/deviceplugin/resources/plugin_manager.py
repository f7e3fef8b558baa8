"""Starts, updates and ends the plugins of all resources, and keeps IDs listed that containers have."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NoReturn

from criproxy.deviceplugin.cards.detected_cards import CardKey
from criproxy.deviceplugin.resources.kubelet_state import FolderWatch, InUse
from criproxy.deviceplugin.resources.other_ids import all_unhealthy, classes_of, under_other_ids, without_cards
from criproxy.deviceplugin.server import sockets
from criproxy.deviceplugin.server.plugin import Place, Plugin
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.state import Status, Times
from criproxy.devices.classes.offers import Offered
from criproxy.devices.evidence.device_request import InvalidRequest
from criproxy.process.tasks import Tasks, wait_at_most

AskInUse = Callable[[], Awaitable[InUse | None]]
"""Returns the IDs in use; None if the kubelet does not report them at the moment."""


@dataclass(slots=True, repr=False)
class PluginManager:
    """The device plugins of a node; to be used in the thread of the event loop.

    Args:
        place: Where the kubelet is.
        ask_in_use: Queries the IDs that containers have.
        tasks: Run and supervise the parts.
        is_ours: Whether this plugin offered an unpublished resource before it started; its IDs that containers have are
            listed, too.
        times: Timeouts and pauses.
        state_changed: Called after each change of a resource's state, such as when the kubelet has accepted it.
    """

    place: Place
    ask_in_use: AskInUse
    tasks: Tasks
    _: KW_ONLY
    is_ours: Callable[[str], bool] = lambda _: False
    times: Times = Times()  # noqa: RUF009 (frozen)
    state_changed: Callable[[], None] = lambda: None
    elsewhere: Mapping[CardKey, str] = field(default_factory=dict)
    """Cards that containers have, or may have, under IDs that are not published: card to ID and resource."""
    _plugins: dict[str, Plugin] = field(default_factory=dict)
    _ending: dict[str, Plugin] = field(default_factory=dict)
    _published: Mapping[str, Resource] = field(default_factory=dict)
    _in_use: InUse = field(default_factory=dict)
    """The kubelet's last answer."""
    _has_answer: bool = True
    """Whether the kubelet has answered, or its time to do so is over; before, any card may have other IDs."""
    _is_queried: bool = False
    """Whether the kubelet has been queried since an ID last disappeared."""
    _logged: frozenset[CardKey] = frozenset()
    _stopped: bool = False
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _directories_changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def status(self) -> list[Status]:
        """The status of each resource, in the order of their names."""
        return [self._plugins[name].status for name in sorted(self._plugins)]

    def start(self) -> None:
        """Start watching directories and IDs in use; plugins start when they are published."""
        for folder in self.place.watched:
            watch = FolderWatch(folder, self._notify, self.times)
            self.tasks.forever("watch the kubelet's directory", watch.run)
        self.tasks.forever("follow ids in use", self._poll_in_use)

    async def remove_former_sockets(self) -> None:
        """Remove sockets of resources that a former process offered; to be used before anything is published."""
        for name in await asyncio.to_thread(sockets.remove_dead, self.place.folder):
            self.tasks.log.info("a socket that a former process left was removed", socket=name)

    async def learn(self) -> None:
        """Query the IDs in use before anything is published; without an answer, no ID is healthy at first."""
        self._has_answer = False
        if await self._is_kubelet_alive():
            await self._wait_for_answer(self.times.learn_s)

    def publish(self, resources: Mapping[str, Resource]) -> None:
        """Offer *resources*, by name, and nothing else.

        IDs that are gone, or had another quota, are unhealthy until no container has them.
        """
        self._published = dict(resources)
        gone = {name: self._gone(name) for name in self._plugins.keys() | resources.keys()}
        if any(set(each) - set(self._plugins[name].held) for name, each in gone.items() if each):
            self._is_queried = False
        self._list(gone)
        self._changed.set()

    def retry(self) -> None:
        """Register plugins again that other plugins may have replaced."""
        for plugin in self._plugins.values():
            plugin.registrar.retry()

    async def stop(self) -> None:
        """End all plugins: the kubelet marks their devices as unhealthy. Resources published later are not offered."""
        self._stopped = True
        plugins, self._plugins = self._plugins, {}
        await asyncio.gather(*(plugin.end(flush=False) for plugin in (*plugins.values(), *self._ending.values())))

    # ---------------------------------------------------------------- ids in use

    async def _poll_in_use(self) -> None:
        """Query the IDs in use after each change, and repeatedly while IDs are listed only because they are in use."""
        if not self._has_answer:
            await self._wait_for_first_answer()
        query_again = True
        while True:
            await asyncio.sleep(self.times.in_use_soon_s)
            query_again = query_again or self._changed.is_set()
            self._changed.clear()
            in_use = await self.ask_in_use()
            if self._changed.is_set():
                query_again = True
                continue  # the answer may be older than the list
            self._is_queried = True
            if in_use is not None:
                self._in_use = in_use
                self._apply(in_use)
            else:
                self._list({name: self._still_held(plugin) for name, plugin in self._plugins.items()})
            self._log_elsewhere()
            # The kubelet may have allocated an ID just before it received the list without it; a later answer shows it.
            is_unsettled = bool(self.elsewhere) or any(plugin.held for plugin in self._plugins.values())
            again = query_again or in_use is None or is_unsettled
            query_again = await wait_at_most(self.times.in_use_s if again else None, self._changed.wait())

    async def _wait_for_first_answer(self) -> None:
        """Wait for a kubelet, and then for a limited time until it reports the IDs in use.

        Files may have changed while this plugin was not running, and then only the kubelet knows what containers have.
        """
        while not self._has_answer:
            self._directories_changed.clear()
            if not await self._is_kubelet_alive():
                await wait_at_most(self.times.poll_s, self._directories_changed.wait())
            elif not await self._wait_for_answer(self.times.first_answer_s):
                self._has_answer = await self._is_kubelet_alive()  # another kubelet gets the full time
        self._list({name: self._gone(name) for name in self._plugins})

    async def _is_kubelet_alive(self) -> bool:
        return await asyncio.to_thread(sockets.is_alive, self.place.kubelet_socket)

    async def _wait_for_answer(self, timeout_s: float) -> bool:
        """Whether the kubelet reports the IDs in use within *timeout_s*."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while (in_use := await self.ask_in_use()) is None:  # noqa: ASYNC110 (there is no notification)
                    await asyncio.sleep(self.times.in_use_soon_s)
                self._in_use, self._has_answer = in_use, True
        return self._has_answer

    def _apply(self, in_use: InUse) -> None:
        """Of the IDs that are gone, list only those that are *in_use*."""
        held = dict[str, list[Offered]]()
        for name in self._plugins.keys() | {name for name in in_use if self.is_ours(name)}:
            listed = {each.id: each for each in self._listed(name)}
            known = [
                listed.get(each) or self._published_device(name, each) or Offered(id=each)
                for each in in_use.get(name, ())
            ]
            held[name] = [each for each in known if not self._is_published(name, each)]
        self._list(held)
        for name, devices in held.items():
            if name in self._plugins and name not in self._published and not devices:
                self._end(name)

    def _log_elsewhere(self) -> None:
        """Log which cards cannot be allocated, and which can be again."""
        for (kind, card), holder in self.elsewhere.items():
            if (kind, card) not in self._logged:
                text = "a card cannot be allocated: a container has it under an ID that is not offered"
                self.tasks.log.warning(text, **{"class": kind, "card": card, "in_use": holder})
        for kind, card in sorted(self._logged - self.elsewhere.keys()):
            self.tasks.log.info("a card can be allocated again", **{"class": kind, "card": card})
        self._logged = frozenset(self.elsewhere)

    def _listed(self, name: str) -> tuple[Offered, ...]:
        """Return the devices that are listed, or were until now, each with the quota that its container has."""
        plugin = self._plugins.get(name)
        return (*plugin.held, *plugin.published.devices.values()) if plugin is not None else ()

    def _gone(self, name: str) -> list[Offered]:
        """Return the listed devices that are not published, or only with another quota."""
        return [each for each in self._listed(name) if not self._is_published(name, each)]

    def _still_held(self, plugin: Plugin) -> list[Offered]:
        """Return the devices that are gone, and those with another quota that the kubelet last reported as in use."""
        name = plugin.published.name
        in_use = self._in_use.get(name, ())
        return [each for each in plugin.held if each.id in in_use or self._published_device(name, each.id) is None]

    def _is_published(self, name: str, device: Offered) -> bool:
        now = self._published_device(name, device.id)
        return now is not None and now.quota == device.quota

    def _published_device(self, name: str, id: str) -> Offered | None:
        """Return the published device with an ID."""
        return self._published[name].devices.get(id) if name in self._published else None

    # ---------------------------------------------------------------- plugins

    def _list(self, held: Mapping[str, Collection[Offered]]) -> None:
        """List what is published and, in addition, the devices *held* by containers, by resource."""
        if self._stopped:  # health and files may change until all parts have ended
            return
        former = {name: plugin.published for name, plugin in self._plugins.items()}
        in_use = [self._in_use]
        changed = {
            name: {each.id for each in devices if self._published_device(name, each.id)}
            for name, devices in held.items()
        }
        if not self._is_queried:  # until then, containers may have all IDs that are gone
            in_use.append({name: [each.id for each in devices] for name, devices in held.items()})
        self.elsewhere = under_other_ids(
            self._published, lambda name: classes_of(name, self._published, former), in_use, changed
        )
        for name, devices in held.items():
            self._offer(name, devices)

    def _offer(self, name: str, held: Collection[Offered]) -> None:
        """Make the plugin of *name* offer what is published, and list the devices *held* by containers in addition."""
        before = self._plugins[name].published if name in self._plugins else None
        resource = self._published.get(name) or withdrawn(name, before)
        former = {each.id for each in held}
        resource = without_cards(resource, self.elsewhere, self._in_use.get(name, ()), former)
        if not self._has_answer:
            resource = replace(resource, devices=all_unhealthy(resource.devices))
        if name not in self._plugins:
            if name not in self._published and not held:
                return
            self._start(resource)
        devices = tuple(replace(each, healthy=False) for each in held)
        self._plugins[name].offer(resource, devices)

    def _start(self, resource: Resource) -> None:
        plugin = Plugin(resource, self.place, self.tasks, self.times, self.state_changed)
        self._plugins[resource.name] = plugin
        before = self._ending.get(resource.name)

        async def run() -> None:
            if before is not None:
                await before.ended.wait()  # it has the socket
            await plugin.run()

        self.tasks.forever(f"device plugin of {resource.name}", run)

    def _end(self, name: str) -> None:
        self._ending[name] = plugin = self._plugins.pop(name)
        self.tasks.spawn(f"end of {name}", self._ended(name, plugin))
        self.tasks.log.info("the resource is no longer offered", resource=name)

    async def _ended(self, name: str, plugin: Plugin) -> None:
        await plugin.end()
        if self._ending.get(name) is plugin:
            del self._ending[name]

    def _notify(self) -> None:
        self._directories_changed.set()
        for plugin in self._plugins.values():
            plugin.tracker.notify()


def withdrawn(name: str, before: Resource | None) -> Resource:
    """Return the resource *name* with nothing to offer.

    It asks for the same calls as *before*: the kubelet reads those options only at a registration.
    """

    def allocate(ids: Sequence[str]) -> NoReturn:
        raise InvalidRequest(f'invalid allocation request for "{name}": it is no longer offered')

    return replace(before or Resource(name=name, allocate=allocate), devices={}, allocate=allocate)
