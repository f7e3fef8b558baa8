"""Random balloon types, as valid as those of a policy file, for all that the policy ``balloons`` has options for."""

from typing import Any

from hypothesis import strategies as st

from criproxy.model.machine.topology import MemoryKind, Topology
from criproxy.placement.policies.balloons import BalloonsOptions

NAMES = ("fast", "slow", "wide", "reserved", "default")
LOADS = ("avx", "membw")


def _maybe(**options: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Some of these options."""
    return st.fixed_dictionaries({}, optional=options)


def _simple(topology: Topology) -> st.SearchStrategy[dict[str, Any]]:
    nodes = [f"/sys/devices/system/node/node{node.id}" for node in topology.nodes if node.cpus]
    caches = [f"/sys/devices/system/cpu/cpu{cpu}/cache/index2" for cpu in sorted(topology.online_cpus)[:2]]
    return _maybe(
        preferSpreadOnPhysicalCores=st.booleans(),
        allocatorTopologyBalancing=st.booleans(),
        preferCloseToDevices=st.lists(st.sampled_from([*nodes, *caches, "podresourceapi:*"]), max_size=2),
        preferIsolCpus=st.booleans(),
        preferCoreType=st.sampled_from(["efficient", "performance"]),
        loads=st.lists(st.sampled_from(LOADS), max_size=2, unique=True),
    )


_LOAD_CLASSES = st.tuples(
    *(
        st.fixed_dictionaries(
            {"name": st.just(name), "level": st.sampled_from(["core", "l2cache"])},
            optional={"overloadsLevelInBalloon": st.booleans()},
        )
        for name in LOADS
    )
).map(list)
_MATCHES = [
    {"key": "name", "operator": "In", "values": ["c1", "c4"]},
    {"key": "pod/labels/app", "operator": "Equals", "values": ["a"]},
    {"key": "pod/qosclass", "operator": "NotIn", "values": ["Guaranteed", "BestEffort"]},
    {"key": "namespace", "operator": "Matches", "values": ["t*m"]},
    {"key": "pod/labels/none", "operator": "NotExist"},
]


_COMMON = _maybe(
    namespaces=st.lists(st.sampled_from(["kube-*", "*", "team"]), max_size=2),
    matchExpressions=st.lists(st.sampled_from(_MATCHES), min_size=1, max_size=2),
    groupBy=st.sampled_from(["$namespace", "${pod/labels/app}", "${name}"]),
    minBalloons=st.integers(0, 2),
    maxBalloons=st.integers(0, 3),
    minCPUs=st.integers(0, 3),
    maxCPUs=st.integers(-1, 6),
    preferNewBalloons=st.booleans(),
    preferPerNamespaceBalloon=st.booleans(),
    preferSpreadingPods=st.booleans(),
    allocatorPriority=st.sampled_from(["high", "normal", "low", "none"]),
    shareIdleCPUsInSame=st.sampled_from(["system", "package", "die", "numa", "l2cache", "core", "thread"]),
    hideHyperthreads=st.booleans(),
    memoryTypes=st.lists(st.sampled_from([kind.value for kind in MemoryKind]), max_size=2, unique=True),
    pinMemory=st.booleans(),
    cpuClass=st.just("turbo"),
)
_COMPOSITE = _maybe(componentCreation=st.sampled_from(["all", "balance-balloons"]))


@st.composite
def balloon_options(draw: st.DrawFn, topology: Topology) -> dict[str, Any]:
    """Options for the types of balloons; without contradictions."""
    types: list[dict[str, Any]] = []
    for name in draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True)):
        kind: dict[str, Any] = {"name": name, **draw(_COMMON)}
        composite: bool = bool(types) and draw(st.integers(0, 1)) == 1
        if composite:
            parts = draw(st.lists(st.sampled_from([each["name"] for each in types]), min_size=1, max_size=3))
            kind |= {"components": parts, **draw(_COMPOSITE)}
        else:
            kind |= draw(_simple(topology))
        types.append(kind)
    options: dict[str, Any] = {"balloonTypes": draw(st.permutations(types)), "loadClasses": draw(_LOAD_CLASSES)}
    options["rules"] = draw(st.sampled_from(["nri", "crirm"]))
    if draw(st.integers(0, 4)) == 0:
        options["preserve"] = {"matchExpressions": [{"key": "name", "operator": "Equals", "values": ["c3"]}]}
    wrong = {misfit.path[1] for misfit in _contradictions(options) if len(misfit.path) > 1}
    while wrong:  # nothing may refer to a type that is left out either
        options["balloonTypes"] = [kind for index, kind in enumerate(options["balloonTypes"]) if index not in wrong]
        wrong = {misfit.path[1] for misfit in _contradictions(options)}
    return options


def _contradictions(options: dict[str, Any]) -> list[Any]:
    return list(BalloonsOptions.model_validate(options).contradictions())
