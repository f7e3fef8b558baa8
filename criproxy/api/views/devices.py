"""The cards of a machine and the containers that have them, as JSON values: for `criproxy devices`.

Pure functions, so that a daemon and a command that only has the database give the same answer. docs/devices.md has the
keys.
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

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
"""The node annotation for schedulers that need more than a count; criproxy prints its text and does not write it."""


def withdrawn(resources: Sequence[Advertised], given: Iterable[tuple[str, str, str]]) -> Iterator[Advertised]:
    """Yield the profiles of the vGPUs in *given*, by class, profile and resource, that *resources* lack."""
    offered = {(each.device_class, each.name) for each in resources}
    for kind, profile, resource in sorted(given):
        if (kind, resource) not in offered:
            yield Advertised(name=resource, device_class=kind, profile=profile)


def _profile(each: Advertised, given: Iterable[str], *, offered: bool) -> Values:
    """Return the vGPUs of one profile, of which containers have those with the ids *given*."""
    used = dict.fromkeys(given)  # containers of one pod may have the same one
    return {
        "profile": each.profile,
        "resource": each.name,
        "class": each.device_class,
        "count": each.ids,
        "healthy": each.healthy,
        "free": max(each.healthy - len(used), 0),
        "memory_mib": each.memory_mib or None,
        "cores_percent": each.cores_percent or None,
        "enforced_by": [method for method in each.enforce if method not in each.not_enforced],
        "not_enforced_by": dict(each.not_enforced),
        "used_by_card": dict(Counter(map(card_of, used))),
        "offered": offered,
    }


def _annotations(vgpus: Sequence[Values]) -> dict[str, str]:
    """Return the annotation of the node, a JSON text; empty if there are no vGPUs."""
    keys = ("resource", "count", "free", "memory_mib", "cores_percent")
    listed = [{key: each[key] for key in keys} for each in vgpus]
    return {ANNOTATION: json.dumps(listed, separators=(",", ":"))} if vgpus else {}


_MORE = frozenset(word.value for word in (Word.OVERRIDE, Word.WOULD_HIDE, Word.NO_EVIDENCE, Word.CDI_UNRESOLVED))
"""Findings after which a container may see cards that are not allocated to it."""
_ALL = frozenset({Word.PRIVILEGED.value, Word.EXEMPT.value})


Given = tuple[Container, Facts]
"""A container, and the findings at its create."""


@dataclass(frozen=True, slots=True)
class Reported:
    """The last report of our device plugin."""

    report: Published
    at_s: float
    """When it arrived, in seconds since the epoch."""
    runs: bool
    """Whether it is recent."""


def to_values(
    classes: Iterable[DeviceClass],
    stocks: Stocks,
    node: Node | None,
    holdings: Holdings,
    plugin: Reported | None = None,
) -> Values:
    """Return the answer of `criproxy devices`, without its notices.

    Args:
        classes: the device classes, in their order.
        stocks: the cards of the machine.
        node: has the running containers; None if it is unknown which container has which card.
        holdings: the findings at creates.
        plugin: the last report of our device plugin; None if it has not reported, or no daemon runs.
    """
    running = alive(node) if node else ()
    found = [(container, holdings.of(container)) for container in in_order(running)]
    given = [(container, facts) for container, facts in found if facts is not None]
    allocated = list(holdings.allocated(node)) if node else []
    resources, ids, vgpus = plugin.report.resources if plugin else (), _ids_given(allocated), _vgpus_given(given)
    offered = [_profile(each, ids.get(each.name, ()), offered=True) for each in resources if each.profile]
    former = withdrawn(resources, vgpus if plugin else ())
    lost = [_profile(each, vgpus[each.device_class, each.profile, each.name], offered=False) for each in former]
    known, report = given if node else None, plugin.report if plugin else None
    return {
        "holders_known": node is not None,
        "device_plugin": _of_plugin(plugin),
        "vgpus": [*offered, *lost],
        "node_annotations": _annotations(offered),
        "classes": [_of_class(kind, stocks.get(kind.name, Stock()), known, allocated, report) for kind in classes],
        "incidents": incidents.unhealthy_cards(node) if node else [],
        "over_quota": incidents.quotas_exceeded(node) if node else [],
        "see_all": _seeing(given, EVERY_CLASS, _ALL),
        "untold": [name(container) for container, facts in found if facts is None],
    }


def _ids_given(allocated: Iterable[Facts]) -> dict[str, list[str]]:
    """Return the ids that our device plugin has allocated to containers, by resource."""
    found: dict[str, list[str]] = {}
    for facts in allocated:
        for key in facts:
            for share in allocated_of(facts, key.removesuffix("_allocated")) if key.endswith("_allocated") else ():
                found.setdefault(share["resource"], []).extend(share["ids"])
    return found


def _vgpus_given(given: Sequence[Given]) -> dict[tuple[str, str, str], list[str]]:
    """By class, profile and resource, the vGPUs that containers have."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for _, facts in given:
        for kind in (key.removesuffix("_quota") for key in facts if key.endswith("_quota")):
            quota = quota_of(facts, kind)
            for share in allocated_of(facts, kind) if quota else ():
                found.setdefault((kind, quota.profile if quota else "", share["resource"]), []).extend(share["ids"])
    return found


