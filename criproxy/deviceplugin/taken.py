"""Cards that containers have in another way than they are offered now: whole and now shared, or the other way round.

A file that changes how a card is offered takes it from nobody. As long as a container has it whole, no other may get a
replica of it, and as long as containers share it, none may get it alone.
"""

from collections.abc import Collection, Mapping

from criproxy.deviceplugin.resource import Resource
from criproxy.devices.offers import card_of, is_replica

InUse = Mapping[str, Collection[str]]
"""Ids by resource that containers have."""


def taken(resources: Mapping[str, Resource], in_use: InUse, kinds: Mapping[str, str]) -> Mapping[str, Collection[str]]:
    """By resource, the ids that must not be allocated, since their cards are in use otherwise.

    Args:
        resources: what is offered, by name.
        in_use: of any resource: an id that no resource of ours has now can still be that of a card of ours.
        kinds: the class of each resource, as far as it is known; cards of two classes can have the same name.
    """
    ways: dict[str, set[tuple[str, str]]] = {}
    for name, ids in in_use.items():
        for each in ids:
            ways.setdefault(card_of(each), set()).add((kinds.get(name, ""), _way(name, each)))
    if not ways:
        return {}
    return {name: [each for each in found.devices if _excluded(found, each, ways)] for name, found in resources.items()}


def _excluded(resource: Resource, id: str, ways: Mapping[str, Collection[tuple[str, str]]]) -> bool:
    own = _way(resource.name, id)
    return any(
        way != own and (not kind or not resource.kind or kind == resource.kind)
        for kind, way in ways.get(card_of(id), ())
    )


def _way(resource: str, id: str) -> str:
    """How a container has the card of *id*: as one of several, or alone under the name of one resource."""
    return "" if is_replica(id) else resource
