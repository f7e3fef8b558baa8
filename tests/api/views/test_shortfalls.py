"""Why a container or a pod has less than it should, in words."""

from dataclasses import replace

import pytest

from criproxy.api.views.shortfalls import sentence, undersized
from criproxy.model.cpuset import parse_cpuset
from criproxy.placement.answers.shortfalls import shortfalls
from criproxy.placement.events import PodResized, ResizeRefused, TopologyChanged
from tests.placement.rules.test_kept import build, container, exits, key_of, live, pod, runs
from tests.placement.rules.test_pod_total import resized_with_pod


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@pytest.mark.parametrize("total", [1, 3])
def test_who_shares_the_total_of_its_pod_lacks_nothing_beyond_it(name: str, total: int) -> None:
    """The total was lowered below what its containers came with: they have no size of their own."""
    policy = build(name)
    both = container("a", 4), container("b", 4)
    node = live(policy, pod("p", 4), *map(runs, both), PodResized("p-0", total * 1000))

    assert [len(node.grants[key_of(each)].exclusive) for each in both] == [total, total]
    assert shortfalls(node, policy) == []


@pytest.mark.parametrize("name", ["static", "topology-aware"])
def test_what_a_pod_keeps_for_an_ended_container_its_others_do_not_lack(name: str) -> None:
    """It comes back to them."""
    policy = build(name)
    own, first, last = container("own", 1), container("a", 4), container("b", 4)
    node = live(policy, pod("p", 4), runs(first), runs(own), runs(last), exits(first), exits(own))

    assert len(node.grants[key_of(last)].exclusive) == 3
    assert shortfalls(node, policy) == []


def test_a_refused_resize_of_a_pod_is_one_sentence() -> None:
    """Its containers have no size of their own: the pod should have another one."""
    policy, both = build("static"), (container("a", 2), container("b", 2))
    node = live(policy, pod("p", 2), *map(runs, both), PodResized("p-0", 40_000))
    refused = (ResizeRefused(key_of(each), resized_with_pod(each, 40).sizes, 0.0) for each in both)
    node = live(policy, *refused, node=node)

    assert [*undersized(node)] == ["the pod p should have 40 CPUs, but has 2 CPUs: its resize has been refused"]


def test_a_namespace_does_not_hide_the_refused_resizes_of_others() -> None:
    """Only the first sentences are shown: the newest of each namespace come first."""
    policy, names = build("static"), {"old": "shop", "a": "evil", "b": "evil", "c": "evil"}
    each = [replace(container(name, 1), namespace=namespace) for name, namespace in names.items()]
    refused = [
        ResizeRefused(key_of(one), replace(one.sizes, cpu_milli=40_000), float(at_s)) for at_s, one in enumerate(each)
    ]
    node = live(policy, pod("p"), *map(runs, each), *refused)

    said = [text.partition(" ")[0] for text in undersized(node)]
    assert said == ["evil/p/c", "shop/p/old", "evil/p/b", "evil/p/a"]


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@pytest.mark.parametrize(
    ("left", "words"),
    [
        pytest.param("0-2", "but has 2: CPUs went offline, or were taken from the pods' cgroup; ", id="some"),
        pytest.param("0,5-7", "but has shared CPUs: CPUs went offline, or it was placed without ", id="all"),
    ],
)
def test_who_lost_exclusive_cpus_to_a_smaller_machine_is_named(name: str, left: str, words: str) -> None:
    """Even if the policy would not place it on the machine as it is now: its pod still asks for them."""
    policy, one = build(name), container("a", 4)
    node = live(policy, pod("p", 4), runs(one))
    smaller = replace(node.topology, cpus=parse_cpuset(left), online_cpus=parse_cpuset(left))

    (short,) = shortfalls(live(policy, TopologyChanged(smaller), node=node), policy)

    assert f"should have 4 exclusive CPUs, {words}" in sentence(short)
