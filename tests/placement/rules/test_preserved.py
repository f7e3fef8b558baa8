"""Containers that are left alone run on every CPU of the machine that is not exclusive, and on no other one."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from criproxy.errors import NotEnough
from criproxy.model.cpuset import CpuSet, format_cpuset, parse_cpuset
from criproxy.model.grant import Applied
from criproxy.model.machine.topology import Topology
from criproxy.model.node import Node
from criproxy.model.workload import Container, ContainerState, Pod, QosClass
from criproxy.placement import events as ev
from criproxy.placement.engine import step
from criproxy.placement.invariants import violations
from criproxy.placement.policies.api import Policy
from criproxy.placement.policies.template import TemplateOptions, TemplatePolicy
from criproxy.simulate.hosts import machine
from tests.placement.built import policy_of

MACHINE = machine(nodes=2, cores=4, threads=1)
PART = {"availableResources": {"cpu": "cpuset:0-5"}, "reservedCpus": "0"}
ALLOWED = {"annotations": {"allow": {"*": ["*"]}}}
KEPT = "kept"
KEY = "cpu.preserve.criproxy.io/pod"
AWARE = policy_of("topology-aware", {**PART, **ALLOWED})
NAMED = {"preserve": {"matchExpressions": [{"key": "name", "operator": "Equals", "values": [KEPT]}]}}
PRESERVING: Mapping[str, Policy] = {
    "topology-aware": AWARE,
    "balloons, by annotation": policy_of("balloons", {**PART, **ALLOWED}),
    "balloons, by expression": policy_of("balloons", {**PART, **NAMED}),
}
OTHERS: Mapping[str, Policy] = {
    "static": policy_of("static", PART),
    "pools": policy_of("pools", PART),
    "template": TemplatePolicy(TemplateOptions.model_validate(PART)),
}


def kept_one(milli: int = 300) -> tuple[ev.Event, ev.Event]:
    """The pod and the container that is to be left alone."""
    pod = Pod(key="s-kept", name=KEPT, namespace="team", annotations={KEY: "true"})
    return ev.PodCreated(pod), ev.ContainerCreating(
        Container(
            key=KEPT, pod="s-kept", name=KEPT, namespace="team", pod_name=KEPT, cpu_milli=milli, qos=QosClass.BURSTABLE
        )
    )


def exclusive(key: str, cpus: int) -> ev.Event:
    """A container that gets CPUs for itself."""
    return ev.ContainerCreating(
        Container(key=key, pod=f"s-{key}", name=key, namespace="team", qos=QosClass.GUARANTEED, cpu_milli=cpus * 1000)
    )


def after(policy: Policy, *events: ev.Event, node: Node | None = None) -> Node:
    """The node after *events*, each of which leaves everything in order."""
    node = Node(MACHINE) if node is None else node
    for event in events:
        node = step(node, event, policy).node
        assert violations(node) == []
    return node


def cpus_of(node: Node, key: str = KEPT) -> str:
    """The CPUs that a container has been granted."""
    return format_cpuset(node.grants[key].cpus) if key in node.grants else "unplaced"


def with_exclusive(node: Node, cpus: str) -> Node:
    """The node with a container that has *cpus* for itself, by the policy topology-aware."""
    count = len(parse_cpuset(cpus))
    made = after(AWARE, exclusive("alone", count), node=node)
    assert format_cpuset(made.grants["alone"].exclusive) == cpus
    return made


@pytest.mark.parametrize("name", PRESERVING)
def test_it_keeps_off_cpus_that_are_exclusive_already(name: str) -> None:
    """Of an earlier policy's containers, too."""
    assert cpus_of(after(PRESERVING[name], *kept_one(), node=with_exclusive(Node(MACHINE), "1-2"))) == "0,3-7"


def test_it_leaves_cpus_that_others_get_for_themselves_and_comes_back() -> None:
    """Each time with an update, which goes before those of who gains CPUs."""
    node = after(AWARE, *kept_one(), ev.ContainerCreated(KEPT, "id-kept"))
    decision = step(node, exclusive("alone", 2), AWARE)
    assert cpus_of(decision.node, "id-kept") == "0,3-7"
    assert [(update.key, format_cpuset(update.grant.cpus)) for update in decision.updates] == [("id-kept", "0,3-7")]
    decision = step(decision.node, ev.ContainerGone("alone"), AWARE)
    assert cpus_of(decision.node, "id-kept") == "0-7"
    assert [update.key for update in decision.updates] == ["id-kept"]


def test_what_it_asks_for_counts_nowhere() -> None:
    """It is beside the policy's books, as with the peers: all the others find the room that they found without it."""
    node = after(AWARE, *kept_one(milli=64_000))
    assert cpus_of(after(AWARE, exclusive("alone", 4), node=node)) == "0,5-7"


@pytest.mark.parametrize("name", OTHERS)
def test_it_follows_under_a_policy_that_does_not_know_it(name: str) -> None:
    """Who is there stays as it is after a change of the policy, and is kept off what is exclusive from then on."""
    node = after(AWARE, *kept_one())
    decision = step(node, ev.PolicyChanged(apply_all=False, configuration="other"), OTHERS[name])
    node = decision.node
    assert cpus_of(node) == "0-7"
    sharing = Container(key="x", pod="s-x", name="x", namespace="team", qos=QosClass.BURSTABLE, cpu_milli=100)
    node = after(OTHERS[name], ev.ContainerCreating(sharing), node=node)
    assert cpus_of(node) == "0-7"
    if name == "static":
        node = after(OTHERS[name], exclusive("alone", 2), node=node)
        assert cpus_of(node) == format_cpuset(MACHINE.cpus - node.grants["alone"].exclusive)
        assert cpus_of(after(OTHERS[name], ev.ContainerGone("alone"), node=node)) == "0-7"


