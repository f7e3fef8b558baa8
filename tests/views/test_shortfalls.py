"""Why a container has fewer exclusive CPUs than it should, in words."""

import pytest

from criproxy.engine.events import PodResized
from criproxy.engine.shortfalls import shortfalls
from criproxy.views.shortfalls import sentence
from tests.engine.test_kept import build, container, live, pod, runs


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@pytest.mark.parametrize("total", [1, 3])
def test_who_shares_the_total_of_its_pod_is_told_so(name: str, total: int) -> None:
    """The total was lowered below what its containers ask for: neither a policy nor room is the reason."""
    policy = build(name)
    both = container("a", 4), container("b", 4)
    node = live(policy, pod("p", 4), *map(runs, both), PodResized("p-0", total * 1000))

    whole = f"but has {total}: it shares the CPUs of its pod, which asks for {total} in total"
    assert [sentence(short) for short in shortfalls(node, policy)] == [
        f"{each.title} should have 4 exclusive CPUs, {whole}" for each in both
    ]
