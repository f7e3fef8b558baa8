"""Which container was given which cards: what was found at each create, as long as its sandbox is there.

The same facts go to the history, from which they come back after a restart.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from criproxy.devices.cards import Card, Stock
from criproxy.devices.classes import DeviceClass
from criproxy.devices.evidence import OWN, Evidence, Given, Share
from criproxy.devices.may_see import Finding
from criproxy.devices.nearness import Whereabouts
from criproxy.devices.vgpu_profiles import Quota, is_vgpu
from criproxy.model.cpuset import format_cpuset
from criproxy.model.node import Node
from criproxy.model.plain import from_plain, to_plain
from criproxy.model.record import Fact, Record
from criproxy.model.workload import Container, ContainerState

Facts = Mapping[str, Fact]
"""By class what was found (``hidden``, …), ids of cards as ``CLASS_ids``, and the evidence as ``CLASS_source``."""
NOTHING: Facts = {}
EVERY_CLASS = "container"
"""The key of what was found of all classes together."""
MOST_IDS, MOST_CHARACTERS, MOST_SHARES = 256, 253, 16
"""Of ids that are kept for programs, of each of them, and of resources."""


@dataclass(slots=True)
class Holdings:
    """What was found at creates, by sandbox and name of the container: a create that is repeated is the same one."""

    _found: dict[tuple[str, str], Facts] = field(default_factory=dict)

    def note(self, sandbox_id: str, container: str, facts: Facts) -> None:
        """Keep what was found at a create."""
        self._found[sandbox_id, container] = facts

    def add(self, sandbox_id: str, container: str, facts: Facts) -> None:
        """Keep what was found later, such as of a container that was created without criproxy, beside what is known."""
        self._found[sandbox_id, container] = {**self._found.get((sandbox_id, container), NOTHING), **facts}

    def recall(self, node: Node, records: Iterable[Record]) -> None:
        """Read what the history has, where nothing newer is known."""
        lives = {container.life: container for container in node.containers.values()}
        for record in records:
            if container := lives.get(record.life):
                self._found.setdefault((container.pod, container.name), record.facts)

    def forget(self, sandbox_id: str) -> None:
        """A sandbox is gone."""
        self._found = {key: facts for key, facts in self._found.items() if key[0] != sandbox_id}

    def sandboxes(self) -> set[str]:
        """Those of which something was found."""
        return {sandbox_id for sandbox_id, _ in self._found}

    def is_untold(self, container: Container) -> bool:
        """Whether it is not known what it was given: it was not checked, or the rule failed."""
        facts = self.of(container)
        if facts is None:
            return container.state is not ContainerState.EXITED
        return "failed" in words_of(facts, EVERY_CLASS) and not any(key.endswith("_source") for key in facts)

    def of(self, container: Container) -> Facts | None:
        """What was found at its create; None where that is not known."""
        return self._found.get((container.pod, container.name))

    def having_cards(self, node: Node) -> list[str]:
        """The keys of the containers to which a device plugin has given something, as far as they are there."""
        return [each.key for each in alive(node) if has_cards(self.of(each) or NOTHING)]

    def cards_given(self, node: Node, kind: DeviceClass, stock: Stock) -> int:
        """How many of the cards in *stock* containers have that are there."""
        held = (self.of(container) or NOTHING for container in alive(node))
        return len({card for facts in held for card in cards_of(facts, kind, stock) if card})

    def ids_given(self, node: Node, kinds: Iterable[str], known: Collection[str]) -> Counter[tuple[str, str]]:
        """By class and resource, of those *known*, how many ids containers have that are there.

        Containers of one pod may have the same id: it counts once. Of many ids of a container, only the first are known
        by name: the others count as its own.
        """
        named, others = set[tuple[str, str, str]](), Counter[tuple[str, str]]()
        held = [self.of(container) or NOTHING for container in alive(node)]
        for kind in kinds:
            for share in (share for facts in held for share in allocated_of(facts, kind)):
                if (resource := share["resource"]) in known:
                    named |= {(kind, resource, each) for each in share["ids"]}
                    others[kind, resource] += share["count"] - len(share["ids"])
        return Counter((kind, resource) for kind, resource, _ in named) + others

    def holders(self, node: Node, kind: str, id: str) -> Iterator[Container]:
        """The containers that may have what the kubelet allocates under *id*, which is a vGPU of a class."""
        for container in alive(node):
            if any(id in share["ids"] for share in allocated_of(self.of(container) or NOTHING, kind)):
                yield container

    def users(self, node: Node, kind: DeviceClass, stock: Stock, card: str) -> Iterator[Container]:
        """The containers that may use a card of a class, by its id as our device plugin and the kubelet know it."""
        return (container for container in alive(node) if uses(self.of(container) or NOTHING, kind, stock, card))


def uses(facts: Facts, kind: DeviceClass, stock: Stock, card: str) -> bool:
    """Whether a container was given a card of a class, by its id as our device plugin and the kubelet know it."""
    there = stock.card(kind, card)
    return card in ids_of(facts, kind.name) or bool(there and there in cards_of(facts, kind, stock))


def facts_of(
    findings: Iterable[Finding],
    evidence: Evidence,
    cards: Sequence[Whereabouts],
    nodes: Mapping[str, Sequence[str]],
    quota: Quota | None = None,
) -> dict[str, Fact]:
    """What programs want to know: by class what was found, what was allocated, and where the cards are.

    Args:
        findings: by the rule.
        evidence: what was allocated, and the ids of the cards.
        cards: their PCI addresses and NUMA nodes.
        nodes: by class, the device nodes that the create has of it.
        quota: of its vGPU, if it has one.
    """
    facts: dict[str, Fact] = {kind or EVERY_CLASS: words for kind, words in by_kind(findings).items()}
    for kind, allocation in evidence.items():
        if allocation.given is Given.CARDS:
            ids = ",".join(each[:MOST_CHARACTERS] for each in allocation.ids[:MOST_IDS])
            facts |= {f"{kind}_ids": ids, f"{kind}_source": allocation.source}
            if allocation.shares:
                facts[f"{kind}_allocated"] = {
                    share.resource: _share(share) for share in allocation.shares[:MOST_SHARES]
                }
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
    """The vGPUs that our device plugin has given: their classes and ids."""
    return tuple(
        (kind, each)
        for kind, allocation in evidence.items()
        for share in allocation.shares
        for each in share.ids
        if share.source == OWN and is_vgpu(each)
    )


def quota_of(facts: Facts, kind: str) -> Quota | None:
    """The quota of a container's vGPU; None where it has none of that class, or where that is not known."""
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
    """By resource, the ids of a class as the kubelet asked the device plugin for them, and which source names them.

    ``count`` says how many they are: of many, only the first are kept.
    """
    found = facts.get(f"{kind}_allocated")
    return [
        _allocated(resource, share)
        for resource, share in (found.items() if isinstance(found, dict) else ())
        if isinstance(share, dict)
    ]


