"""Cards that containers have under other ids than those that are offered, as after a change of sharing.

The same holds where a container has the id with another quota than the one with which it is offered now. Such a card
is one that the kubelet takes to be free: it does not know that several ids are of one card. So no id of it may be
allocated before it is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from criproxy.deviceplugin.resource import Resource
from criproxy.deviceplugin.seen import Key
from criproxy.devices.classes import DeviceClass
from criproxy.devices.offers import card_of, unique
from criproxy.devices.vgpu_profiles import DOMAIN

Ids = Mapping[str, Collection[str]]
"""By resource."""
Classes = Callable[[str], Collection[str]]
"""The classes whose cards a resource may have."""


def under_other_ids(
    published: Mapping[str, Resource], classes: Classes, in_use: Iterable[Ids], former: Ids = MappingProxyType({})
) -> dict[Key, str]:
    """Who has each such card: an id and its resource.

    Args:
        published: what is offered, by name.
        classes: of resources, also of those that are offered no more.
        in_use: what containers have, or may have.
        former: of these, what they have with another quota than the published one.
    """
    found: dict[Key, str] = {}
    cards = _by_what_has_them(published)
    held = ((name, device) for those in in_use for name, ids in those.items() for device in sorted(ids))
    for name, device in held:
        is_former = device in former.get(name, ())
        if is_former or name not in published or device not in published[name].devices:
            keys = set[Key]().union(*(cards.get((kind, card_of(device)), ()) for kind in classes(name)))
            quota = ", with its former quota" if is_former else ""
            found |= dict.fromkeys(keys - found.keys(), f"{device} of {name}{quota}")
    return found


def _by_what_has_them(published: Mapping[str, Resource]) -> dict[Key, set[Key]]:
    """The cards that are offered, by whatever id means one of them: its own, that of its card, or of one of its parts.

    How cards are divided may change: then containers have a card of which parts are offered, or parts of one.
    """
    found: dict[Key, set[Key]] = {}
    for resource in published.values():
        for device in resource.devices.values():
            card = card_of(device.id)
            for each in (card, *device.related):
                found.setdefault((resource.kind, each), set()).add((resource.kind, card))
    return found


def without_cards(resource: Resource, taken: Iterable[Key], in_use: Collection[str]) -> Resource:
    """*resource*, with the ids of cards that are *taken* unhealthy; not with those that are *in_use* themselves."""
    cards = {card for kind, card in taken if kind == resource.kind}
    bad = [each for each in resource.devices.values() if card_of(each.id) in cards and each.id not in in_use]
    return replace(resource, devices={**resource.devices, **{each.id: replace(each, healthy=False) for each in bad}})


def all_unhealthy(resource: Resource) -> Resource:
    """*resource*, of which nothing may be allocated."""
    bad = {each.id: replace(each, healthy=False) for each in resource.devices.values()}
    return replace(resource, devices=bad)


def without_ids(resource: Resource, ids: Collection[str]) -> Resource:
    """*resource*, with none of *ids*."""
    return replace(resource, devices={name: each for name, each in resource.devices.items() if name not in ids})


def classes_of(name: str, published: Mapping[str, Resource], former: Mapping[str, Resource]) -> Collection[str]:
    """The classes whose cards the resource *name* may have.

    Args:
        name: of any resource that containers have ids of.
        published: what is offered.
        former: what is offered no more. Of what was offered before the plugin started nothing is known: then it may
            be any class with a resource of the same domain, now or before its cards were cut.
    """
    known = published.get(name) or former.get(name)
    if known is not None and known.kind:
        return {known.kind}
    is_profile = _domain(name) == DOMAIN  # a profile that is gone may have been of any class
    domain = _domain(name)
    return {each.kind for each in published.values() if is_profile or domain in (_domain(each.name), *each.domains)}


def domains_of(kind: DeviceClass) -> tuple[str, ...]:
    """Those of all resources of a class."""
    return unique(map(_domain, kind.resources))


def _domain(name: str) -> str:
    return name.partition("/")[0]
