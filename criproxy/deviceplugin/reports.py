"""Reports what is offered, and cards that fail and recover, to the daemon, which may be absent for any time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.deviceplugin.cards_health import CardState
from criproxy.deviceplugin.detected_cards import CardKey
from criproxy.deviceplugin.resource_builder import Served
from criproxy.deviceplugin.settings import State, Status
from criproxy.deviceplugin.sockets import Identity, identity
from criproxy.devices.offers import Offered
from criproxy.devices.plan import OnUnhealthy
from criproxy.devices.published import MOST_CARDS, MOST_RESOURCES, Advertised, Published, PublishedCard
from criproxy.model.plain import to_plain
from criproxy.observe.asking import DaemonRefuses, NoDaemon, ask
from criproxy.observe.logger import Log

INTERVAL_S = 10.0
TIMEOUT_S = 2.0
"""Timeout for one report."""
RETRY_S = 1.0
"""How often to check for a daemon that did not answer."""
SOON_S = 0.05
"""Changes within this time are reported together."""
MOST_PENDING = 1024
"""Limit for cards whose last change the daemon has not received yet."""


@dataclass(slots=True, repr=False)
class Reports:
    """Reports to the daemon.

    Args:
        socket: Path of the daemon's control socket.
        published: Returns what is offered now.
        log: Gets one line for each reason why reports are not accepted.
    """

    socket: str
    published: Callable[[], Published]
    log: Log
    interval_s: float = INTERVAL_S
    action: OnUnhealthy = "none"
    """What to do with containers that use a card that fails."""
    reachable: bool = False
    """Whether the daemon answered the last report."""
    _pending: dict[CardKey, Mapping[str, Any]] = field(default_factory=dict)
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _logged: str = ""
    _last_socket: Identity | None = None
    """The socket to which the last report was sent."""

    @property
    def pending(self) -> int:
        """Number of cards whose last change the daemon has not received yet."""
        return len(self._pending)

    def enqueue(self, key: CardKey, known: CardState) -> None:
        """Enqueue a report: a card has become unhealthy or healthy."""
        kind, card = key
        self._pending.pop(key, None)
        if len(self._pending) >= MOST_PENDING:
            del self._pending[next(iter(self._pending))]
        report: dict[str, Any] = {"device_class": kind, "card": card, "healthy": known.health.healthy}
        if not known.health.healthy:
            report |= {"since_s": known.unhealthy_since_s, "reason": known.reason, "action": self.action}
        self._pending[key] = report
        self.request()

    def request(self) -> None:
        """Report changes soon."""
        self._wanted.set()

    async def run(self) -> None:
        """Report forever."""
        while True:
            await self._until_due()
            self._wanted.clear()
            await self._send_all()

    async def _until_due(self) -> None:
        """Return when there is something to report, when a report is due, or when the daemon may be back."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self.interval_s
        while (left_s := until_s - loop.time()) > 0:
            try:
                async with asyncio.timeout(left_s if self.reachable else min(left_s, RETRY_S)):
                    await self._wanted.wait()
            except TimeoutError:
                if not self.reachable and await asyncio.to_thread(self._is_retry_due):
                    return
            else:
                await asyncio.sleep(SOON_S)
                return

    def _is_retry_due(self) -> bool:
        """Whether to try before a report is due: there are changes that the daemon missed, or another daemon."""
        found = identity(Path(self.socket))
        return found is not None and (bool(self._pending) or found != self._last_socket)

    async def _send_all(self) -> None:
        """Report everything; what the daemon does not accept now is reported again later."""
        self._last_socket = await asyncio.to_thread(identity, Path(self.socket))
        for key, report in [*self._pending.items()]:
            accepted = await self._send("device-incident", report)
            if not accepted and not self.reachable:
                return
            if accepted and self._pending.get(key) is report:
                del self._pending[key]
        await self._send("device-inventory", to_plain(self.published()))

    async def _send(self, command: str, arguments: Mapping[str, Any]) -> bool:
        """Send a report; return whether it is done: the daemon accepted it, or would reject it again."""
        try:
            await asyncio.to_thread(partial(ask, self.socket, command, arguments, TIMEOUT_S))
        except NoDaemon as error:
            if self.reachable or (self._pending and not self._logged):
                self._log_once("the daemon gets no reports about cards until it answers", str(error))
            self.reachable = False
            return False
        except DaemonRefuses as error:
            self.reachable = True
            self._log_once("the daemon rejects a report about cards", str(error))
            return error.wrong
        self.reachable, self._logged = True, ""
        return True

    def _log_once(self, event: str, reason: str) -> None:
        if reason != self._logged:
            self._logged = reason
            self.log.warning(event, reason=reason)


def published(
    served: Served,
    status: list[Status],
    known: Mapping[CardKey, CardState],
    elsewhere: Mapping[CardKey, str],
    interval_s: float,
) -> Published:
    """Return what is offered, for the daemon; cards *elsewhere* are in use under IDs that are not offered."""
    replicas: dict[CardKey, dict[str, int]] = {key: {} for key in known}
    for resource, offered in served.offers.items():
        for each in offered.values():
            replicas.setdefault((served.classes[resource], each.card), {})[resource] = each.replicas
    listed = {key: parts for key, parts in replicas.items() if parts or _is_unhealthy(known.get(key))}
    cards = [_card(key, known.get(key), elsewhere.get(key, ""), parts) for key, parts in listed.items()]
    cards.sort(key=lambda card: card.healthy)
    return Published(
        version=__version__,
        interval_s=interval_s,
        resources=tuple(_resource(each, served) for each in status[:MOST_RESOURCES]),
        cards=tuple(cards[:MOST_CARDS]),
        omitted_cards=max(len(cards) - MOST_CARDS, 0),
    )


def _is_unhealthy(known: CardState | None) -> bool:
    return known is not None and not known.healthy


def _card(key: CardKey, known: CardState | None, holder: str, replicas: Mapping[str, int]) -> PublishedCard:
    kind, card = key
    if holder and not _is_unhealthy(known):
        text = f"a container has it as {holder}, which is not offered"
        return PublishedCard(device_class=kind, id=card, healthy=False, reason=text, replicas=replicas)
    if known is None:
        return PublishedCard(device_class=kind, id=card, replicas=replicas)
    return PublishedCard(
        device_class=kind,
        id=card,
        parent=known.seen.parent,
        healthy=known.healthy,
        reason=known.shown_reason,
        since_s=known.unhealthy_since_s,
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
    """Return the quota of a vGPU of a resource."""
    vgpu = next((each.vgpu for each in offered.values() if each.vgpu), None)
    if vgpu is None:
        return {}
    return {"profile": vgpu.profile, "memory_mib": vgpu.memory_mib, "cores_percent": vgpu.cores_percent}
