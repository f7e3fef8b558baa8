"""Which replicas of which cards are offered, and as which resource."""

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.offers import (
    Offered,
    Offers,
    SelectionError,
    Selector,
    SharedCards,
    card_of,
    is_replica,
    share,
)

HALF = ["0::0", "0::1"]
Entry = partial(SharedCards, name="example.com/npu", replicas=2)


def cards(count: int, resource: str = "example.com/npu") -> Offers:
    """Offer *count* cards: ``card-0``, ``card-1``."""
    offered = [Offered(id=f"card-{number}", index=str(number)) for number in range(count)]
    return {resource: {each.id: each for each in offered}}


def told(offers: Offers) -> dict[str, list[str]]:
    """Return the ids by resource, without what is the same in all of them."""
    short = {name.removeprefix("example.com/"): ids for name, ids in offers.items()}
    return {name: [each.removeprefix("card-") for each in ids] for name, ids in short.items()}


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param([], {"npu": ["0", "1", "2"]}, id="none"),
        pytest.param([Entry()], {"npu": ["0::0", "0::1", "1::0", "1::1", "2::0", "2::1"]}, id="all"),
        pytest.param([Entry(devices=("1",))], {"npu": ["0", "1::0", "1::1", "2"]}, id="by-index"),
        pytest.param([Entry(devices=("card-2",))], {"npu": ["0", "1", "2::0", "2::1"]}, id="by-id"),
        pytest.param([Entry(devices=1)], {"npu": ["0::0", "0::1", "1", "2"]}, id="the-first-so-many"),
        pytest.param([Entry(devices=("0", "card-0"))], {"npu": ["0::0", "0::1", "1", "2"]}, id="named-twice"),
        pytest.param([Entry(devices=1, rename="example.com/half")], {"npu": ["1", "2"], "half": HALF}, id="renamed"),
        pytest.param([Entry(name="example.com/other")], {"npu": ["0", "1", "2"]}, id="of-a-resource-that-is-not-there"),
        pytest.param(
            [Entry(devices=("0",)), Entry(devices=("1",), replicas=3)],
            {"npu": ["0::0", "0::1", "1::0", "1::1", "1::2", "2"]},
            id="two-entries-for-one-resource",
        ),
        pytest.param(
            [Entry(devices=("0",), replicas=3), Entry(devices=("0",), replicas=2)],
            {"npu": ["0::0", "0::1", "0::2", "1", "2"]},
            id="entries-for-one-card-add-up",
        ),
    ],
)
def test_replicas(entries: list[SharedCards], expected: dict[str, list[str]]) -> None:
    """Every entry makes replicas of its cards, and cards of no entry stay whole."""
    assert told(share(cards(3), entries)) == expected


def test_the_later_of_two_entries_says_how_many_replicas_a_card_has() -> None:
    """Replicas that two entries make are described by the later one."""
    offers = share(cards(1), [Entry(replicas=3), Entry(replicas=2)])

    assert [each.replicas for each in offers["example.com/npu"].values()] == [2, 2, 3]


def test_replicas_are_in_the_order_of_numbers() -> None:
    """Neither the tenth card nor the tenth replica comes before the second."""
    ids = list(share(cards(11), [Entry(replicas=11)])["example.com/npu"])

    assert ids == [f"card-{card}::{number}" for card in range(11) for number in range(11)]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        pytest.param(("7",), "no matching device at index: 7", id="index"),
        pytest.param(("0:1",), "no matching device at index: 0:1", id="index-of-a-part"),
        pytest.param(("card-9",), "no matching device with UUID: card-9", id="id"),
        pytest.param(4, "requested 4 devices to be replicated, but only 3 devices available", id="count"),
    ],
)
def test_an_entry_for_cards_that_are_not_there(devices: Selector, expected: str) -> None:
    """An entry that means other cards than there are is an error, which names the entry's resource."""
    with pytest.raises(SelectionError) as error:
        share(cards(3), [Entry(devices=devices)])

    assert (str(error.value), error.value.resource) == (expected, "example.com/npu")


ENTRIES = st.lists(
    st.builds(
        Entry,
        rename=st.sampled_from(["", "example.com/a", "example.com/b"]),
        devices=st.one_of(
            st.just("all"),
            st.integers(1, 4),
            st.lists(st.integers(0, 3), min_size=1).map(lambda those: tuple(map(str, those))),
        ),
        replicas=st.integers(2, 4),
    ),
    max_size=4,
)


@given(ENTRIES)
def test_a_card_is_whole_or_shared(entries: list[SharedCards]) -> None:
    """Every card is offered, and none whole and shared at once, whatever the entries are."""
    offers = share(cards(4), entries)
    ids = [each for offered in offers.values() for each in offered]
    whole, shared = {each for each in ids if not is_replica(each)}, {card_of(each) for each in ids if is_replica(each)}

    assert whole | shared == set(cards(4)["example.com/npu"])
    assert not whole & shared
