"""Why a container has fewer exclusive CPUs than it should, in words."""

import pytest

from criproxy.engine.events import PodResized
from criproxy.engine.shortfalls import shortfalls
from tests.engine.test_kept import build, container, key_of, live, pod, runs


@pytest.mark.parametrize("name", ["static", "topology-aware"])
@pytest.mark.parametrize("total", [1, 3])
def test_who_shares_the_total_of_its_pod_lacks_nothing_beyond_it(name: str, total: int) -> None:
    """The total was lowered below what its containers came with: they have no size of their own."""
    policy = build(name)
    both = container("a", 4), container("b", 4)
    node = live(policy, pod("p", 4), *map(runs, both), PodResized("p-0", total * 1000))

    assert [len(node.grants[key_of(each)].exclusive) for each in both] == [total, total]
    assert shortfalls(node, policy) == []