def _of_plugin(plugin: Reported | None) -> Values | None:
    """Return the state of the device plugin, and when it last reported."""
    if plugin is None:
        return None
    state = "running" if plugin.runs else "not running"
    return {"state": state, "reported": timestamp(plugin.at_s), "version": plugin.report.version}


def _of_class(
    kind: DeviceClass,
    stock: Stock,
    given: Sequence[Given] | None,
    allocated: Sequence[Facts],
    report: Published | None,
) -> Values:
    """Return one class: its cards with their containers, the links between cards, and the advertised resources."""
    known = None if given is None else allocated
    named = [each for each in report.cards if each.device_class == kind.name] if report else []
    published = {stock.card(kind, each.id): each for each in named}
    owners = ((each.id, stock.card(kind, each.parent)) for each in named if each.parent)
    parts = {part: owner for part, owner in owners if owner is not None}  # only NVML reports MIG devices
    held = [(one, _cards(one[1], kind, stock, parts)) for one in given or () if source_of(one[1], kind.name)]
    resources = report.resources_of(kind.name) if report else ()
    return {
        "name": kind.name,
        "resources": list(kind.resources),
        "shared_nodes": list(stock.shared),
        "advertised": [_advertised(each, kind.name, known) for each in resources],
        "cards": [
            {
                "index": index,
                "number": card.number,
                "id": card.id,
                "pci_address": card.pci,
                "pci_bridges": list(card.bridges),
                "numa_node": card.numa_node if card.numa_node >= 0 else None,
                "nodes": list(card.nodes),
                "parts": [part for part, owner in parts.items() if owner == card],
                **_health(published.get(card)),
                "containers": None if given is None else _holders(held, kind, stock, card, parts),
            }
            for index, card in enumerate(stock.cards)
        ],
        "links": links_between(stock.cards),
        "elsewhere": [_has(one, kind.name) for one, cards in held if not cards or None in cards],
        "may_see_more": _seeing(given or (), kind.name, _MORE),
    }


def _seeing(given: Iterable[Given], kind: str, words: Collection[str]) -> list[Values]:
    """Return the containers that have findings of a class among *words*, with these findings."""
    found = [(container, [word for word in words_of(facts, kind) if word in words]) for container, facts in given]
    return [{**name(container), "findings": findings} for container, findings in found if findings]


def links_between(cards: Sequence[Card], peers: Mapping[str, Peers] | None = None) -> list[Values]:
    """Return the links between *cards*; *peers* has the links that a driver reports, by card id."""
    return [
        {"from": one.first, "to": one.second, "link": one.name, "distance": one.distance.name, "nvlinks": one.nvlinks}
        for one in links(cards, peers)
    ]


def _has(one: Given, kind: str) -> Values:
    """Return a container with its allocated ids of a class, and the evidence for them."""
    container, facts = one
    allocated, ids = allocated_of(facts, kind), ids_of(facts, kind)
    return {**name(container), "ids": ids, "evidence": source_of(facts, kind), "allocated": allocated}


def _advertised(resource: Advertised, kind: str, allocated: Sequence[Facts] | None) -> Values:
    shares = [share for facts in allocated or () for share in allocated_of(facts, kind)]
    own = [share for share in shares if share["resource"] == resource.name]
    unnamed = sum(share["count"] - len(share["ids"]) for share in own)
    return {
        "name": resource.name,
        "ids": resource.ids,
        "healthy": resource.healthy,
        "given": None if allocated is None else len({each for share in own for each in share["ids"]}) + unnamed,
        "registered": resource.registered,
        "problem": resource.problem,
    }


def _holders(
    held: Iterable[tuple[Given, set[Card | None]]],
    kind: DeviceClass,
    stock: Stock,
    card: Card,
    parts: Mapping[str, Card],
) -> list[Values]:
    """Return the containers that have *card*, and the ids by which they have it: replicas, or the card itself."""
    found = [_has(one, kind.name) for one, cards in held if card in cards]
    for each in found:
        ids = [one for share in each["allocated"] for one in share["ids"]]
        found_cards = ((one, parts.get(card_of(one)) or stock.card(kind, card_of(one))) for one in ids)
        each["ids_of_card"] = [one for one, owner in found_cards if owner == card]
    return found


def _cards(facts: Facts, kind: DeviceClass, stock: Stock, parts: Mapping[str, Card]) -> set[Card | None]:
    pairs = zip_longest(ids_of(facts, kind.name), cards_of(facts, kind, stock), fillvalue=None)
    return {card or parts.get(each or "") for each, card in pairs}


def _health(card: PublishedCard | None) -> Values:
    if card is None:
        return {"healthy": None, "reason": "", "since": None, "replicas": {}}
    return {
        "healthy": card.healthy,
        "reason": card.reason,
        "since": None if card.since_s is None else timestamp(card.since_s),
        "replicas": dict(card.replicas),
    }


def name(container: Container) -> Values:
    """Return the identity of a container, with the keys of `status`."""
    return {**identity(container), "state": container.state.value}
