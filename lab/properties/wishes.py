"""Random annotations of pods: every key that a policy reads, with values that are right and some that are not."""

from collections.abc import Mapping, Sequence
from json import dumps

from hypothesis import strategies as st

from criproxy.model.text.annotations import DOMAINS
from criproxy.model.workload import Pod, QosClass
from criproxy.placement.events import PodCreated
from criproxy.placement.options.annotation_keys import KEYS
from lab.properties.balloons import NAMES
from lab.properties.shapes import POOLS

SAMPLES: Mapping[str, Sequence[str]] = {
    "unlimited-burstable": ["system", "socket", "package", "die", "numa", "l3cache", "core"],
    "prefer-cpu-priority": ["high", "normal", "low", "none"],
    "topologyhints": ["true", "false", "none", "devices,pod-resources"],
    "affinity": [
        "c0: [c1, c2]\nc3: [c4]",
        "c1: [{match: {key: name, operator: In, values: [c0, c2, c4]}, weight: 100}]",
        "c2: [{scope: {operator: AlwaysTrue}, match: {key: pod/qosclass, operator: Exists}, weight: 3}]",
    ],
    "anti-affinity": ["c0: [c1, c2, c3, c4]", "c4: [{match: {operator: AlwaysTrue}}]"],
    "memory-type": ["dram", "pmem,dram", "hbm", "mixed"],
    "pool.podpools": [*POOLS, *POOLS, "reserved", "default", "none-such"],
    "balloon.balloons": [*NAMES, *NAMES, "none-such"],
    "cold-start": ["duration: 10s"],
}
"""Key → values; where it says nothing, true and false are ones."""
WRONG = ("maybe", "- c1", "c5: [", "duration: 10 days")
"""Values that are right for hardly any key; each refuses all containers that it is about."""
SCOPES = ["", "", "/pod", "/pod", *(f"/container.c{number}" for number in range(4))]


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, str]:
    """Up to six annotations, mostly right ones."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=6))
    found: dict[str, str] = {}
    for key in keys:
        values = SAMPLES.get(key, ("true", "true", "false"))
        domain, value = draw(st.sampled_from(DOMAINS)), draw(st.sampled_from(values))
        if not draw(st.integers(0, 19)):
            value = draw(st.sampled_from(WRONG))
        if draw(st.integers(0, 5)):
            found[f"{key}.{domain}{draw(st.sampled_from(SCOPES))}"] = value
        else:  # as in the first releases of CRI-RM
            found[f"{domain}/{key}"] = draw(st.sampled_from([value, dumps({"c0": value, "c1": value})]))
    return found


def annotated(pods: Sequence[str]) -> st.SearchStrategy[list[PodCreated]]:
    """Each of *pods*, with annotations and labels."""
    return st.tuples(*(st.builds(PodCreated, _pod(pod)) for pod in pods)).map(list)


def _pod(key: str) -> st.SearchStrategy[Pod]:
    return st.builds(
        Pod,
        key=st.just(key),
        uid=st.sampled_from(["", "u0", "u1", key, key]),
        cpu_total_milli=st.sampled_from([0, 1000, 2000, 3000, 5000, 8000]),
        qos=st.sampled_from(QosClass),
        labels=st.sampled_from([{}, {"app": "a"}, {"app": "b"}]),
        annotations=annotations(),
    )
