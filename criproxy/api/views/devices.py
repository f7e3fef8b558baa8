"""The cards of a machine and the containers that have them, as JSON values: for `criproxy devices`.

Pure functions, so that a daemon and a command that only has the database give the same answer. docs/devices.md has the
keys.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Self

from criproxy.api.views import incidents
from criproxy.api.views.situation import identity, in_order
from criproxy.devices.boundary import Word
from criproxy.devices.classes.cards import Card, Peers, Stock, Stocks, links
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import card_of
from criproxy.devices.holdings import (
    EVERY_CLASS,
    Facts,
    Holdings,
    alive,
    allocated_of,
    cards_of,
    ids_of,
    quota_of,
    source_of,
    words_of,
)
from criproxy.devices.plugin.published import Advertised, Published, PublishedCard
from criproxy.model.node import Node
from criproxy.model.text.notices import Values, timestamp
from criproxy.model.workload import Container

ANNOTATION = "devices.criproxy.io/vgpus"
"""The node annotation for schedulers that need more than a count; `criproxy agent` writes it."""

_SEES_MORE = frozenset(word.value for word in (Word.OVERRIDE, Word.WOULD_HIDE, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED))
"""Findings after which a container may see cards that are not allocated to it."""
_SEES_ALL = frozenset({Word.PRIVILEGED.value, Word.EXEMPT.value})

Checked = tuple[Container, Facts]
"""A container, and the findings at its create."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """The cards of a machine, which containers have them, and what our device plugin reports."""

    classes: Sequence[DeviceClass] = ()
    """In their order."""
    stocks: Stocks
    holdings: Holdings
    """The findings at creates."""
    report: Published | None = None
    """The last one of our device plugin; None if it has not reported, or no daemon runs."""
    reported_s: float = 0.0
    """When it arrived, in seconds since the epoch."""
    runs: bool = True
    """Whether it is recent."""
    ended: bool = False
    """Whether somebody has ended the device plugin, so that it offers nothing; else, nothing is known without a
    report."""


@dataclass(frozen=True, slots=True)
class _Holder:
    """A container with evidence that it has cards of one class."""

    container: Container
    facts: Facts
    cards: frozenset[Card | None]
    """The allocated ones; None among them: one that the machine lacks."""


@dataclass(frozen=True, slots=True)
class _ClassCards:
    """The cards of one class on the machine, and what the device plugin reports of the class."""

    device_class: DeviceClass
    stock: Stock
    resources: Iterable[Advertised]
    published: Mapping[Card | None, PublishedCard]
    parents: Mapping[str, Card]
    """The cards of MIG devices by the id of the MIG device; only NVML, and so only the device plugin, knows these."""

    @classmethod
    def of(cls, device_class: DeviceClass, stock: Stock, report: Published | None) -> Self:
        """Match the cards that the device plugin reports with those of the machine."""
        reported = [card for card in report.cards if card.device_class == device_class.name] if report else []
        parents = ((card.id, stock.card(device_class, card.parent)) for card in reported if card.parent)
        return cls(
            device_class=device_class,
            stock=stock,
            resources=report.resources_of(device_class.name) if report else (),
            published={stock.card(device_class, card.id): card for card in reported},
            parents={part: parent for part, parent in parents if parent is not None},
        )

    def card(self, device_id: str) -> Card | None:
        """Return the card of an allocated id, which may be a replica or a MIG device; None if the machine lacks it."""
        card_id = card_of(device_id)
        return self.parents.get(card_id) or self.stock.card(self.device_class, card_id)

    def holders(self, checked: Iterable[Checked]) -> list[_Holder]:
        """Return those of the *checked* containers that have cards of this class."""
        name = self.device_class.name
        return [
            _Holder(container, facts, self._cards_in(facts)) for container, facts in checked if source_of(facts, name)
        ]

    def _cards_in(self, facts: Facts) -> frozenset[Card | None]:
        ids, cards = ids_of(facts, self.device_class.name), cards_of(facts, self.device_class, self.stock)
        pairs = zip_longest(ids, cards, fillvalue=None)  # facts may have a PCI address without an id
        return frozenset(card or self.parents.get(device_id or "") for device_id, card in pairs)


def to_values(inventory: Inventory, node: Node | None) -> Values:
    """Return the answer of `criproxy devices`, without its notices.

    *node* has the running containers; it is None if it is unknown which container has which card.
    """
    holdings, report = inventory.holdings, inventory.report
    findings = [(container, holdings.of(container)) for container in in_order(alive(node) if node else ())]
    checked = [(container, facts) for container, facts in findings if facts is not None]
    offered = _offered_profiles(report, holdings.allocated(node) if node else ()) if report else []
    former = _former_profiles(report, checked) if report else []
    cards = (_ClassCards.of(each, inventory.stocks.get(each.name, Stock()), report) for each in inventory.classes)
    given: Mapping[tuple[str, str], int] | None = None
    if node:
        names = [each.name for each in report.resources] if report else []
        given = holdings.ids_given(node, [each.name for each in inventory.classes], names)
    return {
        "holders_known": node is not None,
        "device_plugin": _plugin_state(report, inventory) if report else None,
        "vgpus": [*offered, *former],
        "node_annotations": _annotations(offered),
        "classes": [_class_values(each, checked if node else None, given) for each in cards],
        "incidents": incidents.unhealthy_cards(node) if node else [],
        "over_quota": incidents.quotas_exceeded(node) if node else [],
        "see_all": _with_findings(checked, EVERY_CLASS, _SEES_ALL),
        "untold": [_container_values(container) for container, facts in findings if facts is None],
    }


def _plugin_state(report: Published, inventory: Inventory) -> Values:
    """Return the state of the device plugin, when it last reported, and by which file it goes."""
    return {
        "state": "running" if inventory.runs else "not running",
        "reported": timestamp(inventory.reported_s),
        "version": report.version,
        "configuration": report.configuration,
    }


def _offered_profiles(report: Published, allocated: Iterable[Facts]) -> list[Values]:
    """Return the profiles of vGPUs that the device plugin offers."""
    ids = defaultdict[str, list[str]](list)
    for _, _, resource, own in _shares(allocated):
        ids[resource] += own
    return [_profile(each, ids[each.name], offered=True) for each in report.resources if each.profile]


def _former_profiles(report: Published, checked: Iterable[Checked]) -> list[Values]:
    """Return the profiles that the device plugin no longer offers, and whose vGPUs containers still have."""
    ids = defaultdict[tuple[str, str, str], list[str]](list)
    for device_class, profile, resource, own in _shares(facts for _, facts in checked):
        if profile:
            ids[device_class, profile, resource] += own
    return [
        _profile(each, ids[each.device_class, each.profile, each.name], offered=False)
        for each in withdrawn(report.resources, ids)
    ]


def withdrawn(resources: Sequence[Advertised], given: Iterable[tuple[str, str, str]]) -> Iterator[Advertised]:
    """Yield the profiles of the vGPUs in *given*, by class, profile and resource, that *resources* lack."""
    offered = {(each.device_class, each.name) for each in resources}
    for device_class, profile, resource in sorted(given):
        if (device_class, resource) not in offered:
            yield Advertised(name=resource, device_class=device_class, profile=profile)


def _shares(held: Iterable[Facts]) -> Iterator[tuple[str, str, str, list[str]]]:
    """Yield what is allocated: class, profile (empty: no vGPU), resource, and ids."""
    for facts in held:
        for device_class in (key.removesuffix("_allocated") for key in facts if key.endswith("_allocated")):
            quota = quota_of(facts, device_class)
            for share in allocated_of(facts, device_class):
                yield device_class, quota.profile if quota else "", share["resource"], share["ids"]


def _profile(resource: Advertised, ids: Iterable[str], *, offered: bool) -> Values:
    """Return the vGPUs of one profile, of which containers have those with *ids*."""
    used = dict.fromkeys(ids)  # containers of one pod may have the same one
    return {
        "profile": resource.profile,
        "resource": resource.name,
        "class": resource.device_class,
        "count": resource.ids,
        "healthy": resource.healthy,
        "free": max(resource.healthy - len(used), 0),
        "memory_mib": resource.memory_mib or None,
        "cores_percent": resource.cores_percent or None,
        "enforced_by": [method for method in resource.enforce if method not in resource.not_enforced],
        "not_enforced_by": dict(resource.not_enforced),
        "used_by_card": dict(Counter(map(card_of, used))),
        "offered": offered,
    }


def node_annotations(report: Published, allocated: Iterable[Facts]) -> dict[str, str]:
    """Return the annotations of the node for what the device plugin offers; *allocated* as `Holdings.allocated`."""
    return _annotations(_offered_profiles(report, allocated))


def _annotations(vgpus: Sequence[Values]) -> dict[str, str]:
    """Return the annotation of the node, a JSON text; empty if there are no vGPUs."""
    keys = ("resource", "count", "free", "memory_mib", "cores_percent")
    listed = [{key: each[key] for key in keys} for each in vgpus]
    return {ANNOTATION: json.dumps(listed, separators=(",", ":"))} if vgpus else {}


def _class_values(
    cards: _ClassCards, checked: Sequence[Checked] | None, given: Mapping[tuple[str, str], int] | None
) -> Values:
    """Return one class: its cards with their containers, the links between cards, and the advertised resources.

    Args:
        cards: those of the class.
        checked: the running containers; None if it is unknown which container has which card.
        given: how many ids the kubelet has allocated, by class and resource; None if that is unknown.
    """
    name, stock = cards.device_class.name, cards.stock
    holders = cards.holders(checked or ())
    return {
        "name": name,
        "resources": list(cards.device_class.resources),
        "shared_nodes": list(stock.shared),
        "advertised": [
            {
                "name": each.name,
                "ids": each.ids,
                "healthy": each.healthy,
                "given": None if given is None else given[name, each.name],
                "registered": each.registered,
                "problem": each.problem,
            }
            for each in cards.resources
        ],
        "cards": [
            {
                **_card_values(cards, card, index),
                "containers": None if checked is None else _holders_of(card, cards, holders),
            }
            for index, card in enumerate(stock.cards)
        ],
        "links": links_between(stock.cards),
        "elsewhere": [_holder_values(each, name) for each in holders if not each.cards or None in each.cards],
        "may_see_more": _with_findings(checked or (), name, _SEES_MORE),
    }


def _card_values(cards: _ClassCards, card: Card, index: int) -> Values:
    return {
        "index": index,
        "number": card.number,
        "id": card.id,
        "pci_address": card.pci,
        "pci_bridges": list(card.bridges),
        "numa_node": card.numa_node if card.numa_node >= 0 else None,
        "nodes": list(card.nodes),
        "parts": [part for part, parent in cards.parents.items() if parent == card],
        **_health(cards.published.get(card)),
    }


def _health(card: PublishedCard | None) -> Values:
    if card is None:
        return {"healthy": None, "reason": "", "since": None, "replicas": {}}
    return {
        "healthy": card.healthy,
        "reason": card.reason,
        "since": None if card.since_s is None else timestamp(card.since_s),
        "replicas": dict(card.replicas),
    }


def _holders_of(card: Card, cards: _ClassCards, holders: Iterable[_Holder]) -> list[Values]:
    """Return the containers that have *card*, and the ids by which they have it: replicas, or the card itself."""
    listed = [_holder_values(each, cards.device_class.name) for each in holders if card in each.cards]
    for values in listed:
        ids = (device_id for share in values["allocated"] for device_id in share["ids"])
        values["ids_of_card"] = [device_id for device_id in ids if cards.card(device_id) == card]
    return listed


def _holder_values(holder: _Holder, device_class: str) -> Values:
    """Return a container with its allocated ids of a class, and the evidence for them."""
    return {
        **_container_values(holder.container),
        "ids": ids_of(holder.facts, device_class),
        "evidence": source_of(holder.facts, device_class),
        "allocated": allocated_of(holder.facts, device_class),
    }


def links_between(cards: Sequence[Card], peers: Mapping[str, Peers] | None = None) -> list[Values]:
    """Return the links between *cards*; *peers* has the links that a driver reports, by card id."""
    return [
        {
            "from": link.first,
            "to": link.second,
            "link": link.name,
            "distance": link.distance.name,
            "nvlinks": link.nvlinks,
        }
        for link in links(cards, peers)
    ]


def _with_findings(checked: Iterable[Checked], key: str, words: Collection[str]) -> list[Values]:
    """Return the containers with findings among *words* about *key*, a class or `EVERY_CLASS`."""
    found = [(container, [word for word in words_of(facts, key) if word in words]) for container, facts in checked]
    return [{**_container_values(container), "findings": findings} for container, findings in found if findings]


def _container_values(container: Container) -> Values:
    """Return the identity of a container, with the keys of `status`."""
    return {**identity(container), "state": container.state.value}
