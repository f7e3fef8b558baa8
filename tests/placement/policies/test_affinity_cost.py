"""How near a container should be to hundreds of others is found quickly, and is what each of them says by itself."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from criproxy.model.node import Node
from criproxy.model.workload import Container, Pod
from criproxy.placement.alloc.affinity import affinity, expressions, globs
from criproxy.placement.alloc.affinity.affinity import Affinity, parse_affinities, weight_of
from criproxy.placement.alloc.affinity.expressions import MAX_VALUE_CHARS
from criproxy.placement.options.match_keys import attribute_of
from criproxy.placement.policies.topology_aware import nearness as near
from criproxy.simulate.hosts import machine
from tests.placement.alloc.steps import steps_of

NOTE = "zz.criproxy.io/pod"
EVERYWHERE = {"operator": "AlwaysTrue"}


def container(pod: str, name: str) -> Container:
    """A container of a pod."""
    return Container(key=f"{pod}-{name}", pod=pod, name=name, namespace="shop", pod_name=pod)


def node_of(pods: Mapping[str, Pod], names: Mapping[str, int]) -> Node:
    """A node with as many containers in each pod as *names* says."""
    those = [container(pod, f"c{number}") for pod, count in names.items() for number in range(count)]
    return Node(machine(), pods=pods, containers={each.key: each for each in those})


def affinities_of(*entries: Mapping[str, Any]) -> list[Affinity]:
    """Those of a container, as an annotation says them."""
    return parse_affinities({"c": list(entries)}, "c", anti=False)


def cost(siblings: int, others: int, affinities: list[Affinity]) -> int:
    """The steps in which the weights of all others are found, in the same pod and in pods of their own."""
    pod = Pod(key="s", uid="u", annotations={NOTE: "a" * MAX_VALUE_CHARS})
    pods = {"s": pod, **{f"s{n}": Pod(key=f"s{n}", uid=f"u{n}", annotations=pod.annotations) for n in range(others)}}
    node = node_of(pods, {"s": siblings, **{f"s{n}": 1 for n in range(others)}})
    for kept in (globs.fits, globs.glob, globs._places):
        kept.cache_clear()
    weigh = near._weighing(node, container("s", "c"), affinities)
    return steps_of(lambda: [weigh(each) for each in node.containers.values()], globs, expressions, affinity)


@pytest.mark.parametrize("scope", [{}, {"scope": EVERYWHERE}], ids=["own-pod", "everywhere"])
def test_siblings_with_the_same_values_are_compared_once(scope: Mapping[str, Any]) -> None:
    """As many steps for 60 siblings as for 3: what the affinities look at is their pod's."""
    match = {"key": f"pod/annotations/{NOTE}", "operator": "Matches", "values": ["*a?a*b*"]}
    affinities = affinities_of({"match": match, **scope}, {"match": {**match, "operator": "MatchesNot"}, **scope})
    assert cost(60, 0, affinities) == cost(3, 0, affinities)


def test_others_with_the_same_value_have_one_comparison_with_a_pattern() -> None:
    """Also where something else about them differs, so that each is looked at."""
    match = {"key": f"pod/annotations/{NOTE}", "operator": "Matches", "values": ["*a?a*b*"]}
    name = {"key": "name", "operator": "Equals", "values": ["c1"]}
    affinities = affinities_of({"match": match, "scope": EVERYWHERE}, {"match": name, "scope": EVERYWHERE})
    few, many = cost(2, 2, affinities), cost(40, 40, affinities)
    assert many <= few + 76 * 40


def test_a_key_is_read_once_for_each_other() -> None:
    """However many affinities look at it."""
    entry = {"match": {"key": ":name:pod/name:namespace", "operator": "In", "values": ["x"]}, "scope": EVERYWHERE}
    read: list[str] = []
    weight_of(affinities_of(*[entry] * 32), read.append, same_pod=False)
    assert read == ["name", "pod/name", "namespace"]


_VALUES = st.sampled_from(["", "a", "ab", "c1", "x" * (MAX_VALUE_CHARS + 1)])
_KEYS = st.sampled_from(
    ["name", "pod/name", "uid", "labels/l", "tags/t", "pod/annotations/t.criproxy.io", ":name:labels/l:tags/t"]
)
_PATTERNS = st.sampled_from(["a*", "*c?", "c1", "*"])
_MATCHES = st.one_of(
    st.builds(lambda key, op: {"key": key, "operator": op}, _KEYS, st.sampled_from(["Exists", "NotExist"])),
    st.builds(
        lambda key, op, value: {"key": key, "operator": op, "values": [value]},
        _KEYS, st.sampled_from(["Equals", "NotIn", "Matches", "MatchesNone"]), _PATTERNS,
    ),
    st.just(EVERYWHERE),
)  # fmt: skip
_ENTRIES = st.fixed_dictionaries({"match": _MATCHES, "weight": st.integers(-9, 9)}, optional={"scope": _MATCHES})
_PODS = st.tuples(
    st.sampled_from(["", "u1", "u2"]),
    st.dictionaries(st.just("l"), _VALUES),
    st.dictionaries(st.sampled_from(["t.criproxy.io", "t.criproxy.io/pod", "t.criproxy.io/container.c1"]), _VALUES),
)


@given(st.lists(_PODS, min_size=1, max_size=3), st.lists(_ENTRIES, max_size=6))
def test_each_other_has_the_weight_that_it_has_by_itself(
    drawn: list[tuple[str, dict[str, str], dict[str, str]]], entries: list[dict[str, Any]]
) -> None:
    """Whatever is remembered from those before it."""
    pods = {f"s{n}": Pod(key=f"s{n}", uid=uid, labels=labels, annotations=notes)
            for n, (uid, labels, notes) in enumerate(drawn)}  # fmt: skip
    node = node_of(pods, dict.fromkeys(pods, 3))
    affinities = affinities_of(*entries)
    weigh = near._weighing(node, container("s0", "c"), affinities)
    for other in node.containers.values():
        same_pod = other.pod == "s0" or (pods["s0"].uid != "" and pods[other.pod].uid == pods["s0"].uid)
        expected = weight_of(affinities, attribute_of(node, other), same_pod=same_pod)
        assert weigh(other) == expected
