"""Cards that containers have under other IDs than those that are offered, for example after a change of sharing.

A container that has an ID with another quota than the offered one is such a case, too. The kubelet takes such a card
to be free, since it does not know that several IDs belong to one card. Therefore, no ID of the card may be allocated
before the container has ended.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from criproxy.deviceplugin.cards.detected_cards import CardKey
from criproxy.deviceplugin.server.resource import Resource
from criproxy.devices.classes.device_class import DeviceClass
from criproxy.devices.classes.offers import Offered, card_of, unique
from criproxy.devices.classes.vgpu_profiles import DOMAIN

Ids = Mapping[str, Collection[str]]
"""IDs by resource."""
Classes = Callable[[str], Collection[str]]
"""Returns the classes whose cards a resource may have."""


def under_other_ids(
    published: Mapping[str, Resource], classes: Classes, in_use: Iterable[Ids], former: Ids = MappingProxyType({})
) -> dict[CardKey, str]:
    """Return, for each such card, the ID under which a container has it, and the resource of that ID.

    Args:
        published: The offered resources by name.
        classes: Returns the classes of a resource, also of a resource that is no longer offered.
        in_use: The IDs that containers have, or may have.
        former: Those of these IDs that containers have with another quota than the published one.
    """
    found: dict[CardKey, str] = {}
    cards = _cards_by_id(published)
    held = ((name, device) for those in in_use for name, ids in those.items() for device in sorted(ids))
    for name, device in held:
        is_former = device in former.get(name, ())
        if is_former or name not in published or device not in published[name].devices:
            keys = set[CardKey]().union(*(cards.get((kind, card_of(device)), ()) for kind in classes(name)))
            quota = ", with its former quota" if is_former else ""
            found |= dict.fromkeys(keys - found.keys(), f"{device} of {name}{quota}")
    return found


def _cards_by_id(published: Mapping[str, Resource]) -> dict[CardKey, set[CardKey]]:
    """Return the offered cards by each ID that may stand for one: its own, that of its card, or of one of its parts.

    The division of cards may change: then containers have a card whose parts are offered, or parts of an offered card.
    """
    found: dict[CardKey, set[CardKey]] = {}
    for resource in published.values():
        for device in resource.devices.values():
            card = card_of(device.id)
            for each in (card, *device.related):
                found.setdefault((resource.kind, each), set()).add((resource.kind, card))
    return found


def without_cards(
    resource: Resource, taken: Iterable[CardKey], in_use: Collection[str], former: Collection[str] = ()
) -> Resource:
    """Return *resource* with the IDs of the cards *taken* unhealthy, and without some IDs.

    Args:
        resource: What is offered.
        taken: Cards that containers have under other IDs.
        in_use: IDs that containers have, and that stay healthy.
        former: The IDs to leave out: containers have them with another quota.
    """
    cards = {card for kind, card in taken if kind == resource.kind}
    kept = {name: each for name, each in resource.devices.items() if name not in former}
    bad = {name: each for name, each in kept.items() if card_of(name) in cards and name not in in_use}
    return replace(resource, devices=kept | all_unhealthy(bad))


def all_unhealthy(devices: Mapping[str, Offered]) -> dict[str, Offered]:
    """Return *devices* as unhealthy, so that none can be allocated."""
    return {name: replace(each, healthy=False) for name, each in devices.items()}


def classes_of(name: str, published: Mapping[str, Resource], former: Mapping[str, Resource]) -> Collection[str]:
    """Return the classes whose cards the resource *name* may have.

    Args:
        name: Any resource whose IDs containers have.
        published: The offered resources.
        former: The resources that are no longer offered. What was offered before the plugin started is unknown: then it
            may be any class with a resource of the same domain, now or before its cards were cut.
    """
    known = published.get(name) or former.get(name)
    if known is not None and known.kind:
        return {known.kind}
    is_profile = _domain(name) == DOMAIN  # a profile that no longer exists may have been of any class
    domain = _domain(name)
    return {each.kind for each in published.values() if is_profile or domain in (_domain(each.name), *each.domains)}


def domains_of(kind: DeviceClass) -> tuple[str, ...]:
    """Return the domains of all resources of a class."""
    return unique(map(_domain, kind.resources))


def _domain(name: str) -> str:
    return name.partition("/")[0]
