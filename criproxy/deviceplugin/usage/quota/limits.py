"""What the quotas of vGPUs allow containers to use, from the grants that the daemon reports."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from criproxy.deviceplugin.usage.quota.quota_verdicts import Key
from criproxy.devices.usage.values import Grant, Quantity

_QUANTITIES: tuple[Quantity, ...] = ("memory", "cores")


class Limit(NamedTuple):
    """What one quota allows."""

    key: Key
    allowed: int
    """In MiB, or in percent of the card's computing units."""
    is_only_observed: bool
    """Whether exceeding the quota has no consequences."""


Limits = Mapping[str, Mapping[str, tuple[Limit, ...]]]
"""The limits of all containers that have a card, by its class and id; a card on which nobody has a quota has none."""


def limits_of(grants: Iterable[Grant]) -> Limits:
    """Return the limits of all containers: the larger one if a container has two quotas of a card."""
    found: dict[str, dict[str, dict[Key, Limit]]] = {}
    for grant in grants:
        for card in grant.cards:
            of_card = found.setdefault(grant.kind, {}).setdefault(card, {})
            for limit in _of_grant(grant, card):
                if limit.key not in of_card or of_card[limit.key].allowed < limit.allowed:
                    of_card[limit.key] = limit
    return {kind: {card: tuple(of_card.values()) for card, of_card in cards.items()} for kind, cards in found.items()}


def _of_grant(grant: Grant, card: str) -> Iterator[Limit]:
    """Yield the limits of one grant on one of its cards."""
    if grant.quota is None:
        return
    allowed = {"memory": grant.quota.memory_mib, "cores": grant.quota.cores_percent}
    for quantity in _QUANTITIES:
        if allowed[quantity]:
            yield Limit(Key(grant.container_id, card, quantity), allowed[quantity], grant.is_only_observed)
