"""A node knows who owns and what is left."""

from criproxy.model.attributes import granted
from criproxy.model.cpuset import parse_cpuset
from criproxy.model.grant import Grant, alike
from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.simulate.hosts import machine


def test_shared_is_what_nobody_owns() -> None:
    """The shared CPUs are the usable ones without an owner."""
    own = parse_cpuset("2-3")
    node = Node(machine(cores=4, threads=1, allowed=parse_cpuset("0-2,3")))
    node = node.replace(grants={"a": Grant(own, frozenset({0}), own), "b": Grant(parse_cpuset("0-1"), frozenset({0}))})

    assert (node.exclusive_cpus, node.shared_cpus) == (own, parse_cpuset("0-1"))


def test_replace_keeps_the_rest() -> None:
    """Only the maps that are given change, and the old node stays as it was."""
    before = Node(machine(), pods={"s": Pod(key="s")})
    after = before.replace(containers={"c": Container(key="c", pod="s", name="c")})

    assert after.pods is before.pods
    assert (before.containers, [c.key for c in after.containers_of("s")]) == ({}, ["c"])
    assert after.containers_of("other") == []


def test_equal_places_are_one_object() -> None:
    """A thousand containers that share keep one grant."""
    one, same, other = (Grant(frozenset({0, 1}), frozenset({0}), frozenset({cpu})) for cpu in (1, 1, 0))
    assert one is not same
    assert alike(one) is alike(same)
    assert granted(one) is granted(same)
    assert alike(one) != alike(other)
