"""The cards of a node with what is used of them."""

from typing import Any

from criproxy.api.views.top.cards import CardRow, Share, card_rows

HOLDER = {"id": "w", "namespace": "ml", "pod": "train", "container": "main", "state": "running"}
CARD: dict[str, Any] = {
    "index": 0, "id": "GPU-1", "pci_address": "0000:01:00.0", "numa_node": 1, "healthy": True, "containers": [HOLDER],
}  # fmt: skip
USE = {"class": "nvidia", "id": "GPU-1", "memory_mib": 700, "total_mib": 16384, "cores_percent": 12.5}
QUOTA = {
    **HOLDER, "class": "nvidia", "card": "GPU-1", "memory_mib": 700, "memory_granted_mib": 600,
    "cores_percent": 12.5, "cores_granted_percent": 25, "over_since": {"memory": "2026-01-01T00:00:00.000Z"},
}  # fmt: skip


def test_a_card_with_its_use_and_quota() -> None:
    """What the watcher reports is beside what the daemon has found."""
    devices = {"classes": [{"name": "nvidia", "cards": [CARD]}]}
    share = Share("ml/train/main", 700, 600, 12.5, 25, over=True)

    assert card_rows(devices, {"cards": [USE], "containers": [QUOTA]}) == [
        CardRow("nvidia", "GPU-1", 1, True, 700, 16384, 12.5, [share])
    ]


def test_a_card_whose_use_nobody_reports() -> None:
    """Its holders are known."""
    devices = {"classes": [{"name": "nvidia", "cards": [CARD]}]}

    assert card_rows(devices, None) == [CardRow("nvidia", "GPU-1", 1, True, shares=[Share("ml/train/main")])]


def test_a_card_that_only_the_watcher_knows() -> None:
    """It is shown, too."""
    assert [card.id for card in card_rows(None, {"cards": [USE], "containers": []})] == ["GPU-1"]


def test_holders_that_are_not_known_are_not_none() -> None:
    """The policy file has no devices section."""
    devices = {"classes": [{"name": "nvidia", "cards": [{**CARD, "containers": None}]}]}

    assert card_rows(devices, None)[0].shares is None
