"""What becomes of everybody when a size, the policy or the machine changes."""

from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import format_cpuset, parse_cpuset
from criproxy.model.grant import Grant
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, QosClass, Sizes
from criproxy.placement import events as ev
from criproxy.placement.decision import Decision
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.options.policy_options import Options
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.none import NonePolicy
from criproxy.simulate.hosts import GIB, machine
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1)  # node 0: 0-3


def static(reserved: str = "0") -> Policy:
    """The static policy."""
    return policy_of("static", {"reservedCpus": reserved})


def asking(key: str, cpus: float, qos: QosClass = QosClass.GUARANTEED, memory_bytes: int = GIB) -> Container:
    """A container; with a whole number of *cpus* it owns them."""
    return Container(key=f"r-{key}", pod="s", name=key, qos=qos).resized(sizes(cpus, memory_bytes))


def sizes(cpus: float, memory_bytes: int = GIB) -> Sizes:
    """What such a container asks for."""
    return Sizes(cpu_milli=int(cpus * 1000), memory_limit_bytes=memory_bytes)


def running(*containers: Container, topology: Topology = MACHINE, policy: Policy | None = None) -> Node:
    """A node on which these run, under their names."""
    node = Node(topology)
    for container in containers:
        for event in (
            ev.ContainerCreating(container),
            ev.ContainerCreated(container.key, container.name),
            ev.ContainerStarted(container.name),
        ):
            node = step(node, event, policy or static()).node
    return node


def cpus(node: Node) -> dict[str, str]:
    """Everybody's CPUs, those of owners in brackets."""
    return {
        key: f"[{format_cpuset(grant.cpus)}]" if grant.exclusive == grant.cpus else format_cpuset(grant.cpus)
        for key, grant in node.grants.items()
    }


def resize(node: Node, key: str, count: float, memory_bytes: int = GIB) -> Decision:
    """The decision about another size."""
    return step(node, ev.ContainerResized(key, sizes(count, memory_bytes)), static())


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(3, {"a": "[1-3]", "b": "[4-5]", "c": "0,6-7"}, id="grows"),
        pytest.param(4, {"a": "[1-3,6]", "b": "[4-5]", "c": "0,7"}, id="grows-beyond-its-numa-node"),
        pytest.param(1, {"a": "[1]", "b": "[4-5]", "c": "0,2-3,6-7"}, id="shrinks"),
        pytest.param(2.5, {"a": "0-3,6-7", "b": "[4-5]", "c": "0-3,6-7"}, id="becomes-a-sharer"),
    ],
)
def test_an_owner_is_resized_in_place(count: float, expected: dict[str, str]) -> None:
    """It keeps of its CPUs what fits, and those that share take or give the difference."""
    node = running(asking("a", 2), asking("b", 2), asking("c", 0.5, QosClass.BURSTABLE))
    assert cpus(node) == {"a": "[1-2]", "b": "[4-5]", "c": "0,3,6-7"}

    decision = resize(node, "a", count)

    assert cpus(decision.node) == expected
    assert violations(decision.node, frozenset({0})) == []
    assert decision.node.containers["a"].cpu_milli == count * 1000
    assert {update.key for update in decision.updates} == {"a", "c"}
    assert decision.sentences
    assert decision.key == "a"


def test_a_resize_that_does_not_fit_changes_nothing() -> None:
    """The sentence counts its own CPUs among those that it could have."""
    node = running(asking("a", 2), asking("b", 3))

    match = r"a asks for 5 exclusive CPUs, but only 4 are available; .*, including its own"
    with pytest.raises(NotEnough, match=match):
        resize(node, "a", 5)
    assert cpus(resize(node, "a", 4).node)["a"] == "[1-3,7]"


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(ev.ContainerResized("nobody", Sizes(cpu_milli=5)), id="unknown"),
        pytest.param(ev.ContainerResized("a", sizes(2)), id="the-same-size"),
    ],
)
def test_nothing_to_resize(event: ev.Event) -> None:
    """What is not known or has that size already stays as it is."""
    node = running(asking("a", 2))

    assert step(node, event, static()).node is node


def test_who_is_left_alone_only_has_another_size() -> None:
    """Under the policy none a resize is remembered and nothing else."""
    none = NonePolicy(Options())
    node = step(Node(MACHINE), ev.ContainerCreating(asking("a", 2)), none).node

    decision = step(node, ev.ContainerResized("r-a", Sizes(cpu_milli=3000)), none)

    assert decision.node.containers["r-a"].cpu_milli == 3000
    assert decision.updates == ()
    assert decision.grant is None


def test_memory_in_use_is_not_moved_by_a_resize() -> None:
    """Nodes are added where the new CPUs are, and all are taken where limits would not fit; only those go again."""
    topology = machine(nodes=3, cores=2, threads=1, memory_bytes=10 * GIB)
    node = running(asking("a", 1), topology=topology)
    assert node.grants["a"].mems == {0}

    wider = resize(node, "a", 2).node
    cpus = parse_cpuset("1-2")
    assert wider.grants["a"] == Grant(cpus, parse_cpuset("0-1"), cpus, home_mems=parse_cpuset("0"))
    assert resize(wider, "a", 1).node.grants["a"].mems == {0}
    assert resize(node, "a", 1, 10 * GIB).node.grants["a"].mems == topology.mems
    assert (
        resize(running(asking("a", 1, memory_bytes=11 * GIB), topology=topology), "a", 1).node.grants["a"].mems
        == topology.mems
    )


