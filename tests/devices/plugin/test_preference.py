"""Which free ids of a resource are preferred."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.devices.classes.offers import Offered, replica_id
from criproxy.devices.plugin.preference import NotEnoughOffered, Spread, near, slots, together


def shared(*replicas: int) -> dict[str, Offered]:
    """Offer cards ``0``, ``1``, … with so many replicas each."""
    return {
        replica_id(str(card), number): Offered(id=replica_id(str(card), number), index=str(card))
        for card, count in enumerate(replicas)
        for number in range(count)
    }


@pytest.mark.parametrize(
    ("spread", "free", "size", "expected"),
    [
        pytest.param("distributed", "0::1 1::0 1::1", 1, "1::0", id="the-card-with-the-fewest-in-use"),
        pytest.param("packed", "0::1 1::0 1::1", 1, "0::1", id="the-card-with-the-most-in-use"),
        pytest.param("distributed", "0::0 0::1 1::0 1::1", 2, "0::0 1::0", id="one-of-each"),
        pytest.param("packed", "0::0 0::1 1::0 1::1", 2, "0::0 0::1", id="both-of-one"),
        pytest.param("distributed", "1::1 1::0 0::1 0::0", 1, "0::0", id="the-order-of-the-question-does-not-matter"),
        pytest.param("packed", "0::0 0::1 1::1", 2, "1::1 0::0", id="a-full-card-is-followed-by-the-next"),
        pytest.param("packed", "x::0 1::1", 1, "1::1", id="unknown-ids"),
        pytest.param("packed", "1::1", 0, "", id="none"),
    ],
)
def test_replicas(spread: Spread, free: str, size: int, expected: str) -> None:
    """Cards are filled one after the other or side by side, by what is in use of each."""
    assert slots(shared(2, 2), free.split(), [], size, spread) == tuple(expected.split())


def test_required_ids_come_first_and_count_as_in_use() -> None:
    """The container's earlier replica decides where the next one is."""
    free = list(shared(3, 3))

    assert slots(shared(3, 3), free, ["0::2"], 2, "distributed") == ("0::2", "1::0")
    assert slots(shared(3, 3), free, ["1::2"], 2, "packed") == ("1::2", "1::0")
    assert slots(shared(3, 3), [], ["0::2", "gone"], 1, "packed") == ("0::2", "gone")


def test_a_card_that_gave_one_waits_where_cards_are_equal() -> None:
    """Cards with the same number in use take turns within a question."""
    assert slots(shared(3, 2, 2), ["0::0", "1::0", "2::0"], ["0::2"], 2, "packed") == ("0::2", "0::0")
    assert slots(shared(2, 3), ["0::0", "0::1", "1::2"], ["0::1"], 2, "distributed") == ("0::1", "0::0")


def test_too_few_are_free() -> None:
    """A question that cannot be answered is an error."""
    with pytest.raises(NotEnoughOffered, match=r"^not enough available devices to satisfy allocation$"):
        slots(shared(2), ["0::0"], [], 2, "packed")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_an_answer_is_what_was_asked(replicas: list[int], data: st.DataObject) -> None:
    """An answer has the asked size, no id twice, and only ids that are free; it is the same in whatever order."""
    offered = shared(*replicas)
    free = data.draw(st.permutations(sorted(data.draw(st.sets(st.sampled_from(sorted(offered)))))))
    size = data.draw(st.integers(0, len(free)))
    for spread in ("distributed", "packed"):
        found = slots(offered, free, [], size, spread)

        assert len(set(found)) == len(found) == size
        assert set(found) <= set(free)
        assert found == slots(offered, sorted(free), [], size, spread)


FLAT = [[0 if one == other else 10 for other in range(4)] for one in range(4)]


@pytest.mark.parametrize(
    ("nodes", "free", "expected"),
    [
        pytest.param([0, 1, 0, 1], {}, [0, 2], id="one-numa-node"),
        pytest.param([0, 1, 0, 1], {0: 1000, 1: 2000}, [1, 3], id="free-cpus"),
        pytest.param([0, 1, 0, 1], {0: 2000, 1: 2000}, [0, 2], id="the-lowest-index"),
        pytest.param([0, 0, 0, 1], {1: 9000}, [0, 1], id="fewer-nodes-before-free-cpus"),
        pytest.param([None, 0, None, 1], {}, [0, 2], id="no-node-known"),
        pytest.param([0, 1, 2, 3], {2: 1000, 3: 1000}, [2, 3], id="free-cpus-of-all-nodes"),
    ],
)
def test_equally_good_cards(nodes: list[int | None], free: dict[int, int], expected: list[int]) -> None:
    """Among sets that belong together equally well, NUMA nodes decide, then free CPUs, then the index."""
    assert together(FLAT, 2, [], near(nodes, free)) == expected


@pytest.mark.parametrize(("size", "required"), [(0, []), (5, []), (1, [0, 1])])
def test_no_answer(size: int, required: list[int]) -> None:
    """A question without an answer gets an empty one."""
    assert together(FLAT, size, required, near([None] * 4)) == []
