"""Options that are more than a switch or a word, by their type: what a policy file could say on a machine."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from hypothesis import strategies as st

from criproxy.model.cpuset import CpuSet, format_cpuset
from criproxy.model.machine.topology import Topology
from criproxy.placement.options.policy_options import AnnotationOptions, NamespacePattern
from criproxy.placement.options.usable import AvailableResources
from criproxy.placement.policies.pools.plan import Pool

POOLS = ("p0", "p1", "p2")
"""Names that annotations draw from, too."""


@st.composite
def pools(draw: st.DrawFn, topology: Topology) -> list[dict[str, object]]:
    """Kinds of pools: by number, by share and by lists; too many of them as often as not."""
    left = sorted(topology.cpus)
    kinds: list[dict[str, object]] = []
    for name in draw(st.lists(st.sampled_from([*POOLS, "reserved", "default"]), max_size=3, unique=True)):
        kind: dict[str, object] = {"name": name, "maxPods": draw(st.sampled_from([0, 0, 1, 2, -1]))}
        own = name in POOLS
        if draw(st.booleans()) and left:
            lists = draw(st.lists(st.sampled_from(left), min_size=1, max_size=4 if own else 1, unique=True))
            left = [cpu for cpu in left if cpu not in lists]
            kind["cpuLists"] = [{"cpuset": cpu} for cpu in lists]
        elif own or draw(st.booleans()):
            kind["cpu"] = draw(st.sampled_from([1, 2, 3, "50 %"]))
            kind |= {"instances": draw(st.sampled_from([1, 2, "4 CPUs", "50 %"]))} if own else {}
        if own:
            order = draw(st.sampled_from(["Balanced", "Packed", "FirstFree"]))
            kind |= {"exclusive": draw(st.booleans()), "fillOrder": order}
        kinds.append(kind)
    return kinds


def available(topology: Topology) -> st.SearchStrategy[dict[str, str]]:
    """Everything as often as a part."""
    parts = st.frozensets(st.sampled_from(sorted(topology.online_cpus)), min_size=1)
    some = st.tuples(st.sampled_from(["cpuset", "exclude-cpuset"]), parts).map(_written)
    return st.just(dict[str, str]()) | some


def _written(said: tuple[str, CpuSet]) -> dict[str, str]:
    return {"cpu": f"{said[0]}:{format_cpuset(said[1])}"}


@st.composite
def reserving(draw: st.DrawFn, topology: Topology) -> dict[str, object]:
    """Up to two CPUs, in the words of either option, or as an amount."""
    some = draw(st.frozensets(st.sampled_from(sorted(topology.online_cpus)), max_size=2))
    resources = {"reservedResources": {"cpu": f"cpuset:{format_cpuset(some)}"}}
    amount = {"reservedResources": {"cpu": draw(st.sampled_from(["750m", "1", "2"]))}}
    return draw(st.sampled_from([{"reservedCpus": format_cpuset(some)}, resources, amount]))


_NAMESPACES = st.lists(st.sampled_from(["kube-*", "kube-?ystem", "default", "t?am"]), max_size=2)
_ALLOWED = [
    dict[str, object](),
    {"allow": {"*": ["*"]}},
    {"allow": {"team": ["*"], "kube-*": ["prefer-reserved-cpus", "pool.podpools", "balloon.*"]}},
]

SHAPES: Mapping[Any, Callable[[Topology], st.SearchStrategy[Any]]] = {
    AnnotationOptions: lambda _: st.sampled_from(_ALLOWED),
    AvailableResources: available,
    tuple[NamespacePattern, ...]: lambda _: _NAMESPACES,
    tuple[Pool, ...]: pools,
    tuple[Literal["Guaranteed", "Burstable"], ...]: lambda _: st.sampled_from(
        [["Guaranteed"], ["Guaranteed", "Burstable"], ["Burstable"], []]
    ),
}
"""By the type of an option in its model."""


def shape_of(annotation: object) -> Callable[[Topology], st.SearchStrategy[Any]] | None:
    """How to draw an option of a type; None where its default is all that is tried."""
    return next((shape for kind, shape in SHAPES.items() if kind == annotation), None)
