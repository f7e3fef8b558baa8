"""What the watcher reports is checked and bounded, and made of what backends have read."""

import math
from typing import Any

import pytest

from criproxy.model.plain import to_plain
from criproxy.usage.report import (
    MOST_CONTAINERS,
    BadUsage,
    CardSample,
    ContainerSample,
    UsageReport,
    read_usage,
    usage_report,
)
from criproxy.usage.values import CardUse, ContainerUse, Process, ProcessUse, Reading

CARD = {"device_class": "nvidia", "card": "GPU-a", "memory_mib": 9000, "total_mib": 16384}
USE = {"container_id": "c1", "device_class": "nvidia", "card": "GPU-a", "memory_mib": 9000}


def test_a_report_is_read() -> None:
    """Its cards and containers have the values of its keys; what it does not say has its default."""
    report = read_usage(
        {"period_s": 2, "cards": [CARD], "containers": [{**USE, "memory_over_since_s": 5.5}], "problems": {"x": "no"}}
    )

    assert report == UsageReport(
        period_s=2,
        cards=(CardSample(device_class="nvidia", card="GPU-a", memory_mib=9000, total_mib=16384),),
        containers=(
            ContainerSample(
                container_id="c1", device_class="nvidia", card="GPU-a", memory_mib=9000, memory_over_since_s=5.5
            ),
        ),
        problems={"x": "no"},
    )
    assert report.stale_after_s == 11.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param({"period_s": 0}, "period_s: must be more than 0", id="no-period"),
        pytest.param({"period_s": 1e9}, "period_s: must be more than 0 and at most 300", id="years"),
        pytest.param({"period_s": math.nan}, "period_s: must be", id="nan-period"),
        pytest.param({"cards": "GPU-a"}, "UsageReport.cards must be a list", id="no-list"),
        pytest.param({"cards": [{"card": "GPU-a"}]}, "cards[0].device_class is missing", id="no-class"),
        pytest.param({"cards": [{**CARD, "card": ""}]}, "cards[0]: device_class, card", id="no-card"),
        pytest.param({"cards": [{**CARD, "memory_mib": -1}]}, "cards[0]: must be MiB", id="below-zero"),
        pytest.param({"cards": [{**CARD, "memory_mib": 1 << 80}]}, "cards[0]: must be MiB", id="too-much"),
        pytest.param({"cards": [{**CARD, "memory_mib": True}]}, "memory_mib must be of the kind int", id="a-bool"),
        pytest.param({"cards": [{**CARD, "cores_percent": math.nan}]}, "cards[0]: must be percent", id="nan"),
        pytest.param({"containers": [{**USE, "cores_percent": math.inf}]}, "containers[0]: must be percent", id="inf"),
        pytest.param(
            {"containers": [{**USE, "memory_over_since_s": -1.0}]}, "must be seconds since the epoch", id="no-time"
        ),
        pytest.param({"containers": [{**USE, "container_id": ""}]}, "container_id must not be empty", id="no-id"),
        pytest.param({"containers": [USE] * (MOST_CONTAINERS + 1)}, "2049 are more than 2048", id="too-many"),
        pytest.param({"problems": {str(n): "" for n in range(65)}}, "problems: 65 are more than 64", id="problems"),
    ],
)
def test_a_bad_report(arguments: dict[str, Any], said: str) -> None:
    """It is refused with a sentence about the part that is wrong."""
    with pytest.raises(BadUsage) as caught:
        read_usage(arguments)

    assert said in str(caught.value)


def test_texts_are_bounded() -> None:
    """Ids and sentences are cut, and have nothing that a terminal would act on."""
    report = read_usage({"cards": [{**CARD, "card": "\x1b[31m" + "x" * 1000}]})

    (card,) = report.cards
    assert len(card.card) < 550
    assert card.card.isprintable()


def test_what_backends_have_read() -> None:
    """What belongs to no container is summed by card; a class that cannot be read has its sentence."""
    mine, other = Process(pid=7, start_ticks=1), Process(pid=8, start_ticks=1)
    processes = (
        ProcessUse(process=mine, card="GPU-a", memory_mib=500, cores_percent=20.0, container_id="c1"),
        ProcessUse(process=other, card="GPU-a", memory_mib=300, cores_percent=5.0),
        ProcessUse(process=Process(pid=9, start_ticks=1), card="GPU-a", memory_mib=30),
    )
    card = CardUse(card="GPU-a", memory_mib=900, total_mib=16384, cores_percent=25.0)
    readings = [
        Reading(kind="nvidia", at_s=1.0, processes=processes, cards=(card,)),
        Reading(kind="ali-npu", at_s=1.0, problem="/usr/local/bin/npu-usage exits with status 1"),
    ]
    use = ContainerUse(container_id="c1", kind="nvidia", card="GPU-a", memory_mib=500, cores_percent=20.0)

    report = usage_report(1.0, readings, [use], {("c1", "GPU-a", "cores"): 17.0})

    (sample,), (container,) = report.cards, report.containers
    assert (sample.other_mib, sample.other_cores_percent, sample.memory_mib) == (330, 5.0, 900)
    assert (container.memory_over_since_s, container.cores_over_since_s) == (None, 17.0)
    assert report.problems == {"ali-npu": "/usr/local/bin/npu-usage exits with status 1"}
    assert read_usage(to_plain(report)) == report
