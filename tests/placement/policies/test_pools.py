"""Whole pods run in one pool: the one that they name, else the reserved or the default one."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset
from criproxy.model.grant import Applied
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass, Sizes
from criproxy.placement.engine import step
from criproxy.placement.events import ContainerCreating, ContainerGone, ContainerResized, PolicyChanged
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import free_of
from criproxy.placement.policies.pools import PoolsOptions, PoolsPolicy
from criproxy.placement.policies.static import StaticOptions, StaticPolicy
from tests.placement.policies.pools_files import pools_options
from tests.placement.policies.shapes import n4c16

THREE = {"name": "one", "cpu": 1, "instances": 3, "maxPods": 2}
RT: dict[str, object] = {"name": "rt", "exclusive": True}
EXCLUSIVE = RT | {"cpuLists": [{"cpuset": cpus} for cpus in ("4-5", "8-9", "6-7")]}


class Cluster:
    """A node of shape n4c16 under the policy, and pods that come and go."""

    def __init__(self, *pools: dict[str, object], **more: object) -> None:
        self.options: PoolsOptions = pools_options(*pools, **({"reserved": "cpuset:0"} | more))  # type: ignore[arg-type]
        self.policy = PoolsPolicy(self.options)
        self.node = Node(n4c16())
        self.reasons: tuple[str, ...] = ()

    def run(
        self, pod: str, name: str = "c0", pool: str = "", namespace: str = "shop", milli: int = 100, said: str = ""
    ) -> str:
        """Start a container; returns its CPUs."""
        annotations = {said or "pool.podpools.criproxy.io/pod": pool} if pool else {}
        known = Pod(key=pod, name=pod, namespace=namespace, annotations=annotations)
        new = Container(key=f"{pod}/{name}", pod=pod, name=name, pod_name=pod, namespace=namespace)
        container = replace(new, qos=QosClass.BURSTABLE, cpu_milli=milli, memory_limit_bytes=1 << 20)
        self.node = self.node.replace(pods={**self.node.pods, pod: known})
        self._step(ContainerCreating(container))
        return self.cpus(container.key)

    def cpus(self, key: str) -> str:
        """Where a container runs."""
        return format_cpuset(self.node.grants[key].cpus)

    def free(self) -> str:
        """What `status` calls free."""
        return format_cpuset(free_of(self.policy, self.node).cpus)

    def end(self, *keys: str) -> None:
        """Containers go."""
        for key in keys:
            self._step(ContainerGone(key))

    def resize(self, key: str, milli: int) -> str:
        """A container asks for another amount."""
        self._step(ContainerResized(key, Sizes(cpu_milli=milli, memory_limit_bytes=1 << 20)))
        return self.cpus(key)

    def _step(self, event: ContainerCreating | ContainerGone | ContainerResized | PolicyChanged) -> None:
        decision = step(self.node, event, self.policy)
        assert violations(decision.node, self.options.reserved(self.node.topology)) == []
        self.node, self.reasons = decision.node, decision.sentences


def test_balanced() -> None:
    """The pool with the fewest pods, the first of several; all containers of a pod in one."""
    cluster = Cluster(THREE)

    assert [cluster.run("a", name, "one") for name in ("c0", "c1", "c2")] == ["1"] * 3
    assert [cluster.run(pod, pool="one") for pod in "bcdef"] == ["2", "3", "1", "2", "3"]
    cluster.end("c/c0", "f/c0")
    assert cluster.run("g", pool="one") == "3"


def test_packed_and_first_free() -> None:
    """The fullest pool with room, or the first with room."""
    for order, after in (("Packed", "3"), ("FirstFree", "1")):
        cluster = Cluster(THREE | {"fillOrder": order})
        assert [cluster.run(pod, pool="one") for pod in "abcdef"] == ["1", "1", "2", "2", "3", "3"]
        cluster.end("a/c0", "b/c0", "f/c0")
        assert cluster.run("g", pool="one") == after


def test_full_pools() -> None:
    """Who finds no room in its pool shares the default one, and so do its other containers."""
    cluster = Cluster(THREE | {"instances": 1, "maxPods": 1})
    cluster.run("a", pool="one")

    assert cluster.run("b", "c0", "one") == "2-15"
    assert "but every pool 'one' has the 1 pods it may have" in cluster.reasons[0]
    cluster.end("a/c0")
    assert cluster.run("b", "c1", "one") == "2-15"
    assert "other containers of its pod are there" in cluster.reasons[0]
    assert cluster.run("c", pool="one") == "1"


def test_the_reserved_pool_is_not_for_everybody() -> None:
    """Only its namespaces get there, and whom annotations.allow lets."""
    cluster = Cluster(reservedPoolNamespaces=["ops-*"])

    assert cluster.run("a", pool="reserved") == "1-15"
    assert cluster.reasons[-1] == "its namespace may not use the pool 'reserved': annotations.allow does not permit it"
    assert cluster.run("b", pool="reserved", namespace="ops-1") == "0"
    assert cluster.run("c", namespace="kube-system") == "0"
    allowing = Cluster(annotations={"allow": {"shop": ["pool.podpools"]}})
    assert allowing.run("a", pool="reserved") == "0"


def test_a_resize_moves_nobody() -> None:
    """A container stays in its pool; what is too much for it is told."""
    cluster = Cluster(THREE)
    cluster.run("a", pool="one")
    cluster.run("b", pool="one")
    cluster.end("a/c0")

    assert cluster.resize("b/c0", 1500) == "2"
    assert cluster.reasons[-1] == "one[1] is overbooked: its containers ask for 1500m, and it has 1 CPU"


def test_exclusive_pools() -> None:
    """One container each, near to those of its pod; nobody else is there."""
    cluster = Cluster(EXCLUSIVE)

    assert cluster.run("a", "c0", "rt") == "4-5"
    assert cluster.node.grants["a/c0"].exclusive == {4, 5}
    assert cluster.run("a", "c1", "rt") == "6-7"
    assert cluster.run("b", "c0", "rt") == "8-9"
    assert cluster.run("c", "c0") == "1-3,10-15"
    with pytest.raises(NotEnough, match=r"asks for a pool 'rt' of its own, but none is free: rt\[0\] has"):
        cluster.run("d", pool="rt")
    assert cluster.resize("a/c1", 1900) == "6-7"
    cluster.end("a/c0")
    assert cluster.run("d", pool="rt") == "4-5"


def test_owners_from_before() -> None:
    """CPUs that somebody owns since another policy are left out of pools, and come back when it goes."""
    cluster = Cluster(THREE)
    owner = Container(key="old", pod="p", name="old", qos=QosClass.GUARANTEED, cpu_milli=2000)
    before = step(
        cluster.node, ContainerCreating(owner), StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0-1"}))
    ).node
    cluster.node = before
    assert cluster.cpus("old") == "2-3"

    assert [cluster.run(pod, pool="one") for pod in "abc"] == ["1", "4-15", "4-15"]
    cluster.end("old")
    assert [cluster.cpus(f"{pod}/c0") for pod in "abc"] == ["1", "2", "3"]


def test_owners_that_share() -> None:
    """Who owns a CPU and shares others since another policy keeps off those that somebody owns from now on."""
    cluster = Cluster(EXCLUSIVE)
    mixed = Container(key="old", pod="p", name="old", qos=QosClass.GUARANTEED, cpu_milli=2500)
    plus = StaticPolicy(StaticOptions.model_validate({"reservedCpus": "0", "sharedRemainder": True}))
    cluster.node = step(cluster.node, ContainerCreating(mixed), plus).node
    assert cluster.cpus("old") == "0-15"

    assert cluster.run("a", pool="rt") == "4-5"
    assert cluster.cpus("old") == "1-3,10-15"
    assert cluster.node.grants["old"].exclusive == {2, 3}


def test_everybody_is_placed_anew() -> None:
    """Under other pools, pods that are still where they should be stay, others go where they belong."""
    cluster = Cluster(THREE)
    for pod in "abc":
        cluster.run(pod, pool="one")
    cluster.run("d", pool="two")
    cluster.policy = PoolsPolicy(pools_options(THREE, {"name": "two", "cpu": 2}, reserved="cpuset:0"))
    cluster._step(PolicyChanged(apply_all=True))

    assert [cluster.cpus(f"{pod}/c0") for pod in "abcd"] == ["1", "2", "3", "4-5"]


@pytest.mark.parametrize(
    ("pools", "more", "pods", "free"),
    [
        pytest.param([EXCLUSIVE], {}, [], "1-15", id="nobody-is-there"),
        pytest.param([EXCLUSIVE], {}, [""], "4-9", id="whoever-names-no-pool-shares-the-default-one"),
        pytest.param([EXCLUSIVE], {}, ["", "rt"], "6-9", id="one-of-the-exclusive-pools-is-taken"),
        pytest.param([EXCLUSIVE], {}, ["", "rt", "rt", "rt"], "", id="all-of-them-are"),
        pytest.param([THREE], {}, ["", "one"], "2-3", id="pools-without-pods"),
        pytest.param([THREE | {"maxPods": -1}], {}, [""], "", id="a-pool-for-no-pod"),
        pytest.param([THREE], {"available": "cpuset:0-7"}, [""], "1-3", id="cpus-that-no-pool-has"),
        pytest.param([THREE], {"pinCPU": False}, ["one"], "", id="pools-hold-nobody"),
        pytest.param(
            [RT | {"cpuLists": [{"cpuset": "1-15"}]}], {}, [], "1-15", id="the-reserved-cpu-is-left-to-others"
        ),
        pytest.param(
            [RT | {"cpuLists": [{"cpuset": "0-15"}]}], {"reserved": None}, [""], "", id="no-cpu-would-be-left"
        ),
        pytest.param(
            [RT | {"cpuLists": [{"cpuset": "0-7"}, {"cpuset": "8-15"}]}],
            {"reserved": None},
            [""],
            "0-15",
            id="sharers-make-room-for-either-of-two-pools",
        ),
    ],
)
def test_free_cpus_are_those_that_the_next_container_can_have(
    pools: list[dict[str, object]], more: dict[str, object], pods: list[str], free: str
) -> None:
    """In a pool without containers: those of all others are in a pool that somebody has."""
    cluster = Cluster(*pools, **more)
    for number, pool in enumerate(pods):
        cluster.run(f"pod{number}", pool=pool)

    assert cluster.free() == free


def test_a_pool_of_one_container_is_free_as_a_whole_or_not_at_all() -> None:
    """A container that criproxy only watches on one of its CPUs keeps all others out; shared pools lose that CPU."""
    cluster = Cluster(EXCLUSIVE, THREE)
    stranger = Container(key="id", pod="p", name="stranger", state=ContainerState.RUNNING)
    on = Applied(frozenset({3, 4}), frozenset())
    cluster.node = cluster.node.replace(containers={"id": stranger}, applied={"id": on})

    assert cluster.node.watched_cpus == {3, 4}
    assert cluster.free() == "1-2,6-15"
