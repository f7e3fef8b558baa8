"""Sets of CPUs grow next to what they have and give up what is furthest from the rest."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.placement.alloc.locality import Wants, build_tree, grow, shrink
from lab.properties.machines import machines
from tests.placement.policies.shapes import n4c16, n4c32

TREE, THREADS = build_tree(n4c16()), build_tree(n4c16(), by_thread=True)
PACKED, BALANCED = Wants(), Wants(balanced=True)


@pytest.mark.parametrize(
    ("own", "free", "count", "wants", "expected"),
    [
        pytest.param("", "0-15", 2, PACKED, "0-1", id="a-core"),
        pytest.param("", "1-15", 2, PACKED, "2-3", id="packed-where-least-is-free"),
        pytest.param("", "1-15", 2, BALANCED, "8-9", id="balanced-where-most-is-free"),
        pytest.param("", "1-15", 3, PACKED, "1-3", id="a-whole-part-that-fits"),
        pytest.param("4", "0-3,5-15", 1, PACKED, "4-5", id="its-own-core"),
        pytest.param("4-5", "0-3,6-15", 2, BALANCED, "4-7", id="its-own-node"),
        pytest.param("4-7", "0-3,8-15", 1, BALANCED, "0,4-7", id="its-own-package"),
        pytest.param("", "0-15", 2, Wants(near=(parse_cpuset("12-15"),)), "12-13", id="near"),
        pytest.param("", "0-12", 2, Wants(near=(parse_cpuset("12-15"),)), "8-9", id="near-has-too-few"),
        pytest.param("", "0-15", 2, Wants(away=(parse_cpuset("0-3"),)), "4-5", id="away"),
        pytest.param("", "0-3", 2, Wants(away=(parse_cpuset("0-2"),)), "0-1", id="nowhere-else"),
        pytest.param("", "0-15", 2, Wants(alone=("core",)), "0,2", id="alone-on-its-cores"),
        pytest.param("0,2", "1,3-15", 2, Wants(alone=("core",)), "0,2,4,6", id="alone-also-when-it-grows"),
        pytest.param("0", "", 0, PACKED, "0", id="nothing-more"),
    ],
)
def test_grow(own: str, free: str, count: int, wants: Wants, expected: str) -> None:
    """The smallest part with enough CPUs, as close as can be."""
    assert format_cpuset(grow(TREE, parse_cpuset(own), parse_cpuset(free), count, wants)) == expected


def test_one_thread_of_each_core() -> None:
    """Spread over cores of one NUMA node first, then of the next."""
    spread = Wants(spread=True)

    assert format_cpuset(grow(THREADS, frozenset(), parse_cpuset("0-15"), 2, spread)) == "0,2"
    assert format_cpuset(grow(THREADS, parse_cpuset("0,2"), parse_cpuset("1,3-15"), 1, spread)) == "0-2"


@pytest.mark.parametrize(
    ("own", "free", "count", "wants", "expected"),
    [
        pytest.param("0-3", "", 2, PACKED, "0-1", id="the-last-core"),
        pytest.param("0-4", "5-15", 4, PACKED, "0-3", id="the-lonely-one"),
        pytest.param("0-3,8", "", 4, PACKED, "0-3", id="the-other-package"),
        pytest.param("0-3", "", 2, Wants(near=(parse_cpuset("2-3"),)), "2-3", id="those-that-are-not-wanted"),
        pytest.param("0-3", "", 4, PACKED, "0-3", id="nothing"),
        pytest.param("0-3", "", 0, PACKED, "", id="everything"),
    ],
)
def test_shrink(own: str, free: str, count: int, wants: Wants, expected: str) -> None:
    """Who is alone goes first."""
    assert format_cpuset(shrink(TREE, parse_cpuset(own), parse_cpuset(free), count, wants)) == expected


def test_more_than_there_is() -> None:
    """That is for the caller to say in its words."""
    with pytest.raises(NotEnough, match="3 CPUs wanted, 2 free"):
        grow(TREE, frozenset(), parse_cpuset("0-1"), 3)


def test_what_is_around() -> None:
    """Levels that a machine has not are those around them."""
    assert format_cpuset(build_tree(n4c32()).around("die", parse_cpuset("1,17"))) == "0-7,16-23"
    assert format_cpuset(TREE.around("die", parse_cpuset("1"))) == "0-7"
    assert format_cpuset(TREE.around("system", frozenset())) == "0-15"
    cached = build_tree(replace(n4c16(), l2_groups=(parse_cpuset("0-3"),)))
    assert format_cpuset(cached.around("l2cache", parse_cpuset("1"))) == "0-3"


@given(st.data())
def test_they_have_the_size_that_was_asked_for(data: st.DataObject) -> None:
    """On any machine, whatever is wanted: nothing but free CPUs come, and nothing but its own go."""
    topology = data.draw(machines())
    cpus = st.frozensets(st.sampled_from(sorted(topology.online_cpus)))
    levels = st.lists(st.sampled_from(["core", "l2cache"]), unique=True).map(tuple)
    wants = Wants(
        near=tuple(data.draw(st.lists(cpus, max_size=2))),
        away=tuple(data.draw(st.lists(cpus, max_size=2))),
        balanced=data.draw(st.booleans()),
        spread=data.draw(st.booleans()),
        alone=data.draw(levels),
    )
    own = data.draw(cpus)
    free = data.draw(cpus) - own
    tree = build_tree(topology, by_thread=wants.spread)
    count = data.draw(st.integers(0, len(free)))
    grown = grow(tree, own, free, count, wants)

    assert own <= grown <= own | free
    assert len(grown) == len(own) + count
    left = shrink(tree, grown, free - grown, len(own), wants)
    assert left <= grown
    assert len(left) == len(own)
