"""The cards that each container has: the facts that were found when it was created, as long as its sandbox exists.

The facts are also part of the history, from which they are restored after a restart.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from criproxy.devices.boundary import Finding, Refusal
from criproxy.devices.card_locality import CardLocation
from criproxy.devices.classes.cards import NO_CARDS, Card, Stock, Stocks
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.vgpu_profiles import Quota, is_vgpu
from criproxy.devices.evidence.evidence import OWN, Evidence, Given, Share
from criproxy.errors import StatusCode
from criproxy.model.cpuset import format_cpuset
from criproxy.model.incident import Action, Incident
from criproxy.model.node import Node
from criproxy.model.record import Fact, Record
from criproxy.model.text.notices import timestamp
from criproxy.model.text.plain import from_plain, to_plain
from criproxy.model.workload import Container, ContainerState

Facts = Mapping[str, Fact]
"""The findings by class (``hidden``, …), the ids of cards as ``CLASS_ids``, and the evidence as ``CLASS_source``."""
NOTHING: Facts = {}
EVERY_CLASS = "container"
"""The key of the findings about all classes together."""
MOST_IDS, MOST_CHARACTERS, MOST_SHARES = 256, 253, 16
"""The limits of the facts: number of ids, length of each id, and number of resources."""


@dataclass(slots=True)
class Holdings:
    """The facts by sandbox and name of the container, since a create may be repeated."""

    _found: dict[tuple[str, str], Facts] = field(default_factory=dict)

    def note(self, sandbox_id: str, container: str, facts: Facts) -> None:
        """Keep the facts of a create."""
        self._found[sandbox_id, container] = facts

    def add(self, sandbox_id: str, container: str, facts: Facts) -> None:
        """Add facts that were found later, for example about a container that was created without criproxy."""
        self._found[sandbox_id, container] = {**self._found.get((sandbox_id, container), NOTHING), **facts}

    def recall(self, node: Node, records: Iterable[Record]) -> None:
        """Restore facts from the history, except where newer ones are known."""
        lives = {container.life: container for container in node.containers.values()}
        for record in records:
            if container := lives.get(record.life):
                self._found.setdefault((container.pod, container.name), record.facts)

    def forget(self, sandbox_id: str) -> None:
        """Drop the facts of a sandbox that is gone."""
        self._found = {key: facts for key, facts in self._found.items() if key[0] != sandbox_id}

    def sandboxes(self) -> set[str]:
        """Return the sandboxes with facts."""
        return {sandbox_id for sandbox_id, _ in self._found}

    def is_unknown(self, container: Container) -> bool:
        """Whether the cards of *container* are unknown: it was not checked, or the rule failed."""
        facts = self.of(container)
        if facts is None:
            return container.state is not ContainerState.EXITED
        return "failed" in words_of(facts, EVERY_CLASS) and not any(key.endswith("_source") for key in facts)

    def of(self, container: Container) -> Facts | None:
        """Return the facts of *container*; None if there are none."""
        return self._found.get((container.pod, container.name))

    def having_cards(self, node: Node) -> list[str]:
        """Return the keys of the existing containers to which a device plugin has allocated something."""
        return [each.key for each in alive(node) if has_cards(self.of(each) or NOTHING)]

    def cards_given(self, node: Node, kind: DeviceClass, stock: Stock) -> int:
        """Return how many of the cards in *stock* are allocated to existing containers."""
        held = (self.of(container) or NOTHING for container in alive(node))
        return len({card for facts in held for card in cards_of(facts, kind, stock) if card})

    def allocated(self, node: Node) -> Iterator[Facts]:
        """What the kubelet has allocated, as far as creates have shown it: to living containers and to others.

        A container that has exited keeps its allocation while the sandbox of its pod is there, such as in a back-off.
        """
        living = {(container.pod, container.name) for container in alive(node)}
        for key, facts in self._found.items():
            pod = node.pods.get(key[0])
            if key in living or (pod is not None and not pod.stopped):
                yield facts

    def ids_given(self, node: Node, kinds: Iterable[str], known: Collection[str]) -> Counter[tuple[str, str]]:
        """Count the ids that are allocated, by class and resource, of the resources *known*.

        An id that several containers of one pod have counts once. If a container has many ids, only the first are known
        by name; the others count as different ones.
        """
        named, others = set[tuple[str, str, str]](), Counter[tuple[str, str]]()
        held = list(self.allocated(node))
        for kind in kinds:
            for share in (share for facts in held for share in allocated_of(facts, kind)):
                if (resource := share["resource"]) in known:
                    named |= {(kind, resource, each) for each in share["ids"]}
                    others[kind, resource] += share["count"] - len(share["ids"])
        return Counter((kind, resource) for kind, resource, _ in named) + others

    def holders(self, node: Node, kind: str, id: str) -> Iterator[Container]:
        """Yield the containers that may have the vGPU *id* of a class."""
        for container in alive(node):
            if any(id in share["ids"] for share in allocated_of(self.of(container) or NOTHING, kind)):
                yield container

    def users(self, node: Node, kind: DeviceClass, stock: Stock, card: str) -> Iterator[Container]:
        """Yield the containers that may use a card of a class, by the id that the kubelet knows."""
        return (container for container in alive(node) if uses(self.of(container) or NOTHING, kind, stock, card))


def uses(facts: Facts, kind: DeviceClass, stock: Stock, card: str) -> bool:
    """Whether a card of a class is allocated to a container, by the id that the kubelet knows."""
    there = stock.card(kind, card)
    return card in ids_of(facts, kind.name) or bool(there and there in cards_of(facts, kind, stock))


def facts_of(
    findings: Iterable[Finding],
    evidence: Evidence,
    cards: Sequence[CardLocation],
    nodes: Mapping[str, Sequence[str]],
    quota: Quota | None = None,
) -> dict[str, Fact]:
    """Return the facts of a container: by class the findings, the allocation, and the locations of the cards.

    Args:
        findings: the findings of the rule.
        evidence: the allocation.
        cards: the PCI addresses and NUMA nodes of the cards.
        nodes: by class, the device nodes in the create request.
        quota: the quota of the container's vGPU, if it has one.
    """
    facts: dict[str, Fact] = {kind or EVERY_CLASS: words for kind, words in by_kind(findings).items()}
    for kind, allocation in evidence.items():
        if allocation.given is Given.CARDS:
            ids = ",".join(each[:MOST_CHARACTERS] for each in allocation.ids[:MOST_IDS])
            facts |= {f"{kind}_ids": ids, f"{kind}_source": allocation.source}
            if shares := allocation.shares[:MOST_SHARES]:
                facts[f"{kind}_allocated"] = {share.resource: _share(share) for share in shares}
            if own_nodes := nodes.get(kind):
                facts[f"{kind}_nodes"] = ",".join(own_nodes[:MOST_IDS])
    for kind in {kind for kind, _ in vgpus_of(evidence)} if quota else ():
        facts[f"{kind}_quota"] = to_plain(quota)
    for kind in dict.fromkeys(card.kind for card in cards):
        own = [card for card in cards if card.kind == kind][:MOST_IDS]
        if any(card.pci for card in own):
            facts[f"{kind}_pci"] = ",".join(card.pci or "?" for card in own)
        if any(card.nodes for card in own):
            facts[f"{kind}_numa"] = ";".join(format_cpuset(card.nodes) or "?" for card in own)
    return facts


def vgpus_of(evidence: Evidence) -> tuple[tuple[str, str], ...]:
    """Return the class and id of each vGPU that our device plugin has allocated."""
    return tuple(
        (kind, each)
        for kind, allocation in evidence.items()
        for share in allocation.shares
        for each in share.ids
        if share.source == OWN and is_vgpu(each)
    )


def quota_of(facts: Facts, kind: str) -> Quota | None:
    """Return the quota of a container's vGPU of a class; None if it has none, or it is unknown."""
    found = facts.get(f"{kind}_quota")
    try:
        return from_plain(Quota, found) if isinstance(found, dict) else None
    except ValueError:
        return None


