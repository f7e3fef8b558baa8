"""What the quotas of vGPUs allow, and what a judgement finds: a container exceeds its quota, or is within it again."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from criproxy.devices.plugin.plan import OverQuota
from criproxy.devices.usage.values import QUANTITIES, Grant, Process, Quantity


class Key(NamedTuple):
    """One quota of one container; a tuple, because each reading looks up hundreds of them."""

    container_id: str
    card: str
    quantity: Quantity


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A container is over its quota: found once for each incident, and again when a stronger action is due."""

    key: Key
    kind: str
    """The name of the class."""
    used: float
    """In MiB, or in percent of the card's computing units."""
    allowed: int
    """The quota, without the margin."""
    over_since_s: float
    """On the monotonic clock: the first reading in which it was over the quota."""
    action: OverQuota
    largest: Process | None = None
    """The process of the container that uses the most."""
    repeated: bool = False
    """Whether it was over the quota again and again, rather than for long without a break."""


@dataclass(frozen=True, slots=True)
class Within:
    """A container that was over its quota is within it again, or gone."""

    key: Key


Verdict = Over | Within


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
    for quantity in QUANTITIES:
        if allowed[quantity]:
            yield Limit(Key(grant.container_id, card, quantity), allowed[quantity], grant.is_only_observed)