def test_a_new_policy_for_all() -> None:
    """Owners leave CPUs that are reserved now and keep the rest, and the memory of nobody is touched."""
    node = running(asking("a", 2), asking("b", 2), asking("c", 0.5))

    decision = step(node, ev.PolicyChanged(apply_all=True), static("0,2,4-5"))

    assert cpus(decision.node) == {"a": "[1,3]", "b": "[6-7]", "c": "0,2,4-5"}
    assert {key: grant.mems for key, grant in decision.node.grants.items()} == {
        key: grant.mems for key, grant in node.grants.items()
    }
    assert [update.key for update in decision.updates] == ["a", "b", "c"]
    assert decision.sentences[0] == "the policy has changed: 3 of 3 containers move"
    assert any(text.startswith("b gets exclusive CPUs 6-7") for text in decision.sentences)


def without(topology: Topology, gone: str) -> Topology:
    """The machine with these CPUs offline."""
    lost = parse_cpuset(gone)
    return replace(
        topology,
        cpus=topology.cpus - lost,
        online_cpus=topology.online_cpus - lost,
        offline_cpus=lost,
        nodes=tuple(replace(node, cpus=node.cpus - lost) for node in topology.nodes),
        cores=tuple(replace(core, cpus=core.cpus - lost) for core in topology.cores if core.cpus - lost),
        packages=tuple(replace(package, cpus=package.cpus - lost) for package in topology.packages),
    )


@pytest.mark.parametrize(
    ("gone", "expected"),
    [
        pytest.param("7", {"a": "[1-2]", "b": "[4-5]", "c": "0,3,6"}, id="a-shared-cpu"),
        pytest.param("2", {"a": "[1,3]", "b": "[4-5]", "c": "0,6-7"}, id="an-owned-cpu-has-a-substitute"),
        pytest.param("1-2", {"a": "[6-7]", "b": "[4-5]", "c": "0,3"}, id="all-that-it-owned"),
        pytest.param("1,3,6-7", {"a": "[2]", "b": "[4-5]", "c": "0"}, id="no-substitute"),
        pytest.param("0,3,6-7", {"a": "[1-2]", "b": "4-5", "c": "4-5"}, id="nothing-shared-is-left"),
        pytest.param("1-5", {"a": "[6-7]", "b": "0", "c": "0"}, id="both-owners-lose-everything"),
        pytest.param("1-7", {"a": "0", "b": "0", "c": "0"}, id="one-cpu-is-left"),
    ],
)
def test_cpus_go_offline(gone: str, expected: dict[str, str]) -> None:
    """They leave every grant, and nobody is without a CPU."""
    node = running(asking("a", 2), asking("b", 2), asking("c", 0.5))

    decision = step(node, ev.TopologyChanged(without(MACHINE, gone)), static())

    assert cpus(decision.node) == expected
    assert violations(decision.node, frozenset({0})) == []
    lost = f"CPU {gone} is" if gone.isdigit() else f"CPUs {gone} are"
    assert decision.sentences[0].startswith(f"the machine has changed: {lost} no longer available to pods: ")


def test_the_same_machine_changes_nothing() -> None:
    """An event without news is none."""
    node = running(asking("a", 2))

    assert step(node, ev.TopologyChanged(machine(nodes=2, cores=4, threads=1)), static()).node is node


def test_grants_from_before_a_restart_on_a_smaller_machine() -> None:
    """The store knows no machine: what it remembers is fitted to the one that is there."""
    node = running(asking("a", 2), asking("c", 0.5)).replace(topology=without(MACHINE, "2,5-7"))
    assert violations(node)

    after = step(node, ev.TopologyChanged(node.topology), static()).node

    assert cpus(after) == {"a": "[1,3]", "c": "0,4"}


def test_a_machine_that_cannot_be_read_changes_nothing() -> None:
    """Without any CPU nobody could run: more likely somebody looked in the wrong place."""
    node = running(asking("a", 2))

    decision = step(node, ev.TopologyChanged(replace(MACHINE, cpus=frozenset())), static())

    assert decision.node is node
    assert "cannot be read" in decision.sentences[0]


def test_memory_that_is_no_more_leaves_the_grants() -> None:
    """Who was on it gets all that there is, and never movable-only nodes alone."""
    node = running(asking("a", 2), asking("b", 2), asking("c", 0.5))
    assert [grant.mems for grant in node.grants.values()] == [{0}, {1}, {0, 1}]
    movable = replace(MACHINE, nodes=(MACHINE.nodes[0], replace(MACHINE.nodes[1], normal_memory=False)))

    lost = step(node, ev.TopologyChanged(replace(MACHINE, mems=frozenset({1}))), static()).node
    only = step(node, ev.TopologyChanged(movable), static()).node

    assert [grant.mems for grant in lost.grants.values()] == [{1}, {1}, {1}]
    assert [grant.mems for grant in only.grants.values()] == [{0}, {0, 1}, {0, 1}]


FOUR = machine(nodes=1, cores=4, threads=1)


def test_the_last_cpu_that_the_policy_uses_is_shared() -> None:
    """Its owner gives it up when the other one goes offline, though CPUs are left that others use."""
    policy = policy_of("static", {"availableResources": {"cpu": "cpuset:0-1"}})
    node = running(asking("owner", 1), asking("sharer", 0.5), topology=FOUR, policy=policy)
    assert cpus(node) == {"owner": "[0]", "sharer": "1"}

    after = step(node, ev.TopologyChanged(replace(FOUR, cpus=parse_cpuset("0,2-3"))), policy).node

    assert cpus(after) == {"owner": "0", "sharer": "0"}
    assert violations(after) == []
