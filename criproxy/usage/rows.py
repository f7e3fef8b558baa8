"""Containers and cards that belong together: what was given, what is used, and what was done about it."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from criproxy.devices.holdings import Holdings
from criproxy.model.node import Node
from criproxy.model.notices import Values, timestamp
from criproxy.model.workload import Container, ContainerState
from criproxy.usage.granted import grants_of
from criproxy.usage.report import CardSample, ContainerSample, UsageReport
from criproxy.usage.values import Grant, Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRow:
    """One container and one of its cards."""

    container: Container
    grant: Grant
    card: str
    use: ContainerSample | None = None
    """None: it is not known."""

    @property
    def memory_limit_mib(self) -> int | None:
        """Its quota of memory, if it has one."""
        return self.grant.quota.memory_mib or None if self.grant.quota else None

    @property
    def cores_limit_percent(self) -> int | None:
        """Its quota of computing units, if it has one."""
        return self.grant.quota.cores_percent or None if self.grant.quota else None

    @property
    def over_since_s(self) -> dict[Quantity, float]:
        """Of what it uses more than its quota, and since when, in seconds since the epoch."""
        if self.use is None:
            return {}
        times: dict[Quantity, float | None] = {
            "memory": self.use.memory_over_since_s,
            "cores": self.use.cores_over_since_s,
        }
        return {quantity: since_s for quantity, since_s in times.items() if since_s is not None}


def rows(node: Node, holdings: Holdings, kinds: Collection[str], report: UsageReport | None) -> Iterator[CardRow]:
    """All rows, also of containers that have exited.

    Args:
        node: who is there.
        holdings: what was found when they were created.
        kinds: the names of the classes.
        report: of the watcher; None where nothing current is known.
    """
    samples = {(each.container_id, each.device_class, each.card): each for each in report.containers} if report else {}
    cores_known = {(each.device_class, each.card): each.cores_percent is not None for each in _read_cards(report)}
    for container, grant in grants_of(node, holdings, kinds):
        for card in grant.cards:
            use = samples.get((container.key, grant.kind, card))
            if use is None and (grant.kind, card) in cores_known and container.state is not ContainerState.EXITED:
                use = _nothing(container, grant.kind, card, knows_cores=cores_known[grant.kind, card])
            yield CardRow(container=container, grant=grant, card=card, use=use)


def _read_cards(report: UsageReport | None) -> Iterator[CardSample]:
    """The cards of which all processes are known."""
    yield from (card for card in report.cards if card.device_class not in report.problems) if report else ()


def _nothing(container: Container, kind: str, card: str, *, knows_cores: bool) -> ContainerSample:
    """Who is not in a complete report uses nothing."""
    cores = 0.0 if knows_cores else None
    return ContainerSample(container_id=container.key, device_class=kind, card=card, memory_mib=0, cores_percent=cores)


def actions_of(node: Node, container: Container) -> list[Values]:
    """What was done about a container, and why: the incidents in which it is."""
    return [
        {
            "action": incident.action.value,
            "state": incident.containers[container.life].value,
            "since": timestamp(incident.since_s),
            "card": incident.card,
            "reason": incident.sentence,
            "ended": incident.ended,
        }
        for incident in node.incidents.values()
        if container.life in incident.containers
    ]
