"""The cards that containers have: the grants, and for each container and card the use and the incidents."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from criproxy.devices import holdings as held
from criproxy.devices.boundary import Word
from criproxy.devices.classes.offers import card_of, unique
from criproxy.devices.classes.vgpu_profiles import is_vgpu
from criproxy.devices.device_rules import DeviceRules
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, Grant, UsageReport
from criproxy.model.incident import Incident, Quantity
from criproxy.model.node import Node
from criproxy.model.text.bounded import bounded
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import Container, ContainerState

_UID = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,62})")
"""A UUID, or the hash of a static pod: no character has a meaning in a path."""


def grants(node: Node, holdings: held.Holdings, rules: DeviceRules) -> Iterator[Grant]:
    """Yield the grants of all containers that exist and have an id."""
    for container in held.alive(node):
        if container.has_id:
            yield from grants_of(node, container, holdings.of(container) or held.NOTHING, rules)


def grants_of(node: Node, container: Container, facts: held.Facts, rules: DeviceRules) -> Iterator[Grant]:
    """Yield the grants of one container, one for each resource.

    Args:
        node: the node, with the container's pod.
        container: the container.
        facts: what was found when the container was created.
        rules: the device classes, and which containers are exempt.
    """
    was_exempt = Word.EXEMPT.value in held.words_of(facts, held.EVERY_CLASS)
    exempt = was_exempt or rules.is_exempt_namespace(container.namespace)
    for kind in rules.classes:
        for share in held.allocated_of(facts, kind.name):
            ids = tuple(share["ids"])
            quota = held.quota_of(facts, kind.name) if any(map(is_vgpu, ids)) else None
            grant = _grant(node, container, kind.name, unique(map(card_of, ids)))
            yield replace(grant, resource=share["resource"], ids=ids, quota=quota, exempt=exempt)


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
        ongoing = (each for each in self.incidents if not each.ended)
        return {each.excess.quantity: each.since_s for each in ongoing if each.excess is not None}

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


def rows(node: Node, holdings: held.Holdings, rules: DeviceRules, report: UsageReport | None) -> Iterator[CardRow]:
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
        for grant in grants_of(node, container, facts, rules) if facts and held.has_cards(facts) else ():
            for card in grant.cards:
                seen.add((container.key, grant.kind, card))
                yield _row(container, grant, card, uses, incidents)
    for kind, use in uses.all():
        other = node.containers.get(use.container_id)
        if other is not None and (other.key, kind, use.card) not in seen:
            yield _row(other, _grant(node, other, kind, (use.card,)), use.card, uses, incidents)


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


def _grant(node: Node, container: Container, kind: str, cards: tuple[str, ...]) -> Grant:
    """Return a grant without what is known only of an allocation."""
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
        cards=cards,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PodFile:
    """The file of one pod."""

    lasting: Values
    """The part that does not change with each report."""
    uses: tuple[tuple[int | None, float | None], ...]
    """The use, by container and card: MiB of memory and percent of computing units; None if unknown."""

    def text(self, at_s: float) -> str:
        """Return the text of the file when it is written at *at_s*, in seconds since the epoch."""
        pairs = zip(self.lasting["containers"], self.uses, strict=True)
        containers = [{**each, "used_mib": used_mib, "sm_util": cores} for each, (used_mib, cores) in pairs]
        values = {**self.lasting, "containers": containers, "updated": timestamp(at_s)}
        return json.dumps(values, indent=1) + "\n"


def is_uid(text: str) -> bool:
    """Whether *text* is safe as the name of a file."""
    return _UID.fullmatch(text) is not None


def pod_files(rows: Iterable[CardRow]) -> dict[str, PodFile]:
    """Return, by UID, the files of the pods in *rows*; pods with an invalid UID have none."""
    found: dict[str, list[CardRow]] = {}
    for row in rows:
        if is_uid(row.grant.pod_uid):
            found.setdefault(row.grant.pod_uid, []).append(row)
    return {uid: _file(uid, own) for uid, own in found.items()}


def _file(uid: str, own: list[CardRow]) -> PodFile:
    own = sorted(own, key=lambda row: (row.container.name, row.container.attempt, row.container.key, row.card))
    last, containers = own[-1].container, [_container(row) for row in own]
    lasting = {"pod": last.pod_name, "namespace": last.namespace, "uid": uid, "containers": containers}
    uses = tuple((row.use.memory_mib, row.use.cores_percent) if row.use else (None, None) for row in own)
    return PodFile(lasting=bounded(lasting), uses=uses)


def _container(row: CardRow) -> Values:
    grant, over = row.grant, row.over_since_s
    return {
        "name": row.container.name,
        "id": row.container.key if row.container.has_id else "",
        "state": row.container.state.value,
        "class": grant.kind,
        "device": row.card,
        "resource": grant.resource,
        "ids": list(grant.ids),
        "profile": grant.quota.profile if grant.quota else "",
        "memory_limit_mib": row.memory_limit_mib,
        "cores": row.cores_limit_percent,
        "over_since": timestamp(min(over.values())) if over else None,
        "over": sorted(quantity.value for quantity in over),
        "actions": row.actions,
    }
