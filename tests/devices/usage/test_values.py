"""What containers use, by their processes."""

from typing import Any

import pytest

from criproxy.devices.usage import values
from criproxy.model.text.plain import from_plain, to_plain


def process(
    pid: int, container: str, card: str = "a", memory_mib: int = 0, cores: float | None = None
) -> values.ProcessUse:
    """Return what one process uses."""
    return values.ProcessUse(values.Process(pid, pid), card, memory_mib, cores, container)


def npu(*processes: str | values.ProcessUse, cards: tuple[str, ...] = (), **more: Any) -> values.Reading:  # noqa: ANN401
    """A reading with processes, or with one for each card of that name, and with cards."""
    uses = tuple(process(1, "", card=each) if isinstance(each, str) else each for each in processes)
    found = tuple(values.CardUse(card=card, memory_mib=1, total_mib=2) for card in cards)
    return values.Reading(kind="npu", at_s=1.0, processes=uses, cards=found, **more)


def test_processes_are_added_up_by_container_and_card() -> None:
    """Processes without a container are one row for each card; cores that nobody knows stay unknown."""
    one, two = process(1, "c1", memory_mib=100, cores=10.0), process(2, "c1", memory_mib=50, cores=2.25)
    other, host = process(1, "c1", card="b", memory_mib=7), process(9, "", memory_mib=3)

    found = values.container_uses("nvidia", (one, host, two, other))
    assert [each.processes for each in found] == [(one, two), (host,), (other,)]
    assert found == (
        values.ContainerUse(container_id="c1", kind="nvidia", card="a", memory_mib=150, cores_percent=12.2),
        values.ContainerUse(container_id="", kind="nvidia", card="a", memory_mib=3),
        values.ContainerUse(container_id="c1", kind="nvidia", card="b", memory_mib=7),
    )


def test_the_daemon_gets_containers_and_the_rest_apart() -> None:
    """It is the same after the way over the socket."""
    cards = (values.CardUse(card="a", memory_mib=153, total_mib=1000),)
    reading = values.Reading(kind="nvidia", at_s=1.0, cards=cards, unread={"b": "lost"})
    uses = values.container_uses("nvidia", (process(1, "c1", memory_mib=150), process(9, "", memory_mib=3)))
    found = values.class_use(reading, "nvml", uses)

    assert found == values.ClassUse(
        kind="nvidia",
        source="nvml",
        unread={"b": "lost"},
        cards=cards,
        containers=(values.ContainerUse(container_id="c1", kind="nvidia", card="a", memory_mib=150),),
        others=(values.ContainerUse(container_id="", kind="nvidia", card="a", memory_mib=3),),
    )
    report = values.UsageReport(at_s=1.5, period_s=1.0, classes=(found,))
    assert "processes" not in str(values.plain_report(report))
    assert from_plain(values.UsageReport, values.plain_report(report)) == report


def test_a_report_is_written_as_every_value_is() -> None:
    """It only takes less time, whether a class is used, unused, or unknown."""
    used = values.ClassUse(
        kind="npu",
        cards=(values.CardUse(card="a", memory_mib=1, total_mib=2, cores_percent=3.5),),
        containers=(values.ContainerUse(container_id="c1", kind="npu", card="a", memory_mib=1, cores_percent=0.0),),
        others=(values.ContainerUse(container_id="", kind="npu", card="a", memory_mib=0),),
    )
    unknown = values.ClassUse(kind="npu", source="file", problem="it is gone", unread={"b": "lost"})
    report = values.UsageReport(at_s=1.5, period_s=1.0, classes=(unknown, values.ClassUse(kind="npu"), used))

    assert values.plain_report(report) == to_plain(report)


def test_cards_get_their_ids() -> None:
    """Whatever a program calls them; a name that nobody knows stays."""
    reading = npu("/dev/npu0", "npu9", cards=("0",), unread={"0": "hot"}, sampled_s={"0": 7.5})

    found = values.with_card_ids(reading, {"0": "npu0", "/dev/npu0": "npu0"})

    assert [each.card for each in found.processes] == ["npu0", "npu9"]
    assert (found.cards[0].card, found.unread, found.sampled_s) == ("npu0", {"npu0": "hot"}, {"npu0": 7.5})
    assert values.with_card_ids(reading, {}) is reading


@pytest.mark.parametrize("other", ["npu0", "0", "/dev/npu0"])
def test_a_process_counts_once_for_a_card(other: str) -> None:
    """Whatever the card is called when it is listed again: the largest sizes count, and no sum of them."""
    listed = (
        process(1, "", card="npu0", memory_mib=5000, cores=10.0),
        process(2, "", card="npu0", memory_mib=5000, cores=10.0),
        process(1, "", card=other, memory_mib=6000),
        process(1, "", card="npu1", memory_mib=7),
    )
    found = values.with_card_ids(npu(*listed), dict.fromkeys(("npu0", "0", "/dev/npu0"), "npu0")).processes

    assert [(each.process.pid, each.card, each.memory_mib, each.cores_percent) for each in found] == [
        (1, "npu0", 6000, 10.0),
        (2, "npu0", 5000, 10.0),
        (1, "npu1", 7, None),
    ]


@pytest.mark.parametrize(
    ("processes", "cards", "problem"),
    [
        pytest.param(["npu0"], ["0"], "", id="all-exist"),
        pytest.param(["npu9"], [], "the reading names a card npu9 that does not exist", id="of-a-process"),
        pytest.param(["0"], ["7"], "the reading names a card 7 that does not exist", id="of-a-card"),
        pytest.param(["npu9", "npu8"], ["npu8"], "the reading names 2 cards that do not exist, such as npu8", id="two"),
        pytest.param(["x" * 500], [], f"the reading names a card {'x' * 60} that does not exist", id="long"),
    ],
)
def test_a_reading_with_a_card_that_does_not_exist(processes: list[str], cards: list[str], problem: str) -> None:
    """It has a problem: what is used of that card belongs to one under another name."""
    reading = npu(*processes, cards=tuple(cards), unread={"npu7": "it fell off the bus"})

    assert values.with_unknown_cards(reading, {"npu0": "npu0", "0": "npu0"}).problem == problem
    assert values.with_unknown_cards(reading, {}) is reading


@pytest.mark.parametrize(
    ("used", "unread", "found"),
    [
        pytest.param(["npu0"], ["npu9"], {"npu1": "a card npu9 that does not exist", "npu9": ""}, id="misspelt"),
        pytest.param(["0", "npu1"], ["npu9"], {"npu9": ""}, id="gone"),
        pytest.param(["0"], ["npu9", "1"], {"1": "", "npu9": ""}, id="beside-one-that-exists"),
        pytest.param([], ["x" * 99, "y"], dict.fromkeys(["npu0", "npu1"], f"such as {'x' * 60} as"), id="several"),
        pytest.param(["npu0"], ["1"], {"1": ""}, id="by-another-name"),
    ],
)
def test_an_unread_card_that_does_not_exist(used: list[str], unread: list[str], found: dict[str, str]) -> None:
    """It may be any card that the reading does not name, so these are unread; it keeps no other from being judged."""
    names = {"npu0": "npu0", "0": "npu0", "npu1": "npu1", "1": "npu1"}
    reading = npu(*used, unread=dict.fromkeys(unread, "it is being reset"))

    after = values.with_unknown_cards(reading, names)

    assert after.problem == ""
    assert after.unread.keys() == {*unread, *found}
    for card, said in found.items():
        assert (said or "it is being reset") in after.unread[card]
    assert values.with_unknown_cards(reading, {}) is reading