@pytest.mark.parametrize("name", PRESERVING)
@pytest.mark.parametrize("apply_all", [True, False])
def test_a_release_and_its_end_leave_it_where_it_belongs(name: str, apply_all: bool) -> None:
    """It is let go with all others, and is off exclusive CPUs again as soon as there are any."""
    policy = PRESERVING[name]
    node = after(policy, *kept_one(), node=with_exclusive(Node(MACHINE), "1-2"))
    node = step(node, ev.Released("somebody asked for it"), policy).node
    node = step(node, ev.PolicyChanged(apply_all=apply_all, configuration="undone"), policy).node
    assert violations(node) == []
    assert cpus_of(node) == format_cpuset(node.shared_cpus)
    assert node.grants[KEPT].pool == "(preserved)"


@pytest.mark.parametrize("apply_all", [True, False])
def test_one_without_a_place_from_an_earlier_version_gets_one(apply_all: bool) -> None:
    """A database may have containers that were not placed at all."""
    node = after(AWARE, *kept_one(), exclusive("alone", 2))
    bare = node.replace(grants={"alone": node.grants["alone"]}, applied={})
    after_change = step(bare, ev.PolicyChanged(apply_all=apply_all, configuration="x"), AWARE).node
    assert cpus_of(after_change) == "0,3-7"


def found(cpus: str | None, *, ours: bool) -> ev.Found:
    """The container that is to be left alone, as it is found in the runtime."""
    (made, _) = kept_one()
    assert isinstance(made, ev.PodCreated)
    container = Container(
        key=KEPT, pod="s-kept", name=KEPT, namespace="team", state=ContainerState.RUNNING, qos=QosClass.BURSTABLE,
        cpu_milli=300, reservation="r" if ours else "",
    )  # fmt: skip
    has = None if cpus is None else Applied(parse_cpuset(cpus), MACHINE.mems)
    return ev.Found((made.pod,), (ev.Present(container, has),))


@pytest.mark.parametrize("name", PRESERVING)
@pytest.mark.parametrize("ours", [True, False], ids=["ours", "a stranger"])
@pytest.mark.parametrize("has", ["0-7", "4-5", "1", None])
def test_one_that_is_found_running_is_kept_off_exclusive_cpus(name: str, ours: bool, has: str | None) -> None:
    """Whatever it runs on, and whether or not the exclusive container is known already."""
    node = with_exclusive(Node(MACHINE), "1-2")
    assert cpus_of(after(PRESERVING[name], found(has, ours=ours), node=node)) == "0,3-7"


def test_one_on_all_cpus_keeps_no_other_from_having_its_own() -> None:
    """Whoever owned CPUs and is found beside it goes on to: it does not count as somebody on these CPUs."""
    alone = Container(
        key="alone", pod="s-alone", name="alone", namespace="team", qos=QosClass.GUARANTEED, cpu_milli=2000,
        state=ContainerState.RUNNING,
    )  # fmt: skip
    on = ev.Present(alone, Applied(parse_cpuset("2-3"), MACHINE.mems))
    both = replace(found("0-7", ours=False), containers=(*found("0-7", ours=False).containers, on))
    node = after(AWARE, both)
    assert format_cpuset(node.grants["alone"].exclusive) == "2-3"
    assert cpus_of(node) == "0-1,4-7"


def smaller(topology: Topology, cpus: CpuSet) -> Topology:
    """The machine when only *cpus* are left to pods."""
    return replace(topology, cpus=cpus)


def test_one_that_was_exclusive_gives_its_cpus_up() -> None:
    """Its pod may be found to ask for it after it came, when a namespace is allowed to."""
    made, creating = kept_one()
    assert isinstance(made, ev.PodCreated)
    assert isinstance(creating, ev.ContainerCreating)
    owner = replace(creating.container, qos=QosClass.GUARANTEED, cpu_milli=2000)
    strict = policy_of("topology-aware", PART)
    node = after(strict, made, ev.ContainerCreating(owner))
    assert format_cpuset(node.exclusive_cpus) == "1-2"
    node = after(AWARE, ev.PolicyChanged(apply_all=True, configuration="allowed"), node=node)
    assert (cpus_of(node), node.exclusive_cpus) == ("0-7", frozenset())


def test_where_every_cpu_is_exclusive_it_is_refused() -> None:
    """As any container that shares."""
    node = Node(smaller(MACHINE, parse_cpuset("0-1")))
    aware = policy_of("topology-aware", ALLOWED)
    node = after(aware, exclusive("alone", 1), node=node)
    node = node.replace(topology=smaller(MACHINE, node.exclusive_cpus))
    made, creating = kept_one()
    with pytest.raises(NotEnough, match="container team/kept/kept shares CPUs, but each CPU that may be used"):
        step(step(node, made, aware).node, creating, aware)


def test_an_unplaced_container_on_exclusive_cpus_is_a_violation() -> None:
    """Whatever has led to it: status --check cannot say that all is well."""
    node = after(AWARE, *kept_one(), exclusive("alone", 2))
    bare = node.replace(
        grants={"alone": node.grants["alone"]},
        applied={KEPT: Applied(MACHINE.cpus, MACHINE.mems)},
        containers={
            **node.containers, KEPT: replace(node.containers[KEPT], reservation="r", state=ContainerState.RUNNING)
        },
    )  # fmt: skip
    text = "team/kept/kept is not placed and may run on CPUs 1-2, exclusive to another container"
    assert violations(bare) == [text]
    assert violations(bare.replace(applied={})) == [text]