def _share(share: Share) -> dict[str, Fact]:
    ids = ",".join(each[:MOST_CHARACTERS] for each in share.ids[:MOST_IDS])
    more: dict[str, Fact] = {"count": len(share.ids)} if len(share.ids) > MOST_IDS else {}
    return {"ids": ids, "source": share.source, **more}


def allocated_of(facts: Facts, kind: str) -> list[dict[str, Any]]:
    """Return the ids of a class by resource, as the kubelet requested them, with the source of the evidence.

    ``count`` is the number of ids, of which only the first are kept.
    """
    allocated, found = facts.get(f"{kind}_allocated"), list[dict[str, Any]]()
    for resource, share in allocated.items() if isinstance(allocated, dict) else ():
        if isinstance(share, dict):
            ids, count = _listed(share.get("ids")), share.get("count")
            count = max(count, len(ids)) if isinstance(count, int) else len(ids)
            source = str(share.get("source") or "")
            found.append({"resource": resource, "ids": ids, "count": count, "source": source})
    return found


def by_kind(findings: Iterable[Finding]) -> dict[str, str]:
    """Return the words of the findings, in order, by class; "" for all classes."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        found.setdefault(finding.kind, []).append(finding.word.value)
    return {kind: ",".join(words) for kind, words in found.items()}


def alive(node: Node) -> Iterator[Container]:
    """Yield the containers that may use a card."""
    return (container for container in node.containers.values() if container.state is not ContainerState.EXITED)


def has_cards(facts: Facts) -> bool:
    """Whether any card is allocated; to most containers of a node, none is."""
    return any(key.endswith("_allocated") for key in facts)


def source_of(facts: Facts, kind: str) -> str:
    """Return the source of the evidence for the cards of a class; empty if there are none."""
    return str(facts.get(f"{kind}_source") or "")


def ids_of(facts: Facts, kind: str) -> list[str]:
    """Return the ids of the allocated cards of a class, as far as they are known."""
    return _listed(facts.get(f"{kind}_ids"))


def words_of(facts: Facts, kind: str) -> list[str]:
    """Return the words of the findings about a class, or about all classes together for ``container``."""
    return _listed(facts.get(kind))


def cards_of(facts: Facts, kind: DeviceClass, stock: Stock) -> Iterator[Card | None]:
    """Yield the allocated cards, by their ids or PCI addresses; None for one that the machine lacks."""
    addresses = _listed(facts.get(f"{kind.name}_pci"))
    for each, address in zip_longest(ids_of(facts, kind.name), addresses, fillvalue=""):
        yield stock.card(kind, each) or stock.card(kind, address)


def _listed(value: Fact) -> list[str]:
    return [word for word in str(value or "").split(",") if word]


def unhealthy_card(
    incidents: Iterable[Incident], classes: Iterable[DeviceClass], facts: Facts, stocks: Stocks
) -> Incident | None:
    """Return the first incident because of which a container must not be created.

    With ``onUnhealthy: stop``, it would use the card because of which it has just been stopped, and be stopped again.
    The kubelet shows the message and retries, so the container is created soon after the card is healthy.

    Args:
        incidents: the incidents of the node.
        classes: the device classes in use.
        facts: the facts of the container, from `holdings.facts_of`.
        stocks: the machine's cards.
    """
    kinds = {kind.name: kind for kind in classes}
    for incident in incidents:
        kind = kinds.get(incident.device_class)
        if kind is None or incident.ended or incident.excess or incident.action is not Action.STOP:
            continue
        if uses(facts, kind, stocks.get(kind.name, NO_CARDS), incident.card):
            return incident
    return None


def refusal(incident: Incident) -> Refusal:
    """Return the reply to the kubelet."""
    since = timestamp(incident.since_s)
    text = f"its card {incident.card} ({incident.device_class}) has been unhealthy since {since} ({incident.reason})"
    advice = "criproxy creates it once the card is healthy again (onUnhealthy: stop)"
    return Refusal(StatusCode.FAILED_PRECONDITION, f"{text}; {advice}")
