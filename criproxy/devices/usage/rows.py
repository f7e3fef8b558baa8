"""Pairs of a container and one of its cards: the grant, the use and the incidents."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.holdings import Holdings, has_cards
from criproxy.devices.usage.card_grants import grants_of
from criproxy.devices.usage.totals import ClassUse, UsageReport
from criproxy.devices.usage.values import CardUse, ContainerUse, Grant
from criproxy.model.incident import Incident, Quantity
from criproxy.model.node import Node
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import Container, ContainerState


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One container and one of its cards."""

    container: Container
    grant: Grant
    card: str
    use: ContainerUse | None = None
    """None: the use is unknown."""
    incidents: tuple[Incident, ...] = ()
    """The incidents of this container and card."""

    @property
    def memory_limit_mib(self) -> int | None:
        """The memory quota, if there is one."""
        return self.grant.quota.memory_mib or None if self.grant.quota else None

    @property
    def cores_limit_percent(self) -> int | None:
        """The quota of computing units, if there is one."""
        return self.grant.quota.cores_percent or None if self.grant.quota else None

    @property
    def over_since_s(self) -> dict[Quantity, float]:
        """The quantities whose quota the container exceeds, and since when, in seconds since the epoch."""
        return {
            each.excess.quantity: each.since_s for each in self.incidents if each.excess is not None and not each.ended
        }

    @property
    def actions(self) -> list[Values]:
        """The actions that were taken, and why."""
        return [
            {
                "action": each.action_word,
                "quantity": each.excess.quantity.value if each.excess else None,
                "state": each.containers[self.container.life].value,
                "since": timestamp(each.since_s),
                "reason": each.sentence,
                "ended": each.ended,
            }
            for each in self.incidents
        ]


class Uses:
    """The use in a report, by container and card."""

    def __init__(self, report: UsageReport | None) -> None:
        self.known = [each for each in report.classes if not each.problem] if report else []
        """The classes whose use is known."""
        self._classes = {each.kind: each for each in self.known}
        self._uses = {(use.container_id, each.kind, use.card): use for each in self.known for use in each.containers}

    def of(self, container: Container, kind: str, card: str) -> ContainerUse | None:
        """Return what a container uses of a card: nothing if only the card was read; None if the use is unknown."""
        if found := self._uses.get((container.key, kind, card)):
            return found
        read = self._classes.get(kind)
        if read is None or card in read.unread or container.state is ContainerState.EXITED:
            return None
        cores = 0.0 if any(each.cores_percent is not None for each in read.cards if each.card == card) else None
        return ContainerUse(container_id=container.key, kind=kind, card=card, memory_mib=0, cores_percent=cores)

    def all(self) -> Iterator[tuple[str, ContainerUse]]:
        """Yield each use with the name of its class."""
        return ((each.kind, use) for each in self.known for use in each.containers)

    def cards(self) -> Iterator[tuple[ClassUse, CardUse]]:
        """Yield each card with its class; the total of a card without one is the sum of its processes."""
        for each in self.known:
            yield from ((each, card) for card in each.cards if card.card not in each.unread)
            reported = {card.card for card in each.cards} | each.unread.keys()
            sums: dict[str, int] = {}
            for use in (*each.containers, *each.others):
                sums[use.card] = sums.get(use.card, 0) + use.memory_mib
            for card, memory_mib in sums.items():
                if card not in reported:
                    yield each, CardUse(card=card, memory_mib=memory_mib, total_mib=0)


def rows(node: Node, holdings: Holdings, rules: DeviceRules, report: UsageReport | None) -> Iterator[CardRow]:
    """Yield all containers with their cards, also exited ones, and those that use a card without a known grant.

    Args:
        node: the node with its containers.
        holdings: what was found when the containers were created.
        rules: the device classes.
        report: the watcher's report; None if there is no current one.
    """
    uses, incidents = Uses(report), _by_instance(node)
    seen = set[tuple[str, str, str]]()
    for container in node.containers.values():
        facts = holdings.of(container)
        for grant in grants_of(node, container, facts, rules) if facts and has_cards(facts) else ():
            for card in grant.cards:
                seen.add((container.key, grant.kind, card))
                yield _row(container, grant, card, uses, incidents)
    for kind, use in uses.all():
        other = node.containers.get(use.container_id)
        if other is not None and (other.key, kind, use.card) not in seen:
            yield _row(other, _unknown_grant(node, other, kind, use.card), use.card, uses, incidents)


def _row(container: Container, grant: Grant, card: str, uses: Uses, incidents: Mapping[str, list[Incident]]) -> CardRow:
    own = [each for each in incidents.get(container.life, ()) if (each.device_class, each.card) == (grant.kind, card)]
    use = uses.of(container, grant.kind, card)
    return CardRow(container=container, grant=grant, card=card, use=use, incidents=tuple(own))


def _by_instance(node: Node) -> dict[str, list[Incident]]:
    found: dict[str, list[Incident]] = {}
    for incident in node.incidents.values():
        for life in incident.containers:
            found.setdefault(life, []).append(incident)
    return found


def _unknown_grant(node: Node, container: Container, kind: str, card: str) -> Grant:
    """Return the grant of a container that uses a card although no allocation of it is known."""
    pod = node.pods.get(container.pod)
    return Grant(
        container_id=container.key,
        namespace=container.namespace,
        pod=container.pod_name,
        container=container.name,
        pod_uid=pod.uid if pod else "",
        kind=kind,
        resource="",
        ids=(),
        cards=(card,),
    )
