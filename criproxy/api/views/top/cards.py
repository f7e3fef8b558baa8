"""The cards of the node, and how much of them is used: from the daemon's answers to `devices` and `usage`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from criproxy.model.text.bounded import bounded

Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Share:
    """What one container has of a card."""

    title: str
    memory_mib: int | None = None
    """In use; None: not known, as below."""
    memory_granted_mib: int | None = None
    """Its quota; None where it has none."""
    cores_percent: float | None = None
    cores_granted_percent: float | None = None
    over: bool = False
    """Whether it uses more than its quota."""


@dataclass(frozen=True, slots=True)
class CardRow:
    """One card."""

    kind: str
    """The device class."""
    id: str
    numa_node: int | None = None
    healthy: bool | None = None
    """None: nobody says."""
    memory_mib: int | None = None
    total_mib: int | None = None
    cores_percent: float | None = None
    shares: Sequence[Share] | None = ()
    """None: it is not known who has it."""


def card_rows(devices: Values | None, usage: Values | None) -> list[CardRow]:
    """All cards: those that the daemon has found, with what the watcher reports.

    Raises:
        KeyError, TypeError, AttributeError: they are no such answers.
    """
    told, used = bounded(devices or {"classes": []}), bounded(usage or {"cards": [], "containers": []})
    by_card = {(card["class"], card["id"]): card for card in used["cards"]}
    found = []
    for kind in told["classes"]:
        for card in kind["cards"]:
            name = card["id"] or card["pci_address"] or str(card["index"])
            use = by_card.pop((kind["name"], card["id"]), {})
            found.append(_card(kind["name"], name, card, use, used["containers"]))
    return [*found, *(_card(name, card, {}, use, used["containers"]) for (name, card), use in by_card.items())]


def _card(kind: str, name: str, card: Values, use: Values, containers: Sequence[Values]) -> CardRow:
    return CardRow(
        kind=kind,
        id=name,
        numa_node=card.get("numa_node"),
        healthy=card.get("healthy"),
        memory_mib=use.get("memory_mib"),
        total_mib=use.get("total_mib"),
        cores_percent=use.get("cores_percent"),
        shares=_shares(card, [each for each in containers if each["class"] == kind and each["card"] == name]),
    )


def _shares(card: Values, used: Sequence[Values]) -> list[Share] | None:
    """Who has a card: with its use, where the watcher reports it."""
    shares = [
        Share(
            _title(each),
            each["memory_mib"],
            each["memory_granted_mib"],
            each["cores_percent"],
            each["cores_granted_percent"],
            bool(each["over_since"]),
        )
        for each in used
    ]
    holders = card.get("containers", ())
    if holders is None:
        return shares or None
    known = {share.title for share in shares}
    return [*shares, *(Share(_title(each)) for each in holders if _title(each) not in known)]


def _title(row: Values) -> str:
    return "/".join(part for part in (row["namespace"], row["pod"], row["container"]) if part) or str(row["id"])
