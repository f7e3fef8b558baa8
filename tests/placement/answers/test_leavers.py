"""Who would have to leave so that a refused container fits."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.errors import Refused
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, QosClass
from criproxy.placement.answers.leavers import LEAST, MOST, Leavers, leavers, steps_for
from criproxy.placement.engine import placing, step
from criproxy.placement.events import ContainerCreating, ContainerGone, Found, Present
from criproxy.placement.policies.api import Policy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

G, B, E = QosClass.GUARANTEED, QosClass.BURSTABLE, QosClass.BEST_EFFORT
TYPES = [{"name": "small", "maxCPUs": 2, "maxBalloons": 2, "namespaces": ["*"]}]
OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "static": {"reservedCpus": "0"},
    "topology-aware": {"reservedCpus": "0"},
    "balloons": {"reservedCpus": "0", "balloonTypes": TYPES},
}


def build(name: str, options: Mapping[str, Any] | None = None) -> Policy:
    """A policy by its name in the file."""
    return policy_of(name, OPTIONS[name] if options is None else options)


def container(name: str, milli: int, qos: QosClass = G, pod: str = "") -> Container:
    """A container in a pod of its own, unless told otherwise."""
    return Container(key=name, pod=pod or f"pod-{name}", name=name, qos=qos, cpu_milli=milli)


def filled(policy: Policy, comers: Sequence[Container], cores: int = 4) -> Node:
    """Two NUMA nodes of four CPUs, or of other sizes, with those who fit."""
    node = Node(machine(nodes=2, cores=cores, threads=1))
    for comer in comers:
        try:
            node = step(node, ContainerCreating(comer), policy).node
        except Refused:
            continue
    return node


def search(node: Node, newcomer: Container, policy: Policy, steps: int | None = None) -> Leavers:
    """The answer for a newcomer."""
    asked = placing(node, ContainerCreating(newcomer), policy)
    assert asked is not None
    return leavers(*asked, policy, steps)


def fits(node: Node, gone: Sequence[str], newcomer: Container, policy: Policy) -> bool:
    """Whether a newcomer is placed after some have left, one after the other."""
    for key in gone:
        node = step(node, ContainerGone(key), policy).node
    try:
        step(node, ContainerCreating(newcomer), policy)
    except Refused:
        return False
    return True


def test_the_shortest_list() -> None:
    """One large owner, and not two small ones."""
    policy = build("static")
    node = filled(policy, [container("a", 1000), container("b", 1000), container("c", 3000)])

    assert search(node, container("new", 5000), policy) == Leavers(("c",), shortest=True, steps=7)


@pytest.mark.parametrize(
    ("comers", "milli", "expected"),
    [
        pytest.param(
            [container("best", 2000), container("burst", 2000, B), container("more", 2000)],
            3000,
            ("burst",),
            id="class",
        ),
        pytest.param([container("large", 4000), container("small", 2000)], 3000, ("small",), id="size"),
    ],
)
def test_of_lists_alike_the_gentlest(comers: list[Container], milli: int, expected: tuple[str, ...]) -> None:
    """Those who are evicted first, then those who hold the least."""
    policy = build("static", {"reservedCpus": "0", "exclusiveFor": ["Guaranteed", "Burstable"]})

    assert search(filled(policy, comers), container("new", milli), policy).containers == expected


def test_nobody_can_leave_enough() -> None:
    """A container that is larger than the machine is told so, and so is one whose own pod is in its way."""
    policy = build("static")
    node = filled(policy, [container("a", 2000), container("sidecar", 4000, pod="pod-new")])

    assert search(node, container("new", 8000), policy) == Leavers((), shortest=True, steps=1)
    assert search(node, container("new", 4000), policy) == Leavers((), shortest=True, steps=1)
    assert search(node, container("new", 3000), policy).containers == ("a",)


def test_a_search_ends_in_time() -> None:
    """Without a list, or with one that is not known to be the shortest."""
    policy = build("static", {"reservedCpus": ""})
    node = filled(policy, [container(f"c{number}", 1000) for number in range(7)])

    none, some = (search(node, container("new", 4000), policy, steps) for steps in (5, 14))

    assert none == Leavers((), shortest=False, steps=5)
    assert len(some.containers) >= 4
    assert not some.shortest
    assert some.steps <= 14


def test_on_a_crowded_node_those_in_the_way_are_tried_first() -> None:
    """A type of balloons that is full is in nobody's way but that of its own containers, however small these are."""
    options = {"balloonTypes": [{"name": "small", "maxCPUs": 1, "maxBalloons": 1, "namespaces": ["shop"]}]}
    policy = build("balloons", options)
    crowd = [container(f"c{number}", 600, B) for number in range(100)]
    shop = [replace(container(name, 500, B), namespace="shop") for name in ("s0", "s1")]
    node = filled(policy, [*crowd, *shop], cores=64)
    found = search(node, replace(container("new", 400, B), namespace="shop"), policy)

    assert (found.containers, found.shortest) == (("shop/s0",), True)


@pytest.mark.parametrize(("containers", "steps"), [(0, MOST), (40, 1_000), (1_000, LEAST)])
def test_many_containers_take_fewer_steps(containers: int, steps: int) -> None:
    """Each takes longer there."""
    assert steps_for(containers) == steps


def test_names_are_bounded() -> None:
    """Those left out are counted."""
    found = Leavers(("a", "b", "c"), shortest=True, steps=9).first(2)

    assert (found.containers, found.omitted, found.first(1).omitted) == (("a", "b"), 1, 2)


def test_a_container_that_is_only_watched_can_be_in_the_way() -> None:
    """Nobody owns its CPUs as long as it is there."""
    policy = build("static")
    stranger = Container(key="x", pod="p", name="stranger", state=ContainerState.RUNNING)
    present = Present(stranger, Applied(frozenset({4, 5}), frozenset({0})))
    node = step(filled(policy, []), Found(containers=(present,), watch=True), policy).node

    assert search(node, container("new", 6000), policy).containers == ("stranger",)


comers = st.lists(
    st.tuples(st.sampled_from([500, 1000, 2000, 3000]), st.sampled_from([G, G, B, E]), st.integers(0, 6)), max_size=6
).map(lambda drawn: [container(f"c{n}", m, qos, f"pod-{pod}") for n, (m, qos, pod) in enumerate(drawn)])


@given(st.sampled_from(sorted(OPTIONS)), comers, st.sampled_from([1000, 2000, 4000, 5000, 7000]))
def test_no_shorter_list_would_do(name: str, crowd: list[Container], milli: int) -> None:
    """By trying all of them: those who are named suffice, and fewer never do."""
    policy, newcomer = build(name), container("new", milli)
    node = filled(policy, crowd)
    if fits(node, (), newcomer, policy):
        return
    found = search(node, newcomer, policy)
    others = tuple(sorted(node.grants))
    shorter = [gone for size in range(len(found.containers)) for gone in combinations(others, size)]

    assert found.shortest
    if found.containers:
        assert fits(node, found.containers, newcomer, policy)
    else:
        shorter = [others]
    assert not any(fits(node, gone, newcomer, policy) for gone in shorter)
