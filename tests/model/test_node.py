"""A node knows who owns and what is left."""

from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.attributes import granted
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import NO_CPUS, Grant, alike
from criproxy.model.node import Node, with_grants
from criproxy.model.workload import Container, Pod
from criproxy.simulate.hosts import machine


def test_shared_is_what_nobody_owns() -> None:
    """The shared CPUs are the usable ones without an owner."""
    own = parse_cpuset("2-3")
    node = Node(machine(cores=4, threads=1, allowed=parse_cpuset("0-2,3")))
    node = node.replace(grants={"a": Grant(own, frozenset({0}), own), "b": Grant(parse_cpuset("0-1"), frozenset({0}))})

    assert node.exclusive_cpus == own
    assert node.shared_cpus == parse_cpuset("0-1")


def test_replace_keeps_the_rest() -> None:
    """Only the maps that are given change, and the old node stays as it was."""
    before = Node(machine(), pods={"s": Pod(key="s")})
    after = before.replace(containers={"c": Container(key="c", pod="s", name="c")})

    assert after.pods is before.pods
    assert before.containers == {}
    assert [c.key for c in after.containers_of("s")] == ["c"]
    assert after.containers_of("other") == []


CHANGES = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from("abcdefghijkl"), st.sampled_from([None, 0, 1, 2, 3]), max_size=10),
        st.booleans(),
    ),
    max_size=12,
)


def grant(owned: int | None) -> Grant:
    """A place with one CPU of its own, or with none."""
    return Grant(frozenset({0, 1}), frozenset({0}), NO_CPUS if owned is None else frozenset({owned}))


@given(CHANGES)
def test_who_owns_cpus_is_known_after_every_change(changes: list[tuple[dict[str, int | None], bool]]) -> None:
    """Asked after each step or not, after few changes or many: it is what all grants say together."""
    node = Node(machine(nodes=1, cores=4, threads=1), grants={})
    for new, asked in changes:
        placed = with_grants(node.grants, {key: grant(owned) for key, owned in new.items()})
        node = node.replace(grants=placed)
        if asked:
            assert node.exclusive_cpus == NO_CPUS.union(*(each.exclusive for each in placed.values()))
            left = with_grants(placed, {}, [key for key, owned in new.items() if owned is None])
            node = node.replace(grants=left)
    assert node.exclusive_cpus == NO_CPUS.union(*(each.exclusive for each in node.grants.values()))


def test_equal_places_are_one_object() -> None:
    """A thousand containers that share keep one grant."""
    assert alike(grant(None)) is alike(grant(None))
    assert granted(grant(1)) is granted(grant(1))
    assert alike(grant(1)) != alike(grant(2))
