"""Whole CPUs go to Guaranteed containers that ask for them, everybody else shares the rest."""

import pytest

from criproxy.errors import NotEnough, StatusCode
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass
from criproxy.policy.options import Options
from criproxy.policy.static import StaticPolicy, exclusive_count
from criproxy.sim.machines import GIB, machine

MACHINE = machine(nodes=2, cores=4, threads=2)  # node 0: 0-3,8-11
BOTH = frozenset({0, 1})


def policy(reserved: str = "0") -> StaticPolicy:
    """The policy with reserved CPUs."""
    return StaticPolicy(Options.model_validate({"reservedCpus": reserved}))


def container(key: str, cpu_milli: int, qos: QosClass = QosClass.GUARANTEED) -> Container:
    """A container with a memory limit of 1 GiB."""
    return Container(
        key=key,
        pod="s",
        name=key,
        pod_name="web",
        namespace="shop",
        qos=qos,
        cpu_milli=cpu_milli,
        memory_limit_bytes=GIB,
    )


def place(node: Node, newcomer: Container, by: StaticPolicy) -> Node:
    """The node with the newcomer placed."""
    known = node.replace(containers={**node.containers, newcomer.key: newcomer})
    return known.replace(grants=by.place(known, newcomer).grants)


@pytest.mark.parametrize(
    ("cpu_milli", "qos", "count"),
    [
        pytest.param(2000, QosClass.GUARANTEED, 2, id="guaranteed-whole"),
        pytest.param(2500, QosClass.GUARANTEED, 0, id="guaranteed-fraction"),
        pytest.param(500, QosClass.GUARANTEED, 0, id="guaranteed-less-than-one"),
        pytest.param(0, QosClass.GUARANTEED, 0, id="guaranteed-nothing"),
        pytest.param(2000, QosClass.BURSTABLE, 0, id="burstable-whole"),
        pytest.param(0, QosClass.BEST_EFFORT, 0, id="best-effort"),
    ],
)
def test_who_owns(cpu_milli: int, qos: QosClass, count: int) -> None:
    """Only whole numbers of CPUs in Guaranteed pods are owned."""
    assert exclusive_count(container("c", cpu_milli, qos)) == count


def test_own_cpus_and_near_memory() -> None:
    """An owner gets whole cores of one NUMA node and that node's memory; sharers keep off and keep all memory."""
    by = policy()
    node = place(Node(MACHINE), container("shared", 250, QosClass.BURSTABLE), by)
    node = place(node, container("own", 4000), by)

    own = parse_cpuset("1-2,9-10")
    assert node.grants["own"] == Grant(own, frozenset({0}), own)
    assert node.grants["shared"] == Grant(MACHINE.cpus - own, BOTH)


def test_release_gives_back() -> None:
    """What an owner had goes to those that share."""
    by = policy()
    node = place(place(Node(MACHINE), container("shared", 0), by), container("own", 4000), by)

    assert by.release(node, "own").grants == {"shared": Grant(MACHINE.cpus, BOTH)}


def test_unchanged_grants_are_the_same_objects() -> None:
    """A newcomer that shares touches nobody."""
    by = policy()
    node = place(Node(MACHINE), container("a", 0), by)
    after = place(node, container("b", 0), by)

    assert after.grants["a"] is node.grants["a"]


def test_reasons_say_what_was_asked_and_given() -> None:
    """The reasons name the container, its CPUs, the rule and the memory."""
    node = Node(MACHINE)

    own = policy().place(node, container("c", 2000)).reasons
    fraction = policy().place(node, container("c", 2500)).reasons
    burstable = policy().place(node, container("c", 2000, QosClass.BURSTABLE)).reasons

    assert own == (
        "shop/web/c owns CPUs 1,9: its pod is Guaranteed and it asks for 2",
        "memory from NUMA node 0, near its CPUs",
    )
    assert fraction == ("shop/web/c shares CPUs 0-15: it asks for 2500m, which is no whole number of CPUs",)
    assert burstable == ("shop/web/c shares CPUs 0-15: its pod is Burstable",)


@pytest.mark.parametrize(
    ("reserved", "asked", "expected"),
    [
        pytest.param("0", 16, "15 are available: free are 1-3,8-11 on NUMA node 0, 4-7,12-15 on NUMA node 1", id="all"),
        pytest.param(
            "", 16, "15 are available: free are 0-3,8-11 on NUMA node 0, 4-7,12-15 on NUMA node 1 (one", id="last"
        ),
        pytest.param("0-15", 1, "0 are available: free are none on any NUMA node", id="everything-reserved"),
    ],
)
def test_refusal_says_what_is_free_and_where(reserved: str, asked: int, expected: str) -> None:
    """Who does not fit is told what it asked and what is free, in one sentence."""
    with pytest.raises(NotEnough) as caught:
        place(Node(MACHINE), container("c", asked * 1000), policy(reserved))

    assert str(caught.value).startswith(f"container shop/web/c asks for {asked} exclusive CPUs, but {expected}")
    assert caught.value.code is StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize("reserved", ["", "0", "77"])
def test_the_shared_pool_keeps_one_cpu(reserved: str) -> None:
    """As many CPUs as can be are owned, and one is always left."""
    node = place(Node(MACHINE), container("c", 15_000), policy(reserved))

    assert len(node.shared_cpus) == 1


def test_reserved_cpus_that_are_owned_already() -> None:
    """After reserved CPUs changed, the pool still keeps one CPU."""
    node = place(Node(machine(cores=4, threads=1)), container("old", 1000), policy("3"))
    assert format_cpuset(node.exclusive_cpus) == "0"

    with pytest.raises(NotEnough, match="2 are available"):
        place(node, container("new", 3000), policy("0"))
