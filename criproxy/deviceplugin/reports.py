"""Tells the daemon of cards that fail and recover, and what is offered; the daemon may be absent for any time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.deviceplugin.cards_health import Known
from criproxy.deviceplugin.resources import Served
from criproxy.deviceplugin.seen import Key
from criproxy.deviceplugin.settings import State, Status
from criproxy.deviceplugin.sockets import Identity, identity
from criproxy.devices.offers import Offered
from criproxy.devices.plan import OnUnhealthy
from criproxy.devices.published import MOST_CARDS, MOST_RESOURCES, Advertised, Published, PublishedCard
from criproxy.model.plain import to_plain
from criproxy.observe.asking import DaemonRefuses, NoDaemon, ask
from criproxy.observe.logger import Log

INTERVAL_S = 10.0
ASK_S = 2.0
"""How long the daemon may take for one report."""
AGAIN_S = 1.0
"""How often it is looked for a daemon that did not answer."""
SOON_S = 0.05
"""What happens together is told together."""
MOST_PENDING = 1024
"""Cards whose last change the daemon has not been told yet."""


@dataclass(slots=True, repr=False)
class Reports:
    """What the daemon is told.

    Args:
        socket: the daemon's.
        published: what is offered now.
        log: is told once of an answer that is no.
    """

    socket: str
    published: Callable[[], Published]
    log: Log
    interval_s: float = INTERVAL_S
    action: OnUnhealthy = "none"
    """What is to happen to containers that use a card that fails."""
    reachable: bool = False
    """Whether the daemon has taken the last report."""
    _pending: dict[Key, Mapping[str, Any]] = field(default_factory=dict)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _said: str = ""
    _tried: Identity | None = None
    """The socket to which the last report went."""

    @property
    def pending(self) -> int:
        """Cards of which the daemon has still to be told."""
        return len(self._pending)

    def turned(self, key: Key, known: Known) -> None:
        """A card has become unhealthy or healthy."""
        kind, card = key
        self._pending.pop(key, None)
        if len(self._pending) >= MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        report: dict[str, Any] = {"device_class": kind, "card": card, "healthy": known.health.healthy}
        if not known.health.healthy:
            report |= {"since_s": known.turned_s, "reason": known.reason, "action": self.action}
        self._pending[key] = report
        self.soon()

    def soon(self) -> None:
        """Report what has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Report for ever."""
        while True:
            await self._until_due()
            self._wanted.clear()
            await self._tell_all()

    async def _until_due(self) -> None:
        """Return when there is something to tell, when it is time, or when the daemon may be back."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.interval_s
        while (left_s := until_s - loop.time()) > 0:
            try:
                async with asyncio.timeout(left_s if self.reachable else min(left_s, AGAIN_S)):
                    await self._wanted.wait()
            except TimeoutError:
                if not self.reachable and await asyncio.to_thread(self._may_be_back):
                    return
            else:
                await asyncio.sleep(SOON_S)
                return

    def _may_be_back(self) -> bool:
        """Whether it is worth a try before it is time: there is news that was missed, or another daemon."""
        found = identity(Path(self.socket))
        return found is not None and (bool(self._pending) or found != self._tried)

    async def _tell_all(self) -> None:
        """Tell all there is; what the daemon does not take now is told again later."""
        self._tried = await asyncio.to_thread(identity, Path(self.socket))
        for key, report in [*self._pending.items()]:
            taken = await self._tell("device-incident", report)
            if not taken and not self.reachable:
                return
            if taken and self._pending.get(key) is report:
                del self._pending[key]
        await self._tell("device-inventory", to_plain(self.published()))

    async def _tell(self, command: str, arguments: Mapping[str, Any]) -> bool:
        """Whether the daemon needs no more of it."""
        try:
            await asyncio.to_thread(partial(ask, self.socket, command, arguments, ASK_S))
        except NoDaemon as error:
            if self.reachable or (self._pending and not self._said):
                self._say("the daemon gets no reports about cards until it answers", str(error))
            self.reachable = False
            return False
        except DaemonRefuses as error:
            self.reachable = True
            self._say("the daemon rejects a report about cards", str(error))
            return error.wrong
        self.reachable, self._said = True, ""
        return True

    def _say(self, event: str, reason: str) -> None:
        if reason != self._said:
            self._said = reason
            self.log.warning(event, reason=reason)


def published(
    served: Served, status: list[Status], known: Mapping[Key, Known], elsewhere: Mapping[Key, str], interval_s: float
) -> Published:
    """What the daemon is told of all that is offered; of cards *elsewhere* containers have ids that are not."""
    replicas: dict[Key, dict[str, int]] = {key: {} for key in known}
    for resource, offered in served.offers.items():
        for each in offered.values():
            replicas.setdefault((served.classes[resource], each.card), {})[resource] = each.replicas
    shown = {key: parts for key, parts in replicas.items() if parts or _fails(known.get(key))}
    cards = [_card(key, known.get(key), elsewhere.get(key, ""), parts) for key, parts in shown.items()]
    cards.sort(key=lambda card: card.healthy)
    return Published(
        version=__version__,
        interval_s=interval_s,
        resources=tuple(_resource(each, served) for each in status[:MOST_RESOURCES]),
        cards=tuple(cards[:MOST_CARDS]),
        omitted_cards=max(len(cards) - MOST_CARDS, 0),
    )


def _fails(known: Known | None) -> bool:
    return known is not None and not known.healthy


def _card(key: Key, known: Known | None, holder: str, replicas: Mapping[str, int]) -> PublishedCard:
    kind, card = key
    if holder and not _fails(known):
        text = f"a container has it as {holder}, which is not offered"
        return PublishedCard(device_class=kind, id=card, healthy=False, reason=text, replicas=replicas)
    if known is None:
        return PublishedCard(device_class=kind, id=card, replicas=replicas)
    return PublishedCard(
        device_class=kind,
        id=card,
        parent=known.seen.parent,
        healthy=known.healthy,
        reason=known.why,
        since_s=known.turned_s,
        replicas=replicas,
    )


def _resource(status: Status, served: Served) -> Advertised:
    registered = status.state is State.REGISTERED
    return Advertised(
        name=status.resource,
        device_class=served.classes.get(status.resource, ""),
        ids=status.devices,
        healthy=status.healthy,
        registered=registered,
        problem="" if registered else status.text or status.state.value,
        **_quota(served.offers.get(status.resource, {})),
    )


def _quota(offered: Mapping[str, Offered]) -> dict[str, Any]:
    """What a vGPU of a resource may use."""
    vgpu = next((each.vgpu for each in offered.values() if each.vgpu), None)
    if vgpu is None:
        return {}
    return {"profile": vgpu.profile, "memory_mib": vgpu.memory_mib, "cores_percent": vgpu.cores_percent}
