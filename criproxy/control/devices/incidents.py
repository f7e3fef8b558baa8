"""Unhealthy cards: who uses them, and what is done about that. The device plugin reports them; see `api.device_plugin`.

An incident is on disk before anything is done about it. The kubelet may read the status of a container once, right
after its exit: by then it is known why the container ended, whichever side was restarted meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace

from criproxy.control.context import Context
from criproxy.control.devices.plugin import DevicePlugin
from criproxy.control.devices.stops import Stops
from criproxy.cri import api_pb2 as api
from criproxy.engine.events import CardReported
from criproxy.errors import CriproxyError, StoreError
from criproxy.model.incident import Action, Incident, Use
from criproxy.model.record import Kind
from criproxy.model.workload import Container, ContainerState

REASON = "DeviceUnhealthy"
"""What the status of a stopped container has as its reason."""
ANNOTATION = "devices.criproxy.io/unhealthy"
"""Of a status, where containers are only told of."""
MOST_OPEN = 256
"""Of incidents at one time: a device plugin that reports more has another problem than its cards."""
ABANDONED_S = 3600.0
"""A device plugin that is silent for so long is taken for removed: nobody would ever end its incidents."""
LOOK_S = 60.0
"""How often it is looked for."""
_MAY_BE_STOPPED = frozenset({ContainerState.RUNNING, ContainerState.UNKNOWN})


class NotStored(CriproxyError):
    """A report that is not on disk: nothing is done about it until it is repeated."""


@dataclass(slots=True, repr=False)
class Incidents:
    """Keeps the incidents of the node up to date.

    Args:
        context: has the node with its incidents.
        users: the containers that use a card of a class.
        plugin: the device plugin, which reports them.
        changed: called when replies are to be edited, or are not any more.
    """

    context: Context
    users: Callable[[str, str], Iterable[Container]]
    plugin: DevicePlugin
    changed: Callable[[], None] = lambda: None
    edits: bool = False
    """Whether replies are edited: while a container is stopped or told of for an unhealthy card."""
    _following: bool = False
    _waiting: bool = False
    _stops: Stops = field(init=False)

    def __post_init__(self) -> None:
        self._stops = Stops(self.context, self._mark_stopped)
        self.edits = bool(self.marks())  # from the first reply after a restart

    async def report(self, found: Incident) -> Incident:
        """Remember that a card is unhealthy, then do what is to be done; a report that is repeated is the same one.

        Raises:
            NotStored: the disk fails, so that nothing was done.
        """
        incidents = self.context.state.node.incidents
        known = incidents.get(found.key)
        if known is None and len(self._open) >= MOST_OPEN:
            raise CriproxyError(f"{MOST_OPEN} cards are unhealthy already: no more are remembered")
        incident = self._with_users(replace(found, containers=known.containers if known else {}))
        await self._store(incident)
        if known is None:
            self.context.counters.device_incidents[found.device_class, found.action.value] += 1
            self.context.log.warning(
                "card unhealthy", device_class=found.device_class, card=found.card, why=found.reason
            )
        self.follow()
        return incident

    async def end(self, device_class: str, card: str) -> int:
        """Remember that a card is healthy again; how many incidents that ends.

        Raises:
            NotStored: the disk fails.
        """
        ended = [each for each in self._open if (each.device_class, each.card) == (device_class, card)]
        for each in ended:
            self.context.log.info("card healthy again", device_class=device_class, card=card)
            await self._end(each, "is healthy again")
        self.follow()
        return len(ended)

    def follow(self) -> None:
        """Follow the containers that use unhealthy cards, as long as there is an incident."""
        self._see_edits()
        if self.context.state.node.incidents and not self._following:
            self._following = True
            self.context.tasks.forever("follow unhealthy cards", self._follow)
        if self._open and not self._waiting:
            self._waiting = True
            self.context.tasks.forever("wait for the device plugin", self._wait_for_plugin)

    def marks(self) -> list[bytes]:
        """The ids of the containers whose statuses are edited."""
        node = self.context.state.node
        lives = {life for each in node.incidents.values() if each.action is not Action.NONE for life in each.containers}
        return [key.encode() for key, container in node.containers.items() if container.life in lives] if lives else []

    def edit(self, status: api.ContainerStatus) -> bool:
        """Say in the *status* of a container that its card is unhealthy; whether it is another one now.

        Why a container has ended is said of those that criproxy has stopped: the kubelet reads it only then.
        """
        node, before = self.context.state.node, status.SerializeToString(deterministic=True)
        container = node.containers.get(status.id)
        for incident in node.incidents.values() if container else ():
            use = incident.containers.get(container.life) if container else None
            if use in (Use.STOPPING, Use.STOPPED) and status.state == api.CONTAINER_EXITED:
                status.reason, status.message = REASON, incident.sentence
            elif use and incident.action is Action.ANNOTATE and not incident.ended:
                status.annotations[ANNOTATION] = incident.sentence
        return status.SerializeToString(deterministic=True) != before

    @property
    def _open(self) -> list[Incident]:
        return [each for each in self.context.state.node.incidents.values() if not each.ended]

    async def _end(self, incident: Incident, how: str) -> None:
        self._tell(incident, incident.containers, f"{incident.device_class}: card {incident.card} {how}")
        await self._store(replace(incident, ended=True))

    async def _wait_for_plugin(self) -> None:
        """Give incidents up of which nothing is heard any more."""
        while self._open:
            await asyncio.sleep(LOOK_S)
            if (silent_s := self.plugin.silent_s) > ABANDONED_S:
                how = f"is not watched any more: the device plugin has been silent for {silent_s:.0f} s"
                for each in self._open:
                    self.context.log.warning("card given up", device_class=each.device_class, card=each.card, why=how)
                    with suppress(NotStored):  # what a restart brings back is given up again
                        await self._end(each, how)
        self._waiting = False

    async def _store(self, incident: Incident) -> None:
        await self.context.state.apply(CardReported(incident.key, incident))
        self._see_edits()  # from before the first container ends
        try:
            await self.context.persister.durable()
        except StoreError as error:
            raise NotStored(f"not stored, so that nothing is done about it: {error}") from error

    async def _follow(self) -> None:
        while self.context.state.node.incidents:
            for incident in list(self.context.state.node.incidents.values()):
                self._update(incident)
            self._see_edits()
            await self.context.state.changed()
        self._following = False
        self._see_edits()

    def _update(self, incident: Incident) -> None:
        """Add the containers that have come, take out those that are gone, and have those stopped that shall be."""
        now = self._with_users(incident)
        if now.ended and not now.containers:
            self.context.state.submit(CardReported(incident.key, None))
        elif now != incident:
            self.context.state.submit(CardReported(incident.key, now))
        for container in self._containers(now, Use.STOPPING):
            self._stops.begin(incident.key, container)

    def _with_users(self, incident: Incident) -> Incident:
        lives = {container.life: container for container in self.context.state.node.containers.values()}
        uses = {life: use for life, use in incident.containers.items() if life in lives}
        if incident.ended:  # who was not stopped yet goes on
            under_way = self._stops.under_way(incident.key)
            uses = {life: use for life, use in uses.items() if use is Use.STOPPED or life in under_way}
        else:
            new = {each.life: Use.USES for each in self.users(incident.device_class, incident.card)}
            self._tell(
                incident, new.keys() - uses.keys(), f"{incident.device_class}: card is unhealthy: {incident.sentence}"
            )
            uses = {**new, **uses}
        if incident.action is Action.STOP and not incident.ended:
            uses = {life: _next(use, lives[life]) for life, use in uses.items()}
        return replace(incident, containers=uses)

    def _mark_stopped(self, key: str, life: str) -> None:
        """The runtime has stopped a container."""
        if (incident := self.context.state.node.incidents.get(key)) and life in incident.containers:
            self._tell(incident, [life], f"criproxy has stopped it: {incident.sentence} (onUnhealthy: stop)")
            self.context.counters.device_stops[incident.device_class] += 1
            self.context.state.submit(CardReported(key, incident.with_uses({life: Use.STOPPED})))

    def _containers(self, incident: Incident, use: Use) -> list[Container]:
        lives = {life for life, each in incident.containers.items() if each is use}
        return [each for each in self.context.state.node.containers.values() if each.life in lives] if lives else []

    def _tell(self, incident: Incident, lives: Iterable[str], sentence: str) -> None:
        """Let the history of containers say it; their log line is that of the card."""
        about = set(lives)
        facts: Mapping[str, str] = {
            "device_class": incident.device_class,
            "card": incident.card,
            "reason": incident.reason,
            "action": incident.action.value,
        }
        for container in self.context.state.node.containers.values() if about else ():
            if container.life in about:
                self.context.state.note(container, Kind.UNHEALTHY, sentence, **facts)

    def _see_edits(self) -> None:
        before, self.edits = self.edits, bool(self.marks())
        if self.edits is not before:
            self.changed()


def _next(use: Use, container: Container) -> Use:
    """How far it is with a container that shall be stopped: it has to run, and who has ended was stopped."""
    if use is Use.USES and container.state in _MAY_BE_STOPPED and container.key != container.reservation:
        return Use.STOPPING
    if use is Use.STOPPING and container.state is ContainerState.EXITED:
        return Use.STOPPED
    return use
