"""Sets of CPUs grow next to what they have and give up what is furthest from the rest."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.placement.alloc.locality import Wants, build_tree, grow, shrink
from lab.properties.machines import machines


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
