"""Starts, updates and ends the plugins of all resources, and keeps ids listed that containers have."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from criproxy.deviceplugin.folder_watch import FolderWatch
from criproxy.deviceplugin.in_use import not_asked
from criproxy.deviceplugin.plugin import Place, Plugin
from criproxy.deviceplugin.registration import KubeletSocket
from criproxy.deviceplugin.resource import Device, Resource
from criproxy.deviceplugin.settings import LARGEST_LIST_BYTES, Status, Times
from criproxy.deviceplugin.taken import InUse, taken
from criproxy.devices.allocation import InvalidRequest, Response
from criproxy.observe.tasks import Tasks

AskInUse = Callable[[], Awaitable[InUse | None]]
"""Which ids are in use; None: the kubelet does not say at this moment."""


@dataclass(frozen=True, slots=True)
class _Withdrawn:
    """Answers for a resource that is offered no more: its ids are listed only until containers have given them back."""

    resource: str

    def allocate(self, requests: Iterable[Collection[str]]) -> tuple[Response, ...]:
        raise InvalidRequest(f'invalid allocation request for "{self.resource}": it is offered no more')


class Plugins:
    """The device plugins of a node; for the event loop's thread.

    Args:
        place: where the kubelet is.
        in_use: asks which ids containers have.
        is_ours: whether a resource that is not published was offered by this plugin before it started; those that
            containers have of it are listed, too.
        tasks: run and supervise the parts.
        times: limits and pauses.
        largest_bytes: of a list.
    """

    def __init__(
        self,
        place: Place,
        in_use: AskInUse,
        tasks: Tasks,
        *,
        is_ours: Callable[[str], bool] = lambda _: False,
        times: Times = Times(),  # noqa: B008 (frozen)
        largest_bytes: int = LARGEST_LIST_BYTES,
    ) -> None:
        self._place = place
        self._ask_in_use = in_use
        self._is_ours = is_ours
        self._tasks = tasks
        self._times = times
        self._largest_bytes = largest_bytes
        self._plugins: dict[str, Plugin] = {}
        self._ending: dict[str, Plugin] = {}
        self._published: Mapping[str, Resource] = {}
        self._in_use: InUse | None = {} if in_use is not_asked else None
        """As the kubelet said last; None: it has not been heard yet."""
        self._kubelet_news = asyncio.Event()
        self._taken: Mapping[str, Collection[str]] = {}
        """Ids that are published, of cards that containers have in another way."""
        self._news = asyncio.Event()
        self._watches = [FolderWatch(folder, self._notify, times) for folder in place.watched]

    @property
    def status(self) -> list[Status]:
        """How far each resource has come, in the order of their names."""
        return [self._plugins[name].status for name in sorted(self._plugins)]

    def start(self) -> None:
        """Begin to watch folders, and what is in use; plugins start when they are published."""
        for watch in self._watches:
            self._tasks.forever("watch the kubelet's folder", watch.run)
        self._tasks.forever("follow ids in use", self._follow)

    def publish(self, resources: Mapping[str, Resource]) -> None:
        """Offer *resources*, by name, and nothing else: ids that are gone are unhealthy until no container has them."""
        self._published = dict(resources)
        self._offer_all({name: self._gone(name) for name in self._plugins.keys() | resources.keys()})
        self._news.set()

    async def stop(self) -> None:
        """End all plugins: the kubelet sees their devices as unhealthy."""
        plugins, self._plugins = self._plugins, {}
        await asyncio.gather(*(plugin.end(flush=False) for plugin in (*plugins.values(), *self._ending.values())))

    # ---------------------------------------------------------------- ids in use

    async def _follow(self) -> None:
        """Ask after each change which ids are in use, and again while some are listed only for that."""
        if self._in_use is None:
            await self._hear()
        once_more = True
        while True:
            await asyncio.sleep(self._times.in_use_soon_s)
            self._news.clear()
            in_use = await self._ask_in_use()
            if self._news.is_set():
                continue  # the answer may be older than what is listed
            if in_use is not None:
                self._apply(in_use)
            # The kubelet may have allocated an id just before it learned that the id is gone: such are found later.
            again = once_more or in_use is None or any(plugin.held for plugin in self._plugins.values())
            again = again or any(self._taken.values())
            once_more = await _set_within(self._news, self._times.in_use_s if again else None)

    async def _hear(self) -> None:
        """Wait for the first answer, for a while: the cards of all ids may be in use in another way than they are now.

        Files may have changed while this plugin was away, and then only the kubelet knows what containers have.
        """
        kubelet, clock = KubeletSocket(self._place.kubelet_socket), asyncio.get_running_loop()
        until_s: float | None = None  # counted from when there is a kubelet
        while until_s is None or clock.time() < until_s:
            self._kubelet_news.clear()
            if not await kubelet.is_alive():
                await _set_within(self._kubelet_news, self._times.in_use_s)
                continue
            until_s = until_s or clock.time() + self._times.in_use_wait_s
            with suppress(TimeoutError):
                async with asyncio.timeout_at(until_s):
                    if (in_use := await self._ask_in_use()) is not None:
                        self._apply(in_use)
                        return
                    await asyncio.sleep(self._times.in_use_soon_s)
        self._in_use = {}
        self._offer_all({name: self._gone(name) for name in self._plugins})

    def _apply(self, in_use: InUse) -> None:
        """List of the ids that are gone those that are *in_use*, and no others."""
        self._in_use = in_use
        held = {
            name: self._held(name, in_use.get(name, ()))
            for name in self._plugins.keys() | {name for name in in_use if self._is_ours(name)}
        }
        self._offer_all(held)
        for name in self._plugins.keys() - self._published.keys():
            if not held[name]:
                self._end(name)

    def _held(self, name: str, in_use: Collection[str]) -> list[Device]:
        """Those of the ids *in_use* that are not published."""
        gone = {each.id: each for each in self._gone(name)}
        return [gone.get(each) or Device(id=each) for each in in_use if not self._is_published(name, each)]

    def _gone(self, name: str) -> list[Device]:
        """The ids that are listed, or were until now, and are not published."""
        plugin = self._plugins.get(name)
        if plugin is None:
            return []
        listed = (*plugin.held, *plugin.published.devices.values())
        return [each for each in listed if not self._is_published(name, each.id)]

    def _is_published(self, name: str, id: str) -> bool:
        return name in self._published and id in self._published[name].devices

    # ---------------------------------------------------------------- plugins

    def _offer_all(self, held: Mapping[str, Collection[Device]]) -> None:
        """Let each plugin offer what is published, but for cards that are in use otherwise, and list what is *held*."""
        kinds = {name: plugin.published.kind for name, plugin in self._plugins.items()}
        kinds |= {name: resource.kind for name, resource in self._published.items()}
        in_use = {
            **(self._in_use or {}),
            **{name: [each.id for each in those] for name, those in held.items() if those},
        }
        if self._in_use is None:
            self._taken = {name: tuple(resource.devices) for name, resource in self._published.items()}
        else:
            self._taken = taken(self._published, in_use, kinds)
        for name, those in held.items():
            self._offer(name, those)

    def _offer(self, name: str, held: Collection[Device]) -> None:
        """Let the plugin of *name* offer what is published, and list what is *held* beside that."""
        published = self._published.get(name)
        resource = published.without(self._taken.get(name, ())) if published else None
        resource = resource or _withdrawn(name, self._plugins.get(name))
        if name not in self._plugins:
            if name not in self._published and not held:
                return
            self._start(resource)
        devices = tuple(replace(each, healthy=False) for each in held)
        self._plugins[name].offer(resource, devices)

    def _start(self, resource: Resource) -> None:
        plugin = Plugin(resource, self._place, self._tasks.log, self._tasks.failures, self._times, self._largest_bytes)
        self._plugins[resource.name] = plugin
        before = self._ending.get(resource.name)

        async def run() -> None:
            if before is not None:
                await before.ended()  # it has the socket
            await plugin.run()

        self._tasks.forever(f"device plugin of {resource.name}", run)

    def _end(self, name: str) -> None:
        self._ending[name] = plugin = self._plugins.pop(name)
        self._tasks.spawn(f"end of {name}", self._ended(name, plugin))
        self._tasks.log.info("the resource is offered no more", resource=name)

    async def _ended(self, name: str, plugin: Plugin) -> None:
        await plugin.end()
        if self._ending.get(name) is plugin:
            del self._ending[name]

    def _notify(self) -> None:
        self._kubelet_news.set()
        for plugin in self._plugins.values():
            plugin.notify()


async def _set_within(event: asyncio.Event, timeout_s: float | None) -> bool:
    """Return when *event* is set: True; or after *timeout_s*: False."""
    try:
        async with asyncio.timeout(timeout_s):
            return await event.wait()
    except TimeoutError:
        return False


def _withdrawn(name: str, plugin: Plugin | None) -> Resource:
    """The resource *name*, of which nothing is offered any more.

    It wants the same calls as before: the kubelet learns of others only by a new registration.
    """
    before = plugin.published if plugin is not None else Resource(name=name, allocator=_Withdrawn(name))
    return replace(before, devices={}, allocator=_Withdrawn(name))
