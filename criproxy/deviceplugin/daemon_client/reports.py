"""Reports to the daemon: cards that fail or recover, and what is offered; the daemon may be absent for any time."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from criproxy import __version__
from criproxy.deviceplugin.cards.detected_cards import CardKey
from criproxy.deviceplugin.daemon_client.asking import PendingReports, report
from criproxy.deviceplugin.health.cards_health import CardState
from criproxy.deviceplugin.resources.resource_builder import Served
from criproxy.deviceplugin.server.resource import Resource
from criproxy.deviceplugin.server.sockets import Identity, identity
from criproxy.deviceplugin.server.state import State, Status
from criproxy.devices.plugin.plan import OnUnhealthy
from criproxy.devices.plugin.published import MOST_CARDS, MOST_RESOURCES, Advertised, Published, PublishedCard
from criproxy.model.text.bounded import bounded_text
from criproxy.model.text.notices import difference
from criproxy.model.text.plain import to_plain
from criproxy.process.control_client import DaemonRefuses, NoDaemon
from criproxy.process.logger import Log, LogOnce
from criproxy.process.tasks import in_full, wait_at_most

INTERVAL_S = 10.0
RETRY_S = 1.0
"""How often to check whether a daemon that did not answer is back."""
REFUSED_S = 2.0
"""When a report is repeated that the daemon could not store."""
SOON_S = 0.05
"""Changes within this time are reported together."""
MOST_PENDING = 1024
"""Cards whose last change has not been reported yet."""
MAX_VERSION = 50
"""Characters of a version in the log."""


@dataclass(slots=True, repr=False)
class Reports:
    """Sends the reports, each until the daemon has accepted it.

    Args:
        socket: the daemon's control socket.
        published: returns what is offered now.
        log: gets each reason for which the daemon does not accept reports once.
    """

    socket: str
    published: Callable[[], Published]
    log: Log
    instance: str = ""
    """See `Published.instance`."""
    interval_s: float = INTERVAL_S
    action: OnUnhealthy = "none"
    """What to do with containers that use a card that fails."""
    reachable: bool = False
    """Whether the daemon has answered the last report."""
    _pending: PendingReports[CardKey, Mapping[str, Any]] = field(default_factory=lambda: PendingReports(MOST_PENDING))
    _wanted: asyncio.Event = field(default_factory=asyncio.Event)
    _problems: LogOnce = field(init=False)
    _last_socket: Identity | None = None
    """The socket to which the last report went."""
    _unknown: set[str] = field(default_factory=set)
    """The commands that the daemon on that socket does not know, because it is older."""
    _daemon_version: str = __version__
    """The version in the last answer that had one."""

    def __post_init__(self) -> None:
        self._problems = LogOnce(self.log)

    @property
    def pending(self) -> int:
        """How many cards have a change that the daemon has not accepted yet."""
        return len(self._pending)

    def enqueue(self, key: CardKey, known: CardState) -> None:
        """Report a card that has become unhealthy or healthy."""
        kind, card = key
        change: dict[str, Any] = {"device_class": kind, "card": card, "healthy": known.health.healthy}
        change |= {"instance": self.instance} if self.instance else {}
        if not known.health.healthy:
            change |= {"since_s": known.unhealthy_since_s, "reason": known.reason, "action": self.action}
        self._pending.add(key, change)
        self.request()

    def request(self) -> None:
        """Send the reports soon: something has changed."""
        self._wanted.set()

    async def run(self) -> None:
        """Send reports whenever something has changed, and regularly."""
        while True:
            await self._until_due()
            self._wanted.clear()
            await self._report_all()

    async def _until_due(self) -> None:
        """Return when there is something to report, when the interval has passed, or when the daemon may be back."""
        loop = asyncio.get_running_loop()
        is_refused = self.reachable and self._pending and "device-incident" not in self._unknown
        until_s = loop.time() + (min(self.interval_s, REFUSED_S) if is_refused else self.interval_s)
        while (left_s := until_s - loop.time()) > 0:
            if await wait_at_most(left_s if self.reachable else min(left_s, RETRY_S), self._wanted.wait()):
                await asyncio.sleep(SOON_S)
                return
            if not self.reachable and await asyncio.to_thread(self._is_retry_due):
                return

    def _is_retry_due(self) -> bool:
        """Whether to try before the interval has passed: the daemon has missed a change, or it is another daemon."""
        found = identity(Path(self.socket))
        return found is not None and (bool(self._pending) or found != self._last_socket)

    async def _report_all(self) -> None:
        """Send all reports; those that the daemon does not accept now are sent again later."""
        before, self._last_socket = self._last_socket, await asyncio.to_thread(identity, Path(self.socket))
        if self._last_socket != before:
            self._unknown.clear()
        for key, change in [*self._pending.items()]:
            is_done = await self._report("device-incident", change)
            if is_done:
                self._pending.remove(key, change)
            elif not self.reachable:
                return
        await self._report("device-inventory", to_plain(replace(self.published(), instance=self.instance)))

    async def _report(self, command: str, arguments: Mapping[str, Any]) -> bool:
        """Send one report; return whether it need not be sent again."""
        try:
            answer = await in_full(report(self.socket, command, arguments), None)  # none arrives after the goodbye
        except NoDaemon as error:
            if self.reachable or (self._pending and not self._problems.reason):
                self._problems.warning("the daemon does not answer: reports about cards are pending", str(error))
            self.reachable = False
            return False
        except DaemonRefuses as error:
            self.reachable = True
            self._note_refusal(command, error)
            return error.wrong
        self.reachable = True
        if command == "device-inventory" and not self._pending:
            self._problems.clear()
        self._note_version(answer)
        return True

    def _note_refusal(self, command: str, error: DaemonRefuses) -> None:
        """Log why the daemon does not accept a report: an unknown command once, while other reports are accepted."""
        if not error.unknown:
            self._problems.warning("the daemon rejects a report about cards", str(error))
        elif command not in self._unknown:
            self._unknown.add(command)
            event = "the daemon is too old for a report of the device plugin, which waits for a newer one"
            self.log.warning(event, command=command, reason=str(error))

    def _note_version(self, answer: object) -> None:
        """Log that the daemon is of another version, once for each version."""
        version = answer.get("version") if isinstance(answer, dict) else None
        if not isinstance(version, str) or version == self._daemon_version:
            return
        self._daemon_version = version
        if compared := difference(__version__, version):
            event = "the daemon and the device plugin are of different versions"
            self.log.warning(event, daemon=bounded_text(version, MAX_VERSION), own=__version__, daemon_is=compared)


def published(
    served: Served,
    status: list[Status],
    known: Mapping[CardKey, CardState],
    elsewhere: Mapping[CardKey, str],
    interval_s: float,
    action: OnUnhealthy = "none",
) -> Published:
    """Return the report of all that is offered.

    Args:
        served: what is offered.
        status: the state of each resource.
        known: all cards.
        elsewhere: cards of which containers have ids that are not offered, with these ids.
        interval_s: the longest time until the next report.
        action: what to do with containers that use a card that fails.
    """
    replicas: dict[CardKey, dict[str, int]] = {key: {} for key in known}
    for name, resource in served.resources.items():
        for each in resource.devices.values():
            replicas.setdefault((resource.kind, each.card), {})[name] = each.replicas
    listed = {key: parts for key, parts in replicas.items() if parts or _is_unhealthy(known.get(key))}
    cards = [_card(key, known.get(key), elsewhere.get(key, ""), parts, action) for key, parts in listed.items()]
    cards.sort(key=lambda card: card.healthy)
    return Published(
        version=__version__,
        interval_s=interval_s,
        resources=tuple(_resource(each, served.resources.get(each.resource)) for each in status[:MOST_RESOURCES]),
        cards=tuple(cards[:MOST_CARDS]),
        omitted_cards=max(len(cards) - MOST_CARDS, 0),
    )


def _is_unhealthy(known: CardState | None) -> bool:
    return known is not None and not known.healthy


def _card(
    key: CardKey, known: CardState | None, holder: str, replicas: Mapping[str, int], action: OnUnhealthy
) -> PublishedCard:
    found = PublishedCard(device_class=key[0], id=key[1], replicas=replicas)
    if holder and not _is_unhealthy(known):
        return replace(found, healthy=False, reason=f"a container has it as {holder}, which is not offered")
    if known is None:
        return found
    return replace(
        found,
        parent=known.seen.parent,
        healthy=known.healthy,
        reason=known.shown_reason,
        since_s=known.unhealthy_since_s,
        action="" if known.health.healthy else action,
    )


def _resource(status: Status, resource: Resource | None) -> Advertised:
    registered = status.state is State.REGISTERED
    vgpu = next((each.vgpu for each in resource.devices.values() if each.vgpu), None) if resource else None
    return Advertised(
        name=status.resource,
        device_class=resource.kind if resource else "",
        ids=status.devices,
        healthy=status.healthy,
        registered=registered,
        starting=status.state is State.STARTING,
        problem="" if registered else status.text or status.state.value,
        profile=vgpu.profile if vgpu else "",
        memory_mib=vgpu.memory_mib if vgpu else 0,
        cores_percent=vgpu.cores_percent if vgpu else 0,
    )
