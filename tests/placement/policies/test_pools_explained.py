"""What `criproxy explain` shows of the pools that were compared for a container."""

import pytest

from criproxy.model.workload import Container, QosClass
from tests.placement.policies.tables import shown, text
from tests.placement.policies.test_pools import EXCLUSIVE, THREE, Cluster

FULL = "room for another pod: it has 2, as many as maxPods allows"


def newcomer(pod: str = "new") -> Container:
    """A container of a pod."""
    return Container(key="new", pod=pod, name="new", namespace="shop", qos=QosClass.BURSTABLE, cpu_milli=100)


def naming(pool: str) -> dict[str, str]:
    """Annotations of a pod that names its pool."""
    return {"pool.podpools.criproxy.io/pod": pool}


@pytest.mark.parametrize(
    ("order", "pods", "newcomer", "expected"),
    [
        pytest.param("Balanced", 4, newcomer(), f"*one[1], one[2], one[0] -{FULL}", id="one-is-full"),
        pytest.param("Balanced", 2, newcomer(), "*one[2], one[0], one[1]; it has fewer pods", id="balanced"),
        pytest.param("Packed", 1, newcomer(), "*one[0], one[1], one[2]; it has more pods", id="packed"),
        pytest.param("FirstFree", 1, newcomer(), "*one[0], one[1], one[2]", id="alike"),
        pytest.param(
            "Balanced",
            3,
            newcomer("p1"),
            "*one[1], one[0], one[2]; other containers of its pod are there",
            id="its-pod",
        ),
        pytest.param(
            "Balanced", 6, newcomer(), f"*default, one[0] -{FULL}, one[1] -{FULL}, one[2] -{FULL}", id="all-full"
        ),
    ],
)
def test_pools_that_pods_share(order: str, pods: int, newcomer: Container, expected: str) -> None:
    """In the order in which they are filled; the default pool where all are full."""
    cluster = Cluster({**THREE, "fillOrder": order})
    for number in range(pods):
        cluster.policy = Cluster({**THREE, "fillOrder": "Balanced"}).policy
        cluster.run(f"p{number}", pool="one")
    policy = Cluster({**THREE, "fillOrder": order}).policy

    assert text(shown(cluster.node, newcomer, policy, naming("one"))) == expected


def test_others_of_the_pod_are_elsewhere() -> None:
    """One that named no pool when it came keeps the others of its pod in the default pool, and that decides."""
    cluster = Cluster(THREE)
    cluster.run("web")
    cluster.node = cluster.node.replace(pods={})
    candidates = shown(cluster.node, newcomer("web"), cluster.policy, naming("one"))

    assert text(candidates) == "*default, one[0], one[1], one[2]; other containers of its pod are there"


def test_the_kind_is_told() -> None:
    """Why the pools of one kind are compared and no others."""
    cluster = Cluster(THREE)
    candidates = [shown(cluster.node, newcomer(), cluster.policy, naming(name)) for name in ("one", "none-such")]

    assert [each.note for each in candidates if each] == ["its pod names that pool", "there is no pool 'none-such'"]


def test_pools_for_one_container() -> None:
    """Those next to its pod first; others' are lacking, and if all are the container is refused."""
    cluster = Cluster(EXCLUSIVE)
    cluster.run("rt0", pool="rt")

    alone, beside = (shown(cluster.node, newcomer(pod), cluster.policy, naming("rt")) for pod in ("new", "rt0"))
    assert text(alone) == "*rt[1], rt[2], rt[0] -CPUs 4-5"
    assert text(beside) == "*rt[2], rt[1], rt[0] -CPUs 4-5; it is next to its pod"

    cluster.run("rt1", pool="rt")
    cluster.run("rt2", pool="rt")
    full = shown(cluster.node, newcomer(), cluster.policy, naming("rt"))
    assert text(full) == "rt[0] -CPUs 4-5, rt[1] -CPUs 8-9, rt[2] -CPUs 6-7"
