"""What the watcher reports is checked and bounded."""

import math
from typing import Any

import pytest

from criproxy.devices.usage.reports import MOST_CONTAINERS, read_usage, stale_after_s
from criproxy.devices.usage.values import CardUse, ClassUse, ContainerUse, UsageReport
from criproxy.errors import UsageError

CARD = {"card": "GPU-a", "memory_mib": 9000, "total_mib": 16384}
USE = {"container_id": "c1", "kind": "nvidia", "card": "GPU-a", "memory_mib": 9000}
OTHER = {**USE, "container_id": ""}


def of(**parts: Any) -> dict[str, Any]:  # noqa: ANN401 (JSON)
    """A report about one class."""
    return {"at_s": 5.0, "period_s": 2, "classes": [{"kind": "nvidia", **parts}]}


def test_a_report_is_read() -> None:
    """Its cards and containers have the values of its keys; what it does not say has its default."""
    report = read_usage(of(cards=[CARD], containers=[USE], others=[OTHER], unread={"GPU-b": "lost"}))

    use = ContainerUse(container_id="c1", kind="nvidia", card="GPU-a", memory_mib=9000)
    other = ContainerUse(container_id="", kind="nvidia", card="GPU-a", memory_mib=9000)
    card = CardUse(card="GPU-a", memory_mib=9000, total_mib=16384)
    nvidia = ClassUse(kind="nvidia", cards=(card,), containers=(use,), others=(other,), unread={"GPU-b": "lost"})
    assert report == UsageReport(at_s=5.0, period_s=2, classes=(nvidia,))
    assert stale_after_s(report) == 11.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"at_s": 5.0, "period_s": 0}, "period_s: must be more than 0", id="no-period"),
        pytest.param({"at_s": 5.0, "period_s": 1e9}, "period_s: must be more than 0 and at most 300", id="years"),
        pytest.param({"at_s": 5.0, "period_s": math.nan}, "period_s: must be", id="nan-period"),
        pytest.param({}, "UsageReport.at_s is missing", id="nothing"),
        pytest.param(of(cards="GPU-a"), "classes[0].cards must be a list", id="no-list"),
        pytest.param(of(cards=[{"card": "GPU-a"}]), "cards[0].memory_mib is missing", id="no-memory"),
        pytest.param(of(kind=""), "classes[0].kind: must not be empty", id="no-class"),
        pytest.param(of(cards=[{**CARD, "card": ""}]), "classes[0].cards[0].card: must not be empty", id="no-card"),
        pytest.param(of(cards=[{**CARD, "memory_mib": -1}]), "cards[0]: must be an amount of MiB", id="below-zero"),
        pytest.param(of(cards=[{**CARD, "total_mib": 1 << 80}]), "cards[0]: must be an amount of MiB", id="too-much"),
        pytest.param(of(cards=[{**CARD, "memory_mib": True}]), "memory_mib must be of the kind int", id="a-bool"),
        pytest.param(of(cards=[{**CARD, "cores_percent": math.nan}]), "must be a percentage", id="nan"),
        pytest.param(of(containers=[{**USE, "cores_percent": math.inf}]), "containers[0].cores_percent", id="inf"),
        pytest.param(
            of(containers=[OTHER]), "containers[0].container_id: must be set in containers", id="container-without-id"
        ),
        pytest.param(of(others=[USE]), "others[0].container_id: must be set in containers", id="other-with-id"),
        pytest.param(of(containers=[USE] * (MOST_CONTAINERS + 1)), "2049 are more than 2048", id="too-many"),
        pytest.param(of(unread={str(n): "" for n in range(1025)}), "cards: 1025 are more than 1024", id="unread"),
    ],
)
def test_a_bad_report(arguments: dict[str, Any], said: str) -> None:
    """It is refused with a sentence about the part that is wrong."""
    with pytest.raises(UsageError) as caught:
        read_usage(arguments)

    assert said in str(caught.value)


def test_texts_are_bounded() -> None:
    """Ids and sentences are cut, and have nothing that a terminal would act on."""
    report = read_usage(of(cards=[{**CARD, "card": "\x1b[31m" + "x" * 1000}]))

    (card,) = report.classes[0].cards
    assert len(card.card) < 550
    assert card.card.isprintable()