def _allocated(resource: str, share: Mapping[str, Any]) -> dict[str, Any]:
    ids, count = _listed(share.get("ids")), share.get("count")
    is_more = isinstance(count, int) and count > len(ids)
    return {
        "resource": resource,
        "ids": ids,
        "count": count if is_more else len(ids),
        "source": str(share.get("source") or ""),
    }


def by_kind(findings: Iterable[Finding]) -> dict[str, str]:
    """By class, or "" for all of them, every word that was found, in their order."""
    found: dict[str, list[str]] = {}
    for finding in findings:
        found.setdefault(finding.kind, []).append(finding.word.value)
    return {kind: ",".join(words) for kind, words in found.items()}


def alive(node: Node) -> Iterator[Container]:
    """The containers that may use a card."""
    return (container for container in node.containers.values() if container.state is not ContainerState.EXITED)


def has_cards(facts: Facts) -> bool:
    """Whether anything was allocated: most containers of a node have none of its cards."""
    return any(key.endswith("_allocated") for key in facts)


def source_of(facts: Facts, kind: str) -> str:
    """By which evidence it is known that cards of a class were given; empty where none were."""
    return str(facts.get(f"{kind}_source") or "")


def ids_of(facts: Facts, kind: str) -> list[str]:
    """The ids of the cards of a class that were given, as far as they are known."""
    return _listed(facts.get(f"{kind}_ids"))


def words_of(facts: Facts, kind: str) -> list[str]:
    """What was found of a class; of all classes together for ``container``."""
    return _listed(facts.get(kind))


def cards_of(facts: Facts, kind: DeviceClass, stock: Stock) -> Iterator[Card | None]:
    """The cards that were given, by their ids or PCI addresses; None for one that the machine has not."""
    addresses = _listed(facts.get(f"{kind.name}_pci"))
    for each, address in zip_longest(ids_of(facts, kind.name), addresses, fillvalue=""):
        yield stock.card(kind, each) or stock.card(kind, address)


def _listed(value: Fact) -> list[str]:
    return [word for word in str(value or "").split(",") if word]
