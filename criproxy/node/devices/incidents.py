"""Incidents: unhealthy cards and containers over their quota, which the device plugin reports, and the actions.

An incident is on disk before an action follows. The kubelet may read the status of a container only once, right after
its exit: by then the reason why it ended is known, even if criproxy or the device plugin was restarted meanwhile.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from time import time

from criproxy.cri import api_pb2 as api
from criproxy.cri.rewrite import mark
from criproxy.devices.plugin.plan import is_stronger
from criproxy.errors import CriproxyError, StoreError
from criproxy.model.incident import Action, Incident, Quantity, Use
from criproxy.model.record import Kind
from criproxy.model.workload import Container
from criproxy.node.context import Context
from criproxy.node.devices.plugin import DevicePlugin
from criproxy.node.devices.stops import GRACE_S, Stops
from criproxy.placement.answers.vgpu_excesses import amounts, begun, followed, going_on, next_use
from criproxy.placement.events import CardReported
from criproxy.process.tasks import OnDemand

MOST_OPEN = 256
"""Open incidents of one kind: a device plugin that reports more has another problem than its cards."""
ABANDONED_S = 3600.0
"""When a silent device plugin counts as removed, so that its incidents must be ended for it."""
CHECK_S = 60.0
"""How often that is checked."""


class NotStored(CriproxyError):
    """A report could not be stored: no action follows until it is repeated."""


@dataclass(slots=True, repr=False)
class Incidents:
    """Keeps the incidents of the node up to date.

    Args:
        context: has the node with its incidents.
        users: returns the containers that use a card of a class.
        plugin: the device plugin, which reports incidents.
        changed: called when `edits` changes.
    """

    context: Context
    users: Callable[[str, str], Iterable[Container]]
    plugin: DevicePlugin
    changed: Callable[[], None] = lambda: None
    edits: bool = False
    """Whether replies are edited: while a container is stopped, killed or mentioned in its status."""
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Serialises reports about quotas."""
    _spared: set[str] = field(default_factory=set)
    """Keys of incidents whose container is within its quota again, although that may not be on disk yet."""
    _stops: Stops = field(init=False)
    _follower: OnDemand = field(init=False)
    _plugin_watcher: OnDemand = field(init=False)

    def __post_init__(self) -> None:
        self._stops = Stops(self.context, self._mark_stopped, self._is_to_be_stopped)
        self._follower = OnDemand(self.context.tasks, "follow unhealthy cards", self._follow)
        self._plugin_watcher = OnDemand(self.context.tasks, "wait for the device plugin", self._wait_for_plugin)
        self.edits = bool(self.marks())  # from the first reply after a restart

    async def report(self, found: Incident) -> Incident:
        """Store that a card is unhealthy, then take the action. A repeated report is the same incident.

        Raises:
            NotStored: the disk fails, so that no action was taken.
        """
        incidents = self.context.state.node.incidents
        known = incidents.get(found.key)
        if known is None and len(self._cards) >= MOST_OPEN:
            raise CriproxyError(f"{MOST_OPEN} cards are already unhealthy: criproxy records no more")
        incident = self._with_users(replace(found, containers=known.containers if known else {}))
        await self._store(incident)
        if known is None:
            kind = found.device_class
            self.context.counters.device_incidents[kind, found.action.value] += 1
            self.context.log.warning("card unhealthy", device_class=kind, card=found.card, why=found.reason)
        self.follow()
        return incident

    async def end(self, device_class: str, card: str) -> int:
        """Store that a card is healthy again, and return how many incidents that ends.

        Raises:
            NotStored: the disk fails.
        """
        ended = [each for each in self._cards if (each.device_class, each.card) == (device_class, card)]
        for each in ended:
            self.context.log.info("card healthy again", device_class=device_class, card=card)
            await self._end(each, f"card {card} is healthy again")
        self.follow()
        return len(ended)

    async def exceeded(
        self, found: Incident, container: Container, *, unanswered: bool = False
    ) -> tuple[Incident, bool]:
        """Store that a *container* is over a quota, then take the action.

        Args:
            found: the incident, which has an excess.
            container: the running container that is over its quota.
            unanswered: whether the same report was sent before and got no answer.

        Returns:
            The incident, which is the older one if the report is repeated and does not require a stronger action; and
            whether the watcher is to act. The latter is true once for an incident, unless the answer was lost.

        Raises:
            NotStored: the disk fails, so that no action was taken, and the report is not remembered.
        """
        async with self._one:
            excess = found.excess
            of = found.device_class, found.card
            known = self._going_on(excess.life, *of, excess.quantity) if excess else None
            self._stops.confirm(known)
            is_more = known is not None and is_stronger(found.action_word, known.action_word)
            if known and not is_more and not (unanswered and known.excess and known.excess.kills):
                await self._durable()
                return known, False
            if known is None and len(self._open) - len(self._cards) >= MOST_OPEN:
                raise CriproxyError(f"{MOST_OPEN} containers are already over their quota: criproxy records no more")
            same = replace(known, action=found.action, excess=found.excess) if known and is_more else known
            incident = begun(same or found, container, time())
            await self._store_or_undo(incident, known)
            if known is None or is_more:
                self._report_excess(incident, container)
            self.follow()
            return incident, incident.excess is not None and incident.excess.kills

    async def within(self, life: str, device_class: str, card: str, quantity: Quantity) -> int:
        """Store that a container is within a quota again, and return how many incidents that ends.

        Raises:
            NotStored: the disk fails.
        """
        async with self._one:
            if (known := self._going_on(life, device_class, card, quantity)) is None:
                return 0
            await self._store_or_undo(ended := self._ended(known), known)
            now = self.context.state.node.incidents.get(known.key, ended)
            if now.containers.get(life) not in (Use.STOPPING, Use.STOPPED):  # else it uses nothing any more
                text = f"{device_class}: it is within its quota of {quantity.value} again"
                self._record(known, [life], text, state="ended")
                self.context.log.info("container within its quota again", device_class=device_class, card=card, id=life)
            self.follow()
            return 1

    @property
    def unconfirmed(self) -> frozenset[str]:
        """Keys of incidents of which the watcher is to report whether their containers are still over their quotas."""
        return frozenset(self._stops.unconfirmed)

    def follow(self) -> None:
        """Follow the containers of incidents while there are any."""
        self._update_edits()
        if self.context.state.node.incidents:
            self._follower.now()
        if self._open:
            self._plugin_watcher.now()

    def marks(self) -> list[bytes]:
        """Return the ids of the containers whose statuses are edited."""
        node = self.context.state.node
        lives = {life for each in node.incidents.values() if each.is_shown for life in each.containers}
        return [key.encode() for key, container in node.containers.items() if container.life in lives] if lives else []

    def edit(self, status: api.ContainerStatus) -> bool:
        """Write incidents of the container's card or quota into its *status*, and return whether that changed it.

        The reason of the end is written only for containers that criproxy has stopped: the kubelet reads it only then.
        """
        node, before = self.context.state.node, status.SerializeToString(deterministic=True)
        container = node.containers.get(status.id)
        for incident in node.incidents.values():
            if container and (use := incident.containers.get(container.life)):
                mark(status, incident, use)
        return status.SerializeToString(deterministic=True) != before

    @property
    def _open(self) -> list[Incident]:
        return [each for each in self.context.state.node.incidents.values() if not each.ended]

    @property
    def _cards(self) -> list[Incident]:
        return [each for each in self._open if not each.excess]

    async def _end(self, incident: Incident, sentence: str) -> None:
        self._record(incident, incident.containers, f"{incident.device_class}: {sentence}", state="ended")
        await self._store(self._ended(incident))

    def _ended(self, incident: Incident) -> Incident:
        """Return *incident* as ended; a container within its quota again is stopped only if that call is in flight."""
        if incident.excess is None:
            return replace(incident, ended=True)
        self._spared.add(incident.key)
        is_sent = self._stops.is_sent(incident.key, incident.excess.life)
        uses = {life: use for life, use in incident.containers.items() if is_sent or use is not Use.STOPPING}
        return replace(incident, ended=True, containers=uses)

    async def _wait_for_plugin(self) -> None:
        """Drop all incidents if the device plugin has been silent for too long."""
        while self._open:
            await asyncio.sleep(CHECK_S)
            if (silent_s := self.plugin.silent_s) > ABANDONED_S:
                for each in self._open:
                    await self._drop(each, f"the device plugin has been silent for {silent_s:.0f} s")

    async def _drop(self, incident: Incident, why: str) -> None:
        about, excess = {"device_class": incident.device_class, "card": incident.card}, incident.excess
        if excess:
            about |= {"id": excess.life, "quantity": excess.quantity.value}
        self.context.log.warning("quota incident dropped" if excess else "card no longer watched", **about, why=why)
        whose = "its use of " if excess else ""
        with suppress(NotStored):  # an incident that a restart restores is dropped again
            await self._end(incident, f"{whose}card {incident.card} is no longer watched: {why}")

    async def _store(self, incident: Incident) -> None:
        await self.context.state.apply(CardReported(incident.key, incident))
        self._update_edits()  # before the first container ends
        await self._durable()

    async def _store_or_undo(self, incident: Incident, before: Incident | None) -> None:
        """Store *incident*; if that fails, restore *before*, so that a repeated report counts as a new one."""
        try:
            await self._store(incident)
        except BaseException:
            self.context.state.submit(CardReported(incident.key, before))
            self._update_edits()
            raise

    async def _durable(self) -> None:
        try:
            await self.context.persister.durable()
        except StoreError as error:
            raise NotStored(f"it could not be stored, so criproxy does nothing about it: {error}") from error

    async def _follow(self) -> None:
        while self.context.state.node.incidents:
            self._spared &= self.context.state.node.incidents.keys()
            for incident in list(self.context.state.node.incidents.values()):
                self._update(incident)
            self._update_edits()
            await self.context.state.changed()
        self._update_edits()

    def _update(self, incident: Incident) -> None:
        """Add new containers, remove those that are gone, and begin to stop those that are to be stopped."""
        now = self._with_users(incident)
        if now.ended and not now.containers:
            self.context.state.submit(CardReported(incident.key, None))
        elif now != incident:
            self.context.state.submit(CardReported(incident.key, now))
        grace_s = now.excess.stop_timeout_s if now.excess else GRACE_S
        for container in self._containers(life for life, use in now.containers.items() if use is Use.STOPPING):
            self._stops.begin(incident.key, container, grace_s)

    def _is_to_be_stopped(self, key: str, life: str) -> bool:
        incident = self.context.state.node.incidents.get(key)
        if incident is None or key in self._spared or (incident.ended and not incident.excess):
            return False
        return incident.containers.get(life) is Use.STOPPING

    def _going_on(self, life: str, device_class: str, card: str, quantity: Quantity) -> Incident | None:
        return going_on(self.context.state.node.incidents.values(), life, (device_class, card), quantity)

    def _with_users(self, incident: Incident) -> Incident:
        node, in_flight = self.context.state.node, self._stops.in_flight(incident.key)
        if incident.excess:
            goes_on = incident.excess.life in in_flight or incident.key not in self._spared
            return followed(incident, incident.excess, node, time(), goes_on=goes_on)
        lives = {container.life: container for container in node.containers.values()}
        now = {life: use for life, use in incident.containers.items() if life in lives}
        uses = {life: next_use(use, lives[life], Action.NONE) for life, use in now.items()}
        if incident.ended:  # containers that were not stopped yet continue to run
            uses = {life: use for life, use in uses.items() if use is Use.STOPPED or life in in_flight}
        else:
            new = {each.life: Use.USES for each in self.users(incident.device_class, incident.card)}
            text = f"{incident.device_class}: card is unhealthy: {incident.sentence}"
            self._record(incident, new.keys() - uses.keys(), text, state="begun")
            uses = {**new, **uses}
        if incident.action is Action.STOP and not incident.ended:
            uses = {life: next_use(use, lives[life], Action.STOP) for life, use in uses.items()}
        return replace(incident, containers=uses)

    def _mark_stopped(self, key: str, life: str) -> None:
        """Record that the runtime has stopped a container for an incident."""
        if (incident := self.context.state.node.incidents.get(key)) and life in incident.containers:
            option = "quota: stop" if incident.excess else "onUnhealthy: stop"
            self._record(incident, [life], f"criproxy has stopped it: {incident.sentence} ({option})", state="stopped")
            if incident.excess:
                self.context.counters.quota_stops[incident.device_class, incident.excess.quantity.value] += 1
            else:
                self.context.counters.device_stops[incident.device_class] += 1
            self.context.state.submit(CardReported(key, incident.with_uses({life: Use.STOPPED})))

    def _report_excess(self, incident: Incident, container: Container) -> None:
        """Count, log and record that a container is over its quota."""
        quantity = incident.excess.quantity.value if incident.excess else ""
        kind, action = incident.device_class, incident.action_word
        self.context.counters.quota_incidents[kind, quantity, action] += 1
        text, title, why = "container over its quota", container.title, incident.sentence
        self.context.log.warning(text, container=title, device_class=kind, why=why, action=action)
        text = f"{kind}: it is over its quota: {why} (quota: {action})"
        self._record(incident, [container.life], text, state="begun")

    def _containers(self, instances: Iterable[str]) -> list[Container]:
        """Return the containers that are one of the *instances*."""
        lives = set(instances)
        return [each for each in self.context.state.node.containers.values() if each.life in lives] if lives else []

    def _record(self, incident: Incident, lives: Iterable[str], sentence: str, *, state: str) -> None:
        """Write *sentence* to the history of the container instances *lives*; the log has one line for the card.

        *state* says for programs what has happened: ``begun``, ``stopped`` (the container) or ``ended``.
        """
        about = {"device_class": incident.device_class, "card": incident.card, "state": state}
        facts = {**about, "reason": incident.reason, "action": incident.action_word, **amounts(incident.excess)}
        kind = Kind.QUOTA if incident.excess else Kind.UNHEALTHY
        for container in self._containers(lives):
            self.context.state.note(container, kind, sentence, **facts)

    def _update_edits(self) -> None:
        before, self.edits = self.edits, bool(self.marks())
        if self.edits is not before:
            self.changed()
