"""Random annotations of pods: every key that a policy reads, with values that are right and some that are not."""

from collections.abc import Mapping, Sequence

from hypothesis import strategies as st

from criproxy.engine.events import PodCreated
from criproxy.model.annotations import DOMAINS
from criproxy.model.workload import Pod
from criproxy.policy.keys import KEYS
from tests.properties.shapes import POOLS

SAMPLES: Mapping[str, Sequence[str]] = {
    "unlimited-burstable": ["system", "socket", "package", "die", "numa", "l3cache", "core"],
    "prefer-cpu-priority": ["high", "normal", "low", "none", "highest"],
    "topologyhints": ["true", "false", "none", "devices,pod-resources", "gpus"],
    "affinity": [
        "c0: [c1, c2]\nc3: [c4]",
        "c1: [{match: {key: name, operator: In, values: [c0, c2, c4]}, weight: 100}]",
        "c2: [{scope: {operator: AlwaysTrue}, match: {key: pod/qosclass, operator: Exists}, weight: 3}]",
        "c5: [",
    ],
    "anti-affinity": ["c0: [c1, c2, c3, c4]", "c4: [{match: {operator: AlwaysTrue}}]", "- c1"],
    "memory-type": ["dram", "pmem,dram", "hbm", "mixed", "tape"],
    "pool.podpools": [*POOLS, *POOLS, "reserved", "default", "none-such"],
    "cold-start": ["duration: 10s", "duration: 10 days"],
}
"""Key → values; where it says nothing, true and false are ones."""
SCOPES = ["", "/pod", "/container.c0", "/container.c1", "/container.c2", "/container.c3"]


@st.composite
def annotations(draw: st.DrawFn) -> dict[str, str]:
    """Up to six annotations, mostly right ones."""
    keys = draw(st.lists(st.sampled_from(sorted(KEYS)), max_size=6))
    found: dict[str, str] = {}
    for key in keys:
        values = SAMPLES.get(key) or ["true", "true", "true", "false", "false", "maybe"]
        name = f"{key}.{draw(st.sampled_from(DOMAINS))}{draw(st.sampled_from(SCOPES))}"
        found[name] = draw(st.sampled_from(values))
    return found


def annotated(pods: Sequence[str]) -> st.SearchStrategy[list[PodCreated]]:
    """Each of *pods*, with annotations."""
    return st.tuples(
        *(st.builds(PodCreated, st.builds(Pod, key=st.just(pod), annotations=annotations())) for pod in pods)
    ).map(list)
